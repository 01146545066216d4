"""What is usual on a link, measured before a fault, so that scheduling noise is not booked as the fault's doing."""

from __future__ import annotations

from collections import deque

REMEMBERED = 200
ENOUGH = 20
NOISE_SHARE = 0.99
UNKNOWN_LIMIT_NS = 5_000_000
"""Two processes of one machine take under a millisecond both ways; the limit where too little was measured to tell."""


class LinkBaseline:
    """Recent times by link, in nanoseconds; *note* those of quiet moments, ask for the *excess* of others."""

    def __init__(self) -> None:
        self._times: dict[str, deque[int]] = {}

    def note(self, link: str, ns: int) -> None:
        """Record *ns*, a one-way time of *link* without a fault."""
        self._times.setdefault(link, deque(maxlen=REMEMBERED)).append(ns)

    def excess(self, link: str, ns: int) -> int:
        """Return how much *ns* exceeds the median of *link*, 0 if it is within the 99th percentile."""
        times = sorted(self._times.get(link, ()))
        if len(times) < ENOUGH:
            return ns if ns > UNKNOWN_LIMIT_NS else 0
        limit = times[min(int(NOISE_SHARE * len(times)), len(times) - 1)]
        return max(0, ns - times[len(times) // 2]) if ns > limit else 0
