"""The record of a session: one JSON line per event, appended and handed to the operating system before the client is.

::

    DIR/sessions/<session>/record.jsonl

    opened    boot_id, pid                         the proxy began to write
    request   id, method, path, headers            then its body in pieces
    body      id, part (request, edited or answer), text or base64
    answer    id, status, reason, headers
    message   id, message                          a stream put together, beside its pieces with their times
    end       id, outcome, error                   complete, client_gone, upstream_failed, timeout, refused

Every line has time_ns (UTC) and monotonic_ns: order is the order of lines, durations are monotonic, so that a clock
that jumps changes neither. A kill loses nothing that was acknowledged; a torn last line is dropped.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Callable
from itertools import chain, count
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from opsassay.core.errors import UserError
from opsassay.telemetry.clock import boot_id

RECORD = "record.jsonl"
FIRST_SESSION = "run"
PIECE_BYTES = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def session_folder(directory: Path, session: str) -> Path:
    """Return the folder of *session* below *directory*; raises UserError for a name that is no file name."""
    if not _NAME.fullmatch(session):
        raise UserError(
            f"{session!r} cannot name a session; use up to 80 letters, digits, dots, dashes and underscores."
        )
    return directory / "sessions" / session


def new_session(directory: Path, name: str | None) -> str:
    """Return *name*, or for None the first of run, run-2, run-3 ... that has no record below *directory* yet.

    Raises UserError when *name* is no file name, or has a record already.
    """
    if name is None:
        names = chain([FIRST_SESSION], (f"{FIRST_SESSION}-{number}" for number in count(2)))
        return next(one for one in names if not (session_folder(directory, one) / RECORD).exists())
    if (session_folder(directory, name) / RECORD).exists():
        raise UserError(f"{directory} has a record of the session {name}; give another --session, or leave it out.")
    return name


class SessionLog:
    """Appends events to the record of one session; *wall_ns* and *monotonic_ns* are the clocks."""

    def __init__(
        self,
        folder: Path,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._wall_ns, self._monotonic_ns = wall_ns, monotonic_ns
        path = folder / RECORD
        whole = _whole_length(path)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._fd, whole)
        self.write("opened", boot_id=boot_id(), pid=os.getpid())

    def write(self, event: str, **fields: Any) -> None:
        """Append one *event* with wall-clock and monotonic time and *fields*; raises OSError when that fails."""
        head = {"event": event, "time_ns": self._wall_ns(), "monotonic_ns": self._monotonic_ns()}
        line = memoryview(_format_line(head | fields))
        while line:
            line = line[os.write(self._fd, line) :]

    def body(self, exchange: str, part: str, data: bytes) -> None:
        """Append *data* of request *exchange* in pieces of 1 MiB; *part* is "request", "edited" or "answer"."""
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            try:
                self.write("body", id=exchange, part=part, text=piece.decode())
            except UnicodeDecodeError:
                self.write("body", id=exchange, part=part, base64=base64.b64encode(piece).decode())

    def close(self) -> None:
        """Flush the record to the disk and close it."""
        try:
            os.fsync(self._fd)
        finally:
            os.close(self._fd)


def _format_line(event: dict[str, Any]) -> bytes:
    """Return *event* as a JSON line; bytes that are not UTF-8 become escaped lone surrogates."""
    try:
        return to_json(event) + b"\n"
    except PydanticSerializationError:
        return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _whole_length(path: Path) -> int:
    """Return the length of the file *path* in bytes up to its last newline, 0 when it is missing."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - PIECE_BYTES)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0
