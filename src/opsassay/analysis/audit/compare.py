"""Compares two sets of scores on the same cases: paired difference, detectable difference, verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import polars as pl
from scipy.special import ndtri

from opsassay.analysis.audit.advice import POWER
from opsassay.analysis.audit.effects import paired_effects
from opsassay.analysis.audit.matched import Matched, match
from opsassay.analysis.audit.resampling import bootstrap_means, combined_interval, effect_intervals
from opsassay.analysis.audit.settings import AuditSettings
from opsassay.core.errors import UserError
from opsassay.core.text import plural

KEYS = ("family", "system", "case")
BEFORE, AFTER = "A", "B"
MOST_MISSING = 0.1
"""The default share of all cases that may be missing on one side."""
FEW = 8


class PairOutcome(StrEnum):
    """The conclusion from the interval of B - A."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "not worse"
    UNPROVEN = "not shown"
    UNDECIDED = "undecided"
    IDENTICAL = "identical"
    TOO_FEW = "too few cases"


@dataclass(frozen=True)
class Difference:
    """B minus A on one system, or on all (*system* empty), as fractions.

    *fewest*: cases that are needed to show any difference; *detectable* is None where no difference of at most 1 could
    be found.
    """

    system: str
    cases: int
    before: float
    after: float
    difference: float
    low: float
    high: float
    detectable: float | None
    outcome: PairOutcome
    fewest: int


