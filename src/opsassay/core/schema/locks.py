"""The one lock of a folder that several processes write to; it goes with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".lock"


@contextmanager
def folder_lock(
    folder: Path, *, name: str = LOCK, wait: bool = True, refusal: Exception | None = None
) -> Iterator[None]:
    """Hold the lock *name* of *folder* while the block runs; it is held once, by threads as by processes.

    Whoever waits does so in the kernel and in turn: a hundred workers that look every 50 ms instead keep a processor busy.
    Not to *wait* for who holds it raises *refusal*, or BlockingIOError. A link is not followed.
    """
    held = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as taken:
            raise (refusal or taken) from None
        yield
    finally:
        os.close(held)
