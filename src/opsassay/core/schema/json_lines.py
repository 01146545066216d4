"""JSON lines files: one object per line, appended in one write; reading drops a last line that a crash cut off.

Files are read line by line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from opsassay.core.errors import DatapackError
from opsassay.core.schema.base import Noun
from opsassay.core.schema.validation_errors import problem

_N = TypeVar("_N", bound=Noun)


def append_line(path: Path, record: Noun, *, durable: bool = False) -> None:
    """Append *record* as a line to the JSON lines file at *path* in one write; *durable* waits until it is on disk."""
    _append_line(path, record.model_dump_json(), durable=durable)


def append_object(path: Path, record: Mapping[str, Any], *, durable: bool = False) -> None:
    """Append the JSON object *record* as a line to the file at *path* in one write; *durable* waits until it is on disk."""
    _append_line(path, json.dumps(record, separators=(",", ":")), durable=durable)


def _append_line(path: Path, text: str, *, durable: bool) -> None:
    """Append *text* and a line break to the file at *path* in one write; *durable* waits until it is on disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, text.encode() + b"\n")
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def whole_lines(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of each line in *content*; empty and torn lines, and other values, are left out."""
    for line in content.split(b"\n"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue  # empty, or torn: every torn line was the last one when it was written; or of no depth we write
        if isinstance(value, dict):
            yield value


def numbered_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line) of every line in *lines* that is not blank."""
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def read_json_lines(path: Path) -> Iterator[Any]:
    """Yield the JSON value of every line of the file *path*; an incomplete last line is left out.

    Raises DatapackError, with file and line, for any other line that is no JSON, and for a file that cannot be read.
    """
    try:
        with path.open("rb") as lines:
            for number, line in numbered_lines(lines):
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError) as error:
                    if not line.endswith(b"\n"):
                        return
                    raise DatapackError(
                        f"{path}:{number}: not a line of JSON; restore the file from a copy."
                    ) from error
                yield value
    except OSError as error:
        raise DatapackError(f"Cannot read {path}: {error.strerror or error}; check the path.") from error


def follow_json_lines(path: Path, offset: int) -> Iterator[tuple[int, Any]]:
    """Yield (offset of the next line, JSON value) for every complete line after byte *offset* of the growing file *path*.

    A missing file has no lines. Raises ValueError for a line that is no JSON.
    """
    try:
        lines = path.open("rb")
    except FileNotFoundError:
        return
    with lines:
        lines.seek(offset)
        for line in lines:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            yield offset, json.loads(line)


def read_nouns(path: Path, noun: type[_N]) -> Iterator[_N]:
    """Yield every line of the JSON lines file *path* as an object of the class *noun*; raises DatapackError."""
    for line in read_json_lines(path):
        try:
            yield noun.model_validate(line)
        except ValidationError as error:
            raise DatapackError(
                f"{path}: a line is no {noun.__name__.lower()}: {problem(error, 'the line')}."
            ) from error
