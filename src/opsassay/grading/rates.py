"""The interval that every table gives a rate."""

from __future__ import annotations

CONFIDENCE = 0.95


def wilson(successes: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of *successes*, which may be a mean over repeats, out of *n*; (0, 1) for none."""
    if not n:
        return 0.0, 1.0
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(successes, n, alpha=1 - CONFIDENCE, method="wilson")
    return float(low), float(high)
