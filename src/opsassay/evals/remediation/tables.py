"""Tables 8 to 15 of "side-effects" over a store of trials, with Fisher exact, sign test and Wilson intervals.

The main slice is the baseline prompt with probes on. A V_probe that does not apply counts as held, as in the paper's
probe-off rows (3/3 by construction).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from statistics import stdev
from typing import Any

from opsassay.evals.remediation.authoring.sweep import STALLS_S, WINDOWS_S, Setting, Swept
from opsassay.evals.remediation.statistics import fisher_exact, sign_test
from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.rates import wilson
from opsassay.scoring.repeats import mean_time

BASELINE = "baseline"


@dataclass(frozen=True)
class TrialRow:
    """One judged trial. *conjunction* is the certificate; *spread* counts the hosts of the spread service at the end.

    *alerts* says whether the scenario commits alerts to clear, and *repair_s* how long that took, None when they did
    not.
    *right* is whether the agent said what the cause is, None where it was not asked, *diagnosis_s* after how long, and
    *submitted* whether it said anything. *failed* names every predicate that failed, those that a scenario commits
    beyond the paper's four among them.
    *fl* and *fpc* are how near its diagnosis comes (NTAM, in [0, 1]). *tools* are its calls of each tool with how many
    failed, *detoured* the services that it looked at and that are not on the chain, *covered* the share of the chain
    that it looked at. *not_ranked* says why the agent is not ranked.
    *least_availability* is the share that V_temporal judged; *complexity* is ITBench's (Equation 6).
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
    submitted: bool | None = None
    complexity: float = 1.0
    fl: float | None = None
    fpc: float | None = None
    tools: tuple[tuple[str, int, int], ...] = ()
    detoured: float | None = None
    covered: float | None = None
    failed: tuple[str, ...] = ()
    not_ranked: tuple[str, ...] = ()

    @property
    def hidden(self) -> bool:
        """Whether the outcome passes and the conjunction does not."""
        return self.outcome and not self.conjunction

    @property
    def deeper(self) -> bool:
        """Whether the required check goes beyond readiness."""
        return self.depth != "D1"

    @property
    def main(self) -> bool:
        """Whether it is of the main slice."""
        return self.arm == BASELINE and self.probes


def tables(rows: Sequence[TrialRow], sweep: Callable[[Sequence[Setting]], list[Swept]]) -> list[ResultTable]:
    """Return tables 8 to 15 of *rows*; *sweep* re-scores the trials of the main slice under the settings it is given."""
    return [
        per_class(rows),
        per_cell(rows),
        per_run_summary(rows),
        per_agent(rows),
        probe_contrast(rows),
        per_run(rows),
        _sweep_table(14, "V_probe stall threshold", "stall (s)",
                     [Setting(probe_latency_limit_s=stall) for stall in STALLS_S], sweep),
        _sweep_table(15, "V_probe attribution window", "window (s)",
                     [Setting(probe_attribution_s=window) for window in WINDOWS_S], sweep),
    ]  # fmt: skip


