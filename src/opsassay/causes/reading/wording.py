"""The lines that a service logs on its way through a request: one that is gone, or new, tells of another way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from opsassay.causes.reading.calls import Calls
from opsassay.causes.reading.tails import hypergeometric_at_least, hypergeometric_at_most
from opsassay.causes.reading.windows import PERIOD
from opsassay.telemetry.datapack import Datapack

USUAL, RARE = 0.8, 0.2
"""Shares of an operation's traces from which on a line belongs to it, and below which it does not."""

LEAST_TRACES, CHANCE = 5, 1e-4

_VALUES = (
    (r"[0-9a-fA-F-]*[0-9][0-9a-fA-F.:-]*", ""),  # numbers, times, ids
    (r"[:=：]\s*[^\[\]]*", ""),  # what follows a colon or an equals sign
    (r"\[[^\[\]]*\]\]", "]"),  # a list inside brackets
)


@dataclass(frozen=True)
class Line:
    """A log line of an operation (*node*) with the shares of its traces that wrote it, before and now."""

    node: str
    text: str
    before: float
    now: float


def changed_lines(pack: Datapack, calls: Calls, service: str) -> list[Line]:
    """Return the lines of *service* that (nearly) every trace through one of its operations wrote, before or now only.

    Compared are traces, by operation, without what varies in a message; a line counts when the difference is beyond
    chance (Fisher's exact test). Traces of the abnormal window that *calls* leaves out are left out.
    """
    text = pl.col("message")
    for pattern, instead in _VALUES:
        text = text.str.replace_all(pattern, instead)
    written = (
        pack.both("logs")
        .filter((pl.col("service_name") == service) & (pl.col("trace_id") != ""))
        .select(pl.col("period").cast(PERIOD), trace=pl.col("trace_id").hash(1), text=text.str.slice(0, 200))
        .unique()
    )
    lines = pack.collect(written, "logs")
    through = calls.entries.filter(pl.col("service") == service).select("period", "trace", "node").unique()
    logged = through.join(lines, on=["period", "trace"], how="inner").group_by("node", "text", "period").len("logged")
    table = (
        logged.select("node", "text")
        .unique()
        .join(through.group_by("node", "period").len("all"), on="node", how="inner")
        .join(logged, on=["node", "text", "period"], how="left")
        .with_columns(pl.col("logged").fill_null(0))
        .pivot("period", index=["node", "text"], values=["logged", "all"])
        .sort("node", "text")
    )
    if not {"logged_normal", "logged_abnormal"} <= set(table.columns):
        return []
    logged0, logged1, all0, all1 = (
        table.get_column(c).fill_null(0).to_numpy().astype(float)
        for c in ("logged_normal", "logged_abnormal", "all_normal", "all_abnormal")
    )
    before, now = logged0 / np.maximum(all0, 1), logged1 / np.maximum(all1, 1)
    gone = (before >= USUAL) & (now <= RARE)
    new = (logged0 == 0) & (now >= USUAL)
    few = hypergeometric_at_most(logged1, all0 + all1, logged0 + logged1, all1)
    many = hypergeometric_at_least(logged1, all0 + all1, logged0 + logged1, all1)
    enough = (all0 >= LEAST_TRACES) & (all1 >= LEAST_TRACES)
    keep = enough & ((gone & (few < CHANCE)) | (new & (many < CHANCE)))
    rows = table.select("node", "text").filter(pl.Series(keep)).iter_rows()
    return [Line(n, t, float(b), float(a)) for (n, t), b, a in zip(rows, before[keep], now[keep], strict=True)]
