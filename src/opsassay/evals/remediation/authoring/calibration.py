"""Error rates of the certificate on a busy machine: right and wrong repairs under random background load.

A false rejection is a right repair that fails a predicate in a valid trial; a false certification is a wrong repair
with a certificate. A trial that got too little CPU time (starved) counts as neither.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from opsassay.core.schema.progress import SILENT, Progress
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.score import grade_trial
from opsassay.evals.remediation.solve import TrialRun, run_trials
from opsassay.evals.remediation.tables import interval, share
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.runner.draws import Draws
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.verifiers import TrajectoryVerdict
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings

MOST_LOOPS = 3
LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(10**6): pass"
"""A busy loop for one core; it ends when the process whose id is its argument ends."""


@dataclass(frozen=True)
class LoadedTrial:
    """One trial of a calibration under *loops* busy loops per core; *right*: its repair must be certified."""

    run: TrialRun
    loops: int
    right: bool


@dataclass(frozen=True)
class Calibrated:
    """The result of such a trial: *verdict*, None with a *reason* if it has no result."""

    trial: LoadedTrial
    verdict: TrajectoryVerdict | None
    reason: str = ""

    @property
    def starved(self) -> bool:
        """Whether the trial has no result because the machine gave it too little CPU time."""
        return self.verdict is None and self.reason.startswith("starved")


def drawn_trials(scenarios: Sequence[Scenario], count: int, seed: int) -> list[LoadedTrial]:
    """Return *count* right and *count* wrong repairs, alternating; scenario, oracle and load are random by *seed*."""
    found = []
    for number in range(count):
        for right in (True, False):
            draws = Draws(seed, "calibrate", str(number), str(right))
            scenario = draws.choice([one for one in scenarios if _list_oracles(one, right=right)])
            agent = TrialAgent(name=ORACLE + draws.choice(_list_oracles(scenario, right=right)))
            run = TrialRun(
                scenario,
                agent,
                "baseline",
                probes=True,
                seed=draws.integer(0, 2**31),
                cluster=ClusterSettings(),
                retries=0,
            )
            found.append(LoadedTrial(run, draws.integer(0, MOST_LOOPS), right))
    return found


def _list_oracles(scenario: Scenario, *, right: bool) -> list[str]:
    """Return the sorted names of the scenario's oracles that must (*right*), or must not, be certified."""
    return sorted(name for name, oracle in scenario.oracles.items() if oracle.certified == right)


def calibrate(store: RunStore, trials: Iterable[LoadedTrial], progress: Progress = SILENT) -> Iterator[Calibrated]:
    """Run and grade each of *trials* under its load; yield the results. Trials with a result in *store* are only graded."""
    for trial in trials:
        with busy(trial.loops):
            folders = run_trials(store, [trial.run], progress=progress)
        if folders:
            yield Calibrated(trial, grade_trial(folders[0], trial.run.scenario))
        else:
            last = store.attempts_of(trial.run.cell.hash)[-1]
            yield Calibrated(trial, None, read_run(last).error or "no result")


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Run *loops* CPU-bound processes per core during the with block."""
    words = [sys.executable, "-S", "-c", LOOP, str(os.getpid())]
    cores = os.cpu_count() or 1
    processes = [subprocess.Popen(words, start_new_session=True) for _ in range(loops * cores)]  # Ctrl-C is not theirs
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def by_predicate(results: Sequence[Calibrated]) -> ResultTable:
    """Return a table per predicate: right repairs rejected and wrong ones passed, over valid trials.

    For a predicate, only wrong repairs count that fail it according to the scenario; for the certificate, all.
    """
    judged = [(one, one.verdict) for one in results if one.verdict is not None]
    names = dict.fromkeys(["certificate", *(j.predicate for _, verdict in judged for j in verdict.judgements)])
    rows = []
    for name in names:
        right = [
            verdict.judgement(name).failed
            for one, verdict in judged
            if one.trial.right and _has_judgement(verdict, name)
        ]
        wrong = [
            verdict.judgement(name).passed for one, verdict in judged
            if not one.trial.right and _has_judgement(verdict, name)
            and (name == "certificate" or name in _expected_failures(one.trial))
        ]  # fmt: skip
        rows.append((name, *_format_rate(right), *_format_rate(wrong)))
    columns = ("predicate", "right rejected", "95% interval", "wrong let pass", "95% interval ")
    return ResultTable("What the certificate gets wrong", columns, tuple(rows))


def by_load(results: Sequence[Calibrated]) -> ResultTable:
    """Return a table with a row per load: numbers of trials, of starved and failed ones, and certified shares."""
    rows = []
    for loops in sorted({one.trial.loops for one in results}):
        of = [one for one in results if one.trial.loops == loops]
        certified = {
            right: [
                one.verdict.judgement("certificate").passed for one in of if one.verdict and one.trial.right == right
            ]
            for right in (True, False)
        }
        lost = sum(one.verdict is None and not one.starved for one in of)
        rows.append((
            loops, len(of), sum(one.starved for one in of), lost,
            _format_share(certified[True]), _format_share(certified[False])
        ))  # fmt: skip
    columns = ("busy loops a core", "trials", "starved", "no result", "right certified", "wrong certified")
    return ResultTable("By background load", columns, tuple(rows))


def _has_judgement(verdict: TrajectoryVerdict, name: str) -> bool:
    """Return whether *verdict* has a result for the predicate *name*."""
    return any(one.predicate == name for one in verdict.judgements)


def _expected_failures(trial: LoadedTrial) -> tuple[str, ...]:
    """Return the names of the predicates that the oracle of *trial* must fail according to the scenario."""
    return trial.run.scenario.oracles[trial.run.agent.name.removeprefix(ORACLE)].fails


def _format_share(hits: Sequence[bool]) -> str:
    """Return the text "hits/runs": *hits* has an entry per run, True for a hit."""
    return share(sum(hits), len(hits))


def _format_rate(hits: Sequence[bool]) -> tuple[str, str | None]:
    """Return ("hits/runs", its 95% interval, None without runs) as texts; *hits* has an entry per run."""
    return _format_share(hits), interval(sum(hits), len(hits))
