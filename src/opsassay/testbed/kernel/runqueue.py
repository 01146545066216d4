"""The time for which threads were ready to run without a CPU, because of other threads or their group's limit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def threads_of(pids: Iterable[int]) -> list[int]:
    """Return the thread ids of the processes *pids*; ended processes have none."""
    found: list[int] = []
    for pid in pids:
        try:
            found += [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
        except OSError:
            continue
    return found


class Waits:
    """Sums the waiting times of changing sets of threads; the sum never falls.

    A thread's waiting before its first reading counts, that after its last reading does not.
    """

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._sum_ns = 0

    def add(self, threads: Iterable[int]) -> float | None:
        """Add the time that *threads* waited for a CPU since the last call; return the total in s, None if unknown."""
        now = {thread: ns for thread in threads if (ns := _waited_ns(thread)) is not None}
        if not now:
            return self._sum_ns / 1e9 if self._seen else None
        self._sum_ns += sum(max(0, ns - self._seen.get(thread, 0)) for thread, ns in now.items())
        self._seen = now
        return self._sum_ns / 1e9


def _waited_ns(thread: int) -> int | None:
    """Return the ns that *thread* was runnable without a CPU, from its schedstat; None once it has ended."""
    try:
        return int(Path(f"/proc/{thread}/schedstat").read_text(encoding="utf-8").split()[1])
    except (OSError, IndexError):
        return None
