"""The control group of a seal: made by the runner, removed by the warden, or by a later seal if both were killed."""

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
    """Return where control groups can be made, looked up once for a process."""
    return find_groups()


def memory_is_held() -> bool:
    """Return whether a control group can limit the memory of a sandbox's processes together."""
    groups = groups_for_seals()
    return groups is not None and MEMORY in groups.versions


def make_group(cpu_cores: float | None, memory_bytes: int) -> list[str]:
    """Return the folders of a new group with these limits, none where no group can be made; remove what the dead left."""
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
    """Return when process *pid* was started, in ticks since boot, or None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()[19]
