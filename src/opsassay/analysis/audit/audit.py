"""The whole audit of a matched table: every statistic for every pair, and the conclusions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opsassay.analysis.audit import advice, baselines, sensitivity
from opsassay.analysis.audit.effects import PairedEffects, paired_effects, sign_counts
from opsassay.analysis.audit.families import FamilySpread, Nested, family_spread, nested_models
from opsassay.analysis.audit.interaction import RobustTest, Test, holm, likelihood_ratio, likelihood_ratio_within, wald
from opsassay.analysis.audit.matched import Admission, Matched, match
from opsassay.analysis.audit.permutation import Contrasts, permutation_p, system_contrasts
from opsassay.analysis.audit.pooled import RandomEffects, leaving_out, random_effects, subsets
from opsassay.analysis.audit.power import Power, simulate_power
from opsassay.analysis.audit.resampling import bootstrap_means, effect_intervals, percentile_intervals, permuted_means
from opsassay.analysis.audit.selection import (
    POOLINGS,
    HeldOut,
    Pooling,
    Regret,
    Stability,
    leave_one_family_out,
    leave_one_system_out,
    leave_two_out,
    reversal_stability,
)
from opsassay.analysis.audit.settings import AuditSettings
from opsassay.analysis.audit.table import long_scores
from opsassay.analysis.audit.variants import FirthCells, firth, firth_cells, l2, without_separated_cells
from opsassay.core.errors import NotFoundError
from opsassay.core.text import plural

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Heterogeneity over all ways to leave out one or two systems.

    I2 is a share; *includes_zero* counts the *analyses* whose interval includes zero, None where two systems are left
    or less.
    """

    analyses: int
    lowest_i2: float
    highest_i2: float
    includes_zero: int | None


@dataclass(frozen=True, eq=False)
class PairAudit:
    """All statistics of one pair of methods; effects are first minus second.

    *a* and *b* are indices of methods; effects, intervals and regrets are fractions. *low* and *high*: intervals of the
    effects by system. *signs*: effects above, below and at zero. *holm_p* and *permutation_p*: of the interaction, None
    where it is not tested. What leaves systems out is None where too few are left.
    """

    a: int
    b: int
    paired: PairedEffects
    low: Floats
    high: Floats
    signs: tuple[int, int, int]
    pooled: RandomEffects
    loso: dict[Pooling, HeldOut]
    regret_intervals: dict[Pooling, tuple[float, float]]
    stability: Stability
    lofo: HeldOut
    spread: FamilySpread
    two_out: Regret | None
    one_left_out: LeftOut | None
    two_left_out: LeftOut | None
    scenarios: tuple[sensitivity.WhatIf, ...]
    interaction: dict[str, Test]
    wald_left_out: tuple[str, ...]
    holm_p: float | None
    permutation_p: float | None
    contrasts: Contrasts
    nested: Nested | None


@dataclass(frozen=True, eq=False)
class AuditReport:
    """The result of `audit`; `export` turns it into tables and JSON, `web.audit_report` into pages.

    *references*: the table with chance and constant rows. *modal*: as `baselines.modal_share` gives it. *deviation*:
    median over pairs and systems of the standard deviation of a case's paired difference, which *power* is simulated
    with.
    """

    settings: AuditSettings
    matched: Matched
    ledger: tuple[Admission, ...]
    remarks: tuple[str, ...]
    pairs: tuple[PairAudit, ...]
    omnibus: dict[str, Test]
    omnibus_wald: RobustTest
    recommendations: tuple[advice.Recommendation, ...]
    references: Matched
    modal: Floats | None
    protocols: tuple[sensitivity.ProtocolRow, ...]
    protocol_gaps: tuple[sensitivity.ProtocolGap, ...]
    power: tuple[Power, ...]
    deviation: float
    claim: str


def audit(
    table: pl.DataFrame,
    settings: AuditSettings | None = None,
    *,
    name: str = "the table",
    on_step: Callable[[str], None] = lambda _: None,
) -> AuditReport:
    """Audit the score table *table* (a row per score), whose columns *settings* name; return the report."""
    settings = settings or AuditSettings()
    on_step("matching cases")
    inclusion = match(long_scores(table, settings.columns, name), settings, name)
    return audit_matched(inclusion.matched, settings, inclusion.ledger, inclusion.remarks, on_step)


