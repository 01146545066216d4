"""Reads one page of a JSON lines file of any size: it counts the lines of blocks and parses the page's lines only."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from opsassay.core.errors import OpsAssayError
from opsassay.core.untrusted import open_plain

BLOCK = 2**20
LONGEST_LINE = 4 * 2**20
"""Most bytes of a line that is parsed; of a longer line only the length is shown."""


def page_of_lines(path: Path, number: int, rows: int) -> tuple[list[dict[str, Any]], int]:
    """Return (objects of page *number* of the JSON lines file *path*, number of its lines); *rows* is the page size.

    A page after the last is []. Lines that are no objects and an unfinished last line are left out; an unreadable file
    has no lines.
    """
    with suppress(OpsAssayError, OSError), open_plain(path) as stream:
        counts = list(accumulate(block.count(b"\n") for block in iter(lambda: stream.read(BLOCK), b"")))
        total, start = (counts[-1] if counts else 0), (number - 1) * rows
        if not 0 <= start < total:
            return [], total
        _seek_line(stream, counts, start)
        found = (_read_object(stream) for _ in range(min(rows, total - start)))
        return [one for one in found if one is not None], total
    return [], 0


def _seek_line(stream: BinaryIO, counts: list[int], start: int) -> None:
    """Move *stream* to line *start*, from 0; *counts* are the numbers of lines up to the end of each block."""
    block = bisect_right(counts, start - 1) if start else 0
    skipped = counts[block - 1] if block else 0
    stream.seek(block * BLOCK)
    content, at = stream.read(BLOCK) if start else b"", 0
    for _ in range(start - skipped):
        at = content.index(b"\n", at) + 1
    stream.seek(block * BLOCK + at)


def _read_object(stream: BinaryIO) -> dict[str, Any] | None:
    """Return the next line's JSON object, None when it is no object; a line that is too long gives an error object."""
    line = stream.readline(LONGEST_LINE)
    if not line.endswith(b"\n"):
        size = len(line)
        while (rest := stream.readline(BLOCK)) and not rest.endswith(b"\n"):
            size += len(rest)
        return {"error": f"a line of {size + len(rest):,} bytes, which is not read"}
    with suppress(ValueError, RecursionError):
        value = json.loads(line)
        return value if isinstance(value, dict) else None
    return None


def stamps_of(folder: Path, names: Iterable[str]) -> tuple[tuple[int, int] | None, ...]:
    """Return per file of *names* in *folder* a value that changes with the file, None for a missing file."""

    def stamp(path: Path) -> tuple[int, int] | None:
        """Return (time of change in ns, size), None when the file cannot be looked at."""
        with suppress(OSError):
            state = path.stat()
            return state.st_mtime_ns, state.st_size
        return None

    return tuple(stamp(folder / name) for name in names)


def size_of(path: Path) -> int:
    """Return the size of the file *path* in bytes; 0 when it is missing or a link."""
    with suppress(OSError):
        return 0 if path.is_symlink() else path.stat().st_size
    return 0
