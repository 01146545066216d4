"""Sections of the audit report about stability: heterogeneity, regret, families, interaction, other choices."""

from __future__ import annotations

import numpy as np

from opsassay.analysis.audit.audit import AuditReport, LeftOut, PairAudit
from opsassay.core.text import plural
from opsassay.ui.audit_figures import PAIRS_SHOWN, pair_name, points, shown_pairs
from opsassay.ui.audit_parts import (
    DASH,
    WORDS,
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


def _caption_pairs(audit: AuditReport) -> tuple[str, ...]:
    """Return "A − B" for each pair of methods that the figures show."""
    return tuple(pair_name(audit, p) for p in shown_pairs(audit, PAIRS_SHOWN))


def heterogeneity_section(audit: AuditReport, figures: list[Figure]) -> Section:
    """Return the section with forest plots (*figures*) and random-effects statistics of every pair."""
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
    return Section(
        "heterogeneity",
        "How much effects vary between systems",
        (WORDS["heterogeneity"],),
        tuple(figures),
        _caption_pairs(audit),
        (table("heterogeneity", rows),),
    )


def regret_section(audit: AuditReport, figures: list[Figure]) -> Section:
    """Return the section with regret bars (*figures*), regret in both poolings, and the stability of each reversal."""
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
    tables = [table("regret", rows)]
    if kept:
        tables.append(table("stability", kept))
    return Section(
        "regret",
        "What choosing by the pool costs",
        (WORDS["regret"], WORDS["regret_intervals"]),
        tuple(figures),
        _caption_pairs(audit),
        tuple(tables),
    )


def families_section(audit: AuditReport) -> Section:
    """Return the section on leave-one-family-out selection and the spread between and within families."""
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
    said = WORDS["families"].format(count=len(names))
    return Section("families", "Families of systems", (said,), tables=(table("families", rows),))


def interaction_section(audit: AuditReport) -> Section:
    """Return the section with the tests of method x system and method x family, pooled and by pair."""
    everyone = {**audit.omnibus, "method x system, cluster-robust Wald": audit.omnibus_wald.test}
    omnibus = [(name, *test_cells(test), test.reason or DASH) for name, test in everyone.items()]
    notes: tuple[str, ...] = ()
    if left := sorted({s for p in audit.pairs for s in p.wald_left_out}):
        notes = (WORDS["left_out"].format(systems=", ".join(left)),)
    return Section(
        "interaction",
        "Does the difference depend on the system",
        (WORDS["interaction"], WORDS["holm"].format(pairs=plural(len(audit.pairs), "pair"))),
        tables=(table("all_methods", omnibus), table("pairs", [_format_interaction(audit, p) for p in audit.pairs])),
        notes=notes,
    )


def _format_interaction(audit: AuditReport, pair: PairAudit) -> tuple[str, ...]:
    """Return the table row of *pair*: its name and the p-values of its method-by-system interaction tests."""
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
    """Return the section on what changes with systems left out, other labels, protocols and covariates."""
    tables = []
    left_rows = [_format_left_out(audit, p) for p in audit.pairs]
    if len(audit.matched.systems) > 2:
        tables.append(table("left_out", left_rows))
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
        tables.append(table("scenarios", scenarios))
    nested, absorbed = _covariate_tables(audit)
    return Section(
        "sensitivity",
        "Does it hold under other choices",
        tables=(*tables, *_protocol_tables(audit), *nested),
        notes=absorbed,
    )


def _format_left_out(audit: AuditReport, pair: PairAudit) -> tuple[str, ...]:
    """Return the table cells of *pair*: I2 and intervals when one system and when two are left out."""

    def cells(left_out: LeftOut | None) -> tuple[str, str]:
        """Return the range of I2, and in how many analyses the interval includes 0; dashes for None."""
        if left_out is None:
            return DASH, DASH
        return span(left_out.lowest_i2, left_out.highest_i2), count_of(left_out.includes_zero, left_out.analyses)

    both = pair.two_out
    tail = (str(both.reversals), percent(both.mean_regret)) if both else (DASH, DASH)
    return (pair_name(audit, pair), *cells(pair.one_left_out), *cells(pair.two_left_out), *tail)


def _protocol_tables(audit: AuditReport) -> list[AuditTable]:
    """Return the tables of scores by protocol and of their gaps; [] when no method has several protocols."""
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
    return [table("protocols", rows), table("protocol_gaps", gaps)]


def _covariate_tables(audit: AuditReport) -> tuple[list[AuditTable], tuple[str, ...]]:
    """Return (tables of nested models, up to twelve sentences on the share that a covariate explains)."""
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
    tables = [table("covariates", rows)] if rows else []
    return tables, absorbed[:12]
