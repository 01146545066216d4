"""Tables 4 and 17 of ITBench over a store of trials: diagnosis and mitigation of each agent, and who handed anything in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import sqrt
from statistics import fmean, stdev

from opsassay.bench.core.tables import ResultTable
from opsassay.bench.domains.sre.tables import TrialRow


def itbench_tables(rows: Sequence[TrialRow]) -> list[ResultTable]:
    """Return Tables 4 and 17 of the main slice (baseline prompt, probes on) of *rows*, agents by name."""
    main = [row for row in rows if row.main]
    agents = {name: [row for row in main if row.agent == name] for name in sorted({row.agent for row in main})}
    return [_evaluation(agents), _submissions(agents)]


def _evaluation(agents: dict[str, list[TrialRow]]) -> ResultTable:
    """Return Table 4, pass@1 in percent and times in seconds, each with its standard error.

    pass@1 is a mean over scenarios of the share of trials, its error that of scenarios; a time is over the trials that
    succeeded: whose diagnosis was right, and whose alerts cleared and stayed so.
    """
    found = []
    for name, rows in agents.items():
        asked, alerted = [row for row in rows if row.right is not None], [row for row in rows if row.alerts]
        right = [row.diagnosis_s for row in asked if row.right and row.diagnosis_s is not None]
        repaired = [row.repair_s for row in alerted if row.repair_s is not None]
        found.append(
            (
                name,
                len(rows),
                _share(asked, lambda row: bool(row.right)),
                _with_error(right, "{:.1f}"),
                _share(alerted, lambda row: row.repair_s is not None),
                _with_error(repaired, "{:.1f}"),
            )
        )
    columns = ("agent", "trials", "diagnosis pass@1 (%)", "MTTD (s)", "mitigation pass@1 (%)", "MTTR (s)")
    note = "Means with standard errors. FL and FPC (NTAM) are of answers with a chain: see `opsassay itbench-sre`."
    return ResultTable("Diagnosis and mitigation, as ITBench has them", columns, tuple(found), note, number=4)


def _submissions(agents: dict[str, list[TrialRow]]) -> ResultTable:
    """Return Table 17: how many trials each agent had, and in what share of those that asked it named a cause."""
    found = []
    for name, rows in agents.items():
        asked = [row for row in rows if row.submitted is not None]
        share = 100 * fmean(bool(row.submitted) for row in asked) if asked else None
        repeats = max(Counter(row.scenario for row in rows).values())
        shown = None if share is None else f"{share:.1f}%"
        found.append((name, len({row.scenario for row in rows}), repeats, len(rows), shown))
    columns = ("agent", "scenarios", "repeats at most", "trials", "submissions")
    return ResultTable("Trials and submissions, as ITBench has them", columns, tuple(found), number=17)


def _share(rows: Sequence[TrialRow], succeeded: Callable[[TrialRow], bool]) -> str | None:
    per_scenario: dict[str, list[bool]] = {}
    for row in rows:
        per_scenario.setdefault(row.scenario, []).append(succeeded(row))
    return _with_error([100 * fmean(outcomes) for outcomes in per_scenario.values()], "{:.2f}")


def _with_error(values: Sequence[float], form: str) -> str | None:
    """Return mean and standard error of *values*; the mean alone of a single one, None of none."""
    if not values:
        return None
    mean = form.format(fmean(values))
    return mean if len(values) == 1 else f"{mean} ± {form.format(stdev(values) / sqrt(len(values)))}"
