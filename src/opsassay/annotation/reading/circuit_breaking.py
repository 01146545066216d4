"""Calls that were not made because the last one failed: open circuit breakers, and clients that no longer try.

A request that fails without a failed call, and without the call that its operation always makes, failed by itself,
unless the last call that its process made to that callee had failed: then a circuit breaker may be open. Also finds
requests with a failure below them, which prove nothing against their service.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from opsassay.annotation.reading.calls import Calls, usual_callees
from opsassay.annotation.reading.spans import Flags, take_or_missing


def refused_requests(calls: Calls) -> pl.DataFrame:
    """Return failed requests that skipped a usual call whose previous attempt failed: caller_entry and exit (that attempt).

    The call was made by the same process (pod), so that a circuit breaker may have opened.
    """
    nothing = pl.DataFrame(schema={"caller_entry": pl.Int64, "exit": pl.UInt32})
    alone = calls.entries.filter(
        (pl.col("period") == "abnormal") & pl.col("failed") & ~pl.col("any_failed_exit") & pl.col("cut_short")
    )
    if not calls.status_known or not alone.height:
        return nothing
    service, pod = (pl.col(c).cast(pl.String) for c in ("service", "pod"))
    process = pl.when(pod == "").then(service).otherwise(pod)
    missing = (
        alone.select("entry", "node", "end_ns", process=process)
        .join(usual_callees(calls), on="node", how="inner")
        .join(
            calls.exits.select(entry="caller_entry", callee_node="callee_node").drop_nulls(),
            on=["entry", "callee_node"],
            how="anti",
        )
    )
    if not missing.height:
        return nothing
    made = (
        calls.exits.filter(
            (pl.col("period") == "abnormal") & ~pl.col("asynchronous") & pl.col("caller_entry").is_not_null()
        )
        .select("exit", "callee_service", "end_ns", "failed", entry="caller_entry")
        .join(calls.entries.select("entry", process=process), on="entry", how="inner")
        .drop("entry")
    )
    last = missing.sort("end_ns", "entry", "callee_node").join_asof(
        made.drop_nulls("callee_service").sort("end_ns", "exit"),
        on="end_ns",
        by=["process", "callee_service"],
        check_sortedness=False,
    )
    given_up = last.filter(pl.col("failed").fill_null(value=False))
    return given_up.select(caller_entry="entry", exit="exit").unique().sort("caller_entry", "exit")


ROUNDS = 12
"""Deeper call chains than this are not followed."""


def disturbed(calls: Calls) -> Flags:
    """Return an array by entry id: whether any call below the request failed, at any depth."""
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
