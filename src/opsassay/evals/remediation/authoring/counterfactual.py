"""Counterfactual replay: a recorded trial is repeated with its seed, without one action or one class of actions.

If a predicate changes when an action is left out, the action caused it. Replays with all actions differ only by chance:
their differences are the noise floor, and do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from pydantic import ValidationError

from opsassay.core.errors import UserError
from opsassay.core.schema.progress import SILENT, Progress
from opsassay.core.schema.run import RunStatus
from opsassay.core.schema.run_folder import TIMELINE
from opsassay.core.schema.scenario import Oracle, OracleStep, Scenario
from opsassay.core.schema.task import Arm
from opsassay.core.schema.trajectory import Action
from opsassay.evals.remediation.score import grade_trial, read_recording
from opsassay.evals.remediation.solve import PERFORM, TrialRun, run_trials
from opsassay.evals.remediation.tasks import kept_scenario
from opsassay.evals.remediation.trial.contract import PromptArm, TrialAgent
from opsassay.evals.remediation.trial.operators import REPLAYED
from opsassay.evals.remediation.trial.rehearsal import tools_of
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.store import RUN, RunStore, read_run
from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.verifiers import TrajectoryVerdict
from opsassay.testbed.operations.rollback import UNDO
from opsassay.testbed.operations.tool_session import Tool
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings

By = Literal["action", "tool"]
NUMBERS = ("lost_requests", "time_to_repair_s", "blast_radius")
"""Metrics of which lower values are better."""
LEAST_REPLAYS = 2
"""Fewest replays with all actions, which show the noise."""
LONGEST_WAIT_S = 600.0
NS = 10**9


@dataclass(frozen=True)
class RecordedTrial:
    """A recorded trial: its scenario, the agent's changes, and when the agent worked (ns of UTC)."""

    scenario: Scenario
    changes: tuple[Action, ...]
    verdict: TrajectoryVerdict
    prompt_arm: PromptArm
    probes: bool
    seed: int
    started_ns: int
    ended_ns: int
    noise: bool = False
    rollback: bool = False

    @classmethod
    def read(cls, run_dir: Path) -> RecordedTrial:
        """Return the trial recorded in *run_dir*; raises UserError if it cannot be replayed, else DatapackError."""
        where = "name the folder of an attempt of a trial, such as STORE/runs/CELL/1"
        if missing := [name for name in (RUN, TIMELINE) if not (run_dir / name).is_file()]:
            raise UserError(f"{run_dir} holds no {missing[0]}; {where}.")
        if run_dir.parts[-3:-2] != ("runs",):
            raise UserError(f"{run_dir} is in no store, which keeps its scenario; {where}.")
        run = read_run(run_dir)
        if run.status is not RunStatus.DONE:
            raise UserError(f"{run_dir} came to no result ({run.status.value}); name the folder of a whole attempt.")
        scenario = kept_scenario(run_dir.parents[2], run.item_hash)
        if scenario.environment.substrate != "local":
            raise UserError(
                f"{run_dir} happened on {scenario.environment.substrate}; only trials on this machine are replayed."
            )
        recording, arm = read_recording(run_dir), Arm.parse(run.arm)
        phases = {phase.phase: phase.time_ns for phase in recording.phases}
        if not {"agent_started", "agent_ended"} <= phases.keys():
            raise UserError(f"{run_dir} does not say when its agent worked; name the folder of a whole attempt.")
        changes = tuple(action for action in recording.actions if action.mutating)
        prompt_arm: PromptArm = "constrained" if arm.knob("prompt") == "constrained" else "baseline"
        return cls(
            scenario, changes, grade_trial(run_dir, scenario), prompt_arm, arm.knob("probes") != "off", run.seed,
            phases["agent_started"], phases["agent_ended"], arm.knob("noise") == "on",
            arm.knob("rollback") == "on",
        )  # fmt: skip

    def left_out_in_turn(self, grouping: By) -> list[tuple[str, frozenset[int]]]:
        """Return (name, indices of *changes* to leave out) for each replay: one per action or (*grouping*) tool."""
        if grouping == "action":
            return [(f"{n + 1}. {words_of(action)}", frozenset({n})) for n, action in enumerate(self.changes)]
        tools = dict.fromkeys(action.tool for action in self.changes)
        return [(tool, frozenset(n for n, a in enumerate(self.changes) if a.tool == tool)) for tool in tools]

    def without(self, left_out: frozenset[int]) -> TrialRun:
        """Return a trial whose oracle repeats all changes but those at indices *left_out*, with recorded delays."""
        steps, until = [], self.started_ns
        for place, action in enumerate(self.changes):
            if place in left_out:
                continue
            steps += _wait_steps(action.started_ns - until)
            steps.append(OracleStep(verb=action.tool.replace("_", " "), arguments=action.arguments))
            until = action.ended_ns
        steps += _wait_steps(self.ended_ns - until)
        # not as one that is certified: what a right repair sets counts as right, and a replay vouches for nothing
        replayed = Oracle(fails=("v_outcome",), description="The recorded changes once more.", steps=tuple(steps))
        scenario = self.scenario.model_copy(update={"oracles": {**self.scenario.oracles, REPLAYED: replayed}})
        return TrialRun(scenario, TrialAgent(name=ORACLE + REPLAYED), self.prompt_arm,
                        probes=self.probes, seed=self.seed, cluster=ClusterSettings(), noise=self.noise,
                        rollback=self.rollback)  # fmt: skip


