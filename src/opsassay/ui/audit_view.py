"""The sections of an audit report, from which both the HTML and the Markdown report are made."""

from __future__ import annotations

import numpy as np

from opsassay.analysis.audit.audit import AuditReport
from opsassay.analysis.audit.effects import TIE
from opsassay.analysis.audit.selection import first_best
from opsassay.core.text import plural
from opsassay.ui.audit_figures import COLUMNS_SHOWN, METHODS_SHOWN, figures, points, shown_pairs
from opsassay.ui.audit_parts import DASH, WORDS, Section, count_of, decimals, families_of, percent, table
from opsassay.ui.audit_statistics import (
    families_section,
    heterogeneity_section,
    interaction_section,
    regret_section,
    sensitivity_section,
)
from opsassay.ui.audit_svg import Figure


def sections(audit: AuditReport) -> list[Section]:
    """Return the sections of the audit report in page order, from the advice to the methods."""
    drawn = figures(audit)
    several = len(audit.matched.systems) > 1
    parts = [
        _advice_section(audit),
        _inclusion_section(audit),
        _scores_section(audit, drawn["pooled"]),
        _effects_section(audit, drawn["heatmap"]),
    ]
    if several:
        parts += [heterogeneity_section(audit, drawn["forest"]), regret_section(audit, drawn["regret"])]
    if len(families_of(audit)) > 1:
        parts.append(families_section(audit))
    if several:
        parts.append(interaction_section(audit))
    if several or audit.protocols:
        parts.append(sensitivity_section(audit))
    if several:
        parts.append(_power_section(audit))
    return [*parts, _method_section(audit)]


def _advice_section(audit: AuditReport) -> Section:
    """Return the section that recommends a method for each system, or says that none is ahead."""
    rows = [
        (
            r.system,
            r.choice or "undecided",
            DASH if r.choice else ", ".join(r.candidates),
            r.family,
            str(r.cases),
            points(r.lead, ""),
            f"{r.needed:,}" if r.needed else DASH,
        )
        for r in audit.recommendations
    ]
    decided = sum(r.choice is not None for r in audit.recommendations)
    rivals = len(audit.matched.methods) - 1
    said = (
        f"On {decided} of {plural(len(rows), 'system')} one method is ahead of all others: its paired interval "
        f"against each lies above zero, at a level adjusted for {plural(rivals, 'comparison')}, on at least "
        f"{plural(audit.settings.min_cases, 'case')}."
    )
    shown = table("advice", rows, WORDS["lead"])
    return Section("advice", "Which method for which system", (said,), tables=(shown,))


def _inclusion_section(audit: AuditReport) -> Section:
    """Return the section that says which methods are compared, and why others are not."""
    protocols = any(a.protocol for a in audit.ledger)
    rows = [
        (
            a.method,
            *((a.protocol or DASH,) if protocols else ()),
            "yes" if a.included else "no",
            a.reason,
            count_of(a.cases, a.of_cases),
            count_of(a.systems, a.of_systems),
        )
        for a in audit.ledger
    ]
    shown = table("inclusion_by_protocol" if protocols else "inclusion", rows)
    return Section("inclusion", "What is compared", (WORDS["inclusion"],), tables=(shown,), notes=audit.remarks)


def _scores_section(audit: AuditReport, figures: list[Figure]) -> Section:
    """Return the section on scores: means pooled and by system, of methods and baselines, with *figures*."""
    refs, m = audit.references, audit.matched
    macro = refs.means.mean(axis=0)
    by_case = (refs.means * refs.sizes[:, None]).sum(axis=0) / refs.sizes.sum()
    best_on = (refs.means >= m.means.max(axis=1, keepdims=True) - TIE).sum(axis=0)
    rows = []
    for j in sorted(range(len(refs.methods)), key=lambda j: (-macro[j], j)):
        baseline = j >= len(m.methods) or refs.methods[j] in audit.settings.baselines
        modal = audit.modal[:, j].mean() if audit.modal is not None and j < len(m.methods) else None
        rows.append(
            (
                refs.methods[j] + (" (baseline)" if baseline else ""),
                percent(float(macro[j])),
                percent(float(by_case[j])),
                percent(float(refs.means[:, j].min())),
                percent(float(refs.means[:, j].max())),
                count_of(int(best_on[j]), len(m.systems)),
                *((percent(modal),) if audit.modal is not None else ()),
            )
        )
    some = f" The best {METHODS_SHOWN} of {len(m.methods)} methods." if len(m.methods) > METHODS_SHOWN else ""
    caption = f"Pooled mean on top, systems below.{some}"
    return Section(
        "scores",
        "Pooled against per-system scores",
        figures=tuple(figures),
        captions=(caption,),
        tables=(table("scores" if audit.modal is None else "scores_with_modal", rows),),
    )


def _effects_section(audit: AuditReport, figures: list[Figure]) -> Section:
    """Return the section on the paired effects of each pair of methods by system, with *figures*."""
    level = audit.settings.confidence
    cells = sum(len(p.low) for p in audit.pairs)
    stars = sum(int(((p.low > 0) | (p.high < 0)).sum()) for p in audit.pairs)
    adjusted = sum(int(p.paired.adjusted.sum()) for p in audit.pairs)
    shown = shown_pairs(audit, COLUMNS_SHOWN)
    said = [WORDS["effects"].format(near=100 * audit.settings.near_tie)]
    if len(shown) < len(audit.pairs):
        said.append(f"Pairs with the pooled winner, {len(shown)} of {len(audit.pairs)}; all are in tables/effects.csv.")
    chance = (1 - level) * cells
    said.append(WORDS["multiplicity"].format(stars=stars, cells=cells, level=100 * level, chance=chance))
    if adjusted:
        said.append(WORDS["zero_variance"].format(count=adjusted))
    return Section("effects", "Effects by system", tuple(said), tuple(figures), ("",))


def _power_section(audit: AuditReport) -> Section:
    """Return the section on the effects that this number of systems can show."""
    m = audit.matched
    rows = [
        (
            f"{100 * p.tau:.0f}",
            DASH if not p.tau else ("families" if p.family_share else "systems"),
            f"{100 * p.gap:.0f}",
            decimals(p.interval_excludes_zero),
            decimals(p.family_interval_excludes_zero),
            decimals(p.prediction_excludes_zero),
            decimals(p.heterogeneity_found),
            decimals(p.mean_reversals, 1),
        )
        for p in audit.power
    ]
    said = WORDS["power"].format(
        systems=len(m.systems), families=len(families_of(audit)), deviation=100 * audit.deviation
    )
    shown = table("power", rows)
    return Section("power", "What this many systems can show", (said,), tables=(shown,))


def _method_section(audit: AuditReport) -> Section:
    """Return the section on the audit's settings (resamples, permutations, confidence) and seeds."""
    s, m = audit.settings, audit.matched
    said = WORDS["method"].format(
        resamples=s.resamples,
        permutations=s.permutations,
        simulations=s.simulations,
        seed=s.seed,
        ddof=s.ddof,
        level=100 * s.confidence,
        trim=100 * s.trim,
        winner=m.methods[int(first_best(np.asarray(m.means.mean(axis=0))))],
    )
    return Section("method", "How this was computed", (said,))
