"""Operations of the supervisor on a cgroup, given as its folders, without slow imports."""

from __future__ import annotations

import time
from pathlib import Path

EMPTY_WITHIN_S = 10.0


def enrol(group: list[str], pid: int) -> None:
    """Move process *pid* into the cgroup with the folders *group*; its later children start there."""
    for folder in group:
        Path(folder, "cgroup.procs").write_text(str(pid), encoding="ascii")


def killed_for_memory(group: list[str]) -> bool:
    """Return whether the kernel killed a process of the cgroup *group* for its memory limit."""
    for folder in group:
        for name in ("memory.events", "memory.oom_control"):  # of version 2 and of version 1
            if Path(folder, name).exists():
                counters = dict(line.split() for line in Path(folder, name).read_text(encoding="ascii").splitlines())
                return counters.get("oom_kill", "0") != "0"
    return False


def remove(group: list[str]) -> None:
    """Remove the cgroup folders *group*, retrying for `EMPTY_WITHIN_S` seconds while processes end; [] does nothing."""
    give_up = time.monotonic() + EMPTY_WITHIN_S
    for folder in group:
        while Path(folder).exists() and time.monotonic() < give_up:
            try:
                Path(folder).rmdir()
            except OSError:
                time.sleep(0.005)
