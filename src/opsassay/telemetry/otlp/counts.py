"""What the receiver counts: requests and items (spans, points, records) per signal, of itself and of each session."""

from __future__ import annotations

from dataclasses import dataclass

from opsassay.core.schema.base import Int64, Noun

SIGNALS = ("traces", "metrics", "logs")


class SignalCounts(Noun):
    """Counts of one signal; an item is a span, a metric data point or a log record.

    *received* = *kept* + *rejected* + *unrecorded* (acknowledged while no session was open). A rejected request that
    its client sends again is received again, so *rejected* is an upper bound of what was lost. *invalid* requests
    (broken, too large, of a wrong type, or never completed) have no countable items and are not part of *received*.
    """

    received_requests: int = 0
    received_items: int = 0
    kept_requests: int = 0
    kept_items: int = 0
    kept_bytes: int = 0
    rejected_requests: int = 0
    rejected_items: int = 0
    unrecorded_requests: int = 0
    unrecorded_items: int = 0
    invalid_requests: int = 0


class _Counted(Noun):
    signals: dict[str, SignalCounts]

    @property
    def drop_rate(self) -> float:
        """The share of received items that were answered 503, in [0, 1]; 0 when nothing was received."""
        received = sum(counts.received_items for counts in self.signals.values())
        return sum(counts.rejected_items for counts in self.signals.values()) / received if received else 0.0


class SessionStats(_Counted):
    """What one recording session kept and refused; *closed_ns* is None while it is open."""

    name: str
    directory: str
    opened_ns: Int64
    closed_ns: Int64 | None = None


class ReceiverStats(_Counted):
    """What the receiver saw since it started; *pending_bytes* wait for the disk, *cpu_s* is its processor time."""

    pid: int
    started_ns: Int64
    cpu_s: float
    pending_bytes: int
    sessions: dict[str, SessionStats]


@dataclass(slots=True)
class Tally:
    """The running, mutable form of `SignalCounts`, owned by the event loop of the receiver."""

    received_requests: int = 0
    received_items: int = 0
    kept_requests: int = 0
    kept_items: int = 0
    kept_bytes: int = 0
    rejected_requests: int = 0
    rejected_items: int = 0
    unrecorded_requests: int = 0
    unrecorded_items: int = 0
    invalid_requests: int = 0

    def keep(self, items: int, size_bytes: int) -> None:
        """Count a request, *items* spans, log records or points of *size_bytes*, that was written to the spool."""
        self._count_received(items)
        self.kept_requests += 1
        self.kept_items += items
        self.kept_bytes += size_bytes

    def reject(self, items: int) -> None:
        """Count a request of *items* spans, log records or points that was answered with 503."""
        self._count_received(items)
        self.rejected_requests += 1
        self.rejected_items += items

    def pass_by(self, items: int) -> None:
        """Count a request of *items* spans, log records or points that came while no session recorded."""
        self._count_received(items)
        self.unrecorded_requests += 1
        self.unrecorded_items += items

    def _count_received(self, items: int) -> None:
        """Count one more request, with *items* spans, log records or points."""
        self.received_requests += 1
        self.received_items += items

    def counts(self) -> SignalCounts:
        """Return the counts so far as a frozen copy."""
        return SignalCounts(**{name: getattr(self, name) for name in self.__slots__})


def tallies() -> dict[str, Tally]:
    """Return signal (traces, metrics, logs) to a new tally."""
    return {signal: Tally() for signal in SIGNALS}