def replayed_tools(trial: RecordedTrial) -> dict[str, Tool]:
    """Return the tools that a replay of *trial* may call, by name."""
    return {**tools_of(trial.scenario), **(UNDO if trial.rollback else {})}


def _require_replayable(action: Action, tool: Tool | None) -> None:
    """Raise UserError when *tool* is None, or arguments of the successful *action* were not recorded in full."""
    try:
        if tool is None:
            raise UserError(f"The recorded tool {action.tool} is none of this scenario's; it cannot be replayed.")
        tool.arguments.model_validate(action.arguments, strict=True)
    except ValidationError as error:
        if action.status == "ok":
            what = f"The recorded arguments of {action.tool} are not whole (they were too long to be kept)"
            raise UserError(f"{what}; this trial cannot be replayed.") from error


def words_of(action: Action) -> str:
    """Return tool and arguments of *action* as a short text for display."""
    given = " ".join(f"{key}={value}" for key, value in action.arguments.items())
    return f"{action.tool.replace('_', ' ')} {given}"[:80].rstrip()


def _wait_steps(nanoseconds: int) -> list[OracleStep]:
    """Return wait steps of *nanoseconds* in total, each at most `LONGEST_WAIT_S` seconds."""
    left, steps = nanoseconds / NS, []
    while left > 0.001:
        steps.append(OracleStep(wait_s=round(min(left, LONGEST_WAIT_S), 3)))
        left -= LONGEST_WAIT_S
    return steps


@dataclass(frozen=True)
class Replays:
    """The results of equal replays without *left_out*: verdicts, and the reasons of replays without one."""

    left_out: str
    verdicts: tuple[TrajectoryVerdict, ...]
    reasons: tuple[str, ...] = ()

    def fails(self, predicate: str) -> bool:
        """Return whether *predicate* fails in more than half of the replays."""
        return 2 * sum(predicate in failed_of(verdict) for verdict in self.verdicts) > len(self.verdicts)

    def numbers(self, name: str) -> list[float]:
        """Return the values of the metric *name* (one of `NUMBERS`) over all replays in which it is defined."""
        return [value for one in self.verdicts if (value := one.metrics[name].value) is not None]


