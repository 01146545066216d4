"""The undo journal: every injection is recorded on disk before it is applied."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from opsassay.core.errors import OperationError


class Journal:
    """An append-only file of JSON lines at *path*: ``apply`` before a fault acts, ``undone`` after it was undone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, event: str, injection: str, **fields: Any) -> None:
        """Append *event* (apply, undone) of *injection* with *fields*, and sync the file; raises OperationError."""
        line = (
            json.dumps({"time_ns": time.time_ns(), "event": event, "injection": injection, **fields}).encode() + b"\n"
        )
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                if os.write(descriptor, line) < len(line):
                    raise OSError(None, "only a part of the line was written")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OperationError(f"The undo journal {self._path} cannot be written: {error.strerror}.") from error

    def pending(self) -> list[dict[str, Any]]:
        """Return the ``apply`` entries of injections that were not undone; incomplete lines are skipped."""
        applied: dict[str, dict[str, Any]] = {}
        if not self._path.exists():
            return []
        for line in self._path.read_text().splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue
            if entry["event"] == "apply":
                applied[entry["injection"]] = entry
            else:
                applied.pop(entry["injection"], None)
        return list(applied.values())
