"""A side process, at a replica or a store but neither: one keeps a disk full, another listens on a port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCK = bytes(1 << 16)
AGAIN_EVERY_S = 0.2


async def main(config: dict[str, Any]) -> None:
    """Be the process with the name of *config*: keep the disk of its ``file`` full, or listen on ``port``, until killed."""
    work = (listen, config["port"]) if "port" in config else (fill, Path(config["file"]))
    await asyncio.to_thread(be, config["process"], *work)


def be(name: str, work: Callable[[Any], None], about: Any) -> None:
    """Take the process's *name*, and do its *work* about a port or a file."""
    Path("/proc/self/comm").write_text(name, encoding="utf-8")
    work(about)


def listen(port: int) -> None:
    """Accept connections on *port* of every address, and close them, for ever."""
    with socket.create_server(("", port)) as listener:
        while True:
            listener.accept()[0].close()


def fill(path: Path) -> None:
    """Write to the file *path* for ever, whenever its file system has room."""
    with path.open("wb", buffering=0) as output:
        path.unlink()  # it has a name no more, and takes its room until it is closed
        while True:
            with contextlib.suppress(OSError):  # it is full
                while output.write(BLOCK):
                    pass
            time.sleep(AGAIN_EVERY_S)
