"""The one lock of a folder that several processes write to; it goes with the process that holds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".lock"


@contextmanager
def folder_lock(
    folder: Path, *, name: str = LOCK, wait: bool = True, refusal: Exception | None = None
) -> Iterator[None]:
    """Hold the lock *name* of *folder* while the block runs; it is held once, by threads as by processes.

    Not to *wait* for who holds it raises *refusal*.
    """
    lock = FileLock(folder / name, timeout=-1 if wait else 0, thread_local=False)
    try:
        lock.acquire()
    except Timeout as timeout:
        raise (refusal or timeout) from None
    try:
        yield
    finally:
        lock.release()
