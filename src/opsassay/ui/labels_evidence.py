"""The raw evidence that an annotator judges a cascade by: spans, metrics and logs, before and after, nothing inferred."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.severity import ERROR_LEVELS

BIN_S = 5
MOST_ROWS = 60


@dataclass(frozen=True)
class LabelEvidence:
    """One row of the evidence: *before* and *after* are what was measured, *series* means of bins over both windows."""

    component: str
    what: str
    before: str
    after: str
    change: float
    series: tuple[float | None, ...] = ()


def span_evidence(pack: Datapack) -> list[LabelEvidence]:
    """Return per span (service::name) its rate, mean, P99 and errors in both windows, most changed first."""
    raw = pack.both("traces")
    failed = (pl.col("attr.status_code").fill_null("").str.to_lowercase() == "error") | (
        pl.col("attr.http.response.status_code") >= 500
    ).fill_null(value=False)
    spans = raw.select(
        "period",
        node=pl.concat_str("service_name", pl.lit("::"), "span_name"),
        time_ns=pl.col("time").dt.epoch("ns"),
        ms=pl.col("duration").cast(pl.Float64) / 1e6,
        failed=failed,
    )
    stats = spans.group_by("node", "period").agg(
        n=pl.len(), mean=pl.col("ms").mean(), p99=pl.col("ms").quantile(0.99), failed=pl.col("failed").mean()
    )
    wide = stats.collect().pivot("period", index="node", values=["n", "mean", "p99", "failed"])
    columns = [f"{name}_{period}" for name in ("n", "mean", "p99", "failed") for period in ("normal", "abnormal")]
    wide = wide.with_columns(pl.lit(None, pl.Float64).alias(c) for c in columns if c not in wide.columns)
    bins = _bins(spans, pack)
    seconds = {"normal": pack.incident.normal.seconds, "abnormal": pack.incident.abnormal.seconds}
    rows = [_span_row(row, bins.get(row["node"], ()), seconds) for row in wide.iter_rows(named=True)]
    return sorted(rows, key=lambda r: (-r.change, r.component))


def _span_row(
    row: dict[str, float | str | None], series: tuple[float | None, ...], seconds: dict[str, float]
) -> LabelEvidence:
    def words(period: str) -> str:
        count = float(row[f"n_{period}"] or 0)
        if not count:
            return "no calls"
        mean, p99, failed = (float(row[f"{name}_{period}"] or 0) for name in ("mean", "p99", "failed"))
        return f"{count / seconds[period]:.2f}/s, mean {mean:.1f} ms, p99 {p99:.0f} ms, {failed:.1%} failed"

    before, after = (float(row[f"mean_{p}"] or 0) for p in ("normal", "abnormal"))
    errors = float(row["failed_abnormal"] or 0) - float(row["failed_normal"] or 0)
    change = abs(after - before) / max(before, 1.0) + 10 * abs(errors)
    change += 5.0 if bool(row["n_normal"]) != bool(row["n_abnormal"]) else 0.0
    return LabelEvidence(f"span|{row['node']}", "calls", words("normal"), words("abnormal"), change, series)


def _bins(spans: pl.LazyFrame, pack: Datapack) -> dict[str, tuple[float | None, ...]]:
    start, end = pack.incident.normal.start_ns, pack.incident.abnormal.end_ns
    count = int((end - start) / 1e9 // BIN_S) + 1
    table = (
        spans.with_columns(bin=((pl.col("time_ns") - start) // (BIN_S * 1_000_000_000)).clip(0, count - 1))
        .group_by("node", "bin")
        .agg(pl.col("ms").mean())
        .collect()
    )
    result: dict[str, list[float | None]] = {}
    for node, at, value in table.iter_rows():
        result.setdefault(node, [None] * count)[at] = value
    return {node: tuple(values) for node, values in result.items()}


def service_evidence(pack: Datapack, service: str) -> list[LabelEvidence]:
    """Return the metrics of *service* that moved most, and how many errors it logged."""
    series = (
        pack.both("metrics")
        .filter((pl.col("service_name") == service) & pl.col("value").is_finite())
        .group_by("metric", "period")
        .agg(pl.col("value").mean(), spread=pl.col("value").std())
        .collect()
    )
    rows = []
    for (metric,), group in series.group_by("metric", maintain_order=False):
        by_period = {period: (value, spread) for _, period, value, spread in group.iter_rows()}
        if len(by_period) < 2:
            continue
        (before, spread), (after, _) = by_period["normal"], by_period["abnormal"]
        change = abs(after - before) / max(spread or 0.0, abs(before) * 0.05, 1e-9)
        rows.append(LabelEvidence(f"service|{service}", str(metric), f"{before:.4g}", f"{after:.4g}", change))
    logs = pack.both("logs").filter((pl.col("service_name") == service) & pl.col("level").is_in(ERROR_LEVELS))
    errors = dict(logs.group_by("period").len().collect().iter_rows())
    before_, after_ = (str(errors.get(period, 0)) for period in ("normal", "abnormal"))
    rows.sort(key=lambda r: (-r.change, r.what))
    return [*rows[:8], LabelEvidence(f"service|{service}", "errors logged", before_, after_, 0.0)]
