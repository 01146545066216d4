"""Maps a function over many items, in processes of this machine or on a Ray cluster; results have the items' order."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from types import FrameType
from typing import TypeVar

from opsassay.core.errors import OperationError, RefusedError
from opsassay.core.extras import install_hint
from opsassay.core.text import first_line

T = TypeVar("T")
R = TypeVar("R")


def heed_interrupts() -> None:
    """Let Ctrl-C (SIGINT) interrupt the main thread even while it waits for a lock.

    The import of polars replaces the handler, so that such a wait would last until the lock is free.
    """
    signal.siginterrupt(signal.SIGINT, True)  # noqa: FBT003


def interrupt_once(number: int, frame: FrameType | None) -> None:
    """Handle SIGINT or SIGTERM: raise KeyboardInterrupt at the first one, ignore later ones during the clean-up.

    When a parent ends, the kernel may send the signal once for each of its threads.
    """
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: None)
    _given_up.set()
    signal.default_int_handler(number, frame)


def map_processes(function: Callable[[T], R], items: Sequence[T], jobs: int, *, ray: str | None = None) -> Iterator[R]:
    """Yield ``function(item)`` for every item in order, on *jobs* processes; in this process when *jobs* is 1.

    *function* must be importable by name, since processes are spawned: threads of libraries do not survive a fork. They
    end when this process ends (Linux). With *ray*, an address (``auto``, ``HOST:PORT``, ``ray://...``) or ``local`` for
    a cluster on this machine's *jobs* processors, at most *jobs* items are sent to the cluster at a time; raises
    RefusedError when ray is not installed, OperationError when no cluster answers.
    """
    if ray is not None:
        yield from _map_on_ray(function, items, jobs, ray)
        return
    if jobs <= 1 or len(items) <= 1:
        yield from map(function, items)
        return
    heed_interrupts()
    context = multiprocessing.get_context("spawn")
    workers = min(jobs, len(items))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker, initargs=(workers,)) as pool:
        try:
            yield from pool.map(partial(_call_unless_given_up, function), items)
        except BaseException:  # interrupted, or nobody wants the rest: what is being done is given up as well
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise


_given_up = threading.Event()
"""Set in a worker process that has to end: it then refuses work that its pool has already passed to it."""


def _call_unless_given_up(function: Callable[[T], R], item: T) -> R:
    """Return ``function(item)``; raises KeyboardInterrupt if `interrupt_once` has already run in this worker process."""
    if _given_up.is_set():
        raise KeyboardInterrupt
    return function(item)


def _begin_worker(workers: int) -> None:
    """Set up this worker process, one of *workers*: its share of processors, its own group, its end with the parent.

    Ctrl-C then reaches the parent alone, which ends its workers: of two signals at once a library's thread may handle
    both, and the main thread is not woken. When the parent dies, the kernel kills this process (Linux).
    """
    os.environ.setdefault("POLARS_MAX_THREADS", str(max((os.cpu_count() or 1) // workers, 1)))  # before its import
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, interrupt_once)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _map_on_ray(function: Callable[[T], R], items: Sequence[T], jobs: int, address: str) -> Iterator[R]:
    """Yield ``function(item)`` for every item in order from the Ray cluster at *address*, *jobs* at a time."""
    try:
        import ray
    except ImportError as error:
        raise RefusedError(
            f"--ray needs the package ray, which is not installed; {install_hint('ray')}, or leave --ray out."
        ) from error
    local = address == "local"
    try:
        ray.init(
            address=None if local else address,
            num_cpus=max(jobs, 1) if local else None,
            include_dashboard=False if local else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:  # a node that does not start in time is a bare Exception
        said = first_line(error)
        raise OperationError(f"No ray cluster answers at {address!r} ({said}); start one or use -j.") from error
    try:
        remote = ray.remote(function)
        waiting = list(items)
        running = [remote.remote(item) for item in waiting[: max(jobs, 1)]]
        started = len(running)
        while running:
            yield ray.get(running.pop(0))
            if started < len(waiting):
                running.append(remote.remote(waiting[started]))
                started += 1
    finally:
        ray.shutdown()
