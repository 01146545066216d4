"""Where root may not mount, as in an ordinary container, its servers are nobody: who cannot use a folder is refused it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

GIVE = """
import sys
from pathlib import Path
from opsassay.errors import StartError
from opsassay.testbed.kernel.private_root import give
try:
    give(Path(sys.argv[1]))
except StartError as error:
    sys.exit(str(error))
print(Path(sys.argv[1]).owner())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: servers run as whoever starts them")
def test_a_folder_that_nobody_can_enter_is_refused_to_a_root_without_mounts():
    with tempfile.TemporaryDirectory(prefix="opsassay-given-") as folder:  # pytest's own lie where nobody may enter
        data = Path(folder) / "data"
        data.mkdir()
        without = [
            "setpriv",
            "--bounding-set=-sys_admin",
            "--inh-caps=-sys_admin",
            sys.executable,
            "-c",
            GIVE,
            str(data),
        ]
        refused = subprocess.run(without, capture_output=True, text=True, check=False)
        assert refused.returncode == 1
        assert refused.stderr.strip() == (
            f"Root may mount nothing here, so its database servers run as nobody, who cannot use {folder}; run as a user "
            "other than root, or in a container with CAP_SYS_ADMIN."
        )
        Path(folder).chmod(0o711)
        taken = subprocess.run(without, capture_output=True, text=True, check=False)
        assert taken.stdout.strip() == "nobody", taken.stderr
