"""Tables 5, 7, 9 and 11 of "leaderboard-audit", and its Figure 4: they need case scores, so are from an audit's report.

Table 9B needs covariates, Table 11A a choice to compare with (systems that are left aside, or canonical labels), 11B a
method under several protocols, Figure 4 the labels of answers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from opsassay.analysis.audit.audit import AuditReport, PairAudit
from opsassay.analysis.audit.effects import TIE
from opsassay.analysis.audit.interaction import Test
from opsassay.evals.runner.tables import ResultTable

from .running import part_of

APPROACHES = {
    "fractional_logit": "Fractional GLM", "firth_wald": "Firth penalised", "l2": "L2-regularised (C=1.0)",
    "without_separated_cells": "Drop quasi-separated cells", "cluster_robust_wald": "Cluster-robust Wald",
}  # fmt: skip
"""How the interaction is tested, by the names of an audit; the last is not the paper's."""


def report_tables(report: AuditReport) -> list[ResultTable]:
    """Return the tables, each without rows where the report has nothing for it."""
    return [
        _variants(report), _inclusion(report), *_within_families(report), _nested(report), _choices(report),
        _modal(report),
    ]  # fmt: skip


def threshold_table(long: pl.DataFrame) -> ResultTable:
    """Return Table 11B: each method that has several protocols under each of them, means over systems.

    *long* is as `table.long_scores` gives it; macro acc@3 is there where it has a column acc_at_3. The modal frequency is
    the share of a system's answers that are its most frequent one.
    """
    columns = ("method", "protocol", "systems", "macro", "min", "max", "macro acc@3", "mean modal freq.")
    if "protocol" not in long.columns:
        return ResultTable("Robustness to thresholds", columns, (), number=11)
    several = (
        long.group_by("method").agg(pl.col("protocol").n_unique().alias("protocols")).filter(pl.col("protocols") > 1)
    )
    modal = (pl.col("predicted").value_counts(normalize=True).struct.field("proportion").max()
             if "predicted" in long.columns else pl.lit(None, pl.Float64))  # fmt: skip
    third = pl.col("acc_at_3").cast(pl.Float64, strict=False).mean() if "acc_at_3" in long.columns else pl.lit(None)
    of_system = long.join(several, on="method").group_by(
        "method", "protocol", "family", "system", maintain_order=True
    ).agg(pl.col("score").mean(), modal.alias("modal"), third.alias("third"))  # fmt: skip
    found = of_system.group_by("method", "protocol", maintain_order=True).agg(
        pl.len(), pl.col("score").mean().alias("macro"), pl.col("score").min().alias("low"),
        pl.col("score").max().alias("high"), pl.col("third").mean(), pl.col("modal").mean(),
    )  # fmt: skip
    rows = tuple(
        (*row[:3], *(None if value is None else f"{100 * value:.1f}" for value in row[3:])) for row in found.rows()
    )
    return ResultTable("Robustness to thresholds", columns, rows, number=11)


def denominator_table(long: pl.DataFrame) -> ResultTable:
    """Return where a method has no score for some case of a system, and how much its mean owes to that.

    A case is one that any method has; the last column counts a missing score as 0, as for an output that is invalid.
    """
    keys = ["family", "system"]
    of = long.select(*keys, "case").unique().group_by(keys).len("cases")
    scored = pl.col("score").drop_nulls()
    found = (
        long.group_by(*keys, "method", *(["protocol"] if "protocol" in long.columns else []), maintain_order=True)
        .agg(scored.len().alias("scored"), scored.mean().alias("mean"), scored.sum().alias("sum"))
        .join(of, on=keys, maintain_order="left")
        .filter(pl.col("scored") < pl.col("cases"))
    )
    rows = tuple(
        (row["method"], row.get("protocol", ""), f"{row['family']} / {row['system']}", row["cases"], row["scored"],
         None if row["mean"] is None else f"{row['mean']:.3f}", f"{row['sum'] / row['cases']:.3f}")
        for row in found.to_dicts()
    )  # fmt: skip
    columns = ("method", "protocol", "system", "cases", "scored", "mean of scored", "mean, missing as 0")
    return ResultTable("Denominators", columns, rows)


def _modal(report: AuditReport) -> ResultTable:
    """Return Figure 4: by system how often each method gives its most frequent answer there, beside its mean score."""
    m = report.matched
    rows: list[tuple[str, ...]] = []
    if report.modal is not None:
        for at, (family, system) in enumerate(zip(m.families, m.systems, strict=True)):
            cells = zip(report.modal[at], m.means[at], strict=True)
            rows.append((f"{family} / {system}", *(f"{100 * value:.1f}" for pair in cells for value in pair)))
    columns = ("system", *(f"{name} {what}" for name in m.methods for what in ("modal freq", "score")))
    return ResultTable("Figure 4. Modal outputs", columns, tuple(rows))


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


if __name__ == "__main__":
    part_of("audit_tables")
