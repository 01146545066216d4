"""Graded trials of a store: rows of the tables, and recordings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.run import Run, RunStatus
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.task import Arm
from opsassay.evals.remediation.score import grade_trial, read_recording, recorded_trials, require_trials
from opsassay.evals.remediation.tables import TrialRow, tables
from opsassay.evals.remediation.tasks import kept_scenario
from opsassay.evals.runner.domain import Domain
from opsassay.evals.runner.grading import GradedRun, GradedRuns, Stores
from opsassay.evals.runner.ranking import run_id, why_not_ranked
from opsassay.evals.runner.store import FINISHED, RunStore, read_run
from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.verifiers import Judgement, RunRecording
from opsassay.scoring.verifiers.diagnosed import RIGHT, TIME
from opsassay.scoring.verifiers.entities import entities_at
from opsassay.scoring.verifiers.judgement import Judged


class Trials:
    """The graded trials of the store at *root* (only those with *ids*); *problems*: run folder to why it has no grade.

    *void*: the last attempts of trials without a result, such as those that got too little CPU time. Raises UserError
    for a store without trials.
    """

    def __init__(self, root: Path, ids: Collection[str] | None = None) -> None:
        self.store = RunStore(require_trials(root))
        self.rows: list[TrialRow] = []
        self.graded: list[GradedRun] = []
        self.recorded: list[tuple[str, Scenario, RunRecording]] = []
        self.problems: dict[str, str] = {}
        self.void = tuple(one for one in _without_result(self.store) if ids is None or run_id(one) in ids)
        for run_dir in recorded_trials(self.store):
            try:
                run = read_run(run_dir)
                if ids is None or run_id(run) in ids:
                    self._add_trial(run_dir, run)
            except OpsAssayError as error:
                self.problems[str(run_dir)] = str(error)

    def _add_trial(self, run_dir: Path, run: Run) -> None:
        """Grade the run in *run_dir* and add its table row; a run that got too little CPU time counts as void."""
        scenario = kept_scenario(self.store.root, run.item_hash)
        recording = read_recording(run_dir)
        verdict = grade_trial(run_dir, scenario)
        if verdict.validity.status == "starved":
            self.void += (run.model_copy(update={"error": verdict.validity.reason}),)
            return
        repair = verdict.metrics.get("time_to_repair_s")
        right, answer_time = verdict.metrics.get(RIGHT), verdict.metrics.get(TIME)
        row = _make_row(run, scenario, recording, {j.predicate: j for j in verdict.judgements})
        self.rows.append(
            replace(
                row,
                alerts=repair is not None,
                repair_s=repair.value if repair else None,
                right=None if right is None or right.value is None else right.value == 1.0,
                diagnosis_s=answer_time.value if answer_time else None,
            )
        )
        self.graded.append(GradedRun(run_dir, run, verdict))
        self.recorded.append((str(run_dir), scenario, recording))


@dataclass(frozen=True)
class GradedTrials(GradedRuns):
    """Graded trials of several stores, with their recordings."""

    trials: tuple[Trials, ...] = ()

    def results(self) -> list[ResultTable]:
        """Return the result tables: Tables 9, 10, 11 and 13 of the paper "side-effects"."""
        found = tables([row for trials in self.trials for row in trials.rows])
        void = [run for trials in self.trials for run in trials.void]
        return [*found, *([void_table(void)] if void else [])]


def grade_trials(domain: Domain, stores: Stores) -> GradedTrials:
    """Grade the counted trials of *stores* by the criteria committed before each; raises UserError without any."""
    found = tuple(Trials(root, ids) for root, ids in stores.items())
    problems = {folder: problem for trials in found for folder, problem in trials.problems.items()}
    return GradedTrials(domain, tuple(one for trials in found for one in trials.graded), problems, trials=found)


def void_table(runs: Iterable[Run]) -> ResultTable:
    """Return a table of the trials without a result: scenario, agent, variant, seed, attempt and reason."""
    rows = tuple((run.item, run.solver.name, run.arm, run.seed, run.attempt, run.error) for run in runs)
    columns = ("scenario", "agent", "arms", "seed", "attempt", "why")
    return ResultTable(
        "Trials without a result", columns, rows, note="They are in no rate; the same plan makes them again."
    )


def _without_result(store: RunStore) -> Iterator[Run]:
    """Yield the last attempt of each planned run in *store* whose attempts were all aborted."""
    last: dict[str, Run] = {}
    for folder in store.runs():
        with suppress(OpsAssayError):  # one that cannot be read is a problem already
            run = read_run(folder)
            if last.get(run.cell, run).status not in FINISHED:
                last[run.cell] = run
    return (run for run in last.values() if run.status is RunStatus.ABORTED)


def _make_row(run: Run, scenario: Scenario, recording: RunRecording, judgements: dict[str, Judgement]) -> TrialRow:
    """Return the run's row of the tables, by its *recording* and *judgements*, the predicates' results by name."""
    times = {phase.phase: phase.time_ns for phase in recording.phases}
    duration = None
    if "agent_started" in times and "agent_ended" in times:
        duration = (times["agent_ended"] - times["agent_started"]) / 1e9
    arm = Arm.parse(run.arm)
    return TrialRow(
        scenario=scenario.id,
        depth=scenario.verification.committed_depth,
        agent=run.solver.name,
        arm=arm.without("probes").label,
        probes=arm.knob("probes") != "off",
        seed=run.seed,
        outcome=judgements["v_outcome"].passed,
        temporal=judgements["v_temporal"].passed,
        depth_holds=judgements["v_depth"].passed,
        probe=judgements["v_probe"].status is not Judged.FAILED,
        conjunction=judgements["certificate"].passed,
        duration_s=duration,
        least_availability=judgements["v_temporal"].value,
        spread=_count_hosts(scenario, recording),
        failed=tuple(name for name, judged in judgements.items() if judged.failed and name != "certificate"),
        not_ranked=why_not_ranked(run),
    )


def _count_hosts(scenario: Scenario, recording: RunRecording) -> int | None:
    """Return on how many hosts the verified service runs at the end; None if no spread is verified."""
    committed = scenario.verification.placement
    ended = max((o.ended_ns for tick in recording.timeline.ticks[-1:] for o in tick.observations), default=0)
    final = entities_at(recording.timeline.ticks, until_ns=ended)
    if committed is None or not committed.spread or final is None:
        return None
    service = committed.spread[0].service
    return len({e.host for e in final.values() if e.service == service and e.ready and e.host is not None})