@dataclass(frozen=True)
class Comparison:
    """One method in both tables; *only_before* and *only_after* name cases that the other lacks, as SYSTEM/CASE.

    No gate passes if more than the share *most_missing* of all cases are missing, since omitting failures would help.
    *unsealed_before* and *unsealed_after* count runs without a sandbox behind the scores.
    """

    method: str
    overall: Difference
    weighted: float
    systems: tuple[Difference, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    most_missing: float = MOST_MISSING
    unsealed_before: int = 0
    unsealed_after: int = 0

    @property
    def passed(self) -> bool:
        """Whether the gate passes: B not shown to be worse than A or, with a margin, shown not to be worse by more.

        It does not pass with too few cases to show anything, or too many missing ones.
        """
        lost = self.overall.outcome in {PairOutcome.WORSE, PairOutcome.UNPROVEN, PairOutcome.TOO_FEW}
        return not lost and self.missing <= self.most_missing

    @property
    def missing(self) -> float:
        """The fraction of all cases that only one side has scored."""
        lacking = len(self.only_before) + len(self.only_after)
        return lacking / (lacking + self.overall.cases)

    @property
    def left_out(self) -> str:
        """A sentence naming cases that only one side has, "" when there are none."""
        sides = [(side, names) for side, names in ((BEFORE, self.only_before), (AFTER, self.only_after)) if names]
        if not sides:
            return ""
        said = "; ".join(
            f"only {side} has {plural(len(names), 'case')}: {_join_first_names(names)}" for side, names in sides
        )
        most = (
            f", more than the {self.most_missing:.0%} that a gate lets pass" if self.missing > self.most_missing else ""
        )
        return f"{said} ({self.missing:.0%} of all{most})"

    @property
    def unsealed(self) -> str:
        """A sentence on runs outside a sandbox among those scored, "" when there are none."""
        if not self.unsealed_before + self.unsealed_after:
            return ""
        runs = f"{plural(self.unsealed_before, 'run')} of A and {self.unsealed_after} of B"
        return f"unsealed: {runs}, so that nothing says what they could read; they are ranked nowhere"


def _join_first_names(names: Sequence[str]) -> str:
    """Return the first `FEW` of *names* as text, and how many more there are."""
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more


def methods_to_compare(before: pl.DataFrame, after: pl.DataFrame) -> list[tuple[str, str]]:
    """Return the pairs of method names to compare: one in each table, else those with the same name in both.

    Tables are long, as `table.long_scores` gives them. Raises UserError when the tables share no method.
    """
    of_a, of_b = (table.get_column("method").unique(maintain_order=True).to_list() for table in (before, after))
    if len(of_a) == len(of_b) == 1:
        return [(of_a[0], of_b[0])]
    shared = [(name, name) for name in of_a if name in of_b]
    if not shared:
        raise UserError(
            f"The two tables share no method: A has {', '.join(of_a[:6])}, B has {', '.join(of_b[:6])}; "
            "give tables with one method each, or with the same names."
        )
    return shared


def compare(
    before: pl.DataFrame,
    after: pl.DataFrame,
    names: tuple[str, str],
    settings: AuditSettings | None = None,
    margin: float | None = None,
    most_missing: float = MOST_MISSING,
) -> Comparison:
    """Compare method ``names[0]`` of *before* with ``names[1]`` of *after* on the cases that both have scores for.

    The overall difference is the mean over systems of B - A; its interval resamples cases within systems (percentile;
    resamples, seed and confidence of *settings*); systems whose differences do not vary add `pseudo_variance`
    (`combined_interval`). ``detectable`` = (z_.975 + z_.8) se, at 95 % confidence, is the difference that this n finds
    with power 0.8; se = sqrt(sum over systems of variance_s) / S. Outcome: identical when no case differs, better or
    worse when the interval lies on one side of 0, else undecided; with *margin* (a fraction) "not worse" when it lies above
    -margin, "worse" when it lies below, else "not shown". "too few cases", whatever came out, of fewer than `fewest_cases`
    and where not even a difference of 1 would be found. Raises UserError when no case is shared, and when a method
    has several scores on one.
    *most_missing* is the largest share of cases that one side may lack for the gate to pass.
    """
    settings = settings or AuditSettings()
    a = _select_scores_of_method(before, names[0], BEFORE)
    b = _select_scores_of_method(after, names[1], AFTER)
    both = a.join(b, on=list(KEYS), how="inner", suffix="_b")
    if both.is_empty():
        raise UserError(
            "The two tables share no scored case; family, system and case must have the same names in both."
        )
    long = pl.concat(
        [
            both.select(*KEYS, "score", pl.lit(BEFORE).alias("method")),
            both.select(*KEYS, pl.col("score_b").alias("score"), pl.lit(AFTER).alias("method")),
        ]
    )
    matched = match(long, AuditSettings()).matched
    drawn = bootstrap_means(matched, settings.resamples, settings.seed)
    name = names[0] if names[0] == names[1] else f"{names[0]} -> {names[1]}"
    return Comparison(
        method=name,
        overall=_with_identity(_overall_difference(matched, drawn, settings, margin), matched.difference(0, 1), margin),
        weighted=float((matched.values[:, 1] - matched.values[:, 0]).mean()),
        systems=tuple(
            _with_identity(one, matched.difference(0, 1)[start : start + one.cases], margin)
            for one, start in zip(_differences_by_system(matched, drawn, settings, margin), matched.starts, strict=True)
        ),
        only_before=_names_lacking(a, b),
        only_after=_names_lacking(b, a),
        most_missing=most_missing,
    )


def _names_lacking(table: pl.DataFrame, other_table: pl.DataFrame) -> tuple[str, ...]:
    """Return "system/case" of each row of *table* whose case *other_table* lacks."""
    lacking = table.join(other_table, on=list(KEYS), how="anti").sort(KEYS)
    return tuple(f"{system}/{case}" for system, case in lacking.select("system", "case").iter_rows())


def _select_scores_of_method(table: pl.DataFrame, method: str, side: str) -> pl.DataFrame:
    """Return the scores of *method* by case; raises UserError, naming *side*, for several on one case."""
    of_method = table.filter((pl.col("method") == method) & pl.col("score").is_not_null()).select(*KEYS, "score")
    if of_method.select(KEYS).is_duplicated().any():
        raise UserError(f"Table {side} has several scores of {method} on one case; keep one protocol of it.")
    return of_method


def _overall_difference(
    matched: Matched, resampled: np.ndarray, settings: AuditSettings, margin: float | None
) -> Difference:
    """Return method 2 minus method 1, the mean over systems, with interval (of *resampled*) and outcome by *margin*."""
    paired = paired_effects(matched, 1, 0, settings.ddof)
    difference = float(paired.effect.mean())
    error = float(np.sqrt(paired.variance.sum())) / len(paired.effect)
    unmoved = np.sqrt(paired.variance[paired.adjusted].sum()) / len(paired.effect)
    ends = combined_interval(
        paired.effect.mean(), (resampled[:, :, 1] - resampled[:, :, 0]).mean(axis=1), unmoved, settings.confidence
    )
    low, high = (min(max(float(end), -1.0), 1.0) for end in ends)
    before, after = matched.means.mean(axis=0)
    return _make_difference(
        "", matched.cases, (before, after), difference, (low, high), error, settings.confidence, margin
    )


def _differences_by_system(
    matched: Matched, resampled: np.ndarray, settings: AuditSettings, margin: float | None
) -> list[Difference]:
    """Return method 2 minus method 1 for each system, with interval (of *resampled*) and outcome by *margin*."""
    paired = paired_effects(matched, 1, 0, settings.ddof)
    low, high = effect_intervals(matched, resampled, 1, 0, settings.confidence)
    return [
        _make_difference(
            system,
            int(matched.sizes[s]),
            matched.means[s],
            float(paired.effect[s]),
            (float(low[s]), float(high[s])),
            float(np.sqrt(paired.variance[s])),
            settings.confidence,
            margin,
        )
        for s, system in enumerate(matched.systems)
    ]


def _with_identity(difference: Difference, by_case: np.ndarray, margin: float | None) -> Difference:
    """Return *difference* with the outcome "identical" when all of *by_case* are 0 and there is no *margin*."""
    if margin is not None or np.any(by_case) or difference.outcome is PairOutcome.TOO_FEW:
        return difference
    return replace(difference, outcome=PairOutcome.IDENTICAL)


def _make_difference(
    system: str,
    cases: int,
    means: tuple[float, float] | np.ndarray,
    difference: float,
    interval: tuple[float, float],
    error: float,
    level: float,
    margin: float | None,
) -> Difference:
    """Return *difference* with its outcome; *means*: (A, B), *error*: standard error, *margin*: accepted loss or None."""
    detectable, fewest = float(ndtri((1 + level) / 2) + ndtri(POWER)) * error, fewest_cases(level)
    too_few = cases < fewest or detectable > 1
    return Difference(
        system=system,
        cases=cases,
        before=float(means[0]),
        after=float(means[1]),
        difference=difference,
        low=interval[0],
        high=interval[1],
        detectable=None if too_few else detectable,
        outcome=PairOutcome.TOO_FEW if too_few else outcome(*interval, margin),
        fewest=fewest,
    )


def fewest_cases(level: float) -> int:
    """Return the smallest n with 2 / 2^n <= 1 - *level*: the p-value of a sign test on n equal signs is 2 / 2^n."""
    return math.ceil(math.log2(2 / (1 - level)) - 1e-9)


def outcome(low: float, high: float, margin: float | None = None) -> PairOutcome:
    """Return the outcome for the interval (*low*, *high*) of B - A; *margin* is the accepted loss as a fraction."""
    if low > 0:
        return PairOutcome.BETTER
    if margin is not None:
        return (
            PairOutcome.EQUIVALENT if low > -margin else PairOutcome.WORSE if high < -margin else PairOutcome.UNPROVEN
        )
    return PairOutcome.WORSE if high < 0 else PairOutcome.UNDECIDED


def sentence(difference: Difference) -> str:
    """Return *difference* as a sentence, in percentage points."""
    where = f" on {difference.system}" if difference.system else ""
    if difference.detectable is None:
        few = "is" if difference.cases == 1 else "are"
        return (
            f"B - A{where}: {plural(difference.cases, 'case')} {few} too few to find any difference, at least "
            f"{difference.fewest} are needed"
            + (", and more of every system" if difference.cases >= difference.fewest else "")
        )
    return (
        f"B - A{where}: {100 * difference.difference:+.1f} pp "
        f"[{100 * difference.low:+.1f}, {100 * difference.high:+.1f}] over {plural(difference.cases, 'case')}: "
        f"{difference.outcome.value}; {100 * difference.detectable:.1f} pp would be found with power 0.8"
    )
