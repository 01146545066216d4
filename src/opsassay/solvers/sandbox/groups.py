"""The cgroup of a sandbox: made by the runner, removed by the supervisor, or by a later run if both were killed."""

from __future__ import annotations

import functools
import itertools
import os
from contextlib import suppress
from pathlib import Path

from opsassay.testbed.kernel.cgroups import MEMORY, Groups, find_groups

NAME = "opsassay-seal-"

_numbers = itertools.count()


@functools.cache
def groups_for_seals() -> Groups | None:
    """Return where cgroups for sandboxes can be made, None where they cannot; found once per process."""
    return find_groups()


def memory_is_held() -> bool:
    """Return whether a cgroup can limit the memory of all processes of a sandbox together."""
    groups = groups_for_seals()
    return groups is not None and MEMORY in groups.versions


def make_group(cpu_cores: float | None, memory_bytes: int) -> list[str]:
    """Make a cgroup with these limits and remove those of dead runners; return its folders, [] if none can be made."""
    groups = groups_for_seals()
    if groups is None:
        return []
    for parent in set(groups.parents.values()):
        for left in parent.glob(f"{NAME}*"):
            pid, _, rest = left.name.removeprefix(NAME).partition("-")
            if _start_ticks(pid) != rest.partition("-")[0]:
                with suppress(OSError):  # another runner was faster, or its processes are ending
                    left.rmdir()
    group = groups.make(f"{NAME}{os.getpid()}-{_start_ticks(os.getpid())}-{next(_numbers)}", cpu_cores, memory_bytes)
    return [str(folder) for folder in groups.folders(group.path)]


def _start_ticks(pid: int | str) -> str | None:
    """Return the start time of process *pid* in clock ticks since boot, None when it does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()[19]
