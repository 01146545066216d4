"""What a packet fault does to a byte stream: how long a chunk of it is on its way beyond the usual.

An application does not see packets, it sees TCP's stream: a lost packet is one that arrives after it was sent again, a
corrupted one is discarded by its checksum and so lost, a partition is a link where sending again never helps.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

PACKET_BYTES = 1448
RESEND_AFTER_S = 0.2
CONNECT_AGAIN_AFTER_S = 1.0
MOST_RESENDS = 15


class Impairment(Protocol):
    """An impairment of one direction of the links that it applies to; *ledger_kind* names what it did to a chunk."""

    ledger_kind: ClassVar[str]

    def lag_s(self, size: int, now: float) -> float:
        """Return the added delay in s of *size* bytes sent at *now* (s); infinity if they never arrive."""

    def connect_lag_s(self, now: float) -> float:
        """Return the added delay in s of a connection that is opened at *now* (s)."""


@dataclass
class Delay:
    """Every packet is late by *delay_s*, give or take *jitter_s*."""

    delay_s: float
    jitter_s: float
    ledger_kind: ClassVar[str] = "packet_delay"

    def lag_s(self, size: int, now: float) -> float:  # noqa: ARG002
        """Return a random delay in s, whatever *size* and *now* are."""
        return max(0.0, self.delay_s + random.uniform(-self.jitter_s, self.jitter_s))  # noqa: S311

    def connect_lag_s(self, now: float) -> float:
        """Return a random delay in s, whatever *now* is."""
        return self.lag_s(0, now)


@dataclass
class Loss:
    """A *share* of the packets is lost, and sent again after a time-out that doubles (RFC 6298)."""

    share: float
    ledger_kind: ClassVar[str] = "packet_loss"

    def lag_s(self, size: int, now: float) -> float:  # noqa: ARG002
        """Return the delay in s by resends of lost packets: the longest of the packets of *size* bytes."""
        return max(self._resent_s(RESEND_AFTER_S) for _ in range(max(1, math.ceil(size / PACKET_BYTES))))

    def connect_lag_s(self, now: float) -> float:  # noqa: ARG002
        """Return the delay in s by resends of the lost SYN packet, whose first timeout is longer."""
        return self._resent_s(CONNECT_AGAIN_AFTER_S)

    def _resent_s(self, first_s: float) -> float:
        """Draw the delay in s until a packet is not lost, if it is first resent after *first_s*."""
        if self.share >= 1.0:
            return math.inf
        at = itertools.chain([0.0], itertools.islice(resend_times(first_s), MOST_RESENDS))
        return next((t for t in at if random.random() >= self.share), math.inf)  # noqa: S311


@dataclass
class Bandwidth:
    """All links of the fault share one wire of *bytes_per_s*: what is sent waits until the wire is free (token bucket)."""

    bytes_per_s: float
    free_at: float = 0.0
    ledger_kind: ClassVar[str] = "packet_delay"

    def lag_s(self, size: int, now: float) -> float:
        """Return the delay in s until *size* bytes, sent at *now*, have passed after what is queued already."""
        self.free_at = max(self.free_at, now) + size / self.bytes_per_s
        return self.free_at - now

    def connect_lag_s(self, now: float) -> float:
        """Return the delay in s until the SYN packet, sent at *now*, has passed what is queued already."""
        return max(self.free_at - now, 0.0)


def impairment(order: dict[str, Any]) -> Impairment:
    """Return the impairment for *order* {kind, numbers}; raises ValueError for a kind that streams cannot have."""
    match order:
        case {"kind": "delay", "delay_s": delay_s, "jitter_s": jitter_s}:
            return Delay(delay_s, jitter_s)
        case {"kind": "loss" | "corrupt", "share": share}:  # what is changed on the way is discarded by its checksum
            return Loss(share)
        case {"kind": "partition"}:
            return Loss(1.0)
        case {"kind": "bandwidth", "bytes_per_s": bytes_per_s}:
            return Bandwidth(bytes_per_s)
    raise ValueError(f"no byte stream is impaired as {order} says")


def resend_times(first_s: float) -> Iterator[float]:
    """Yield the times, in s after it was first sent, at which a packet is sent again: *first_s*, then doubling."""
    return itertools.accumulate(first_s * 2.0**n for n in itertools.count())


def next_resend_s(waited_s: float) -> float:
    """Return the seconds until TCP resends a packet that has waited *waited_s* since it was first sent."""
    return next(t for t in resend_times(RESEND_AFTER_S) if t > waited_s) - waited_s
