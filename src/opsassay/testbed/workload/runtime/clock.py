"""The wall clock of one process as it stamps its telemetry; it can be set wrong, as a host's can."""

from __future__ import annotations

import time


class Clock:
    """Reads UTC in nanoseconds, *offset_ns* away from the truth."""

    def __init__(self) -> None:
        self.offset_ns = 0

    def time_ns(self) -> int:
        """Return the wall clock time in UTC ns plus the offset that a fault or the host's clock has."""
        return time.time_ns() + self.offset_ns
