"""Counters of one replica that the supervisor reads over the management interface, for effect and recovery checks."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import Any

import psutil


class Stats:
    """Cumulative count, errors and duration (ns) per activity.

    Activities are ``server``, ``consumer``, ``call:SERVICE``, ``sql:STORE``, ``cache:STORE``; ``server`` and
    ``call:SERVICE`` are counted again for the single operation, with a blank and its name behind.
    """

    def __init__(self) -> None:
        self._rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        self._memory_bytes = 0

    def add(self, activity: str, duration_ns: int, *, ok: bool) -> None:
        """Count one finished *activity* (a counter name) that took *duration_ns*; as failed unless *ok*."""
        row = self._rows[activity]
        row[0] += 1
        row[1] += not ok
        row[2] += duration_ns

    def memory_bytes(self) -> int:
        """Return the resident memory of this process; the last value when it cannot be read."""
        with contextlib.suppress(OSError):
            self._memory_bytes = psutil.Process().memory_info().rss
        return self._memory_bytes

    def snapshot(self) -> dict[str, Any]:
        """Return {activity: [count, errors, duration_ns]} since the start of the process."""
        return dict(self._rows)
