"""Two textbook anomaly detectors with all parameters explicit, over any series of (time, slice, value).

``isolation_forest`` is scikit-learn's over (value, hour, weekday) per slice; ``robust_z`` is the distance from the
median of the same weekday and hour, in scaled median absolute deviations. Neither uses a task's definition of an
anomaly.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field

from opsassay.core.schema.base import Written

MAD_TO_SD = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""


class DetectorSettings(Written):
    """All parameters of the detector."""

    method: Literal["robust_z", "isolation_forest"] = Field(default="robust_z", description="which of the two")
    threshold: float = Field(default=3.5, gt=0, description="robust_z: distance in scaled deviations beyond which")
    least_spread: float = Field(default=0.02, ge=0, description="robust_z: least deviation, as a share of the median")
    contamination: float = Field(default=0.02, gt=0, le=0.5, description="isolation_forest: share of points found")
    trees: int = Field(default=100, ge=10, le=500, description="isolation_forest: number of trees")
    random_state: int = Field(default=0, ge=0, description="isolation_forest: seed")


DEFAULTS = DetectorSettings()


def detect(
    rows: Sequence[tuple[datetime, str, float]], settings: DetectorSettings = DEFAULTS
) -> list[tuple[datetime, str]]:
    """Return the sorted (time, slice) pairs of *rows*, (time, slice, value), that are anomalous by *settings*.

    A slice names a series, *value* is in any unit. With m the median of values of the same weekday and hour (weekday
    alone for a daily series) in a slice, and MAD the median of |value - m| over the slice, ``robust_z`` finds

        |value - m| > threshold * max(1.4826 * MAD, least_spread * |m|)
    """
    if not rows:
        return []
    frame = pl.DataFrame(rows, schema=["time", "slice", "value"], orient="row").sort("slice", "time")
    finder = _robust_z if settings.method == "robust_z" else _isolation_forest
    return [point for _, of in frame.group_by("slice", maintain_order=True) for point in finder(of, settings)]


def _robust_z(series: pl.DataFrame, settings: DetectorSettings) -> list[Any]:
    """Return the (time, slice) of points that `detect` finds with the method ``robust_z``."""
    daily = series["time"].dt.hour().n_unique() == 1
    keys = [pl.col("time").dt.weekday(), *(() if daily else (pl.col("time").dt.hour(),))]
    deviation = pl.col("value") - pl.col("value").median().over(keys)
    found = series.with_columns(deviation.alias("off"), pl.col("value").median().over(keys).abs().alias("usual"))
    spread = MAD_TO_SD * float(found["off"].abs().median() or 0.0)  # type: ignore[arg-type]
    least = pl.max_horizontal(pl.lit(spread), settings.least_spread * pl.col("usual"))
    return found.filter(pl.col("off").abs() > settings.threshold * least).select("time", "slice").rows()


def _isolation_forest(series: pl.DataFrame, settings: DetectorSettings) -> list[Any]:
    """Return the (time, slice) of points that scikit-learn's isolation forest marks as outliers."""
    from sklearn.ensemble import IsolationForest

    features = np.column_stack([series["value"], series["time"].dt.hour(), series["time"].dt.weekday()]).astype(float)
    forest = IsolationForest(
        n_estimators=settings.trees, contamination=settings.contamination, random_state=settings.random_state, n_jobs=1
    )
    return series.filter(pl.Series(forest.fit_predict(features) == -1)).select("time", "slice").rows()
