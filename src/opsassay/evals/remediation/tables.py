"""Tables 9, 10, 11 and 13 of "side-effects" over a store of trials, with Wilson intervals.

The main slice is the baseline prompt with probes on. A V_probe that does not apply counts as passed, as in the paper's
rows without probes (3/3 by construction).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from statistics import stdev
from typing import Any

from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.rates import wilson
from opsassay.scoring.repeats import mean_time

BASELINE = "baseline"


@dataclass(frozen=True)
class TrialRow:
    """One graded trial. *conjunction* is the certificate; *spread*: hosts of the verified service at the end.

    *alerts*: the scenario requires alerts to clear; *repair_s*: seconds until then, None if they did not. *right*: the
    diagnosis was right, None if none was asked for; *diagnosis_s*: seconds until then. *failed*: all failed predicates.
    *not_ranked*: reasons. *least_availability*: the lowest share that V_temporal saw.
    """

    scenario: str
    depth: str
    agent: str
    arm: str
    probes: bool
    seed: int
    outcome: bool
    temporal: bool
    depth_holds: bool
    probe: bool
    conjunction: bool
    duration_s: float | None = None
    least_availability: float | None = None
    spread: int | None = None
    alerts: bool = False
    repair_s: float | None = None
    right: bool | None = None
    diagnosis_s: float | None = None
    failed: tuple[str, ...] = ()
    not_ranked: tuple[str, ...] = ()

    @property
    def hidden(self) -> bool:
        """Whether the trial is a hidden failure: V_outcome (the usual final check) passes, the certificate fails."""
        return self.outcome and not self.conjunction

    @property
    def deeper(self) -> bool:
        """Whether the committed verification depth is beyond readiness (D1)."""
        return self.depth != "D1"

    @property
    def main(self) -> bool:
        """Whether the trial is in the main slice: baseline prompt, probes on."""
        return self.arm == BASELINE and self.probes


def tables(rows: Sequence[TrialRow]) -> list[ResultTable]:
    """Return Tables 9, 10, 11 and 13 of the paper "side-effects" for *rows*."""
    return [per_cell(rows), per_run_summary(rows), per_agent(rows), per_run(rows)]


def per_cell(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 9: predicates passed, a row per scenario, agent, prompt variant and probe variant."""
    found = tuple(
        (scenario, agent, arm, "on" if probes else "off", members[0].depth, *_count_cells(members))
        for (scenario, agent, arm, probes), members in group_rows(rows, _cell_of_row)
    )
    columns = ("scenario", "agent", "prompt", "probes", "depth", "outcome", "V_temporal", "V_depth", "V_probe", "conj.")
    return ResultTable("Pass counts per cell", columns, found, number=9)


