"""The readings of an incident as one matrix per period, the input of methods over metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opsassay.core.errors import UserError
from opsassay.solvers.methods.signals import METRIC, NANO, bin_width_ns, binned_signals, bins_of
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import PERIODS

Matrix = NDArray[np.float64]

COLUMN_SET = (
    "the columns that both periods have: spans, failed spans and error logs per second, mean and p95 span duration, "
    "every gauge of the metrics table; metrics alone where no spans were recorded"
)
IMPUTATION = "infinite to missing, forward fill over normal then abnormal, then 0; counts are 0 where a bin has no row"
METRIC_TO_SERVICE = "service_name of the row, whole and exact; replicas averaged"


@dataclass(frozen=True)
class Readings:
    """Readings by bin (row) and signal (column) of both periods; columns are sorted by service, then signal.

    *step_ns* is the width of a bin in nanoseconds.
    """

    services: tuple[str, ...]
    signals: tuple[str, ...]
    normal: Matrix
    abnormal: Matrix
    step_ns: int

    @property
    def step_s(self) -> float:
        """The width of a bin in seconds."""
        return self.step_ns / NANO

    def by_service(self, scores: Matrix) -> dict[str, float]:
        """Return per service the largest of its columns' *scores* (one per column)."""
        best: dict[str, float] = {}
        for service, score in zip(self.services, scores.tolist(), strict=True):
            best[service] = max(score, best.get(service, score))
        return best

    def top_signal(self, service: str, scores: Matrix) -> int:
        """Return the index of the column of *service* with the largest of *scores*, the first by name among equals."""
        own = [place for place, name in enumerate(self.services) if name == service]
        return max(own, key=lambda place: (scores[place], -place))


def readings(view: Datapack, step_ns: int | None = None, window_s: float | None = None) -> Readings:
    """Return the readings of *view* as one matrix per period, in bins of *step_ns* (None: `own_step_ns`).

    Columns are signals that both periods have, even if all readings of a period are missing; missing ones are filled as
    IMPUTATION says. *window_s* keeps only the last seconds of the normal period. Raises UserError for less than a step.
    """
    width_ns = own_step_ns(view) if step_ns is None else step_ns
    has_spans = _has_rows(view, "traces")
    long = binned_signals(view, width_ns, golden=has_spans)
    keys = ["service", "signal"]
    columns = _columns(view, long).with_row_index("column")
    placed = long.join(columns, on=keys)
    windows = (view.incident.normal, view.incident.abnormal)
    parts = [
        _as_dense_matrix(
            placed.filter(pl.col("period") == period), bins_of(window, width_ns, partial=not has_spans), columns.height
        )
        for period, window in zip(PERIODS, windows, strict=True)
    ]
    filled = _fill_missing(np.vstack(parts))
    rows = len(parts[0])
    services, signals = (tuple(columns.get_column(key).to_list()) for key in keys)
    return Readings(
        services, signals, filled[rows - _count_kept_rows(rows, window_s, width_ns) : rows], filled[rows:], width_ns
    )


def baseline_words(window_s: float | None) -> str:
    """Return the protocol's phrase for a baseline of *window_s* seconds; None is the whole normal period."""
    return "the whole normal period" if window_s is None else f"the last {window_s:g} s of the normal period"


def _count_kept_rows(rows: int, window_s: float | None, width_ns: int) -> int:
    """Return how many of *rows* bins of *width_ns* fit into *window_s* seconds, all for None; UserError for none."""
    if window_s is None:
        return rows
    if round(window_s * NANO) < width_ns:
        raise UserError(f"A window of {window_s:g} s is shorter than a step of {width_ns / NANO:g} s; make it longer.")
    return min(rows, round(window_s * NANO) // width_ns)


def own_step_ns(view: Datapack) -> int:
    """Return the natural bin width of a recording in ns: for spans `bin_width_ns`, else the median gauge interval."""
    if _has_rows(view, "traces"):
        return bin_width_ns(view)
    gauge = ["service_name", "metric"]
    samples = view.scan("normal", "metrics").select(*gauge, time=pl.col("time").dt.epoch("ns")).unique()
    steps = samples.sort(*gauge, "time").select(pl.col("time").diff().over(gauge)).drop_nulls().collect().to_series()
    return int(steps.sort()[(len(steps) - 1) // 2]) if len(steps) else bin_width_ns(view)


def z_scores(normal: Matrix, abnormal: Matrix) -> Matrix:
    """Return z = (abnormal - mean) / sd of every reading (bins x columns), mean and sd (ddof 0) of the normal column.

    A column of zero variance has z = 0; a deviation that is a rounding error of the mean is zero variance.
    """
    mean, deviation = normal.mean(axis=0), normal.std(axis=0)
    varies = deviation > 1e-9 * np.abs(mean)
    z: Matrix = np.where(varies, (abnormal - mean) / np.where(varies, deviation, 1.0), 0.0)
    return z


def _has_rows(view: Datapack, modality: str) -> bool:
    """Whether either period has a row of *modality* (traces, logs, metrics)."""
    return any(view.scan(period, modality).select(pl.len()).collect().item() for period in PERIODS)


def _columns(view: Datapack, long: pl.DataFrame) -> pl.DataFrame:
    """Return service and signal of each signal in *long* or gauge of *view* that both periods have, sorted."""
    services = view.candidates()
    gauges = [
        view.scan(period, "metrics")
        .filter(pl.col("service_name").is_in(services))
        .select(service="service_name", signal=pl.lit(METRIC) + pl.col("metric"))
        .unique()
        .collect()
        for period in PERIODS
    ]
    others = long.filter(~pl.col("signal").str.starts_with(METRIC)).select("period", "service", "signal").unique()
    golden = [others.filter(pl.col("period") == period).drop("period") for period in PERIODS]
    per_period = [pl.concat(pair) for pair in zip(gauges, golden, strict=True)]
    return per_period[0].join(per_period[1], on=["service", "signal"]).sort("service", "signal")


def _as_dense_matrix(long: pl.DataFrame, bins: int, columns: int) -> Matrix:
    """Return the matrix (bins, columns) of the rows (bin, column, value) in *long*, NaN where there is no row."""
    dense = np.full((bins, columns), np.nan)
    dense[long.get_column("bin").to_numpy(), long.get_column("column").to_numpy()] = long.get_column("value").to_numpy()
    return dense


def _fill_missing(matrix: Matrix) -> Matrix:
    """Return *matrix* with each NaN or infinity replaced by the last finite value above it in its column, else 0."""
    known = np.isfinite(matrix)
    last = np.maximum.accumulate(np.where(known, np.arange(len(matrix))[:, None], -1), axis=0)
    taken = np.take_along_axis(matrix, np.maximum(last, 0), axis=0)
    filled: Matrix = np.where(last >= 0, taken, 0.0)
    return filled
