"""Reads input from outside within limits: text to show, JSON, files.

Agents, recordings and files of others count as hostile. No link is followed, nothing unmeasured is expanded, no control
character is shown.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from opsassay.core.errors import UserError

MAX_FILE_BYTES = 256 * 2**20
"""Most bytes of a JSON file from outside."""

MAX_JSON_DEPTH = 100
"""Most levels of lists and objects in a JSON text from outside."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


MAX_SOCKET_PATH = 107
"""Most bytes in the path of a Unix socket, by the kernel."""


def require_socket_path(path: Path) -> None:
    """Raise UserError when *path* is longer than the 107 bytes that the kernel takes for a Unix socket."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise UserError(f"{path.parent} is too long a path for Unix sockets; set TMPDIR to a shorter folder.")


def safe_text(text: str) -> str:
    r"""Return *text* with every control character escaped (as \xNN or \uNNNN), so that a terminal can show it safely.

    Controls are C0 but tab and line feed, C1, DEL, those of direction, width and joining, tags, and lone surrogates.
    """
    return _CONTROLS.sub(lambda found: _escape_code_point(ord(found[0])), text)


MAX_SENTENCE = 600
"""Most characters of a reason that quotes text from outside."""


def one_sentence(text: str) -> str:
    """Return *text* on one line, cut to MAX_SENTENCE characters, with control characters escaped."""
    line = safe_text(" ".join(text.split()))
    return line if len(line) <= MAX_SENTENCE else f"{line[: MAX_SENTENCE - 1]}…"


def storable(value: Any) -> Any:
    """Return the JSON *value* with lone surrogates in its strings escaped, so that it can be encoded as UTF-8."""
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATES.sub(lambda found: _escape_code_point(ord(found[0])), value)
    if isinstance(value, dict):
        return {storable(key): storable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [storable(inner) for inner in value]
    return value


def _escape_code_point(number: int) -> str:
    r"""Return the code point *number* as Python writes it escaped: \xNN, \uNNNN or \UNNNNNNNN."""
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _refuse_constant(name: str) -> float:
    """Raise ValueError: *name* (NaN or Infinity) is no JSON."""
    raise ValueError(f"it holds the number {name}")


def read_json(text: str | bytes, *, constant: Callable[[str], Any] = _refuse_constant) -> Any:
    """Parse *text* as JSON and return its value, with lone surrogates escaped.

    *constant* returns the value of ``NaN``, ``Infinity`` and ``-Infinity``, which are no JSON; by default they are
    refused. Raises ValueError for text that is no JSON, nests deeper than MAX_JSON_DEPTH, or holds a number that is not
    finite.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    require_depth(text)
    return storable(json.loads(text, parse_constant=constant, parse_float=finite))


def require_depth(text: str) -> None:
    """Raise ValueError when the JSON *text* nests deeper than MAX_JSON_DEPTH, without parsing it."""
    depth, in_text = 0, False
    for token in re.finditer(r'\\.|["\[\]{}]', text, re.DOTALL):
        sign = token[0]
        if sign == '"':
            in_text = not in_text
        elif not in_text and sign in "[{":
            depth += 1
            if depth > MAX_JSON_DEPTH:
                raise ValueError(f"it is nested too deeply, more than {MAX_JSON_DEPTH} levels")
        elif not in_text and sign in "]}":
            depth -= 1


def finite(text: str) -> float:
    """Parse *text* as a float; raises ValueError when it is NaN or infinite."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"it holds the number {text[:20]}, which is beyond what is read")
    return number


def open_plain(path: Path) -> BinaryIO:
    """Open the untrusted file at *path* to read bytes; raises UserError for a link, a FIFO, a device or a folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise UserError(
                f"{safe_text(str(path))} is a link, which is not followed; put the file itself there."
            ) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(f"{safe_text(str(path))} is no plain file; put the file itself there.")
    return os.fdopen(descriptor, "rb")


def is_plain(path: Path) -> bool:
    """Return whether *path* is a regular file and no symbolic link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def read_plain(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of the regular file at *path*; raises UserError as `open_plain`, and above *most_bytes* bytes."""
    with open_plain(path) as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise UserError(
            f"{safe_text(str(path))} is larger than {most_bytes >> 20} MiB, which is the most that is read of it."
        )
    return content


def require_plain(paths: Iterable[Path]) -> None:
    """Raise UserError when one of *paths* exists and is no regular file; missing ones are fine."""
    for path in paths:
        if os.path.lexists(path):
            open_plain(path).close()


CAUSED_BY_CONTENT = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError)
"""Exceptions that the content of something can raise; UnicodeError and JSON's are ValueErrors."""


def most_expanded(packed_bytes: int, least_bytes: int, ratio: int) -> int:
    """Return the bytes to which a file of *packed_bytes* may decompress: *ratio* times its size, at least *least_bytes*."""
    return max(least_bytes, ratio * packed_bytes)


class Bounded(io.RawIOBase):
    """A stream of which at most *most_bytes* are read; content beyond them raises UserError about *name*."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile, most_bytes: int, name: str) -> None:
        self._stream, self._left, self._name, self._most = stream, most_bytes, name, most_bytes

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill *buffer* from the stream and return the number of bytes; raises UserError once the bound is exceeded."""
        data = self._stream.read(min(len(buffer), self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise UserError(
                f"{safe_text(self._name)} expands to more than {self._most >> 20} MiB, the most for its size; split it."
            )
        buffer[: len(data)] = data
        return len(data)


def bound_stream(stream: BinaryIO | gzip.GzipFile, most_bytes: int, name: str) -> io.BufferedReader:
    """Return *stream* as a buffered reader that raises UserError, naming the file *name*, after *most_bytes* bytes."""
    return io.BufferedReader(Bounded(stream, most_bytes, name))