def per_class(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 8: hidden failures by class of the required check."""
    main = [row for row in rows if row.main]
    classes = {
        "D1-check": [r for r in main if not r.deeper],
        "Deeper-check": [r for r in main if r.deeper],
        "All": main,
    }
    found = tuple(
        (
            name,
            ", ".join(sorted({row.scenario for row in members})) if name != "All" else "all",
            len(members),
            _of(sum(r.outcome for r in members), len(members)),
            _of(sum(r.conjunction for r in members), len(members)),
            _of(sum(r.hidden for r in members), sum(r.outcome for r in members)),
            _interval(sum(r.hidden for r in members), sum(r.outcome for r in members)),
        )
        for name, members in classes.items()
    )
    shallow, deep = classes["D1-check"], classes["Deeper-check"]
    statistics = {
        "fisher_exact_p": fisher_exact(
            sum(r.hidden for r in deep), sum(r.outcome for r in deep),
            sum(r.hidden for r in shallow), sum(r.outcome for r in shallow),
        ),
        "sign_test_p": sign_test([(float(r.outcome), float(r.conjunction)) for r in main]),
    }  # fmt: skip
    columns = ("class", "scenarios", "n", "outcome", "conjunction", "hidden / outcome", "95% interval")
    return ResultTable("Hidden failures by class, main slice", columns, found, number=8, statistics=statistics)


def per_cell(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 9: pass counts per scenario, agent, prompt arm and probe arm."""
    found = tuple(
        (scenario, agent, arm, "on" if probes else "off", members[0].depth, *_counts(members))
        for (scenario, agent, arm, probes), members in _grouped(rows, _cell)
    )
    columns = ("scenario", "agent", "prompt", "probes", "depth", "outcome", "V_temporal", "V_depth", "V_probe", "conj.")
    return ResultTable("Pass counts per cell", columns, found, number=9)


def per_run_summary(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 10: which runs of each cell pass, how long they take, and which predicates fail how often."""
    found = []
    for (scenario, agent, arm, probes), members in _grouped(rows, _cell):
        passing = ", ".join(str(row.seed) for row in sorted(members, key=lambda r: r.seed) if row.conjunction) or "–"
        took = [row.duration_s for row in members if row.duration_s is not None]
        mean = f"{sum(took) / len(took):.1f} s" if took else None
        counted = Counter(name for row in members for name in row.failed).most_common()
        failed = ", ".join(f"{name} {count}x" for name, count in counted) or None
        on = "on" if probes else "off"
        found.append((scenario, agent, arm, on, passing, *_counts(members), mean, *_times(members), failed))
    columns = ("scenario", "agent", "prompt", "probes", "seeds passing", "outcome", "V_temporal", "V_depth", "V_probe",
               "conj.", "mean time", "MTTD", "MTTR", "failed")  # fmt: skip
    return ResultTable("Outcomes per cell and run", columns, tuple(found), number=10)


def per_agent(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 11: each agent on the main slice.

    MTTD and MTTR (ITBench, C.6) are means from the moment the agent was let in, with their standard error and with how
    many of how many they are over: trials whose diagnosis was right, and those whose alerts cleared and stayed so.
    """
    main = [row for row in rows if row.main]
    found = [
        (
            agent,
            len(members),
            *_counts(members),
            _interval(sum(r.conjunction for r in members), len(members)),
            *_times(members),
            "no: " + "; ".join(why) if (why := dict.fromkeys(w for r in members for w in r.not_ranked)) else "yes",
        )
        for (agent,), members in _grouped(main, lambda r: (r.agent,))
    ]
    held = sum(r.conjunction for r in main)
    found.append(("All", len(main), *_counts(main), _interval(held, len(main)), *_times(main), None))
    columns = ("agent", "n", "outcome", "V_temporal", "V_depth", "V_probe", "conj.", "95% interval of conj.",
               "MTTD", "MTTR", "ranked")  # fmt: skip
    hidden = {(agent,): any(r.hidden for r in members) for (agent,), members in _grouped(main, lambda r: (r.agent,))}
    statistics = {"agents_with_hidden_failures": sum(hidden.values()), "agents": len(hidden)}
    return ResultTable("Headline per agent, main slice", columns, tuple(found), number=11, statistics=statistics)


def probe_contrast(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 12: scenarios and agents that were run with probes and without, everything else the same."""
    base = [row for row in rows if row.arm == BASELINE]
    paired = [
        (key, [r for r in members if r.probes], [r for r in members if not r.probes])
        for key, members in _grouped(base, lambda r: (r.scenario, r.agent))
        if len({r.probes for r in members}) == 2
    ]
    found: list[tuple[Any, ...]] = [(*key, *_contrast(on, off)) for key, on, off in paired]
    on, off = [r for _, some, _ in paired for r in some], [r for _, _, some in paired for r in some]
    found.append(("aggregate", "", *_contrast(on, off)))
    statistics = {
        "v_probe_fisher_exact_p": fisher_exact(sum(r.probe for r in on), len(on), sum(r.probe for r in off), len(off)),
        "conjunction_fisher_exact_p": fisher_exact(
            sum(r.conjunction for r in on), len(on), sum(r.conjunction for r in off), len(off)
        ),
        "conjunction_sign_test_p": sign_test(
            [(sum(r.conjunction for r in a) / len(a), sum(r.conjunction for r in b) / len(b)) for _, a, b in paired]
        ),
    }
    columns = ("scenario", "agent", "V_probe on", "V_probe off", "conj. on", "conj. off")
    return ResultTable(
        "Probe-on/off contrast, baseline prompt", columns, tuple(found), number=12, statistics=statistics
    )


def per_run(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 13: every run with where its replicas run, the least availability, diagnosis and time to repair."""
    found = tuple(
        (
            row.scenario, row.agent, row.arm, "on" if row.probes else "off", row.seed, *map(_mark, (
                row.outcome, row.temporal, row.depth_holds, row.probe, row.conjunction
            )), row.spread, None if row.least_availability is None else f"{row.least_availability:.3f}",
            None if row.right is None else _mark(row.right), _seconds(row.diagnosis_s), _seconds(row.repair_s),
            ", ".join(row.failed) or None,
        )
        for row in sorted(rows, key=lambda r: (r.scenario, r.agent, r.arm, not r.probes, r.seed))
    )  # fmt: skip
    columns = ("scenario", "agent", "prompt", "probes", "seed", "outcome", "V_temporal", "V_depth", "V_probe", "conj.",
               "spread", "least availability", "diagnosis", "after", "repair after", "failed")  # fmt: skip
    return ResultTable("Every run", columns, found, number=13)


def _sweep_table(
    number: int, what: str, column: str, settings: Sequence[Setting], sweep: Callable[[Sequence[Setting]], list[Swept]]
) -> ResultTable:
    swept = sweep(settings)
    found = tuple(
        (
            next(
                value for value in (s.setting.probe_latency_limit_s, s.setting.probe_attribution_s) if value is not None
            ),
            _of(s.outcome, s.runs),
            _of(s.conjunction, s.runs),
            _of(s.hidden, s.outcome),
            _of(s.d1_hidden, s.d1_outcome),
            _of(s.deeper_hidden, s.deeper_outcome),
        )
        for s in swept
    )
    columns = (column, "outcome", "conjunction", "hidden / pass", "D1-check", "deeper-check")
    p_values = [s.p_value for s in swept if s.p_value is not None]
    statistics = {"largest_fisher_exact_p": max(p_values, default=None)}
    return ResultTable(f"{what} sweep, main slice", columns, found, number=number, statistics=statistics)


def _cell(row: TrialRow) -> tuple[Any, ...]:
    return row.scenario, row.agent, row.arm, row.probes


def _grouped(
    rows: Iterable[TrialRow], key: Callable[[TrialRow], tuple[Any, ...]]
) -> list[tuple[tuple[Any, ...], list[TrialRow]]]:
    ordered = sorted(rows, key=lambda r: (tuple(map(str, key(r))), r.seed))
    return [(name, list(members)) for name, members in groupby(ordered, key)]


def _counts(rows: Sequence[TrialRow]) -> tuple[str, ...]:
    found = [(r.outcome, r.temporal, r.depth_holds, r.probe, r.conjunction) for r in rows]
    return tuple(_of(sum(column), len(rows)) for column in zip(*found, strict=True)) if found else ("0/0",) * 5


def _contrast(on: Sequence[TrialRow], off: Sequence[TrialRow]) -> tuple[str, ...]:
    return (
        _of(sum(r.probe for r in on), len(on)),
        _of(sum(r.probe for r in off), len(off)),
        _of(sum(r.conjunction for r in on), len(on)),
        _of(sum(r.conjunction for r in off), len(off)),
    )


def _of(hits: int, of: int) -> str:
    return f"{hits}/{of}"


def _interval(hits: int, of: int) -> str | None:
    if not of:
        return None
    low, high = wilson(hits, of)
    return f"{low:.0%} to {high:.0%}"


def _times(rows: Sequence[TrialRow]) -> tuple[str | None, str | None]:
    """Return MTTD and MTTR."""
    diagnosed = _mean_time(row.diagnosis_s for row in rows if row.right is not None)
    return diagnosed, _mean_time(row.repair_s for row in rows if row.alerts)


def _mean_time(times_s: Iterable[float | None]) -> str | None:
    times_s = list(times_s)
    mean, known = mean_time(times_s), [time_s for time_s in times_s if time_s is not None]
    if not mean.attempts:
        return None
    of = _of(mean.successes, mean.attempts)
    if mean.seconds is None:
        return f"({of})"
    error = f" ± {stdev(known) / sqrt(len(known)):.0f}" if len(known) > 1 else ""
    return f"{mean.seconds:.0f}{error} s ({of})"


def _seconds(time_s: float | None) -> str | None:
    return None if time_s is None else f"{time_s:.1f} s"


def _mark(held: bool) -> str:
    return "✓" if held else "×"
