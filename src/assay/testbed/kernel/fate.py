"""What an impairment does to one packet: when its copies go on, and whether they are changed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple


class Fate(NamedTuple):
    """When the copies of a packet go on, in seconds of the monotonic clock (none = it is lost), and what it cost.

    *kind* is the ledger's word for what was done, empty when nothing was; *ns* the delay that it introduced.
    """

    due: tuple[float, ...]
    kind: str = ""
    ns: int = 0
    corrupted: bool = False


Decide = Callable[[int, float], Fate]
"""From the size of a packet in bytes and the present instant to its fate."""


def delay(delay_s: float, jitter_s: float, rng: random.Random) -> Decide:
    """Every packet is late by *delay_s*, give or take *jitter_s*, uniformly, as netem without a distribution."""

    def decide(size: int, now: float) -> Fate:  # noqa: ARG001
        lag = max(0.0, delay_s + rng.uniform(-jitter_s, jitter_s)) if jitter_s else delay_s
        return Fate((now + lag,), "packet_delay", int(lag * 1e9))

    return decide


def decision(impairment: dict[str, Any], rng: random.Random) -> Decide:
    """Return how packets fare under *impairment* {kind, and its numbers}."""
    numbers = {key: value for key, value in impairment.items() if key != "kind"}
    return KINDS[impairment["kind"]](**numbers, rng=rng)


KINDS: dict[str, Callable[..., Decide]] = {"delay": delay}
