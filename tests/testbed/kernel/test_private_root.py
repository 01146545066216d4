"""Servers are somebody other than root for every root: one with mounts, with user namespaces alone, or with neither."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="not root: servers run as whoever starts them")

SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"

GIVE = """
import sys
from pathlib import Path
from opsassay.core.errors import StartError
from opsassay.testbed.kernel.private_root import give
try:
    give(Path(sys.argv[1]))
except StartError as error:
    sys.exit(str(error))
print(Path(sys.argv[1]).owner())
"""

WITHOUT_NAMESPACES = """
import os, sys
from pathlib import Path
from opsassay.testbed.kernel.namespaces import CLONE_NEWUSER, _call_unshare
_call_unshare(CLONE_NEWUSER)
print(flush=True)
input()
Path("/proc/sys/user/max_user_namespaces").write_text("0")
os.execvp("setpriv", ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", *sys.argv[1:]])
"""
"""Runs its arguments as a root who may neither mount nor make a user namespace, with all users of the machine."""

STORE = """
import asyncio, signal, sys
from pathlib import Path
from opsassay.core.schema.system import Store
from opsassay.testbed.core.networks import Site
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.kernel.private_root import confinement
from opsassay.testbed.workload.stores import start_store

async def started():
    state = SystemState.for_system("one")
    (state.dir / "logs").mkdir(parents=True)
    server = await start_store(state, "db", Store(engine=sys.argv[1]), Site("127.0.0.1", "127.0.0.1"))
    program = Path(f"/proc/{server.process.pid}/cmdline").read_bytes().split(b"\\0")[0].decode()
    print(confinement(), program, sep=",")
    server.process.send_signal(signal.SIGINT)
    await server.process.wait()

asyncio.run(started())
"""


def given_by_a_root_without_namespaces(folder):
    words = [sys.executable, "-c", WITHOUT_NAMESPACES, sys.executable, "-c", GIVE, str(folder)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "\n"
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{name}").write_text("0 0 65536")
        out, err = process.communicate("\n", timeout=60)
    return process.returncode, out.strip(), err.strip()


def test_a_folder_that_nobody_can_enter_is_refused_to_a_root_without_mounts():
    with tempfile.TemporaryDirectory(prefix="opsassay-given-") as folder:  # pytest's own lie where nobody may enter
        data = Path(folder) / "data"
        data.mkdir()
        assert given_by_a_root_without_namespaces(data) == (1, "", (
            f"Root may mount nothing here, so its database servers run as nobody, who cannot use {folder}; run as a user "
            "other than root, or in a container with CAP_SYS_ADMIN."
        ))  # fmt: skip
        Path(folder).chmod(0o711)
        assert given_by_a_root_without_namespaces(data) == (0, "nobody", "")


@pytest.mark.sampled
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("words", "how", "engine"),
    [
        ([], "private root", "postgresql"),
        ([], "private root", "valkey"),
        ([], "private root", "nats"),
        (["unshare", "--user", "--map-root-user"], "user namespace", "postgresql"),  # as systems of other users have it
        (["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"], "user namespace", "postgresql"),
    ],
    ids=["root", "root-valkey", "root-nats", "in a user namespace", "without mounts"],
)
def test_the_servers_of_the_packages_run_for_every_root(words, how, engine):
    """Where none is on the PATH: a wheel has libraries of its own, which the loader has to find in a private root too."""
    if any(
        shutil.which(server, path=SYSTEM_PATH)
        for server in ("postgres", "valkey-server", "redis-server", "nats-server")
    ):
        pytest.skip(f"the machine has a server of its own in {SYSTEM_PATH}")
    with tempfile.TemporaryDirectory(prefix="opsassay-") as folder:  # pytest's own is too long for sockets
        places = {"PATH": SYSTEM_PATH, "OPSASSAY_STATE": folder, "XDG_CACHE_HOME": folder}
        done = subprocess.run(
            [*words, sys.executable, "-c", STORE, engine],
            env={**os.environ, **places}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    confined, program = done.stdout.strip().split(",")
    assert confined == how
    assert Path(program).is_relative_to(sys.prefix)
