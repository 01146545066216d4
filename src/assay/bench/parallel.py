"""The one `map` over many items: processes of this machine, in the order of the items."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_processes(function: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    """Yield ``function(item)`` for every item in order, on *jobs* processes; in this process when *jobs* is 1.

    *function* must be importable by name. Processes are spawned, not forked: threads of libraries do not survive a fork.
    They end when this process ends, however that happens (Linux).
    """
    if jobs <= 1 or len(items) <= 1:
        yield from map(function, items)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(items)), mp_context=context, initializer=_end_with_parent) as pool:
        yield from pool.map(function, items)


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
