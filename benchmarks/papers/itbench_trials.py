"""Tables of ITBench over a store of trials: 4, 17 to 21, pass@k, and what its Figures 5 and 6 show, with their tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import NormalDist, fmean, stdev
from typing import Any

from opsassay.core.errors import ConfigError, NotFoundError
from opsassay.core.schema.run import RunStatus
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.task import LEVELS, level_of
from opsassay.core.schema.trajectory import TraceStep
from opsassay.evals.remediation.report import Trials
from opsassay.evals.remediation.score import read_steps
from opsassay.evals.remediation.tables import BASELINE, TrialRow
from opsassay.evals.remediation.tasks import scenario_complexity
from opsassay.evals.runner.store import read_run
from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.metrics import TOPOLOGY
from opsassay.scoring.profiles import PROFILES
from opsassay.scoring.repeats import mean_pass_at_k
from opsassay.scoring.trajectory import visited_services
from opsassay.solvers.agents.sre_prompts import DIAGNOSIS_REPORT, MITIGATION_REPORT
from opsassay.testbed.scenarios import system_of

from .running import part_of

MASKED = f"{BASELINE}/mask-"
MOST_TRIES = 5
HANDING_IN = frozenset({DIAGNOSIS_REPORT.name, MITIGATION_REPORT.name})
"""Calls that say something and look at nothing: an agent that names every service there has visited none."""


@dataclass(frozen=True)
class ItbenchRow(TrialRow):
    """One judged trial with what ITBench's tables have beside the certificate.

    *submitted* is whether the agent named a cause, *complexity* ITBench's (Equation 6). *fl* and *fpc* are how near its
    diagnosis comes (NTAM, in [0, 1]). *tools* are its calls of each tool with how many failed, *detoured* the services
    that it looked at and that are not on the chain, *covered* the share of the chain that it looked at.
    """

    submitted: bool | None = None
    complexity: float = 1.0
    fl: float | None = None
    fpc: float | None = None
    tools: tuple[tuple[str, int, int], ...] = ()
    detoured: float | None = None
    covered: float | None = None


Agents = Mapping[str, Sequence[ItbenchRow]]
Success = Callable[[ItbenchRow], bool | None]
"""Whether a trial succeeded, None where it was not asked."""


def itbench_rows(trials: Trials) -> list[ItbenchRow]:
    """Return the rows of *trials* with what ITBench's tables have further."""
    found = []
    for row, graded, (_, scenario, recording) in zip(trials.rows, trials.graded, trials.recorded, strict=True):
        fl, fpc = (graded.verdict.metrics.get(name) for name in TOPOLOGY)
        found.append(
            ItbenchRow(
                **vars(row),
                submitted=None if recording.diagnoses is None else bool(recording.diagnoses),
                complexity=scenario_complexity(scenario.difficulty),
                fl=fl.value if fl else None,
                fpc=fpc.value if fpc else None,
                **_looks(scenario, read_steps(graded.folder)),
            )
        )
    return found


def attempts(trials: Trials) -> dict[str, tuple[int, int]]:
    """Return by agent how many of its attempts came to a result, and how many were begun."""
    begun = [read_run(path) for path in trials.store.runs()]
    done = Counter(run.solver.name for run in begun if run.status is RunStatus.DONE)
    return {name: (done[name], count) for name, count in Counter(run.solver.name for run in begun).items()}


def _looks(scenario: Scenario, steps: tuple[TraceStep, ...]) -> dict[str, Any]:
    """Return how an agent used its tools, and where it looked: on the chain of the truth, and beside it."""
    calls = [call for step in steps for call in step.tool_logs if call.tool not in HANDING_IN]
    used, failed = Counter(one.tool for one in calls), Counter(one.tool for one in calls if one.status == "error")
    tools = tuple((name, n, failed[name]) for name, n in used.items())
    profile = PROFILES["default"]
    ends = {end for one in scenario.truth.propagation for end in (one.source, one.target)}
    chain = {profile.service(name) for name in scenario.true_causes() | ends}
    try:
        system = system_of(scenario)
    except (NotFoundError, ConfigError):  # a file that is not there any more
        return {"tools": tools}
    words = visited_services(calls, {*system.services, *system.stores} | chain, profile)
    return {
        "tools": tools,
        "detoured": float(len(words - chain)) if chain and calls else None,
        "covered": len(words & chain) / len(chain) if chain and calls else None,
    }


def diagnosed(row: ItbenchRow) -> bool | None:
    """Return whether the cause was named."""
    return row.right


def mitigated(row: ItbenchRow) -> bool | None:
    """Return whether the alerts cleared and stayed so."""
    return row.repair_s is not None if row.alerts else None


def certified(row: ItbenchRow) -> bool | None:
    """Return whether the run was certified."""
    return row.conjunction


