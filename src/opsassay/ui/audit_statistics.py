"""Sections of the audit report about stability: heterogeneity, regret, families, interaction, other choices."""

from __future__ import annotations

import numpy as np

from opsassay.analysis.audit.audit import AuditReport, LeftOut, PairAudit
from opsassay.core.text import plural
from opsassay.ui import audit_words as words
from opsassay.ui.audit_figures import PAIRS_SHOWN, pair_name, points, shown_pairs
from opsassay.ui.audit_parts import (
    DASH,
    AuditTable,
    Section,
    count_of,
    decimals,
    families_of,
    interval,
    p_value,
    percent,
    regret_cells,
    span,
    table,
    test_cells,
    yes_no,
)
from opsassay.ui.audit_svg import Figure

NONE = (np.nan, np.nan)


def _captions(audit: AuditReport) -> tuple[str, ...]:
    return tuple(pair_name(audit, p) for p in shown_pairs(audit, PAIRS_SHOWN))


def heterogeneity_section(audit: AuditReport, drawn: list[Figure]) -> Section:
    """Return forest plots and the random-effects statistics of every pair."""
    rows = [
        (
            pair_name(audit, p),
            "/".join(map(str, p.signs)),
            points(float(p.pooled.mean)),
            interval(float(p.pooled.low), float(p.pooled.high)),
            interval(float(p.pooled.prediction_low), float(p.pooled.prediction_high)),
            decimals(float(p.pooled.q), 1),
            p_value(float(p.pooled.q_p)),
            percent(float(p.pooled.i2)),
            percent(float(p.pooled.i2_tau2)),
            percent(float(p.pooled.tau2) ** 0.5),
            percent(float(p.pooled.tau2_dl) ** 0.5),
        )
        for p in audit.pairs
    ]
    columns = (
        "Pair | +/−/0 | Mean, pp | HKSJ interval | Prediction interval | Q | p of Q | I² from Q, % | I² from τ², % | "
        "τ PM, pp | τ DL, pp"
    )
    return Section(
        "heterogeneity",
        "How much effects vary between systems",
        (words.HETEROGENEITY,),
        tuple(drawn),
        _captions(audit),
        (table("Heterogeneity", columns, rows, 1, "pairs"),),
    )


def regret_section(audit: AuditReport, drawn: list[Figure]) -> Section:
    """Return regret bars, regret in both poolings with intervals, and the stability of each reversal."""
    systems = len(audit.matched.systems)
    rows = [
        (
            pair_name(audit, p),
            *regret_cells(p.loso["macro"].summary(), systems),
            interval(*p.regret_intervals.get("macro", NONE)),
            *regret_cells(p.loso["weighted"].summary(), systems),
            interval(*p.regret_intervals.get("weighted", NONE)),
            count_of(p.loso["median"].summary().reversals, systems),
            count_of(p.loso["trimmed"].summary().reversals, systems),
        )
        for p in audit.pairs
    ]
    columns = (
        "Pair | Macro: reversals | mean, pp | max, pp | interval of mean | By cases: reversals | mean, pp | max, pp | "
        "interval of mean | Median: reversals | Trimmed: reversals"
    )
    kept = [
        (
            pair_name(audit, p),
            audit.matched.systems[s],
            percent(float(p.loso["macro"].regret[s])),
            decimals(float(p.stability.winner_kept[s])),
            decimals(float(p.stability.reversal_kept[s])),
        )
        for p in audit.pairs
        for s in np.flatnonzero(p.loso["macro"].reversed)
    ]
    tables = [table("Selection regret", columns, rows, 1, "regret")]
    if kept:
        titles = "Pair | System | Regret, pp | Better method stays better | Reversal stays"
        tables.append(table("Stability of each reversal under resampling of cases", titles, kept, 2, "effects"))
    return Section(
        "regret",
        "What choosing by the pool costs",
        (words.REGRET, words.REGRET_INTERVALS),
        tuple(drawn),
        _captions(audit),
        tuple(tables),
    )


def families_section(audit: AuditReport) -> Section:
    """Return leave-one-family-out selection and the spread between and within families."""
    names = families_of(audit)
    rows = [
        (
            pair_name(audit, p),
            ", ".join(n for n, wrong in zip(names, p.lofo.reversed, strict=True) if wrong) or DASH,
            *regret_cells(p.lofo.summary(), len(names)),
            percent(p.spread.between_share),
            count_of(p.spread.sign_changes, len(names)),
            percent(p.spread.max_range),
        )
        for p in audit.pairs
    ]
    columns = (
        "Pair | Reversed families | Reversals | Mean regret, pp | Max regret, pp | Between families, % | "
        "Sign changes inside | Widest family, pp"
    )
    said = words.FAMILIES.format(count=len(names))
    return Section(
        "families", "Families of systems", (said,), tables=(table("Families", columns, rows, 2, "families"),)
    )


