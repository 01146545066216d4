"""Data points of export requests as columns of a datapack's metrics, metrics_sum and metrics_histogram."""

from __future__ import annotations

from typing import Any

import polars as pl

from opsassay.telemetry.otlp.columns import Attributes, Resources, attribute_keys, text, times
from opsassay.telemetry.schema import SCHEMA

NO_RECORDED_VALUE = 1  # DataPointFlags: the series ended, the point has no value
_CUMULATIVE = 2  # AggregationTemporality
MODALITIES = {
    "gauge": "metrics",
    "sum": "metrics_sum",
    "histogram": "metrics_histogram",
    "exponential_histogram": "metrics_histogram",
    "summary": "metrics_histogram",
}


class _Points:
    """Points of one modality; attributes of a point go before those of its resource, as they are more specific."""

    def __init__(self, modality: str) -> None:
        self.modality, self._keys = modality, attribute_keys(modality)
        self._resources = Resources(modality)
        self._series: dict[tuple[Any, ...], int] = {}
        self.clear_rows()

    def clear_rows(self) -> None:
        """Drop all collected rows."""
        self.rows = 0
        self._values: dict[str, list[Any]] = {}
        self._resource: list[int] = []
        self._attributes = Attributes(dict.fromkeys(self._keys, text))

    def add_metric(self, resource: Any, scope: str, metric: Any, form: str, received_ns: int) -> None:
        """Add the points of *metric*, OTLP type *form*, of *resource* and *scope*; *received_ns* for untimed ones."""
        data = getattr(metric, form)
        points = [point for point in data.data_points if not point.flags & NO_RECORDED_VALUE]
        number = self._resources.number(resource)
        self.rows += len(points)
        self._resource += [number] * len(points)
        self._attributes.extend(points)
        self._extend_column("metric", [metric.name] * len(points))
        self._extend_column("time", [point.time_unix_nano or received_ns for point in points])
        if self.modality != "metrics_histogram":
            self._extend_column("value", [_value_of_point(point) for point in points])
            return
        extremes = form != "summary"
        cumulative = form == "summary" or data.aggregation_temporality == _CUMULATIVE
        self._extend_column("count", [point.count for point in points])
        self._extend_column("sum", [point.sum if not extremes or point.HasField("sum") else None for point in points])
        self._extend_column("min", [point.min if extremes and point.HasField("min") else None for point in points])
        self._extend_column("max", [point.max if extremes and point.HasField("max") else None for point in points])
        self._extend_column("start_ns", [point.start_time_unix_nano for point in points])
        self._extend_column("cumulative", [cumulative] * len(points))
        self._extend_column("series", [self._number_of_series(number, scope, metric.name, point) for point in points])

    def _extend_column(self, column: str, values: list[Any]) -> None:
        """Append *values*, one a point, to *column*."""
        self._values.setdefault(column, []).extend(values)

    def _number_of_series(self, resource: int, scope: str, metric: str, point: Any) -> int:
        """Return the number of the series of *point*: the same for equal resource, scope, metric and attributes."""
        attributes = tuple(sorted(pair.SerializeToString() for pair in point.attributes))
        return self._series.setdefault((resource, scope, metric, attributes), len(self._series))

    def take_frame(self) -> pl.DataFrame:
        """Return the collected points as a table, and drop them here."""
        resources = self._resources.columns(self._resource)
        schema = SCHEMA[self.modality]
        columns = {
            column: _fill_null(self._attributes.series(key, pl.String()), resources[column])
            for key, column in self._keys.items()
        }
        columns["service_name"] = columns["service_name"].fill_null("")
        columns["time"] = times(self._values.pop("time", []))
        extra = {"start_ns": pl.UInt64(), "cumulative": pl.Boolean(), "series": pl.UInt32()}
        for name, dtype in {**schema, **extra}.items():
            if name in self._values:
                columns[name] = pl.Series(self._values[name], dtype=dtype, strict=False)
        self.clear_rows()
        return pl.DataFrame({name: columns[name] for name in (*schema, *extra) if name in columns})


class MetricColumns:
    """Collects export requests of metrics; histograms keep start_ns, cumulative and series for `histogram_deltas`."""

    def __init__(self) -> None:
        self._points = {modality: _Points(modality) for modality in ("metrics", "metrics_sum", "metrics_histogram")}

    @property
    def rows(self) -> int:
        """The number of points collected since the last call of `take`."""
        return sum(points.rows for points in self._points.values())

    def add(self, request: Any, received_ns: int) -> None:
        """Add every point of an ExportMetricsServiceRequest; one without a time gets *received_ns* (ns of UTC)."""
        for group in request.resource_metrics:
            for scope in group.scope_metrics:
                for metric in scope.metrics:
                    if form := metric.WhichOneof("data"):
                        points = self._points[MODALITIES[form]]
                        points.add_metric(group.resource, scope.scope.name, metric, form, received_ns)

    def take(self) -> dict[str, pl.DataFrame]:
        """Return modality to table of the collected points, only tables with rows, and drop them here."""
        return {modality: points.take_frame() for modality, points in self._points.items() if points.rows}


def histogram_deltas(points: pl.DataFrame, opened_ns: int) -> pl.DataFrame:
    """Return *points* with cumulative series turned into the growth since the previous point.

    *points* are rows of metrics_histogram from `MetricColumns`; their columns start_ns, cumulative and series are
    dropped. The first point of a series is only the base of the next one, unless the series started after *opened_ns*
    (ns of UTC). A count that falls is a restart: that point is taken as it is. min and max of an interval are known
    only if it changed those of the whole series, else they are null.
    """
    order = ["series", "start_ns", "time"]
    before = {name: pl.col(name).shift(1).over("series", "start_ns") for name in ("count", "sum", "min", "max")}
    restarted = (pl.col("count") < before["count"]).fill_null(value=False)
    first = before["count"].is_null()
    whole = ~pl.col("cumulative") | restarted | (first & (pl.col("start_ns") >= opened_ns))
    moved = {"min": pl.col("min") < before["min"], "max": pl.col("max") > before["max"]}
    differences = [
        pl.when("whole").then(pl.col(name)).otherwise(pl.col(name) - before[name]).alias(name)
        for name in ("count", "sum")
    ]
    extremes = [pl.when(pl.col("whole") | moved[name]).then(pl.col(name)).alias(name) for name in moved]
    return (
        points.with_row_index("row")
        .sort(order, maintain_order=True)
        .with_columns(whole.alias("whole"), (first & ~whole).alias("base"))
        .with_columns(*differences, *extremes)
        .filter(~pl.col("base"))
        .sort("row")
        .drop("row", "whole", "base", "start_ns", "cumulative", "series")
    )


def _value_of_point(point: Any) -> float | None:
    """Return the value of *point*, int or double, None without one."""
    form = point.WhichOneof("value")
    return float(getattr(point, form)) if form else None


def _fill_null(preferred: pl.Series, fallback: pl.Series) -> pl.Series:
    """Return *preferred* with its nulls filled from *fallback*."""
    return preferred.zip_with(preferred.is_not_null(), fallback)
