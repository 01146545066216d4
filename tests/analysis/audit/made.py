"""Score tables made for tests: small ones by hand, larger ones from a seed."""

from __future__ import annotations

import numpy as np
import polars as pl

from opsassay.analysis.audit.matched import match
from opsassay.analysis.audit.settings import AuditSettings
from opsassay.analysis.audit.table import long_scores

QUICK = AuditSettings(resamples=400, permutations=200, simulations=100)
COLUMNS = ("family", "system", "case", "method", "score")


def table(scores: dict[str, dict[str, list[float]]], families: dict[str, str] | None = None) -> pl.DataFrame:
    """Return the long table of system -> method -> scores by case."""
    rows = [
        ((families or {}).get(system, "f"), system, f"case-{i:03d}", method, float(score))
        for system, methods in scores.items()
        for method, values in methods.items()
        for i, score in enumerate(values)
    ]
    return pl.DataFrame(rows, schema=list(COLUMNS), orient="row")


def drawn(sizes=(40, 60, 25, 80), methods=("a", "b", "c"), families=("x", "x", "y", "y"), seed=0, *, fractional=False):
    """Return the long table of random scores in which methods succeed on the same cases."""
    dice = np.random.default_rng(seed)
    scores = {}
    for s, size in enumerate(sizes):
        ease = dice.uniform(-1, 1, size)
        skill = dice.uniform(-0.8, 0.8, len(methods))
        values = {}
        for method, own in zip(methods, skill, strict=True):
            right = (ease + own + dice.normal(0, 0.8, size) > 0).astype(float)
            values[method] = right * dice.choice([0.25, 0.5, 1.0], size) if fractional else right
        scores[f"s{s}"] = values
    return table(scores, {f"s{s}": f for s, f in enumerate(families)})


def matched(frame: pl.DataFrame, settings: AuditSettings = QUICK):
    """Return the matched table of a long one."""
    return match(long_scores(frame, settings.columns, "t"), settings, "t").matched
