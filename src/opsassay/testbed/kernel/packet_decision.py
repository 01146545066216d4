"""The decision of an impairment on one packet: when its copies are sent, and whether they are changed.

The meanings are netem's (tc-netem(8)): shares are drawn per packet and independent, jitter is uniform and may reorder.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

LONGEST_WAIT_S = 0.4
LEAST_BACKLOG = 20 * 1514


class PacketDecision(NamedTuple):
    """When the copies of a packet are sent, in seconds of the monotonic clock (() = lost), and the effect.

    *kind* is the ledger's name of the effect, "" for none; *ns* is the added delay.
    """

    due: tuple[float, ...]
    kind: str = ""
    ns: int = 0
    corrupted: bool = False


Decide = Callable[[int, float], PacketDecision]
"""Function from (packet size in bytes, present monotonic time) to a decision."""


def delay(rng: random.Random, delay_s: float, jitter_s: float) -> Decide:
    """Return a function that decides to delay each packet by *delay_s*, plus or minus up to *jitter_s*."""

    def decide(_: int, now: float) -> PacketDecision:
        lag = max(0.0, delay_s + rng.uniform(-jitter_s, jitter_s)) if jitter_s else delay_s
        return PacketDecision((now + lag,), "packet_delay", int(lag * 1e9))

    return decide


def loss(rng: random.Random, share: float) -> Decide:
    """Return a function that decides to drop a *share* (0 to 1) of the packets at random."""
    return lambda _, now: PacketDecision((), "packet_loss") if rng.random() < share else PacketDecision((now,))


def duplicate(rng: random.Random, share: float) -> Decide:
    """Return a function that decides to send a *share* (0 to 1) of the packets twice."""
    return lambda _, now: (
        PacketDecision((now, now), "packet_duplicate") if rng.random() < share else PacketDecision((now,))
    )


def corrupt(rng: random.Random, share: float) -> Decide:
    """Return a function that decides to flip one bit in a *share* (0 to 1) of the packets."""

    def decide(_: int, now: float) -> PacketDecision:
        if rng.random() < share:
            return PacketDecision((now,), "packet_corrupt", corrupted=True)
        return PacketDecision((now,))

    return decide


def bandwidth(_: random.Random, bytes_per_s: float) -> Decide:
    """Return a function that decides when each packet passes a link of *bytes_per_s*, or that it is dropped."""
    longest_s = backlog_bytes(bytes_per_s) / bytes_per_s
    free_at = 0.0

    def decide(size: int, now: float) -> PacketDecision:
        nonlocal free_at
        begins = max(free_at, now)
        if begins - now > longest_s:
            return PacketDecision((), "packet_loss")
        free_at = begins + size / bytes_per_s
        return PacketDecision((free_at,), "packet_delay", int((free_at - now) * 1e9))

    return decide


def backlog_bytes(bytes_per_s: float) -> int:
    """Return how many bytes may wait for a link of *bytes_per_s*: 0.4 s of it, at least twenty packets."""
    return max(int(bytes_per_s * LONGEST_WAIT_S), LEAST_BACKLOG)


KINDS: dict[str, Callable[..., Decide]] = {
    "delay": delay,
    "loss": loss,
    "duplicate": duplicate,
    "corrupt": corrupt,
    "bandwidth": bandwidth,
}


def decision(impairment: dict[str, Any], rng: random.Random) -> Decide:
    """Return the function for *impairment* {kind, numbers} that decides on each packet of a link by *rng*."""
    return KINDS[impairment["kind"]](rng, **{key: value for key, value in impairment.items() if key != "kind"})
