"""A demo that is killed or interrupted in any stage: no process, group, lock or half recording is left."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from live import state_folder, strays

pytestmark = [pytest.mark.alone, pytest.mark.timeout(200)]

STAGES = ("starting shop", "warm-up", "normal window", "abnormal window", "recovery", "sealing", "stopping shop")
OFTEN = ("starting shop", "abnormal window")
WITHIN_S = 60.0
PROGRAM = """
import signal, sys
from opsassay.__main__ import main
from opsassay.testbed.recording import record
record._objection = lambda *_: ""  # every stage is reached on a busy machine too
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
sys.exit(main())
"""


def stages(often, rest):
    """Return the stages as parameters, of which only those in *often* are tried in CI."""
    return [pytest.param(stage, marks=often if stage in OFTEN else rest) for stage in STAGES]


def groups():
    return {str(path) for path in Path("/sys/fs/cgroup").rglob("*opsassay*")}


def ended(stage, number, folder, output):
    """Start a demo, send it the signal *number* in *stage*; return its exit status and what it said from then on."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "demo", "--normal", "6", "--abnormal", "6", "-o", str(output)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert any(stage in line for line in process.stderr)
    time.sleep(0.3)
    process.send_signal(number)
    said = process.stderr.read() if number != signal.SIGKILL else ""
    status = process.wait()
    process.stderr.close()
    deadline = time.monotonic() + WITHIN_S
    while strays(folder) and time.monotonic() < deadline:
        time.sleep(0.2)
    return status, said


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
@pytest.mark.parametrize("stage", stages(pytest.mark.live, pytest.mark.long))
def test_a_demo_that_is_ended_leaves_nothing(stage, number, tmp_path):
    before = groups()
    with state_folder() as folder:
        status, said = ended(stage, number, folder, tmp_path / "demo")
        assert strays(folder) == []
        assert list(folder.glob("systems/*")) == []
    assert status == {signal.SIGKILL: -9, signal.SIGINT: 130}[number]
    assert "Traceback" not in said
    assert groups() <= before
    assert list((tmp_path / "demo").glob(".*")) == []
