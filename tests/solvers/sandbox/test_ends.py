"""Nothing of a seal stays behind, whoever is killed, and what stayed behind goes with the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opsassay.solvers.sandbox.groups import NAME, groups_for_seals
from solvers.sandbox.world import left_running

SRC = Path(__file__).parents[3] / "src"
RUNNER = """
import signal, sys; sys.path.insert(0, {src!r})
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell hands on one that is ignored
from pathlib import Path
from opsassay.solvers.sandbox import Sandbox, SandboxLimits, python_path
print('ready', flush=True)
program = "import os, time; os.fork(); print(1, flush=True); time.sleep(600) # {token}"
Sandbox(Path({view!r}), Path({work!r}), {{}}, {{}}, SandboxLimits(), {{}}).run([python_path(), '-I', '-S', '-c', program])
"""


@pytest.mark.parametrize("victim", ["runner", "warden", "runner interrupted"])
def test_a_killed_runner_or_warden_leaves_nothing(sealed, tmp_path, victim):
    token = f"kill-{victim.replace(' ', '-')}-{os.getpid()}"
    names = {"src": str(SRC), "token": token, "view": str(tmp_path / "view"), "work": str(tmp_path / "work")}
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER.format(**names)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end_and_look_for_what_is_left(runner, victim, token)
    finally:
        runner.kill()
        runner.wait()


def end_and_look_for_what_is_left(runner, victim, token):
    sleeping = f"{token}\0"
    give_up = time.monotonic() + 60
    while not inside_of(runner.pid) and time.monotonic() < give_up:
        time.sleep(0.02)
    (warden,) = children_of(runner.pid)
    assert inside_of(runner.pid), "the command is running"
    if victim == "runner interrupted":
        runner.send_signal(signal.SIGINT)
    else:
        os.kill(runner.pid if victim == "runner" else warden, signal.SIGKILL)
    runner.wait(30)
    assert runner.returncode != 0
    assert left_running(sleeping, within_s=10) == []
    assert gone(warden, within_s=30)
    groups = groups_for_seals()
    for parent in set(groups.parents.values()) if groups else ():
        give_up = time.monotonic() + 10
        while list(parent.glob(f"{NAME}{runner.pid}-*")) and time.monotonic() < give_up:
            time.sleep(0.02)
        assert list(parent.glob(f"{NAME}{runner.pid}-*")) == []
    assert " - tmpfs seal " not in Path("/proc/self/mountinfo").read_text()


def gone(pid, within_s):
    """Return whether process *pid* has ended in time; where process 1 reaps none, an orphan stays a zombie."""
    give_up = time.monotonic() + within_s
    while time.monotonic() < give_up:
        try:
            if ") Z " in Path(f"/proc/{pid}/stat").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def inside_of(runner):
    """Return the pids of the command below *runner*: runner, warden, opener, init, command."""
    found = [runner]
    try:
        for _ in range(4):
            found = [child for pid in found for child in children_of(pid)]
        return [pid for pid in found if "sleep" in Path(f"/proc/{pid}/cmdline").read_text()]
    except OSError:
        return []


def test_a_group_that_the_dead_left_is_removed_by_the_next_seal(sealed):
    groups = groups_for_seals()
    if groups is None:
        pytest.skip("no control groups can be made here")
    left = [parent / f"{NAME}999999999-1-0" for parent in set(groups.parents.values())]
    for folder in left:
        folder.mkdir()
    sealed("")
    assert [folder for folder in left if folder.exists()] == []
