"""Systems that a warm process forked: marked and removed as any other, and no longer there than who owns them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from live import state_folder, strays
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.state import MARKER, SystemState, leftovers, marked_processes
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from opsassay.testbed.substrates.local.warm import WARM, warm_process

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]
OWNER = """
import sys, time
from opsassay.testbed.apps import load_system
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from opsassay.testbed.substrates.local.warm import warm_process
with warm_process():
    LocalSubstrate().deploy(load_system("tests/testbed/tiny.yaml"), "warm", owned=True, isolation="plain")
    print("ready", flush=True)
    time.sleep(300)
"""


@pytest.fixture(autouse=True)
def state():
    with state_folder() as folder:
        yield folder


def warm():
    """Return the warm processes that this process started."""
    return [one for one in psutil.Process().children() if any(word.endswith("local.warm") for word in one.cmdline())]


def deployed(name):
    """Return a small system that ends with this process."""
    return LocalSubstrate().deploy(load_system("tests/testbed/tiny.yaml"), name, owned=True, isolation="plain")


def test_a_forked_system_is_marked_is_removed_and_shares_its_memory():
    with warm_process():
        (parent,) = warm()
        running = deployed("warm")
        supervisor = psutil.Process(running.status().pid)
        assert supervisor.ppid() == parent.pid
        assert os.getsid(supervisor.pid) == supervisor.pid
        (running.state.dir / "processes.jsonl").unlink()  # the mark alone tells whose they are
        marked = {one.pid for one in marked_processes(running.state)}
        assert {supervisor.pid, *running.status().pids.values()} <= marked
        assert parent.pid not in marked
        LocalSubstrate().remove("warm")
        assert leftovers(running.state, ()) == []
        assert not supervisor.is_running()
        with warm_process():
            assert warm() == [parent]
    assert warm() == []
    assert WARM not in os.environ


def test_two_systems_of_one_warm_process_have_their_own_marks_and_environments(monkeypatch):
    with warm_process():
        monkeypatch.setenv("OPSASSAY_LOG", "error")
        first, second = deployed("one"), deployed("two")
        for running in (first, second):
            environment = psutil.Process(running.status().pid).environ()
            assert environment[MARKER] == str(running.state.dir)
        assert not (first.state.dir / "supervisor.log").read_text(), "its environment is that of who deployed it"
        LocalSubstrate().remove("one")
        assert second.status().phase == "ready"
        LocalSubstrate().remove("two")


def test_without_its_warm_process_a_system_starts_as_ever():
    with warm_process():
        (parent,) = warm()
        parent.kill()
        parent.wait()
        running = deployed("cold")
        assert psutil.Process(running.status().pid).ppid() == os.getpid()
        LocalSubstrate().remove("cold")


def test_the_killed_supervisor_of_a_forked_system_leaves_nothing_and_its_folder_can_be_used_again():
    with warm_process():
        running = deployed("warm")
        pids = [running.status().pid, *running.status().pids.values()]
        os.kill(pids[0], signal.SIGKILL)
        psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=20)
        (row,) = LocalSubstrate().status()
        assert row.phase == "cleared"
        assert not any(psutil.pid_exists(pid) for pid in pids)
        deployed("warm")
        LocalSubstrate().remove("warm")


def test_who_is_killed_takes_its_warm_process_and_its_system_along(state):
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout.readline() == "ready\n"
        began = psutil.Process(owner.pid).children(recursive=True)
        owner.kill()
    assert len(began) > 5
    assert not psutil.wait_procs(began, timeout=30)[1]
    LocalSubstrate().status()
    assert not SystemState.for_system("warm").dir.exists()
    assert strays(state) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_given_no_process():
    ask = (
        "import os, socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0' + os.environ['OPSASSAY_WARM']);"
        "socket.send_fds(s, [b'-'], [0, 1]); s.sendall(b'{}'); s.shutdown(1); print(s.recv(32))"
    )
    with warm_process():
        (parent,) = warm()
        said = subprocess.run(["python3", "-c", ask], user=65534, capture_output=True, text=True, check=False, cwd="/")
        assert said.stdout == "b''\n" or any(word in said.stderr for word in ("ConnectionReset", "BrokenPipe"))
        assert parent.children() == []
        with socket.socket(socket.AF_UNIX) as ours:
            ours.connect(f"\0{os.environ[WARM]}")
            ours.close()  # a child whose order never comes ends
        deployed("warm")
        LocalSubstrate().remove("warm")