def itbench_tables(
    rows: Sequence[ItbenchRow], attempts: Mapping[str, tuple[int, int]] | None = None
) -> list[ResultTable]:
    """Return the tables of the main slice (baseline prompt, probes on) of *rows*, agents by name.

    *attempts* are how many attempts of each agent came to a result, and how many were begun.
    """
    main = _by_agent([row for row in rows if row.main])
    masked = _by_agent([row for row in rows if row.probes and row.arm.startswith(MASKED)])
    tables = [
        _evaluation(main, "Diagnosis and mitigation, as ITBench has them", 4),
        _submissions(main, attempts or {}),
        _strata(main, "Diagnosis pass@1 (%) by complexity", 18, diagnosed),
        _strata(main, "Mitigation pass@1 (%) by complexity", 19, mitigated),
    ]
    if masked:  # the paper's scenarios with tracing, and those without
        seen = {row.scenario for members in masked.values() for row in members}
        whole = _by_agent([row for row in rows if row.main and row.scenario in seen])
        tables += [_evaluation(whole, "With all telemetry", 20), _evaluation(masked, "With telemetry masked", 21)]
    return [*tables, _tries(main), _tool_use(main), _search(main)]


def _by_agent(rows: Sequence[ItbenchRow]) -> dict[str, list[ItbenchRow]]:
    return {name: [row for row in rows if row.agent == name] for name in sorted({row.agent for row in rows})}


def _evaluation(agents: Agents, title: str, number: int) -> ResultTable:
    """Return Table 4, pass@1 in percent, NTAM in [0, 1] and times in seconds, each with its standard error.

    pass@1 is a mean over scenarios of the share of trials, its error that of scenarios, and so is NTAM; a time is over the
    trials that succeeded: whose diagnosis was right, and whose alerts cleared and stayed so.
    """
    found = []
    for name, rows in agents.items():
        right = [row.diagnosis_s for row in rows if row.right and row.diagnosis_s is not None]
        repaired = [row.repair_s for row in rows if row.alerts and row.repair_s is not None]
        found.append(
            (
                name,
                len(rows),
                _share(rows, diagnosed),
                _with_error(_per_scenario(rows, lambda row: row.fl), "{:.2f}"),
                _with_error(_per_scenario(rows, lambda row: row.fpc), "{:.2f}"),
                _with_error(right, "{:.1f}"),
                _share(rows, mitigated),
                _with_error(repaired, "{:.1f}"),
            )
        )
    columns = ("agent", "trials", "diagnosis pass@1 (%)", "FL (NTAM)", "FPC (NTAM)", "MTTD (s)", "mitigation pass@1 (%)",
               "MTTR (s)")  # fmt: skip
    return ResultTable(title, columns, tuple(found), "Means with standard errors.", number=number)


def _submissions(agents: Agents, attempts: Mapping[str, tuple[int, int]]) -> ResultTable:
    """Return Table 17: how many trials each agent had, and in what share of those that asked it named a cause.

    Completed is the share of attempts that came to a result (Table 24): what is missing is the machinery's.
    """
    found = []
    for name, rows in agents.items():
        asked = [row for row in rows if row.submitted is not None]
        shown = _percent(sum(bool(row.submitted) for row in asked), len(asked))
        repeats = max(Counter(row.scenario for row in rows).values())
        completed = _percent(*attempts.get(name, (0, 0)))
        found.append((name, len({row.scenario for row in rows}), repeats, len(rows), completed, shown))
    columns = ("agent", "scenarios", "repeats at most", "trials", "completed", "submissions")
    return ResultTable("Trials and submissions, as ITBench has them", columns, tuple(found), number=17)


def _strata(agents: Agents, title: str, number: int, succeeded: Success) -> ResultTable:
    """Return Table 18 or 19: pass@1 of each agent on easy, medium and hard scenarios, and whether two levels differ.

    Two levels are compared by the difference-of-proportions z-test over trials, as in the paper.
    """
    found, statistics = [], {}
    for name, rows in agents.items():
        members = {level: [row for row in rows if level_of(row.complexity) == level] for level in LEVELS}
        counts = {}
        for level in LEVELS:
            outcomes = [one for row in members[level] if (one := succeeded(row)) is not None]
            counts[level] = (sum(outcomes), len(outcomes))
        for level, other in combinations(LEVELS, 2):
            statistics[f"z_test_p {name} {level} {other}"] = z_test(*counts[level], *counts[other])
        found.append((name, *(_share(members[level], succeeded) for level in LEVELS), *(counts[s][1] for s in LEVELS)))
    columns = ("agent", *LEVELS, *(f"trials {level}" for level in LEVELS))
    return ResultTable(title, columns, tuple(found), number=number, statistics=statistics)


def _tries(agents: Agents) -> ResultTable:
    """Return pass@k of each agent (ITBench, C.6.3) for every k that each of its scenarios has trials for."""
    found: list[tuple[Any, ...]] = []
    for name, rows in agents.items():
        for k in range(1, MOST_TRIES + 1):
            shares = [_pass_at(rows, succeeded, k) for succeeded in (diagnosed, mitigated, certified)]
            if any(share is not None for share in shares):
                found.append((name, k, *shares))
    columns = ("agent", "k", "diagnosis pass@k (%)", "mitigation pass@k (%)", "certificate pass@k (%)")
    return ResultTable("pass@k", columns, tuple(found))


