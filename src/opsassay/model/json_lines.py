"""JSON lines on disk: one object a line, appended in one write; a line torn by a crash is dropped on reading."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opsassay.model.base import Noun


def append_line(path: Path, line: Noun) -> None:
    """Append *line* to the JSON lines file at *path* in one write."""
    _append(path, line.model_dump_json())


def append_object(path: Path, line: Mapping[str, Any]) -> None:
    """Append the JSON object *line* to the JSON lines file at *path* in one write."""
    _append(path, json.dumps(line, separators=(",", ":")))


def _append(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, text.encode() + b"\n")
    finally:
        os.close(descriptor)


def whole_lines(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects in *content*; what is empty, torn or no object is left out."""
    for line in content.split(b"\n"):
        try:
            value = json.loads(line)
        except ValueError:
            continue  # empty, or torn: every torn line was the last one when it was written
        if isinstance(value, dict):
            yield value
