"""A machine for compose projects: namespaces with an engine of its own, and an image that no registry was asked for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from live import skip_if_starved, state_folder

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

WITHOUT = os.geteuid() != 0 or any(shutil.which(program) is None for program in NEEDED)
REASON = f"needs root and {', '.join(NEEDED)} (apt-get install podman runc buildah netavark aardvark-dns iptables)"


class Machine:
    """Namespaces with an engine of its own; commands run in them, in the folder of the project.

    Engines share the records of names and addresses in /run/containers: what another has left would be resolved here.
    """

    engine, own_names = "podman", ("orders", "orders.dns.podman")
    keeping = "mkdir -p /run/containers && mount -t tmpfs none /run/containers && ip link set lo up && exec sleep 3600"

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
        self.holder = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c", self.keeping])
        time.sleep(0.5)

    def entered(self, folder: Path, *words: str) -> list[str]:
        """Return the command that runs *words* in *folder* as the machine sees it."""
        stepping = ["sh", "-c", 'cd "$0" && exec "$@"', str(folder)]
        return ["nsenter", f"--target={self.holder.pid}", "--net", "--mount", *stepping, *words]

    def run(self, *words: str, code: int | None = 0, limit_s: float = 200) -> str:
        entered = self.entered(self.project, *words)
        done = subprocess.run(entered, capture_output=True, text=True, timeout=limit_s, check=False, env=self.variables)
        if (said := done.stdout + done.stderr) and done.returncode != code:
            skip_if_starved(said)
        assert code is None or done.returncode == code, said
        return done.stdout

    def opsassay(self, *words: str, code: int | None = 0, limit_s: float = 200) -> str:
        return self.run(sys.executable, "-m", "opsassay", *words, code=code, limit_s=limit_s)

    def left(self) -> list[str]:
        """Return the containers, volumes and networks of the engine, but for the network that it always has."""
        found = [self.run("podman", *what).split() for what in (("ps", "-aq"), ("volume", "ls", "-q"))]
        return [*found[0], *found[1], *(set(self.run("podman", "network", "ls", "-q").split()) - {"podman"})]


def libraries(programs: list[Path]) -> set[Path]:
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    words = (line.split() for line in listed.splitlines() if line.startswith("\t"))
    found = (line[2] if "=>" in line else line[0] for line in words)
    return {Path(os.path.normpath(name)) for name in found if name.startswith("/")}


def copy_python(root: Path) -> None:
    """Copy this machine's Python into *root*, with the libraries that it needs."""
    prefix = Path(sys.base_prefix)
    python, standard = Path(os.path.realpath(sys.executable)), prefix / "lib" / f"python3.{sys.version_info.minor}"
    ignored = shutil.ignore_patterns("test", "tests", "site-packages", "__pycache__", "idlelib", "ensurepip", "*.a")
    shutil.copytree(standard, root / standard.relative_to("/"), ignore=ignored)
    for file in {python, *libraries([python, *standard.glob("lib-dynload/*.so")])}:
        (target := root / file.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    for name in ("bin", "tmp", "etc"):
        (root / name).mkdir(exist_ok=True)
    (root / "bin" / "python3").symlink_to(python)


def make_image(machine: Machine, folder: Path) -> None:
    """Make an image of this machine's Python: no registry is asked."""
    copy_python(root := folder / "rootfs")
    container = machine.run("buildah", "from", "scratch").strip()
    machine.run("buildah", "copy", "-q", container, str(root), "/")
    machine.run("buildah", "commit", "-q", container, IMAGE)
    machine.run("buildah", "rm", container)


@contextlib.contextmanager
def machine_in(folder: Path) -> Iterator[Machine]:
    """Give a machine with the image, in *folder*; nothing of it is left."""
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


def wait_for(condition, limit_s):
    deadline = time.monotonic() + limit_s
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(1)
    return met


def containers_of(machine: Machine) -> dict[str, Any]:
    """Return of each container of the user's project all that attaching may not change, by its name."""
    ids = machine.run("podman", "ps", "--all", "--quiet", "--no-trunc").split()
    found = {}
    for one in json.loads(machine.run("podman", "inspect", *ids)):
        kept = {key: one[key] for key in ("Id", "Image", "Config", "HostConfig", "Mounts")}
        kept["networks"] = sorted(one["NetworkSettings"]["Networks"])
        kept["running"] = one["State"]["Running"]
        if one["State"]["Running"]:
            script = "import sys; from opsassay.testbed.substrates.local.put_back import _limit_files as files\n"
            script += "print(sorted((path.name, path.read_text()) for path in files(int(sys.argv[1]))))"
            pid = str(one["State"]["Pid"])
            kept["limits"] = machine.run(sys.executable, "-c", script, pid)
            kept["rules"] = machine.run("nsenter", f"--net=/proc/{pid}/ns/net", "tc", "qdisc", "show", code=None)
            kept["states"] = {one.status() == psutil.STATUS_STOPPED for one in [psutil.Process(int(pid))]}
        found[one["Name"]] = kept
    return found
