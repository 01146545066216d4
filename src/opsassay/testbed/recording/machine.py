"""What goes on around a recording on the machine: clock jumps, contention, memory, other systems. None of it is silent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Self

import psutil

from opsassay.core.schema.background import Background

LOOK_EVERY_S = 0.5
JUMP_LIMIT_S = 0.1
"""The wall clock may drift against the monotonic one; between two looks it cannot drift by this much."""
FULL_SHARE = 0.97

Clock = Callable[[], int]


@dataclass(frozen=True)
class Look:
    """One look at the machine: both clocks, runnable tasks beyond the cores, share of memory used, systems running.

    *queued* is the load average of a minute less the number of cores.
    """

    wall_ns: int
    steady_ns: int
    queued: float = 0.0
    memory_share: float = 0.0
    systems: frozenset[str] = frozenset()


@dataclass
class MachineWatch(Background):
    """Looks at the machine in a thread of its own while the block runs; *own* is the system that is recorded.

    *systems* returns the names of all systems that run on this machine now.
    """

    own: str
    systems: Callable[[], Iterable[str]]
    every_s: float = LOOK_EVERY_S
    wall: Clock = time.time_ns
    steady: Clock = time.monotonic_ns
    looks: list[Look] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__("machine")

    def __enter__(self) -> Self:
        self._sample_machine()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._sample_machine()

    def work(self) -> None:
        """Take a reading of load, memory and clocks of the machine every `every_s` seconds until the block ends."""
        while self.pause(self.every_s):
            self._sample_machine()

    def _sample_machine(self) -> None:
        """Add one reading of the machine: clocks, load, memory in use, other systems that run."""
        queued = psutil.getloadavg()[0] - (os.cpu_count() or 1)
        systems = frozenset(self.systems()) - {self.own}
        used = psutil.virtual_memory().percent / 100
        self.looks.append(Look(self.wall(), self.steady(), queued, used, systems))


def others(readings: Iterable[Look]) -> list[str]:
    """Return the sorted names of other systems that ran at any of the *readings*."""
    return sorted(frozenset().union(*(look.systems for look in readings)))


def jumps_s(readings: Iterable[Look]) -> list[float]:
    """Return the jumps of the wall clock against the monotonic clock in s, each over JUMP_LIMIT_S."""
    offsets = [look.wall_ns - look.steady_ns for look in readings]
    steps = [(later - earlier) / 1e9 for earlier, later in pairwise(offsets)]
    return [step for step in steps if abs(step) > JUMP_LIMIT_S]


def notes(readings: Iterable[Look]) -> list[str]:
    """Return a sentence for each disturbance in *readings*: clock jump, busy CPU, full memory, other systems."""
    readings = list(readings)
    found = [
        f"the wall clock jumped by {jump:+.3f} s during the recording: times before and after do not compare"
        for jump in jumps_s(readings)
    ]
    if (queued := round(max(look.queued for look in readings), 1)) > 0:
        found.append(f"the machine was busy: {queued:.1f} more runnable tasks than cores")
    if (used := max(look.memory_share for look in readings)) > FULL_SHARE:
        found.append(f"the memory of the machine was {used:.0%} full")
    if seen := others(readings):
        found.append(f"other systems ran on this machine: {', '.join(seen)}")
    return found