def per_run_summary(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 10: per scenario, agent and variants, the runs that pass, durations, and failures by predicate."""
    found = []
    for (scenario, agent, arm, probes), members in group_rows(rows, _cell_of_row):
        passing = ", ".join(str(row.seed) for row in sorted(members, key=lambda r: r.seed) if row.conjunction) or "–"
        took = [row.duration_s for row in members if row.duration_s is not None]
        mean = f"{sum(took) / len(took):.1f} s" if took else None
        counted = Counter(name for row in members for name in row.failed).most_common()
        failed = ", ".join(f"{name} {count}x" for name, count in counted) or None
        on = "on" if probes else "off"
        found.append((scenario, agent, arm, on, passing, *_count_cells(members), mean, *_mean_times(members), failed))
    columns = ("scenario", "agent", "prompt", "probes", "seeds passing", "outcome", "V_temporal", "V_depth", "V_probe",
               "conj.", "mean time", "MTTD", "MTTR", "failed")  # fmt: skip
    return ResultTable("Outcomes per cell and run", columns, tuple(found), number=10)


def per_agent(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 11: a row per agent, over the main slice.

    MTTD and MTTR (ITBench, C.6) are means from the agent's start, with their standard error and the number of trials
    they are over out of all: trials whose diagnosis was right, and those whose alerts cleared and stayed so.
    """
    main = [row for row in rows if row.main]
    found = [
        (
            agent,
            len(members),
            *_count_cells(members),
            interval(sum(r.conjunction for r in members), len(members)),
            *_mean_times(members),
            "no: " + "; ".join(why) if (why := dict.fromkeys(w for r in members for w in r.not_ranked)) else "yes",
        )
        for (agent,), members in group_rows(main, lambda r: (r.agent,))
    ]
    held = sum(r.conjunction for r in main)
    found.append(("All", len(main), *_count_cells(main), interval(held, len(main)), *_mean_times(main), None))
    columns = ("agent", "n", "outcome", "V_temporal", "V_depth", "V_probe", "conj.", "95% interval of conj.",
               "MTTD", "MTTR", "ranked")  # fmt: skip
    hidden = {(agent,): any(r.hidden for r in members) for (agent,), members in group_rows(main, lambda r: (r.agent,))}
    statistics = {"agents_with_hidden_failures": sum(hidden.values()), "agents": len(hidden)}
    return ResultTable("Headline per agent, main slice", columns, tuple(found), number=11, statistics=statistics)


def per_run(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 13: a row per run with hosts of replicas, minimum availability, diagnosis and time to repair."""
    found = tuple(
        (
            row.scenario, row.agent, row.arm, "on" if row.probes else "off", row.seed, *map(_tick_or_cross, (
                row.outcome, row.temporal, row.depth_holds, row.probe, row.conjunction
            )), row.spread, None if row.least_availability is None else f"{row.least_availability:.3f}",
            None if row.right is None else _tick_or_cross(row.right), _format_seconds(row.diagnosis_s),
            _format_seconds(row.repair_s), ", ".join(row.failed) or None,
        )
        for row in sorted(rows, key=lambda r: (r.scenario, r.agent, r.arm, not r.probes, r.seed))
    )  # fmt: skip
    columns = ("scenario", "agent", "prompt", "probes", "seed", "outcome", "V_temporal", "V_depth", "V_probe", "conj.",
               "spread", "least availability", "diagnosis", "after", "repair after", "failed")  # fmt: skip
    return ResultTable("Every run", columns, found, number=13)


def _cell_of_row(row: TrialRow) -> tuple[Any, ...]:
    """Return (scenario, agent, prompt variant, probe variant), by which rows are grouped."""
    return row.scenario, row.agent, row.arm, row.probes


def group_rows(
    rows: Iterable[TrialRow], key: Callable[[TrialRow], tuple[Any, ...]]
) -> list[tuple[tuple[Any, ...], list[TrialRow]]]:
    """Return (key, rows) for each group of *rows* with the same *key*, its rows sorted by seed."""
    ordered = sorted(rows, key=lambda r: (tuple(map(str, key(r))), r.seed))
    return [(name, list(members)) for name, members in groupby(ordered, key)]


def _count_cells(rows: Sequence[TrialRow]) -> tuple[str, ...]:
    """Return the texts "hits/total" of rows that pass V_outcome, V_temporal, V_depth, V_probe and the certificate."""
    found = [(r.outcome, r.temporal, r.depth_holds, r.probe, r.conjunction) for r in rows]
    return tuple(share(sum(column), len(rows)) for column in zip(*found, strict=True)) if found else ("0/0",) * 5


def share(hits: int, total: int) -> str:
    """Return the text "hits/total"."""
    return f"{hits}/{total}"


def interval(hits: int, total: int) -> str | None:
    """Return Wilson's 95% interval of the share *hits* / *total* as text; None when *total* is 0."""
    if not total:
        return None
    low, high = wilson(hits, total)
    return f"{low:.0%} to {high:.0%}"


def _mean_times(rows: Sequence[TrialRow]) -> tuple[str | None, str | None]:
    """Return (MTTD, MTTR) as texts, None where no trial has that time."""
    diagnosed = _mean_time(row.diagnosis_s for row in rows if row.right is not None)
    return diagnosed, _mean_time(row.repair_s for row in rows if row.alerts)


def _mean_time(times_s: Iterable[float | None]) -> str | None:
    """Return the mean of *times_s* as text with standard error and "n of all"; None without times."""
    times_s = list(times_s)
    mean, known = mean_time(times_s), [time_s for time_s in times_s if time_s is not None]
    if not mean.attempts:
        return None
    of = share(mean.successes, mean.attempts)
    if mean.seconds is None:
        return f"({of})"
    error = f" ± {stdev(known) / sqrt(len(known)):.0f}" if len(known) > 1 else ""
    return f"{mean.seconds:.0f}{error} s ({of})"


def _format_seconds(time_s: float | None) -> str | None:
    """Return *time_s* as text in seconds, None for None."""
    return None if time_s is None else f"{time_s:.1f} s"


def _tick_or_cross(passed: bool) -> str:
    """Return "✓" for True, "×" for False."""
    return "✓" if passed else "×"