def failed_of(verdict: TrajectoryVerdict) -> frozenset[str]:
    """Return the names of the failed predicates of *verdict*, without the certificate, which combines all."""
    return frozenset(one.predicate for one in verdict.judgements if one.failed) - {"certificate"}


@dataclass(frozen=True)
class Effect:
    """The effect of an action: predicates that hold only with it (*repairs*), or only without it (*harms*).

    *numbers*: metric to its change by the action, if beyond chance. *reason*: why there is no result, else ''.
    """

    left_out: str
    repairs: tuple[str, ...]
    harms: tuple[str, ...]
    numbers: dict[str, float]
    reason: str = ""

    @property
    def verdict(self) -> str:
        """The action's effect as a phrase: repairs, harms, both or nothing; "no result" if no replay completed."""
        if self.reason:
            return "no result"
        helps = bool(self.repairs) or any(change < 0 for change in self.numbers.values())
        hurts = bool(self.harms) or any(change > 0 for change in self.numbers.values())
        return {(1, 0): "repairs", (0, 1): "harms", (1, 1): "repairs and harms"}.get((helps, hurts), "nothing")


@dataclass(frozen=True)
class NoiseFloor:
    """Differences among replays with all actions: predicates, the range of each metric, and deviations from the record."""

    unsteady: frozenset[str]
    spreads: dict[str, float]
    unlike_record: frozenset[str]


@dataclass(frozen=True)
class Counterfactual:
    """The replays of one trial: the complete ones (*reference*), their noise, and the effect of each action."""

    reference: Replays
    noise: NoiseFloor
    effects: tuple[Effect, ...]

    def table(self) -> ResultTable:
        """Return a table with a row per action: its effect on predicates and metrics, and a note on replays' noise."""
        rows = tuple(
            (
                one.left_out,
                one.verdict,
                ", ".join(one.repairs),
                ", ".join(one.harms),
                _format_changes(one.numbers),
                one.reason,
            )
            for one in self.effects
        )
        columns = ("left out", "it", "only with it hold", "only without it hold", "with it", "why no result")
        return ResultTable("What each action did", columns, rows, note=self.note).filled()

    @property
    def note(self) -> str:
        """One sentence on the noise between replays, and one on how replays differ from the recorded trial."""
        noise = self.noise
        count = len(self.reference.verdicts)
        differ = ", ".join(sorted(noise.unsteady)) or "no predicate"
        spreads = ", ".join(f"{name} by {value:g}" for name, value in noise.spreads.items() if value)
        said = (
            f"Noise floor: of {count} replays with nothing left out {differ} differs{f', {spreads}' * bool(spreads)}."
        )
        if noise.unlike_record:
            said += f" They are not like the record in {', '.join(sorted(noise.unlike_record))}."
        return said


def _format_changes(numbers: dict[str, float]) -> str:
    """Return metric changes as text: "name +1, name -2"."""
    return ", ".join(f"{name} {change:+g}" for name, change in numbers.items())


def replay(
    trial: RecordedTrial,
    output: Path,
    *,
    grouping: By = "action",
    repeats: int = 1,
    workers: int = 1,
    performer: str = PERFORM,
    progress: Progress = SILENT,
) -> Counterfactual:
    """Replay *trial* in full, then without each action in turn (*grouping* "tool": all of a tool), in the store *output*.

    Each variant is replayed *repeats* times, the full one at least twice, *workers* at a time; *performer* names the
    function MODULE:NAME that runs a trial. Raises UserError when no full replay has a result, or when the agent changed
    nothing.
    """
    if not trial.changes:
        raise UserError("Its agent changed nothing, so that there is nothing to leave out.")
    tools = replayed_tools(trial)
    for action in trial.changes:
        _require_replayable(action, tools.get(action.tool))
    variants = [("nothing", frozenset[int]()), *trial.left_out_in_turn(grouping)]
    found: dict[str, list[TrajectoryVerdict | str]] = {label: [] for label, _ in variants}
    for number in range(max(repeats, LEAST_REPLAYS)):
        asked = variants if number < repeats else variants[:1]
        jobs = [trial.without(left_out) for _, left_out in asked]
        store = RunStore(output / str(number + 1))
        run_trials(store, jobs, workers, performer=performer, progress=progress)
        for (label, _), job in zip(asked, jobs, strict=True):
            found[label].append(_read_end(store, job))
    whole, *others = (_collect_replays(label, ends) for label, ends in found.items())
    if not whole.verdicts:
        raise UserError(f"No replay of the whole came to a result: {whole.reasons[-1]}.")
    noise = noise_of(whole, trial.verdict)
    return Counterfactual(whole, noise, tuple(effect_of(one, whole, noise) for one in others))


