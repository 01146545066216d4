"""Reads the output of a command to its end and stores only the last bytes."""

from __future__ import annotations

import os
import select
import threading
from typing import IO

_LOOK_S = 0.2


class Tail:
    """Reads *stream* in a thread and drops all but the last *kept_bytes*; `text` returns them and closes the stream."""

    def __init__(self, stream: IO[bytes], kept_bytes: int) -> None:
        self._stream, self._most = stream, kept_bytes
        self._kept = bytearray()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._read_until_end, daemon=True)
        self._thread.start()

    def _read_until_end(self) -> None:
        """Read the stream until its end or until `text` gives up, keeping only the last bytes."""
        waiting = select.poll()
        waiting.register(self._stream.fileno(), select.POLLIN)
        while not self._given_up.is_set():
            if not waiting.poll(_LOOK_S * 1000):
                continue
            chunk = os.read(self._stream.fileno(), 2**16)
            if not chunk:
                return
            self._kept += chunk
            del self._kept[: -self._most or len(self._kept)]

    def text(self, within_s: float | None = None) -> str:
        """Wait for the stream's end, *within_s* seconds at most (None: for ever); return its last bytes as text."""
        self._thread.join(within_s)
        self._given_up.set()
        self._thread.join()
        self._stream.close()
        return self._kept.decode(errors="replace")
