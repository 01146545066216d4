"""What the warden does with a control group, given as its folders; like all of the warden without slow imports."""

from __future__ import annotations

import time
from pathlib import Path

EMPTY_WITHIN_S = 10.0


def enrol(group: list[str], pid: int) -> None:
    """Move process *pid*, and so its later children, into the control *group*."""
    for folder in group:
        Path(folder, "cgroup.procs").write_text(str(pid), encoding="ascii")


def killed_for_memory(group: list[str]) -> bool:
    """Return whether the kernel has killed a process of the *group* for the group's limit."""
    for folder in group:
        for name in ("memory.events", "memory.oom_control"):  # of version 2 and of version 1
            if Path(folder, name).exists():
                counters = dict(line.split() for line in Path(folder, name).read_text(encoding="ascii").splitlines())
                return counters.get("oom_kill", "0") != "0"
    return False


def remove(group: list[str]) -> None:
    """Remove the *group*, none there is fine; its processes are ending, and the kernel needs a moment after the last."""
    give_up = time.monotonic() + EMPTY_WITHIN_S
    for folder in group:
        while Path(folder).exists() and time.monotonic() < give_up:
            try:
                Path(folder).rmdir()
            except OSError:
                time.sleep(0.005)