def _read_end(store: RunStore, job: TrialRun) -> TrajectoryVerdict | str:
    """Return the verdict of the trial *job* in *store*, else the reason why it has none."""
    if (folder := store.finished(job.cell.hash)) is not None:
        return grade_trial(folder, job.scenario)
    attempts = store.attempts_of(job.cell.hash)
    return (read_run(attempts[-1]).error if attempts else None) or "no result"


def _collect_replays(label: str, ends: Sequence[TrajectoryVerdict | str]) -> Replays:
    """Return the replays called *label*: the verdicts among *ends*, and the reasons of those without one."""
    verdicts = tuple(one for one in ends if not isinstance(one, str))
    return Replays(label, verdicts, tuple(one for one in ends if isinstance(one, str)))


def noise_of(full_replays: Replays, recorded: TrajectoryVerdict) -> NoiseFloor:
    """Return predicates and metrics that differ between full replays, and predicates that differ from *recorded*."""
    sets = [failed_of(verdict) for verdict in full_replays.verdicts]
    unsteady = frozenset[str]().union(*sets) - frozenset.intersection(*sets)
    spreads = {
        name: max(values) - min(values)
        for name in _list_numbers(full_replays)
        if (values := full_replays.numbers(name))
    }
    alike = failed_of(recorded)
    unlike = frozenset(name for name in alike.union(*sets) - unsteady if full_replays.fails(name) != (name in alike))
    return NoiseFloor(unsteady, spreads, unlike)


def effect_of(partial_replays: Replays, full_replays: Replays, noise: NoiseFloor) -> Effect:
    """Return the effect of the action that *partial_replays* lack, against *full_replays*; *noise* does not count."""
    if not partial_replays.verdicts:
        return Effect(partial_replays.left_out, (), (), {}, partial_replays.reasons[-1])
    names = [one.predicate for one in full_replays.verdicts[0].judgements if one.predicate != "certificate"]
    steady = [name for name in names if name not in noise.unsteady]
    repairs = tuple(name for name in steady if partial_replays.fails(name) and not full_replays.fails(name))
    harms = tuple(name for name in steady if full_replays.fails(name) and not partial_replays.fails(name))
    numbers = {}
    for name in _list_numbers(full_replays):
        with_it, without_it = full_replays.numbers(name), partial_replays.numbers(name)
        if with_it and without_it and _differ(with_it, without_it, noise.spreads[name]):
            numbers[name] = fmean(with_it) - fmean(without_it)
    return Effect(partial_replays.left_out, repairs, harms, numbers)


def _list_numbers(replays: Replays) -> list[str]:
    """Return those of `NUMBERS` that every verdict of *replays* has as a metric."""
    return [name for name in NUMBERS if all(name in verdict.metrics for verdict in replays.verdicts)]


def _differ(first: Sequence[float], second: Sequence[float], spread: float) -> bool:
    """Return whether *first* is wholly above or below *second*, by over 2 * *spread* and 10% of the largest value."""
    gap = max(min(first) - max(second), min(second) - max(first))
    return gap > max(2 * spread, 0.1 * max(map(abs, [*first, *second])))
