"""The lock of a folder that several processes write to; it is released when its process ends."""

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
    """Hold the lock file *name* in *folder* while the block runs; one thread or process holds it at a time.

    Without *wait*, a held lock raises *refusal*, or BlockingIOError. The kernel serves waiting processes in turn. A
    symbolic link is not followed.
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
