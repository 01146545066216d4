"""A compose project with a real engine, in a network namespace of its own: checked, broken, killed; nothing stays."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from live import state_folder

HERE = Path(__file__).parent / "compose_project"
NEEDED = ("podman", "runc", "buildah", "iptables", "nsenter", "unshare")
CONTAINERS = """
[containers]
log_driver = "k8s-file"
default_ulimits = ["nofile=4096:4096", "nproc=32768:32768"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
"""
IMAGE = "localhost/compose-project:1"

pytestmark = [
    pytest.mark.live,
    pytest.mark.alone,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        os.geteuid() != 0 or any(shutil.which(program) is None for program in NEEDED),
        reason=f"needs root and {', '.join(NEEDED)} (apt-get install podman runc buildah netavark aardvark-dns iptables)",
    ),
]


class Machine:
    """A network namespace with an engine of its own; commands run in it, in the folder of the project."""

    def __init__(self, folder: Path, state: Path) -> None:
        self.project = folder / "my-shop"
        shutil.copytree(HERE, self.project)
        (self.project / "data").mkdir()
        (folder / "containers.conf").write_text(CONTAINERS)
        storage = f'[storage]\ndriver = "overlay"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/graph"\n'
        (folder / "storage.conf").write_text(storage)
        self.variables = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "OPSASSAY_STATE": str(state),
            "IMAGE": IMAGE,
            "PACKAGES": next(path for path in sys.path if path.endswith("site-packages")),
        }
        words = ["unshare", "--net", "sh", "-c", "ip link set lo up; exec sleep 3600"]
        self.holder = subprocess.Popen(words)
        time.sleep(0.5)

    def run(self, *words: str, code: int | None = 0) -> str:
        entered = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *words]
        done = subprocess.run(
            entered, capture_output=True, text=True, timeout=200, check=False, cwd=self.project, env=self.variables
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def opsassay(self, *words: str, code: int | None = 0) -> str:
        return self.run(sys.executable, "-m", "opsassay", *words, code=code)

    def left(self) -> list[str]:
        """Return the containers, volumes and networks of the engine, but for the network that it always has."""
        found = [self.run("podman", *what).split() for what in (("ps", "-aq"), ("volume", "ls", "-q"))]
        return [*found[0], *found[1], *(set(self.run("podman", "network", "ls", "-q").split()) - {"podman"})]


def libraries(programs: list[Path]) -> set[Path]:
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    words = (line.split() for line in listed.splitlines() if line.startswith("\t"))
    found = (line[2] if "=>" in line else line[0] for line in words)
    return {Path(os.path.normpath(name)) for name in found if name.startswith("/")}


def make_image(machine: Machine, folder: Path) -> None:
    """Make an image of this machine's Python: no registry is asked."""
    root, prefix = folder / "rootfs", Path(sys.base_prefix)
    python, standard = Path(os.path.realpath(sys.executable)), prefix / "lib" / f"python3.{sys.version_info.minor}"
    ignored = shutil.ignore_patterns("test", "tests", "site-packages", "__pycache__", "idlelib", "ensurepip", "*.a")
    shutil.copytree(standard, root / standard.relative_to("/"), ignore=ignored)
    for file in {python, *libraries([python, *standard.glob("lib-dynload/*.so")])}:
        (target := root / file.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    for name in ("bin", "tmp", "etc"):
        (root / name).mkdir(exist_ok=True)
    (root / "bin" / "python3").symlink_to(python)
    container = machine.run("buildah", "from", "scratch").strip()
    machine.run("buildah", "copy", "-q", container, str(root), "/")
    machine.run("buildah", "commit", "-q", container, IMAGE)
    machine.run("buildah", "rm", container)


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine")
    with state_folder() as state:
        machine = Machine(folder, state)
        try:
            make_image(machine, folder)
            yield machine
        finally:
            machine.opsassay("system", "down", "mine", code=None)  # a test that failed left it
            machine.run("podman", "rm", "--all", "--force", "--time", "1", code=None)
            machine.holder.send_signal(signal.SIGTERM)
            machine.holder.wait()
            subprocess.run(["umount", folder / "graph" / "overlay"], capture_output=True, check=False)
            for group in Path("/sys/fs/cgroup").glob("*/libpod_parent"):
                with contextlib.suppress(OSError):  # another engine's containers are in it
                    group.rmdir()


def test_a_project_is_checked_and_the_users_own_is_as_it_was(machine):
    before = (machine.project / "compose.yaml").read_text()
    found = json.loads(machine.opsassay("system", "check", "compose.yaml", "--seconds", "10", "--rate", "8", "--json"))
    services = {one["service"]: one for one in found["items"]}
    assert not found["findings"]
    assert services["stock"]["callers"] == ["orders"]
    assert services["front"]["callers"] == ["loadgenerator"]
    assert {"PodKill", "NetworkDelay", "CPUStress", "MemoryStress"} <= set(services["stock"]["faults"])
    assert not {"DNSError", "HTTPResponseAbort"} & set(services["stock"]["faults"])
    assert (machine.project / "compose.yaml").read_text() == before
    assert not list((machine.project / "data").iterdir())  # containers wrote to a copy
    assert machine.left() == []


def test_it_is_broken_and_recovers_and_a_killed_supervisor_leaves_nothing(machine, tmp_path):
    machine.opsassay("system", "up", "compose.yaml", "--name", "mine", "--rate", "8")
    for fault, parameters in {"NetworkPartition": {}, "PodFailure": {}}.items():
        plan = {"fault": fault, "target": {"service": "stock"}, "parameters": parameters, "duration_s": 10}
        (tmp_path / "fault.yaml").write_text(yaml.safe_dump(plan))
        told = machine.opsassay("system", "inject", str(tmp_path / "fault.yaml"), "--on", "mine", "--json")
        events = json.loads(told)["items"]
        (effect,) = (one for one in events if one["event"] == "effect")
        assert effect["passed"], events
        assert events[-1]["event"] == "done"
    (status,) = json.loads(machine.opsassay("system", "status", "--json"))["items"]
    psutil.Process(status["pid"]).kill()
    deadline = time.monotonic() + 60
    while machine.left() and time.monotonic() < deadline:
        time.sleep(1)
    assert machine.left() == []  # its guard took the project down, before any other command
    (cleared,) = json.loads(machine.opsassay("system", "status", "--json"))["items"]
    assert cleared["phase"] == "cleared"
