"""Control groups: limits that bite on the real kernel, and where groups are looked for on other machines."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from opsassay.testbed.kernel import cgroups
from opsassay.testbed.kernel.cgroups import Groups, Mount, find_groups, memberships, mounts, remove_below, search
from opsassay.testbed.kernel.runqueue import Waits

ROOT = f"opsassay-kernel-test-{os.getpid()}"
BURN = "while True: pass"


@pytest.fixture
def groups():
    found, reasons = search()
    if found is None or set(found.versions) < {"cpu", "memory"}:
        pytest.skip(f"no control groups: {reasons}")
    yield found
    for folder in found.folders(ROOT):
        remove_below(folder)


def child(program: str) -> subprocess.Popen[bytes]:
    """Start a child that waits for a byte before it runs *program*."""
    command = [sys.executable, "-c", f"import sys; sys.stdin.buffer.read(1)\n{program}"]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


@pytest.mark.slow
def test_a_system_is_no_single_thread_against_those_outside_of_it(groups):
    """Right repairs failed on busy machines because their whole system was."""
    group, core = groups.make(f"{ROOT}/host/replica"), min(os.sched_getaffinity(0))
    burns = f"import os; os.setsid(); os.sched_setaffinity(0, [{core}])\n{BURN}"  # a session has a share of its own
    inside, *_ = started = [child(burns) for _ in range(4)]
    try:
        group.add(inside.pid)
        for one in started:
            one.stdin.write(b"x")
            one.stdin.close()
        time.sleep(0.5)
        before = [psutil.Process(one.pid).cpu_times().user for one in started]
        time.sleep(3.0)
        after = [psutil.Process(one.pid).cpu_times().user for one in started]
        used = [late - early for late, early in zip(after, before, strict=True)]
        assert used[0] > sum(used[1:]), used
    finally:
        for one in started:
            one.kill()
            one.wait()


@pytest.mark.slow
def test_a_cpu_limit_bites_and_can_be_changed(groups):
    group, waits = groups.make(f"{ROOT}/host/replica", cpu_cores=0.2), Waits()
    burner = child(BURN)
    try:
        group.add(burner.pid)
        burner.stdin.write(b"x")
        burner.stdin.close()
        time.sleep(0.3)

        def cores(seconds: float) -> float:
            began, before = time.monotonic(), group.usage().cpu_s
            time.sleep(seconds)
            return (group.usage().cpu_s - before) / (time.monotonic() - began)

        def until(holds) -> bool:  # on a busy machine the burner has to wait for its turn
            return any(holds() or time.sleep(0.2) for _ in range(100))

        assert cores(1.0) < 0.25
        assert until(lambda: group.usage().throttled_s > 0.2)
        assert burner.pid in group.threads()
        assert until(lambda: waits.add(group.threads()) > 0.5)  # who is held back waits too
        group.set_limits(cpu_cores=0.05)
        time.sleep(0.3)
        assert cores(1.0) < 0.1
        group.set_limits()
        assert until(lambda: cores(1.0) > 0.25)
    finally:
        burner.kill()
        burner.wait()
    group.remove()
    assert not any(folder.exists() for folder in groups.folders(f"{ROOT}/host/replica"))


def test_a_memory_limit_kills(groups):
    group = groups.make(f"{ROOT}/host/replica", memory_bytes=64 << 20)
    eater = child("x = b'a' * (200 << 20)")
    group.add(eater.pid)
    eater.communicate(b"x")
    assert eater.returncode == -9
    if groups.versions["memory"] == 1:  # else a kernel that does not account swap lets a group go on there
        assert (groups.parents["memory"] / group.path / "memory.swappiness").read_text() == "0\n"
    group.set_limits(memory_bytes=512 << 20)
    eater = child("x = b'a' * (200 << 20)")
    group.add(eater.pid)
    eater.communicate(b"x")
    assert eater.returncode == 0
    group.remove()


def test_a_host_limits_its_replicas_together(groups):
    host = groups.make(f"{ROOT}/host", cpu_cores=0.2)
    burners = []
    try:
        for name in ("one", "two"):
            burners.append(child(BURN))
            groups.make(f"{ROOT}/host/{name}").add(burners[-1].pid)
            burners[-1].stdin.write(b"x")
            burners[-1].stdin.close()
        time.sleep(0.3)
        began, before = time.monotonic(), host.usage().cpu_s
        time.sleep(1.0)
        assert 0.1 < (host.usage().cpu_s - before) / (time.monotonic() - began) < 0.25
    finally:
        for folder in groups.folders(
            ROOT
        ):  # what the next command does after a kill -9, from folders written down before
            remove_below(folder)
            remove_below(folder)
        for burner in burners:
            assert burner.wait(timeout=5) == -9


def test_a_group_with_processes_in_it_is_not_removed_silently(groups, monkeypatch):
    monkeypatch.setattr(cgroups, "REMOVE_WITHIN_S", 0.05)
    group = groups.make(f"{ROOT}/host/replica")
    waiting = child("")
    group.add(waiting.pid)
    with pytest.raises(OSError, match="busy"):
        group.remove()
    waiting.communicate(b"x")
    group.remove()


def test_a_user_without_rights_is_told_why(tmp_path):
    groups, reasons = search()
    if groups is None:
        assert all("run as root" in reason or "cgroup" in reason for reason in reasons.values())
    else:
        assert find_groups() == groups


def test_where_groups_are_mounted():
    hybrid = mounts(
        "30 29 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "31 29 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "32 29 0:28 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n"
    )
    assert hybrid == {
        "cpu": Mount("/", Path("/sys/fs/cgroup/cpu,cpuacct")),
        "cpuacct": Mount("/", Path("/sys/fs/cgroup/cpu,cpuacct")),
        "memory": Mount("/", Path("/sys/fs/cgroup/memory")),
        "": Mount("/", Path("/sys/fs/cgroup/unified")),
    }
    unified = mounts("24 23 0:22 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n")
    assert unified == {"": Mount("/", Path("/sys/fs/cgroup"))}


def test_which_groups_a_process_is_in():
    assert memberships("4:memory:/api/x\n1:cpu,cpuacct:/\n0::/user.slice/s.scope\n") == {
        "memory": "/api/x", "cpu": "/", "cpuacct": "/", "": "/user.slice/s.scope"
    }  # fmt: skip


class TestVersionTwo:
    """The files that version 2 is told by, in a folder that stands for a mounted hierarchy (this machine has none)."""

    @pytest.fixture
    def unified(self, tmp_path):
        for folder in (tmp_path, tmp_path / ROOT, tmp_path / ROOT / "r"):
            folder.mkdir(exist_ok=True)
            (folder / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
            (folder / "cgroup.subtree_control").write_text("cpu\n")
        return tmp_path

    def test_limits_are_written_and_usage_is_read(self, unified):
        groups = Groups({"cpu": unified, "memory": unified}, {"cpu": 2, "memory": 2})
        group = groups.make(f"{ROOT}/r", cpu_cores=0.5, memory_bytes=1 << 20)
        folder = unified / ROOT / "r"
        assert (folder / "cpu.max").read_text() == "50000 100000"
        assert (folder / "memory.max").read_text() == str(1 << 20)
        assert (unified / "cgroup.subtree_control").read_text() == "+memory"  # cpu is on already
        assert groups.folders(f"{ROOT}/r") == (folder,)
        group.set_limits()
        assert (folder / "cpu.max").read_text() == "max 100000"
        assert (folder / "memory.max").read_text() == "max"
        (folder / "cpu.stat").write_text("usage_usec 1500000\nnr_throttled 3\nthrottled_usec 250000\n")
        (folder / "memory.current").write_text("4096\n")
        assert group.usage() == (1.5, 4096, 0.25)