def _pass_at(rows: Sequence[ItbenchRow], succeeded: Success, k: int) -> str | None:
    outcomes = _outcomes(rows, succeeded)
    if not outcomes or min(map(len, outcomes.values())) < k:
        return None
    return f"{100 * mean_pass_at_k(outcomes, k):.2f}"


def _tool_use(agents: Agents) -> ResultTable:
    """Return what Figure 5 shows: each agent's calls by tool and how many of them failed.

    The tests are of calls per trial: whether two agents call as often.
    """
    found: list[tuple[Any, ...]] = []
    for name, rows in agents.items():
        calls, failed = Counter[str](), Counter[str]()
        for row in rows:
            for tool, count, errors in row.tools:
                calls[tool] += count
                failed[tool] += errors
        total = calls.total()
        found += [(name, tool, n, _percent(n, total), _percent(failed[tool], n)) for tool, n in calls.most_common()]
    per_trial = {name: [float(sum(n for _, n, _ in row.tools)) for row in rows] for name, rows in agents.items()}
    columns = ("agent", "tool", "calls", "share of its calls", "failed")
    statistics = _tested("calls per trial", per_trial)
    return ResultTable("Figure 5. Tools that are used", columns, tuple(found), statistics=statistics)


def _search(agents: Agents) -> ResultTable:
    """Return what Figure 6 shows: detours and coverage of the chain, apart for right diagnoses and for others."""
    found: list[tuple[Any, ...]] = []
    statistics: dict[str, float | None] = {}
    for right, words in ((True, "right"), (False, "not right")):
        some = {name: [row for row in rows if row.right is right] for name, rows in agents.items()}
        detours = {name: [row.detoured for row in rows if row.detoured is not None] for name, rows in some.items()}
        covered = {name: [row.covered for row in rows if row.covered is not None] for name, rows in some.items()}
        found += [
            (name, words, len(rows), _with_error(detours[name], "{:.2f}"), _with_error(covered[name], "{:.2f}"))
            for name, rows in some.items()
            if rows
        ]
        statistics |= _tested(f"detours, {words}", detours) | _tested(f"coverage, {words}", covered)
    columns = ("agent", "diagnosis", "trials", "detoured services", "share of the chain covered")
    return ResultTable("Figure 6. Where agents look", columns, tuple(found), statistics=statistics)


def _tested(what: str, values: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
    """Return the p of the Kolmogorov-Smirnov test of every two agents that have *values*."""
    pairs = combinations([name for name in values if values[name]], 2)
    return {f"ks_p {what}: {one}, {other}": ks_test(values[one], values[other]) for one, other in pairs}


def _outcomes(rows: Sequence[ItbenchRow], succeeded: Success) -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = {}
    for row in rows:
        if (outcome := succeeded(row)) is not None:
            found.setdefault(row.scenario, []).append(outcome)
    return found


def _share(rows: Sequence[ItbenchRow], succeeded: Success) -> str | None:
    return _with_error([100 * fmean(outcomes) for outcomes in _outcomes(rows, succeeded).values()], "{:.2f}")


def _per_scenario(rows: Sequence[ItbenchRow], value: Callable[[ItbenchRow], float | None]) -> list[float]:
    found: dict[str, list[float]] = {}
    for row in rows:
        if (one := value(row)) is not None:
            found.setdefault(row.scenario, []).append(one)
    return [fmean(values) for values in found.values()]


def _percent(count: int, of: int) -> str | None:
    return f"{100 * count / of:.1f}%" if of else None


def _with_error(values: Sequence[float], form: str) -> str | None:
    """Return mean and standard error of *values*; the mean alone of a single one, None of none."""
    if not values:
        return None
    mean = form.format(fmean(values))
    return mean if len(values) == 1 else f"{mean} ± {form.format(stdev(values) / sqrt(len(values)))}"


def z_test(hits: int, of: int, other_hits: int, other_of: int) -> float | None:
    """Return the two-sided p of the difference-of-proportions z-test; None where one is empty or nothing varies.

    z = (p1 - p2) / sqrt(p (1 - p) (1 / n1 + 1 / n2)), p the share of both together (ITBench, C.6.4).
    """
    if not of or not other_of:
        return None
    together = (hits + other_hits) / (of + other_of)
    error = sqrt(together * (1 - together) * (1 / of + 1 / other_of))
    return 2 * NormalDist().cdf(-abs(hits / of - other_hits / other_of) / error) if error else None


def ks_test(values: Sequence[float], others: Sequence[float]) -> float | None:
    """Return the two-sided p of the Kolmogorov-Smirnov test of one distribution; None where one is empty."""
    if not values or not others:
        return None
    from scipy import stats

    return float(stats.ks_2samp(values, others).pvalue)


if __name__ == "__main__":
    part_of("itbench")