def interaction_section(audit: AuditReport) -> Section:
    """Return the tests of method x system and method x family, over all methods and by pair."""
    everyone = {**audit.omnibus, "method x system, cluster-robust Wald": audit.omnibus_wald.test}
    omnibus = [(name, *test_cells(test), test.reason or DASH) for name, test in everyone.items()]
    columns = (
        "Pair | LRT | df | p | p Holm | p Wald, by case | p permutation | p Firth | p L2 | p without separated cells | "
        "p by family | McFadden R²"
    )
    notes: tuple[str, ...] = ()
    if left := sorted({s for p in audit.pairs for s in p.wald_left_out}):
        notes = (words.LEFT_OUT.format(systems=", ".join(left)),)
    return Section(
        "interaction",
        "Does the difference depend on the system",
        (words.INTERACTION, words.HOLM.format(pairs=plural(len(audit.pairs), "pair"))),
        tables=(
            table("All methods", "Model | Statistic | df | p | Remark", omnibus, 1, "interaction"),
            table("Pairs", columns, [_interaction_row(audit, p) for p in audit.pairs], 1, "interaction"),
        ),
        notes=notes,
    )


def _interaction_row(audit: AuditReport, pair: PairAudit) -> tuple[str, ...]:
    tests = pair.interaction
    main = tests["fractional_logit"]
    return (
        pair_name(audit, pair),
        *test_cells(main),
        p_value(pair.holm_p),
        p_value(tests["cluster_robust_wald"].p),
        p_value(pair.permutation_p),
        *(p_value(tests[name].p) for name in ("firth_wald", "l2", "without_separated_cells", "family")),
        f"{decimals(main.mcfadden, 3)} / {decimals(main.mcfadden_without, 3)}" if main.mcfadden is not None else DASH,
    )


def sensitivity_section(audit: AuditReport) -> Section:
    """Return what leaving out, other labels, other protocols and covariates change."""
    tables = []
    left_rows = [_left_out_row(audit, p) for p in audit.pairs]
    if len(audit.matched.systems) > 2:
        columns = (
            "Pair | I² less one, % | Prediction holds 0 | I² less two, % | Prediction holds 0 | Reversals less two | "
            "Mean regret, pp"
        )
        tables.append(table("One and two systems left out", columns, left_rows, 1, "pairs"))
    scenarios = [
        (
            pair_name(audit, p),
            s.name,
            ", ".join(s.reversed_systems) or DASH,
            str(s.systems),
            points(s.gap),
            percent(s.i2),
            yes_no(value=s.prediction_includes_zero),
            count_of(s.reversals, s.systems),
        )
        for p in audit.pairs
        for s in p.scenarios
    ]
    if scenarios:
        columns = "Pair | Choice | Reversed systems | Systems | Mean, pp | I², % | Prediction holds 0 | Reversals"
        tables.append(table("Other choices", columns, scenarios, 3, "scenarios"))
    nested, absorbed = _covariates(audit)
    return Section(
        "sensitivity", "Does it hold under other choices", tables=(*tables, *_protocols(audit), *nested), notes=absorbed
    )


def _left_out_row(audit: AuditReport, pair: PairAudit) -> tuple[str, ...]:
    def cells(left: LeftOut | None) -> tuple[str, str]:
        if left is None:
            return DASH, DASH
        return span(left.lowest_i2, left.highest_i2), count_of(left.includes_zero, left.analyses)

    both = pair.two_out
    tail = (str(both.reversals), percent(both.mean_regret)) if both else (DASH, DASH)
    return (pair_name(audit, pair), *cells(pair.one_left_out), *cells(pair.two_left_out), *tail)


def _protocols(audit: AuditReport) -> list[AuditTable]:
    if not audit.protocols:
        return []
    rows = [
        (
            r.method,
            r.protocol or "(not named)",
            yes_no(value=r.primary),
            *(percent(v) for v in (r.macro, r.lowest, r.highest, r.mean_shift, r.max_shift)),
        )
        for r in audit.protocols
    ]
    gaps = [
        (
            f"{g.a} − {g.b}",
            yes_no(value=g.sign_changes),
            yes_no(value=g.same_reversals),
            str(g.combinations),
            points(g.gap),
            interval(g.lowest, g.highest),
            percent(g.share),
            span(g.lowest_i2, g.highest_i2),
        )
        for g in audit.protocol_gaps
    ]
    of_method = (
        "Method | Protocol | Primary | Mean of systems, % | Lowest, % | Highest, % | Mean shift, pp | Largest shift, pp"
    )
    of_gap = (
        "Pair | Winner changes | Same reversals | Combinations | Gap, pp | Over protocols, pp | Range / gap, % | I², %"
    )
    return [
        table("Protocols of a method", of_method, rows, 3, "protocols"),
        table("How much of a gap is preprocessing", of_gap, gaps, 3, "protocol_gaps"),
    ]


def _covariates(audit: AuditReport) -> tuple[list[AuditTable], tuple[str, ...]]:
    fitted = [(pair_name(audit, p), p.nested) for p in audit.pairs if p.nested]
    rows = [
        (name, what, *test_cells(test))
        for name, nested in fitted
        for what, test in (("covariates x method", nested.y_against_x), ("what systems add", nested.z_against_y))
    ]
    absorbed = tuple(
        f"{name}: {covariate} absorbs {percent(share)}% of the interaction that is left beside the other covariates."
        for name, nested in fitted
        for covariate, share in nested.absorbed.items()
    )
    titles = "Pair | Test | LRT | df | p"
    tables = [table("Structural covariates, nested models", titles, rows, 2, "covariates")] if rows else []
    return tables, absorbed[:12]
