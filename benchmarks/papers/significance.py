"""The tests of the tables: Fisher exact and the sign test, which are scipy's."""

from __future__ import annotations

from collections.abc import Sequence

from .running import part_of


def fisher_exact(hits: int, of: int, other_hits: int, other_of: int) -> float | None:
    """Return the two-sided p of equal rates of *hits* of *of* and *other_hits* of *other_of*; None where one is empty."""
    if not of or not other_of:
        return None
    from scipy import stats

    table = [[hits, of - hits], [other_hits, other_of - other_hits]]
    return float(stats.fisher_exact(table, alternative="two-sided").pvalue)


def sign_test(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return the two-sided p of the sign test over *pairs*; ties are left out, None when nothing differs."""
    above = sum(a > b for a, b in pairs)
    differing = sum(a != b for a, b in pairs)
    if not differing:
        return None
    from scipy import stats

    return float(stats.binomtest(above, differing, 0.5).pvalue)


if __name__ == "__main__":
    part_of("side_effects")
