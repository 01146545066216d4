"""The three detector families of the paper (OpenRCA 2.0, D.8), over arrays."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from opsassay.core.schema.base import Written

Array = NDArray[np.float64]

EPSILON = 1e-6
Z_LEVELS = (1.5, 2.0, 3.0)
TAIL_FACTORS = (1.2, 1.5, 2.0)
"""Times the baseline's P99 that are moderate, warning and critical."""

MULTIPLIER_FLOOR = 1.2
"""The public implementation has 1.0, with which any rise above the mean of a slow service counts as slow."""


class AdaptiveLatency(Written):
    """The constants of `adaptive_multiplier`, as the public implementation has them."""

    cv_base: float = Field(default=1.5, gt=0, le=1000, description="multiplier of a latency that never varies")
    cv_range: float = Field(default=3.0, ge=0, le=1000, description="what a latency that varies much adds to it")
    alpha: float = Field(
        default=0.15, ge=0.001, le=1000, description="coefficient of variation at which most of that is added"
    )
    beta: float = Field(default=0.6, ge=0, le=10, description="how much faster operations may rise further")
    reference_s: float = Field(
        default=0.2, ge=1e-6, le=3600, description="latency of an operation that is neither fast nor slow, s"
    )


class Severity(IntEnum):
    """How far a value lies beyond its baseline: NONE (within it) to CRITICAL."""

    NONE = 0
    MODERATE = 1
    WARNING = 2
    CRITICAL = 3


def z_score(value: ArrayLike, mean: ArrayLike, deviation: ArrayLike) -> Array:
    """Return (value - mean) / max(deviation, 1e-6)."""
    spread = np.maximum(np.asarray(deviation, dtype=np.float64), EPSILON)
    return (np.asarray(value, dtype=np.float64) - np.asarray(mean, dtype=np.float64)) / spread


def z_severity(
    value: ArrayLike, mean: ArrayLike, deviation: ArrayLike, levels: tuple[float, float, float] = Z_LEVELS
) -> NDArray[np.int64]:
    """Return the Severity of each value: how many of the three *levels* its z score exceeds."""
    return np.searchsorted(np.asarray(levels), z_score(value, mean, deviation), side="left").astype(np.int64)


def percentile_severity(
    value: ArrayLike,
    p90: ArrayLike,
    p99: ArrayLike,
    p999: ArrayLike,
    factors: tuple[float, float, float] = TAIL_FACTORS,
) -> NDArray[np.int64]:
    """Return the Severity of each value against percentiles of its baseline.

    Critical above P99.9 or 2 x P99, warning above P99 or 1.5 x P99, moderate above P90 or 1.2 x P99, by *factors*.
    """
    x, tail = np.asarray(value, dtype=np.float64), np.asarray(p99, dtype=np.float64)
    limits = zip((p90, p99, p999), factors, strict=True)
    flags = [(x > np.asarray(limit)) | (x > factor * tail) for limit, factor in limits]
    levels = np.where(flags[2], Severity.CRITICAL, np.where(flags[1], Severity.WARNING, flags[0].astype(np.int64)))
    return levels.astype(np.int64)


def adaptive_multiplier(
    mean_s: ArrayLike, cv: ArrayLike, floor: float = MULTIPLIER_FLOOR, constants: AdaptiveLatency | None = None
) -> Array:
    """Return the factor over its baseline mean (*mean_s*, seconds) from which on a latency is slow; at least *floor*.

    tau = (cv_base + cv_range (1 - exp(-cv / alpha))) (l_ref / l_base)^beta, *cv* being sd / mean, l_base = *mean_s*;
    l_ref is reference_s, and the other names are those of *constants*.
    """
    constants = constants or AdaptiveLatency()
    base = np.maximum(np.asarray(mean_s, dtype=np.float64), EPSILON)
    spread = constants.cv_base + constants.cv_range * (1 - np.exp(-np.asarray(cv, dtype=np.float64) / constants.alpha))
    return np.maximum(spread * (constants.reference_s / base) ** constants.beta, floor)