def audit_matched(
    matched: Matched,
    settings: AuditSettings,
    ledger: tuple[Admission, ...] = (),
    remarks: tuple[str, ...] = (),
    on_step: Callable[[str], None] = lambda _: None,
) -> AuditReport:
    """Audit a table in which every method has a score on every case; return the report.

    *ledger* and *remarks* are reported, *on_step* is called with a phrase for each computation. Raises NotFoundError
    for an unknown system in the setting `without`.
    """
    on_step("resampling cases")
    with_labels = baselines.with_references(matched)
    drawn = bootstrap_means(matched, settings.resamples, settings.seed)
    permuted = permuted_means(matched, settings.permutations, settings.seed)
    others = _scenario_tables(matched, settings)
    penalised = firth_cells(matched)
    on_step(f"comparing {plural(len(matched.pairs()), 'pair')}")
    pairs = [_audit_pair(matched, a, b, drawn, permuted, others, penalised, settings) for a, b in matched.pairs()]
    adjusted = holm([p.interaction["fractional_logit"].p for p in pairs])
    pairs = [replace(p, holm_p=value) for p, value in zip(pairs, adjusted, strict=True)]
    on_step("tests over all methods, protocols, power")
    deviation = float(np.median(np.concatenate([p.paired.deviation for p in pairs])))
    return AuditReport(
        settings=settings,
        matched=matched,
        ledger=ledger,
        remarks=(*remarks, *_remark_on_baseline(matched, settings)),
        pairs=tuple(pairs),
        omnibus=_test_omnibus(matched),
        omnibus_wald=wald(matched, range(len(matched.methods)), ddof=settings.ddof),
        recommendations=tuple(
            advice.recommend(
                matched, drawn, level=settings.confidence, ddof=settings.ddof, min_cases=settings.min_cases
            )
        ),
        references=with_labels,
        modal=baselines.modal_share(matched.labels, matched.starts, matched.sizes) if matched.labels else None,
        protocols=tuple(sensitivity.protocol_rows(matched)),
        protocol_gaps=tuple(sensitivity.protocol_gaps(matched, level=settings.confidence, ddof=settings.ddof)),
        power=tuple(
            simulate_power(
                matched.sizes,
                matched.families,
                deviation,
                simulations=settings.simulations,
                seed=settings.seed,
                level=settings.confidence,
            )
        ),
        deviation=deviation,
        claim=advice.claim(matched, [_includes_zero(p.pooled) for p in pairs], settings.baselines),
    )


def _audit_pair(
    matched: Matched,
    a: int,
    b: int,
    resampled: Floats,
    permuted: Floats,
    scenarios: dict[str, Matched],
    penalised: FirthCells,
    settings: AuditSettings,
) -> PairAudit:
    """Return every statistic of the methods with indices *a* and *b*, from the resamples and permutations of all pairs.

    *scenarios* are the tables of `_scenario_tables`, *penalised* the estimates of `firth_cells`.
    """
    level, ddof, sizes = settings.confidence, settings.ddof, matched.sizes
    paired = paired_effects(matched, a, b, ddof)
    effect = paired.effect
    of_pair = resampled[:, :, a] - resampled[:, :, b]
    of_permuted = permuted[:, :, a] - permuted[:, :, b]
    low, high = effect_intervals(matched, resampled, a, b, level)
    robust = wald(matched, (a, b), ddof=ddof)
    several = len(sizes) > 1
    return PairAudit(
        a=a,
        b=b,
        paired=paired,
        low=low,
        high=high,
        signs=sign_counts(effect),
        pooled=random_effects(effect, paired.variance, level),
        loso={p: leave_one_system_out(effect, sizes, p, settings.trim) for p in POOLINGS},
        regret_intervals=_regret_intervals(of_pair, sizes, settings) if several else {},
        stability=reversal_stability(effect, of_pair),
        lofo=leave_one_family_out(effect, matched.families),
        spread=family_spread(effect, matched.families),
        two_out=leave_two_out(effect).summary() if len(sizes) > 2 else None,
        one_left_out=_leave_out_system(paired, 1, level) if len(sizes) > 2 else None,
        two_left_out=_leave_out_system(paired, 2, level) if len(sizes) > 3 else None,
        scenarios=(
            *(sensitivity.scenario(name, other, a, b, level=level, ddof=ddof) for name, other in scenarios.items()),
            *sensitivity.without_family(matched, a, b, level=level, ddof=ddof),
        ),
        interaction=_test_interaction(matched, a, b, robust, penalised),
        wald_left_out=robust.left_out,
        holm_p=None,
        permutation_p=permutation_p(effect, of_permuted, sizes),
        contrasts=system_contrasts(paired, of_permuted, of_pair, sizes, level),
        nested=nested_models(matched, [a, b]),
    )


