"""Faults that exhaust the service process from inside: garbage, busy threads, a growing heap.

The work is real and runs in threads of the process itself, so that its requests feel it. How late the event loop runs
meanwhile is what the fault costs, and goes into the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from opsassay.testbed.workload.runtime.ledger import LedgerWriter

GRAPH_NODES = 300_000
GARBAGE_NODES = 30_000
HEAP_STEP_BYTES = 8 << 20
HEAP_STEP_S = 0.05
HEAP_SHARE = 0.9
"""Of the limit of the container: a probe that is started in it has to fit beside."""
FILES_LIMIT = 256
"""What a process may hold open that watches files; it has some forty before."""
LOOP_TICK_S = 0.02
LATE_S = 0.002

Work = Callable[[threading.Event, dict[str, Any]], None]


def collect_garbage(ended: threading.Event, _: dict[str, Any]) -> None:
    """Run garbage collections over a large graph until *ended* is set, for 80% of the time."""
    graph = _chain(GRAPH_NODES)
    while not ended.is_set():
        began = time.thread_time()
        _chain(GARBAGE_NODES)
        gc.collect()
        ended.wait((time.thread_time() - began) / 4)
    graph.clear()


def _chain(length: int) -> list[Any]:
    """Return a cyclic chain of *length* nested lists, which only the garbage collector can free."""
    head: list[Any] = []
    tail = head
    for _ in range(length):
        tail = [tail]
    head.append(tail)
    return head


def keep_busy(stop_event: threading.Event, _: dict[str, Any]) -> None:
    """Compute without pause until *stop_event* is set."""
    while not stop_event.is_set():
        sum(range(500))


def grow_heap(ended: threading.Event, parameters: dict[str, Any]) -> None:
    """Allocate ``size_mb`` of *parameters*, at most HEAP_SHARE of the container's limit, until *ended* is set.

    ``beside_mb`` is the memory of other processes in the container.
    """
    process, held = psutil.Process(), list[bytearray]()
    limit = (parameters["limit_mb"] * HEAP_SHARE - parameters["beside_mb"]) * 2**20 - HEAP_STEP_BYTES
    while not ended.is_set() and len(held) * HEAP_STEP_BYTES < parameters["size_mb"] * 2**20:
        if process.memory_full_info().uss >= limit:
            break
        held.append(bytearray(b"\x01") * HEAP_STEP_BYTES)
        ended.wait(HEAP_STEP_S)
    ended.wait()


def hold_files(ended: threading.Event, parameters: dict[str, Any]) -> None:
    """Open ``per_s`` (of *parameters*) files a second, at most FILES_LIMIT, until *ended* is set; then close them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES_LIMIT, hard), hard))
    held: list[int] = []
    while not ended.wait(1 / parameters["per_s"]):
        with contextlib.suppress(OSError):
            held.append(os.open(os.devnull, os.O_RDONLY))
    for descriptor in held:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


STRAINS: Mapping[str, Work] = {
    "collect_garbage": collect_garbage,
    "keep_busy": keep_busy,
    "grow_heap": grow_heap,
    "hold_files": hold_files,
}
"""Hooks to the work of one thread."""


class Stress:
    """The threads of one active strain, and the watch over the event loop that they delay."""

    def __init__(self, hook: str, parameters: dict[str, Any], ledger: LedgerWriter) -> None:
        self.hook, self._ledger = hook, ledger
        self._ended = threading.Event()
        arguments = (self._ended, parameters)
        self._threads = [
            threading.Thread(target=STRAINS[hook], args=arguments, daemon=True)
            for _ in range(parameters.get("cpu_count", 1))
        ]
        for thread in self._threads:
            thread.start()
        self._watching = asyncio.create_task(self._watch_loop())

    async def stop(self) -> None:
        """Stop the stress threads and wait until they have ended."""
        self._ended.set()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        self._watching.cancel()

    async def _watch_loop(self) -> None:
        """Record in the ledger, for ever, by how much the event loop wakes up late."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOP_TICK_S
            await asyncio.sleep(LOOP_TICK_S)
            if (late := loop.time() - due) > LATE_S:
                self._ledger.write("stall", ns=int(late * 1e9))
