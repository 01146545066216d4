"""Grades a trial from its run folder, against the scenario with which it was started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from opsassay.core.errors import ConfigError, DatapackError, NotFoundError, UserError
from opsassay.core.schema.base import Noun
from opsassay.core.schema.run import RunStatus
from opsassay.core.schema.run_folder import (
    ACTIONS,
    ALERTS,
    CLUSTER,
    DIAGNOSES,
    NOISE,
    OUTCOMES,
    PHASES,
    SETTINGS,
    TIMELINE,
    TRACE,
)
from opsassay.core.schema.scenario import Profile, Scenario
from opsassay.core.schema.system import System
from opsassay.core.schema.task import Arm
from opsassay.core.schema.trajectory import (
    CONTROL_PLANE_SUFFIX,
    Action,
    AlertReading,
    ControlPlaneReading,
    EnvironmentAction,
    OperatorDiagnosis,
    Phase,
    SettingsReading,
    TraceStep,
    TrialOutcome,
)
from opsassay.evals.runner.ranking import counted_runs, run_id
from opsassay.evals.runner.store import SCENARIOS, RunStore, read_run, write_verdict
from opsassay.scoring.verifiers import RunRecording, TrajectoryVerdict, certify
from opsassay.testbed.recording.observer import read_timeline
from opsassay.testbed.scenarios import system_of

N = TypeVar("N", bound=Noun)


def read_recording(run_dir: Path) -> RunRecording:
    """Return the recording of the trial in *run_dir*; raises DatapackError naming the file."""
    return read_recorded(run_dir, probes_on=Arm.parse(read_run(run_dir).arm).knob("probes") != "off")


def read_recorded(run_dir: Path, *, probes_on: bool = True) -> RunRecording:
    """Return the recording so far of a running trial; *probes_on*: probes are sent. Raises as `read_recording`."""
    timeline = run_dir / TIMELINE
    return RunRecording(
        timeline=read_timeline(timeline),
        phases=_read_lines(run_dir / PHASES, Phase),
        actions=_read_lines(run_dir / ACTIONS, Action),
        alerts=_read_lines(run_dir / ALERTS, AlertReading),
        diagnoses=_read_lines(run_dir / DIAGNOSES, OperatorDiagnosis) if (run_dir / DIAGNOSES).exists() else None,
        control_plane=_read_lines(timeline.with_suffix(CONTROL_PLANE_SUFFIX), ControlPlaneReading),
        settings=_read_lines(run_dir / SETTINGS, SettingsReading),
        names=_names_of_nodes(run_dir / CLUSTER),
        probes_on=probes_on,
        noise=_read_lines(run_dir / NOISE, EnvironmentAction),
    )


def read_outcomes(run_dir: Path) -> tuple[TrialOutcome, ...]:
    """Return the outcomes recorded in *run_dir* apart from the verdict; raises DatapackError."""
    return _read_lines(run_dir / OUTCOMES, TrialOutcome)


def _names_of_nodes(path: Path) -> dict[str, str]:
    """Return names of nodes in scenarios, such as {worker1}, to those in the cluster file *path*; {} without it."""
    if not path.exists():
        return {}
    try:
        nodes = json.loads(path.read_text(encoding="utf-8"))["nodes"]
        return {f"{{worker{number}}}": str(node) for number, node in enumerate(nodes, 1)}
    except (ValueError, KeyError, TypeError) as error:
        raise DatapackError(f"{path} does not say which nodes there were.") from error


def read_steps(run_dir: Path) -> tuple[TraceStep, ...]:
    """Return the steps of the agent's trace, () without a trace; raises DatapackError."""
    return _read_lines(run_dir / TRACE, TraceStep)


def _read_lines(path: Path, noun: type[N]) -> tuple[N, ...]:
    """Return each line of the JSON lines file *path* as a *noun*; () without a file, an incomplete last line is dropped."""
    if not path.exists():
        return ()
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    try:
        return tuple(noun.model_validate_json(line) for line in whole.splitlines() if line)
    except ValueError as error:
        raise DatapackError(f"{path}: a line is no {noun.__name__}.") from error


def grade_trial(
    run_dir: Path, scenario: Scenario, *, profile: Profile | None = None, what_if: bool = False
) -> TrajectoryVerdict:
    """Grade the trial in *run_dir* by *profile* (None: the scenario's), write the verdict and return it.

    Another scenario than the one that the run was started with is refused (UserError) unless *what_if*; such a verdict
    is written under a profile name of its own and never ranked. Raises DatapackError for a run folder that is damaged.
    """
    run = read_run(run_dir)
    if run.item_hash != scenario.digest() and not what_if:
        raise UserError(
            f"{run_dir} was begun with another {run.item} (digest {run.item_hash[:12]}, this file has "
            f"{scenario.digest()[:12]}); thresholds are committed before a run. --what-if grades it all the same."
        )
    verdict = certify(
        read_recording(run_dir),
        scenario,
        profile=profile,
        run=f"{run.cell}/{run.attempt}",
        solver=run.solver.name,
        committed_digest=run.item_hash,
        system=_system_of(scenario),
    )
    if run.item_hash != scenario.digest():
        verdict = verdict.model_copy(update={"profile": f"what-if-{verdict.profile}"})
    write_verdict(run_dir, verdict)
    return verdict


def _system_of(scenario: Scenario) -> System | None:
    """Return the system of *scenario*, None when the file that defines it no longer exists."""
    try:
        return system_of(scenario)
    except (NotFoundError, ConfigError):
        return None


def require_trials(root: Path) -> Path:
    """Return *root*; raises UserError when it is not a store of trials."""
    if not (root / SCENARIOS).is_dir():
        raise UserError(f"{root} holds no trials; `opsassay run trials PLAN -o {root}` writes them.")
    return root


def recorded_trials(store: RunStore) -> list[Path]:
    """Return the folders of those counted runs in *store* that are trials and ended with a result."""
    folders = {path: read_run(path) for path in store.runs()}
    trials = {run_id(run): path for path, run in folders.items() if (path / TIMELINE).exists()}
    done = (run for run in counted_runs(folders.values()) if run.status is RunStatus.DONE)
    return [path for run in done if (path := trials.get(run_id(run))) is not None]
