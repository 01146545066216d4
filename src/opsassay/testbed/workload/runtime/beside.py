"""A process beside a replica or a store that is neither: a job that was forgotten and keeps a disk full."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

BLOCK = bytes(1 << 16)
AGAIN_EVERY_S = 0.2


async def main(config: dict[str, Any]) -> None:
    """Be the process with the name of *config*, and keep the disk of its ``file`` full; another process ends this one."""
    await asyncio.to_thread(fill, config["process"], Path(config["file"]))


def fill(name: str, path: Path) -> None:
    """Take the process's *name*, and write to the file *path* for ever, whenever its file system has room."""
    Path("/proc/self/comm").write_text(name, encoding="utf-8")
    with path.open("wb", buffering=0) as output:
        path.unlink()  # it has a name no more, and takes its room until it is closed
        while True:
            with contextlib.suppress(OSError):  # it is full
                while output.write(BLOCK):
                    pass
            time.sleep(AGAIN_EVERY_S)
