"""Tables 2 to 11 of "leaderboard-audit" in the paper's shape, from case scores or from a printed Table 4.

Run: ``python -m benchmarks.papers.audit_tables SCORES.csv [-t NUMBER]...``. A printed table gives all that follows from
means and, where they are printed, intervals; what needs case scores is named there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from opsassay.analysis.audit.audit import AuditReport, audit
from opsassay.analysis.audit.effects import TIE, sign_counts
from opsassay.analysis.audit.selection import leave_one_family_out, leave_one_system_out
from opsassay.analysis.audit.settings import AuditSettings
from opsassay.analysis.audit.table import long_scores
from opsassay.analysis.audit.verify import Key, audit_figures, is_ledger, ledger_figures, read_ledger
from opsassay.cli.output import json_option, say
from opsassay.evals.runner.tables import ResultTable
from opsassay.telemetry.importers.cases import read_csv

from .audit_report_tables import denominator_table, report_tables, threshold_table
from .running import Numbered, run, show_tables

NUMBERS = Numbered(
    range(2, 12),
    {},
    {
        "5": "needs case scores", "7": "needs case scores", "9": "needs case scores",
        "11": "needs case scores, and --without or a method under several protocols",
    },
    {"figure4": "Figure 4.", "denominators": "Denominators"},
)  # fmt: skip
_PATH = click.Path(path_type=Path)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Audited:
    """Means by system and method, as fractions, and the *figures* that follow (percent, percentage points).

    *regret_intervals*: of the mean regret by pair, and *omnibus* the tests over all methods; both need case scores.
    """

    families: tuple[str, ...]
    systems: tuple[str, ...]
    sizes: NDArray[np.int64]
    means: Mapping[str, Floats]
    figures: Mapping[Key, float]
    regret_intervals: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    omnibus: tuple[tuple[str, float | None, int, float | None], ...] = ()
    report: AuditReport | None = None
    further: tuple[ResultTable, ...] = ()

    def pairs(self) -> Iterator[tuple[str, str, Floats]]:
        """Yield every two methods with the effects by system, first minus second."""
        for first, second in combinations(self.means, 2):
            yield first, second, self.means[first] - self.means[second]

    def shown(self, figure: str, first: str, second: str, system: str = "", form: str = "+.1f") -> str:
        """Return a figure as text, '' where it does not follow."""
        value = self.figures.get((figure, first, second, system))
        return "" if value is None or not np.isfinite(value) else format(value, form)


def read_audited(path: Path, changes: Mapping[str, Any]) -> Audited:
    """Return what is in the CSV file *path*, a printed ledger or case scores; raises UserError, DatapackError."""
    table = read_csv(path)
    if is_ledger(table):
        ledger = read_ledger(table, path.name)
        return Audited(ledger.families, ledger.systems, ledger.sizes, ledger.means, ledger_figures(ledger))
    settings = AuditSettings.model_validate(changes)
    report = audit(table, settings, name=str(path))
    m = report.matched
    tests = tuple((name, test.statistic, test.df, test.p) for name, test in report.omnibus.items())
    intervals = {
        (m.methods[one.a], m.methods[one.b]): one.regret_intervals["macro"]
        for one in report.pairs
        if "macro" in one.regret_intervals
    }
    means = {method: m.means[:, at] for at, method in enumerate(m.methods)}
    long = long_scores(table, settings.columns, str(path))
    further = (threshold_table(long), denominator_table(long))
    return Audited(m.families, m.systems, m.sizes, means, audit_figures(report), intervals, tests, report, further)


def missing_from(audited: Audited) -> str:
    """Return what does not follow from a printed table, '' for case scores."""
    if audited.report is not None:
        return ""
    told = (
        "" if any(key[0] == "i2" for key in audited.figures) else "I2 and prediction intervals of Table 2, intervals "
    )
    return (
        f"{told or 'intervals '}of regret in Table 3, Tables 5, 7, 9 and 11, Figure 4 and the omnibus tests of Table 6"
    )


def tables_of(audited: Audited) -> list[ResultTable]:
    """Return the tables, each left out where nothing stands in it."""
    made = [
        _signs(audited),
        _regret(audited),
        _ledger(audited),
        _interaction(audited),
        _held_out(audited),
        _families(audited),
    ]
    made += report_tables(audited.report) if audited.report else []
    made += audited.further
    return sorted((table.filled() for table in made if table.rows), key=lambda table: table.number or sys.maxsize)


def _signs(of: Audited) -> ResultTable:
    rows = tuple(
        (
            f"{a} vs {b}",
            "/".join(map(str, sign_counts(effect))),
            of.shown("i2", a, b, form=".1f"),
            _interval(of.shown("prediction_low", a, b), of.shown("prediction_high", a, b)),
        )
        for a, b, effect in of.pairs()
    )
    return ResultTable("Heterogeneity", ("pair", "signs +/-/0", "I2 %", "95% PI pp"), rows, number=2)


def _regret(of: Audited) -> ResultTable:
    rows = []
    for a, b, effect in of.pairs() if len(of.systems) > 1 else ():
        found = leave_one_system_out(effect, of.sizes).summary()
        low, high = of.regret_intervals.get((a, b), (None, None))
        interval = "" if low is None or high is None else f"[{100 * low:.2f}, {100 * high:.2f}]"
        shares = (f"{100 * found.mean_regret:.2f}", f"{100 * found.max_regret:.2f}", interval)
        rows.append((f"{a} vs {b}", f"{found.reversals}/{len(of.systems)}", *shares))
    columns = ("pair", "LOSO reversals", "mean regret pp", "max regret pp", "mean regret 95%")
    return ResultTable("Leave-one-system-out selection regret", columns, tuple(rows), number=3)


def _ledger(of: Audited) -> ResultTable:
    rows = tuple(
        (
            f"{family} / {system}",
            int(n),
            *(f"{means[at]:.3f}" for means in of.means.values()),
            *(
                f"{100 * effect[at]:+.1f} {_interval(of.shown('ci_low', a, b, system), of.shown('ci_high', a, b, system))}"
                for a, b, effect in of.pairs()
            ),
        )
        for at, (family, system, n) in enumerate(zip(of.families, of.systems, of.sizes, strict=True))
    )
    effects = (f"{a} - {b}, pp" for a, b, _ in of.pairs())
    return ResultTable("Per-system ledger", ("system", "n", *of.means, *effects), rows, number=4)


def _interaction(of: Audited) -> ResultTable:
    rows = [(name, f"{statistic or 0:.2f}", str(df), _p_value(p)) for name, statistic, df, p in of.omnibus]
    for a, b, _ in of.pairs():
        if lrt := of.shown("lrt", a, b, form=".2f"):
            rows.append(
                (f"{a} vs {b}", lrt, of.shown("df", a, b, form=".0f"), _p_value(of.figures.get(("p", a, b, ""))))
            )
    return ResultTable("Method-by-system interaction", ("comparison", "LRT", "df", "p"), tuple(rows), number=6)


def _held_out(of: Audited) -> ResultTable:
    rows = []
    for a, b, effect in of.pairs() if len(of.systems) > 1 else ():
        found = leave_one_system_out(effect, of.sizes)
        for at, (family, system) in enumerate(zip(of.families, of.systems, strict=True)):
            actual = "tie" if abs(effect[at]) <= TIE else a if effect[at] > 0 else b
            dagger = "†" if found.reversed[at] else ""
            pooled = b if found.pooled[at] < -TIE else a
            regret = f"{100 * found.regret[at]:.2f}"
            rows.append((f"{a} vs {b}", f"{family} / {system}", int(of.sizes[at]), pooled, f"{actual}{dagger}", regret))
    columns = ("pair", "held-out system", "n", "pooled", "actual", "regret pp")
    return ResultTable("Regret by held-out system", columns, tuple(rows), number=8)


def _families(of: Audited) -> ResultTable:
    names = list(dict.fromkeys(of.families))
    rows = []
    for a, b, effect in of.pairs() if len(names) > 1 else ():
        found = leave_one_family_out(effect, of.families)
        regret = found.summary()
        wrong = ", ".join(name for name, reversed_ in zip(names, found.reversed, strict=True) if reversed_)
        spread = [of.shown(name, a, b, form=".1f") for name in ("between_family_share", "max_family_range")]
        changes = of.shown("family_sign_changes", a, b, form=".0f")
        rows.append(
            (f"{a} vs {b}", f"{regret.reversals}/{len(names)}", f"{100 * regret.max_regret:.1f}",
             f"{100 * regret.mean_regret:.1f}", wrong, spread[0], f"{changes}/{len(names)}" if changes else "", spread[1])
        )  # fmt: skip
    columns = (
        "pair", "LOFO reversals", "max regret", "mean regret", "reversal families", "between-family SS %",
        "internal sign changes", "max family range",
    )  # fmt: skip
    return ResultTable("Leave one family out", columns, tuple(rows), number=10)


def _interval(low: str, high: str) -> str:
    return f"[{low}, {high}]" if low and high else ""


def _p_value(value: float | None) -> str:
    return "" if value is None or not np.isfinite(value) else f"{value:.3g}"


@click.command("audit_tables")
@click.argument("scores", type=_PATH)
@click.option("--resamples", type=click.IntRange(min=100), default=5000, show_default=True, help="Bootstrap samples.")
@click.option("--without", multiple=True, help="A system that Table 11 leaves aside; repeat for more.")
@click.option("--covariate", "covariates", multiple=True, help="A column of SCORES for Table 9; repeat for more.")
@click.option("--seed-column", default="seed", show_default=True, help="A column that tells repeats apart.")
@click.option("--condition", "conditions", multiple=True, help="A column that tells methods apart; repeat for more.")
@NUMBERS.option
@json_option
@click.pass_context
def command(
    context: click.Context, scores: Path, resamples: int, without: tuple[str, ...], covariates: tuple[str, ...],
    seed_column: str, conditions: tuple[str, ...], numbers: tuple[str, ...], *, as_json: bool,
) -> None:  # fmt: skip
    """Print the tables of SCORES: a score table with a row for each case, or a printed table of means and effects."""
    columns = {"seed": seed_column, "conditions": conditions}
    changes = {"resamples": resamples, "without": without, "covariates": covariates, "columns": columns}
    audited = read_audited(scores, changes)
    if missing := missing_from(audited):
        say(f"opsassay: not from a printed table, which has no case scores: {missing}.")
    context.exit(show_tables("audit_tables", NUMBERS.chosen(tables_of(audited), numbers), {}, as_json=as_json))


if __name__ == "__main__":
    sys.exit(run(command))
