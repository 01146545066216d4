"""The compose project with Docker's own engine, in namespaces of its own: checked, broken, killed; nothing stays."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from live import state_folder
from testbed.substrates.local import test_compose_live as with_podman
from testbed.substrates.local.compose_machine import IMAGE, Machine, copy_python, wait_for

NEEDED = ("dockerd", "containerd", "runc", "docker", "iptables", "nsenter", "unshare")

pytestmark = [
    pytest.mark.live,
    pytest.mark.alone,
    pytest.mark.drawn,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        os.geteuid() != 0 or any(shutil.which(program) is None for program in NEEDED),
        reason=f"needs root and {', '.join(NEEDED)} (apt-get install docker.io iptables)",
    ),
]


class DockerMachine(Machine):
    """Namespaces in which dockerd runs, whose rules for packets would otherwise be those of this machine."""

    engine, own_names = "docker", ("orders",)

    def __init__(self, folder: Path, state: Path) -> None:
        self.socket = folder / "docker.sock"
        places = f"--data-root {folder}/data --exec-root {folder}/exec --pidfile {folder}/pid -H unix://{self.socket}"
        self.keeping = f"ip link set lo up && exec dockerd {places} >{folder}/dockerd.log 2>&1"
        super().__init__(folder, state)
        self.variables["DOCKER_HOST"] = f"unix://{self.socket}"
        assert wait_for(self.answers, 60), (folder / "dockerd.log").read_text()

    def answers(self) -> bool:
        return subprocess.run(["docker", "info"], capture_output=True, check=False, env=self.variables).returncode == 0

    def left(self) -> list[str]:
        """Return the containers, volumes and networks of the engine, but for the networks that it always has."""
        found = [self.run("docker", *what).split() for what in (("ps", "-aq"), ("volume", "ls", "-q"))]
        networks = set(self.run("docker", "network", "ls", "--format", "{{.Name}}").split())
        return [*found[0], *found[1], *(networks - {"bridge", "host", "none"})]


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docker")
    with state_folder() as state:
        machine = DockerMachine(folder, state)
        try:
            copy_python(root := folder / "rootfs")
            packed = shutil.make_archive(str(folder / "rootfs"), "tar", root)
            machine.run("docker", "import", packed, IMAGE)
            yield machine
        finally:
            machine.opsassay("system", "down", "mine", code=None)  # a test that failed left it
            for container in machine.run("docker", "ps", "-aq", code=None).split():
                machine.run("docker", "rm", "-f", container, code=None)
            machine.holder.send_signal(signal.SIGTERM)
            machine.holder.wait(60)
            for left in (*Path("/sys/fs/cgroup").glob("*/docker"), Path("/run/docker/plugins"), Path("/run/docker")):
                with contextlib.suppress(OSError):  # another engine's things are in it
                    left.rmdir()


def test_a_project_is_checked_and_the_users_own_is_as_it_was(machine):
    with_podman.test_a_project_is_checked_and_the_users_own_is_as_it_was(machine)


def test_it_is_broken_and_recovers_and_a_killed_supervisor_leaves_nothing(machine, tmp_path):
    with_podman.test_it_is_broken_and_recovers_and_a_killed_supervisor_leaves_nothing(machine, tmp_path)


def test_look_ups_of_a_container_go_wrong_for_one_name_and_come_right(machine, tmp_path):
    with_podman.test_look_ups_of_a_container_go_wrong_for_one_name_and_come_right(machine, tmp_path)
