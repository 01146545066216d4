"""Requests below which something failed, or would have: what a request makes of it is no witness against its service."""

from __future__ import annotations

import numpy as np

from opsassay.annotation.reading.calls import Calls
from opsassay.annotation.reading.circuit_breaking import refused_requests
from opsassay.annotation.reading.spans import Flags, take_or_missing

ROUNDS = 12
"""Deeper call chains than this are not followed."""


def disturbed(calls: Calls) -> Flags:
    """Return per entry (dense id) whether anything failed below it, however deep and whatever it made of that."""
    ids, exits = calls.entries.get_column("entry").to_numpy(), calls.exits
    size = int(max(ids.max(initial=-1), exits.get_column("callee_entry").max() or 0)) + 1
    failed = np.zeros(size, dtype=bool)
    failed[ids] = calls.entries.get_column("failed").to_numpy()
    caller, callee = (exits.get_column(c).fill_null(-1).to_numpy() for c in ("caller_entry", "callee_entry"))
    size = max(size, int(caller.max(initial=-1)) + 1)
    below = np.zeros(size, dtype=bool)
    below[refused_requests(calls).get_column("caller_entry").to_numpy()] = (
        True  # the call that failed was an earlier one
    )
    bad = exits.get_column("failed").to_numpy() | take_or_missing(failed, callee, 0)
    for _ in range(ROUNDS):
        hit = (bad | take_or_missing(below, callee, 0)) & (caller >= 0)
        before = int(below.sum())
        below[caller[hit]] = True
        if int(below.sum()) == before:
            break
    return below