def _test_interaction(matched: Matched, a: int, b: int, robust: RobustTest, penalised: FirthCells) -> dict[str, Test]:
    """Return six tests by name of whether *a* - *b* depends on system or family, two of *robust* and *penalised*."""
    means = matched.means[:, [a, b]]
    return {
        "fractional_logit": likelihood_ratio(means, matched.sizes),
        "cluster_robust_wald": robust.test,
        "firth_wald": firth(penalised, a, b),
        "l2": l2(matched, a, b),
        "without_separated_cells": without_separated_cells(matched, a, b),
        "family": likelihood_ratio(*_family_cells(matched, [a, b])),
    }


def _test_omnibus(matched: Matched) -> dict[str, Test]:
    """Return the likelihood-ratio tests over all methods together, by name."""
    everyone = list(range(len(matched.methods)))
    return {
        "method x system": likelihood_ratio(matched.means, matched.sizes),
        "method x family": likelihood_ratio(*_family_cells(matched, everyone)),
        "method x family, given systems": likelihood_ratio_within(matched.means, matched.sizes, matched.families),
    }


def _family_cells(matched: Matched, methods: list[int]) -> tuple[Floats, NDArray[np.int64]]:
    """Return mean scores (families x methods), over cases, and the number of cases per family."""
    names = list(dict.fromkeys(matched.families))
    inside = np.array([[f == name for f in matched.families] for name in names])
    sizes = inside @ matched.sizes
    means = inside @ (matched.means[:, methods] * matched.sizes[:, None]) / sizes[:, None]
    return np.clip(means, 0.0, 1.0), sizes


def _regret_intervals(
    resampled: Floats, sizes: NDArray[np.int64], settings: AuditSettings
) -> dict[Pooling, tuple[float, float]]:
    """Return by pooling (macro, weighted) the interval of the mean regret over *resampled* effects (draws x systems)."""
    out: dict[Pooling, tuple[float, float]] = {}
    poolings: tuple[Pooling, ...] = ("macro", "weighted")
    for pooling in poolings:
        mean_regret = leave_one_system_out(resampled, sizes, pooling).regret.mean(axis=1)
        if np.ptp(mean_regret) > 0:
            low, high = percentile_intervals(mean_regret, settings.confidence)
            out[pooling] = (float(low), float(high))
    return out


def _leave_out_system(paired: PairedEffects, out: int, level: float) -> LeftOut:
    """Return the range of I2 over all ways to leave out *out* systems, and how many prediction intervals contain 0."""
    variance = leaving_out(paired.variance, subsets(len(paired.effect), out))
    found = random_effects(paired.effect, variance, level)
    defined = len(paired.effect) - out > 2
    return LeftOut(
        analyses=len(variance),
        lowest_i2=float(found.i2.min()),
        highest_i2=float(found.i2.max()),
        includes_zero=int(((found.prediction_low <= 0) & (found.prediction_high >= 0)).sum()) if defined else None,
    )


def _scenario_tables(matched: Matched, settings: AuditSettings) -> dict[str, Matched]:
    """Return name to table: "without ..." the systems in *settings*, and "canonical labels", each if so set."""
    others = {}
    for name in settings.without:
        if name not in matched.systems:
            raise NotFoundError("system", name, matched.systems)
    if settings.without:
        kept = np.array([s not in settings.without for s in matched.systems])
        if kept.any():
            others[f"without {', '.join(settings.without)}"] = matched.only(kept)
    if settings.canonical and matched.labels:
        others["canonical labels"] = baselines.canonicalised(matched, settings.canonical)
    return others


def _remark_on_baseline(matched: Matched, settings: AuditSettings) -> tuple[str, ...]:
    """Return (a remark that no method is a baseline,), () when one is."""
    if matched.labels or set(matched.methods) & set(settings.baselines):
        return ()
    return ("There is no chance or constant row, so nothing shows what no skill would score on these systems.",)


def _includes_zero(pooled: RandomEffects) -> bool | None:
    """Return whether the prediction interval of *pooled* contains 0; None when it is undefined."""
    low, high = float(pooled.prediction_low), float(pooled.prediction_high)
    return None if np.isnan(low) else low <= 0 <= high
