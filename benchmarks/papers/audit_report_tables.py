"""Tables 5, 7, 9 and 11 of "leaderboard-audit", which need case scores: from the report of an audit.

Table 9B needs covariates, Table 11 a choice to compare with: systems that are left aside, or canonical labels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from opsassay.analysis.audit.audit import AuditReport, PairAudit
from opsassay.analysis.audit.effects import TIE
from opsassay.analysis.audit.interaction import Test
from opsassay.evals.runner.tables import ResultTable

APPROACHES = {
    "fractional_logit": "Fractional GLM", "firth_wald": "Firth penalised", "l2": "L2-regularised (C=1.0)",
    "without_separated_cells": "Drop quasi-separated cells", "cluster_robust_wald": "Cluster-robust Wald",
}  # fmt: skip
"""How the interaction is tested, by the names of an audit; the last is not the paper's."""


def report_tables(report: AuditReport) -> list[ResultTable]:
    """Return the tables, each without rows where the report has nothing for it."""
    return [_variants(report), _inclusion(report), *_within_families(report), _nested(report), _choices(report)]


def _pair(report: AuditReport, pair: PairAudit) -> str:
    return f"{report.matched.methods[pair.a]} vs {report.matched.methods[pair.b]}"


def _tested(test: Test) -> tuple[str, str, str]:
    """Return statistic, df and p of *test* as texts, with the reason where there is none."""
    if test.statistic is None or test.p is None:
        return (test.reason, "", "")
    return (f"{test.statistic:.2f}", str(test.df), f"{test.p:.2g}")


def _variants(report: AuditReport) -> ResultTable:
    observations = 2 * report.matched.cases
    rows = [
        (_pair(report, pair), shown, observations, *_tested(test), _fit(test))
        for pair in report.pairs
        for name, shown in APPROACHES.items()
        if (test := pair.interaction.get(name)) is not None
    ]
    columns = ("pair", "approach", "n obs", "statistic", "df", "p", "McFadden R2, with / without")
    return ResultTable("Interaction by modelling approach", columns, tuple(rows), number=5)


def _fit(test: Test) -> str:
    if test.mcfadden is None or test.mcfadden_without is None:
        return ""
    return f"{test.mcfadden:.3f} / {test.mcfadden_without:.3f}"


def _inclusion(report: AuditReport) -> ResultTable:
    rows = [
        (one.method, one.protocol, f"{one.systems}/{one.of_systems}", f"{one.cases}/{one.of_cases}",
         "Yes" if one.included else "No", one.reason)
        for one in report.ledger
    ]  # fmt: skip
    columns = ("method", "protocol", "systems", "cases", "main", "reason")
    return ResultTable("Inclusion by full coverage", columns, tuple(rows), number=7)


def _within_families(report: AuditReport) -> Iterator[ResultTable]:
    """Yield Table 9A of each family: the pairs whose effects have both signs within it."""
    m = report.matched
    for family in dict.fromkeys(m.families):
        at = [number for number, one in enumerate(m.families) if one == family]
        rows = [
            (_pair(report, pair), *(_effect(pair, number) for number in at))
            for pair in report.pairs
            if (pair.paired.effect[at] > TIE).any() and (pair.paired.effect[at] < -TIE).any()
        ]
        columns = ("pair", *(m.systems[number] for number in at))
        yield ResultTable(f"Reversals within {family}, pp", columns, tuple(rows), number=9)


def _effect(pair: PairAudit, at: int) -> str:
    low, high = 100 * float(pair.low[at]), 100 * float(pair.high[at])
    return f"{100 * float(pair.paired.effect[at]):+.1f} [{low:+.1f}, {high:+.1f}]"


def _nested(report: AuditReport) -> ResultTable:
    rows = []
    for pair in report.pairs:
        if pair.nested is None:
            continue
        rows.append((_pair(report, pair), "Y vs X (covariate x method)", *_tested(pair.nested.y_against_x)))
        rows.append((_pair(report, pair), "Z vs Y (residual of systems)", *_tested(pair.nested.z_against_y)))
        for name, share in pair.nested.absorbed.items():
            rows.append(
                (_pair(report, pair), f"absorbed by {name}", f"{share:.0%}" if np.isfinite(share) else "", "", "")
            )
    columns = ("pair", "test", "LRT", "df", "p")
    return ResultTable("Covariates of systems", columns, tuple(rows), number=9)


def _choices(report: AuditReport) -> ResultTable:
    rows = []
    for pair in report.pairs:
        low, high = float(pair.pooled.prediction_low), float(pair.pooled.prediction_high)
        over_zero = "" if np.isnan(low) else "yes" if low <= 0 <= high else "no"
        reversals = pair.loso["macro"].summary().reversals
        full = (_pair(report, pair), "all", f"{100 * float(pair.pooled.i2):.1f}", over_zero, reversals)
        others = [
            (_pair(report, pair), one.name, "" if one.i2 is None else f"{100 * one.i2:.1f}",
             {True: "yes", False: "no", None: ""}[one.prediction_includes_zero], one.reversals)
            for one in pair.scenarios
            if one.name in _asked(report)
        ]  # fmt: skip
        rows += [full, *others] if others else []
    columns = ("pair", "systems and labels", "I2 %", "PI includes 0", "LOSO reversals")
    return ResultTable("Robustness to choices", columns, tuple(rows), number=11)


def _asked(report: AuditReport) -> set[str]:
    """Return the names of the choices that the settings make, which are not those of families left out."""
    return {"canonical labels", f"without {', '.join(report.settings.without)}"}
