"""Judges the normal window before a fault is injected: only a system that is healthy can be seen to break."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import polars as pl
import psutil

from opsassay.core.schema.incident import Alert, Window
from opsassay.core.schema.system import Slo
from opsassay.testbed.core.fleet import LOAD_GENERATOR
from opsassay.testbed.recording.alerts import alerts

EXPORT_LAG_S = 1.0
"""Spans of the last second may still be on their way to the receiver."""
SENT_SHARE = 0.85
"""At least this share of the requests that are due has to be sent and answered."""
FEWEST_DUE = 30
"""With fewer requests than this a share says nothing."""


class FreeCores:
    """Measures how many processors of this machine were idle, on average, while the block ran: *mean*."""

    mean = 0.0

    def __enter__(self) -> Self:
        self._before = psutil.cpu_times()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        after = psutil.cpu_times()
        spent = sum(after) - sum(self._before)
        self.mean = (os.cpu_count() or 1) * (after.idle - self._before.idle) / spent if spent > 0 else 0.0


@dataclass(frozen=True)
class Baseline:
    """What users and the machine saw in the normal window of a recording.

    *due* requests were to be sent by the rate, *answered* ended; *failed* is a share of those, *p99_ms* their latency.
    *alerts* fired in the last third against the rest. *free_cores* of *cores* were idle on average, None where that is
    another machine's matter.
    """

    due: float
    answered: int
    failed: float
    p99_ms: float
    alerts: tuple[Alert, ...]
    free_cores: float | None
    cores: int

    def objection(self, slo: Slo) -> str:
        """Return in words why the system was not healthy in this window, by the limits of *slo*; '' when it was."""
        found = []
        if self.due >= FEWEST_DUE and self.answered < SENT_SHARE * self.due:
            found.append(f"{self.answered} of {self.due:.0f} user requests were answered")
        if self.failed > slo.error_rate:
            found.append(f"{self.failed:.0%} of the user requests failed")
        if self.p99_ms > slo.latency_p99_ms:
            found.append(f"p99 latency for users was {self.p99_ms:.0f} ms (limit {slo.latency_p99_ms:.0f} ms)")
        if len({alert.service for alert in self.alerts}) > 1 and not found:  # a single one is what chance brings
            found.append(f"{len(self.alerts)} alerts fired, the first on {self.alerts[0].message}")
        if found and self.free_cores is not None:
            found.append(f"{self.free_cores:.1f} of {self.cores} processors were free")
        return ", ".join(found)


def user_requests(traces: pl.DataFrame, seen_at: Collection[str]) -> pl.DataFrame:
    """Return the rows of *traces* that are user requests: root spans of the load generator.

    If *seen_at* is not empty, the load is a command without spans: then they are server spans of these services
    without a parent in *traces*.
    """
    if not seen_at:
        return traces.filter((pl.col("parent_span_id") == "") & (pl.col("service_name") == LOAD_GENERATOR))
    served = traces.filter(pl.col("service_name").is_in(list(seen_at)) & (pl.col("attr.span_kind") == "Server"))
    inside = traces.select("trace_id", parent_span_id="span_id")
    return served.join(inside, on=["trace_id", "parent_span_id"], how="anti")


def measure(
    frames: Mapping[str, pl.DataFrame],
    slo: Slo,
    window: Window,
    *,
    reference: Window,
    rate_rps: float | None,
    free_cores: float | None,
    seen_at: Collection[str] = (),
) -> Baseline:
    """Return the baseline in *window* (UTC ns) from *frames*: the datapack's tables traces and metrics.

    *reference* is the first part of the window, which alerts compare the rest with. *rate_rps* is the rate of the
    load, *free_cores* the processors that were idle; for *seen_at* see `user_requests`.
    """
    end_ns = window.end_ns - int(EXPORT_LAG_S * 1e9)
    ended = pl.col("time").cast(pl.Int64) + pl.col("duration").cast(pl.Int64)
    users = user_requests(frames["traces"], seen_at).filter(ended.is_between(window.start_ns, end_ns, closed="left"))
    failed, p99 = users.select(
        (pl.col("attr.status_code") == "Error").mean(), pl.col("duration").quantile(0.99, "linear") / 1e6
    ).row(0)
    return Baseline(
        due=(rate_rps or 0.0) * (end_ns - window.start_ns) / 1e9,
        answered=users.height,
        failed=failed or 0.0,
        p99_ms=p99 or 0.0,
        alerts=tuple(alerts(frames["traces"], frames["metrics"], slo, reference, end_ns)),
        free_cores=free_cores,
        cores=os.cpu_count() or 1,
    )
