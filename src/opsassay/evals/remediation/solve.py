"""Makes trials: each in a process of its own with a time limit, holding this machine's lock, and graded.

A trial is *aborted*, has no result and is made again if it hangs or crashes, the runner fails, or it got too little CPU
time (*starved*). Anything that the agent does is a result.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from opsassay.core.errors import OpsAssayError
from opsassay.core.logs import last_words
from opsassay.core.schema.progress import SILENT, Progress
from opsassay.core.schema.run import Metric, Run, RunStatus, Solver
from opsassay.core.schema.run_folder import ASKED
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.task import Arm
from opsassay.evals.remediation.controls.scripts import script_of
from opsassay.evals.remediation.score import grade_trial, read_outcomes, read_recorded
from opsassay.evals.remediation.tasks import keep_scenario, scenario_task
from opsassay.evals.remediation.trial.contract import BASELINE, GATE_S, REPORT, PromptArm, TrialAgent
from opsassay.evals.runner.commands import refusal_to_seal
from opsassay.evals.runner.processes import run_watched
from opsassay.evals.runner.queue import make_runs
from opsassay.evals.runner.rehearsal import Rehearsal
from opsassay.evals.runner.run import AttemptOutcome, RunEnd, RunSpec, attempt
from opsassay.evals.runner.store import LOG, RunStore, read_run
from opsassay.scoring.verifiers import evidence_of, validity
from opsassay.telemetry.mask import Mask
from opsassay.testbed.core.state import state_root
from opsassay.testbed.operations.recommending import looking_tools
from opsassay.testbed.operations.rollback import UNDO
from opsassay.testbed.operations.tool_session import Tool
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings

LOOK_S = 0.2


def wants_machine(scenario: Scenario) -> bool:
    """Return whether a trial of *scenario* must be the only one that runs on this machine."""
    alerts = scenario.verification.alerts
    if scenario.environment.substrate != "local" or alerts is None:
        return False
    return any(rule.signal == "saturation" for rule in alerts.triggering)


@contextmanager
def machine_shared(given_up: Callable[[], bool], *, alone: bool) -> Iterator[None]:
    """Hold this machine's lock in the with block, shared or *alone*; stop waiting for it when *given_up* returns True."""
    root = state_root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / "trials.lock").open("a") as room:
        with (root / "trials.gate").open("a") as gate:
            _lock_file(gate, fcntl.LOCK_EX, given_up)
            _lock_file(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, given_up)
        yield


def _lock_file(file: IO[str], operation: int, given_up: Callable[[], bool]) -> None:
    """Wait for the lock *operation* (flock) on *file*; return without it when *given_up* returns True."""
    while not given_up():
        try:
            fcntl.flock(file, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_S)
        else:
            return


WORKER = "opsassay.evals.remediation.trial.perform"
PERFORM = f"{WORKER}:perform"
RECOMMENDED = "opsassay.evals.remediation.trial.recommended:perform"
MACHINERY_S = {"local": 240.0, "kubernetes": 2400.0}
"""Seconds for deployment, warm-up, alerts and removal, in addition to the scenario's, until a trial counts as hung."""


@dataclass(frozen=True)
class TrialRun:
    """One planned trial. *timeout_s*: when it counts as hung; *retries*: attempts after an aborted one.

    *performer*: MODULE:NAME of the function that performs it. *gate*: a file for which the prepared system waits.
    *recommend*: the agent only looks at a system and submits a plan, which is tried on a fresh one.
    """

    scenario: Scenario
    agent: TrialAgent
    prompt_arm: PromptArm
    probes: bool
    seed: int
    cluster: ClusterSettings
    timeout_s: float | None = None
    retries: int = 1
    performer: str = PERFORM
    live = True
    mask: Mask = field(default_factory=Mask)
    rollback: bool = False
    noise: bool = False
    recommend: bool = False
    gate: Path | None = None

    @cached_property
    def agent_digest(self) -> str:
        """The digest of the agent: an oracle's steps, or a command with its files and MCP servers."""
        if self.agent.oracle is not None:
            return script_of(self.scenario, self.agent.oracle).digest()
        if not (files := self.agent.files()) and not self.agent.servers:
            return self.agent.digest()
        total = hashlib.sha256(self.agent.digest().encode())
        for name, file in files:
            total.update(f"\0{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
        for server in self.agent.servers:
            total.update(server.source_hash.encode())
        return total.hexdigest()

    @cached_property
    def cell(self) -> RunSpec:
        """The run spec (scenario, agent, variant, seed) that identifies the run in a store."""
        agent = self.agent
        return RunSpec(
            scenario_task(self.scenario),
            Solver(name=agent.solver_name, kind="agent", configuration=agent.model_dump(mode="json")),
            self.agent_digest,
            Arm.of(self._knobs()),
            self.seed,
            identity=f"{agent.solver_name}:{self.agent_digest}",
        )

    def _knobs(self) -> dict[str, str]:
        """Return the settings that define the variant, value by name; switches that are off are left out."""
        knobs = {"prompt": self.prompt_arm, "probes": "on" if self.probes else "off"}
        if self.mask != Mask():
            knobs["mask"] = self.mask.words
        if self.rollback:
            knobs["rollback"] = "on"
        if self.noise:
            knobs["noise"] = "on"
        if self.recommend:
            knobs["recommend"] = "on"
        return knobs

    @property
    def task_name(self) -> str:
        """The id of the scenario that is the task."""
        return self.scenario.id

    @property
    def solver_name(self) -> str:
        """The agent's name for display, with variant and seed."""
        return f"{self.agent.solver_name}, {self.cell.arm.label}, seed {self.seed}"

    def run(self, store: RunStore, given_up: Callable[[], bool], say: Callable[[str], None]) -> RunEnd:
        """Run the trial until it has a result or no retry is left, and grade it; return how it ended.

        It is aborted when *given_up* returns True; *say* is called with the reason of each aborted attempt.
        """
        self.agent.require_apart(store.root)
        keep_scenario(store.root, self.scenario)
        known = store.finished(self.cell.hash)
        for again in range(self.retries + 1):
            run_dir = known or self._attempt_in_turn(store, given_up, alone=again > 0)
            run = read_run(run_dir)
            if run.status is not RunStatus.ABORTED:
                return self._grade_trial(run_dir, run, was_done=run_dir == known)
            say(f"aborted: {run.error}")
        return RunEnd(self, None, run, run.error, f"no result: {run.error}")

    def operator_tools(self) -> Mapping[str, Tool]:
        """Return the tools that the agent may call, by name."""
        from opsassay.evals.remediation.trial.rehearsal import tools_of

        tools = {**tools_of(self.scenario), **(UNDO if self.rollback else {})}
        return looking_tools(tools) if self.recommend else tools

    def rehearse(self, seconds: float | None) -> Rehearsal:
        """Run the agent for at most *seconds* (None: a default) with tools that change nothing; return the checks."""
        from opsassay.evals.remediation.trial.rehearsal import rehearse

        return rehearse(self.scenario, self.agent, self.prompt_arm, self.operator_tools(), seconds)

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Return the metrics of the finished run in *run_dir*, by the criteria of its scenario."""
        return grade_trial(run_dir, self.scenario).metrics

    def _grade_trial(self, run_dir: Path, run: Run, *, was_done: bool) -> RunEnd:
        """Grade *run*, stored in *run_dir*, and return how it ended; *was_done*: it had a result before this call."""
        before = "done before, " if was_done else ""
        try:
            certificate = grade_trial(run_dir, self.scenario).judgement("certificate")
        except OpsAssayError as error:  # its record is torn: the run stays, ungraded
            return RunEnd(self, None, run, str(error), f"{before}failed to grade: {error}", was_done)
        said = "certified" if certificate.passed else certificate.reason
        return RunEnd(self, run_dir, run, message=before + said, known=was_done)

    def _attempt_in_turn(self, store: RunStore, given_up: Callable[[], bool], *, alone: bool) -> Path:
        """Wait for this machine's lock (exclusive if *alone*), then make one attempt; return its folder."""
        if self.scenario.environment.substrate != "local":
            return self._run_attempt(store, given_up)
        from opsassay.testbed.substrates.local.warm import warm_process

        with machine_shared(given_up, alone=alone or wants_machine(self.scenario)), warm_process():
            return self._run_attempt(store, given_up)

    def _run_attempt(self, store: RunStore, given_up: Callable[[], bool]) -> Path:
        """Make a new attempt of the trial, aborted when *given_up* returns True; return its folder."""
        timeout_s = self._timeout_s()
        return attempt(
            store,
            self.cell,
            lambda run_dir, stop: self._perform(run_dir, timeout_s, stop),
            isolation="unsealed" if self.agent.is_outside else "in_process",
            limits={"timeout_s": timeout_s, "agent_timeout_s": self.scenario.environment.agent_timeout_s},
            can_be_sealed=self.agent.is_outside
            and refusal_to_seal(self.agent.sealing, remote=self.agent.remote) is None,
            given_up=given_up,
        )

    def _perform(self, run_dir: Path, timeout_s: float, stop: Callable[[], bool]) -> AttemptOutcome:
        """Run the trial in a process group of its own for at most *timeout_s*, until *stop* returns True.

        A failure that is not the agent's gives the status aborted.
        """
        order: dict[str, Any] = {
            "performer": RECOMMENDED if self.recommend else self.performer,
            "runner": os.getpid(),
            "scenario": self.scenario.model_dump(mode="json", by_alias=True),
            "agent": self.agent.model_dump(mode="json"),
            "arm": self.prompt_arm,
            "probes": self.probes,
            "seed": self.seed,
            "cluster": self.cluster.model_dump(mode="json") if self.scenario.cluster is not None else None,
            "mask": self.mask.model_dump(mode="json") if self.mask != Mask() else None,
            "rollback": self.rollback,
            "noise": self.noise,
            "gate": None if self.gate is None else str(self.gate),
            "run_dir": str(run_dir.resolve()),
        }
        code = run_watched(WORKER, json.dumps(order).encode(), run_dir / LOG, timeout_s, stop)
        folders = (run_dir, run_dir / ASKED) if self.recommend else (run_dir,)
        notes = tuple(f"{one.outcome}: {one.reason}" for folder in folders for one in read_outcomes(folder))
        if code is None:
            return AttemptOutcome(RunStatus.ABORTED, f"it hung: no end after {timeout_s:g} s", notes=notes)
        if code:
            said = last_words((run_dir / LOG).read_text(errors="replace")) or f"its process ended with {code}"
            return AttemptOutcome(RunStatus.ABORTED, said, notes=notes)
        outcome = _outcome_of_trial(run_dir)
        for folder in folders:
            judged = validity(evidence_of(read_recorded(folder), self.scenario))
            if judged.status == "starved":
                outcome = replace(outcome, status=RunStatus.ABORTED, error=judged.reason)
        return replace(outcome, notes=(*notes, *outcome.notes))

    @property
    def granted_s(self) -> float:
        """The longest time in seconds that the scenario allows, deployment and removal not included."""
        environment = self.scenario.environment
        settling = self.scenario.verification.settling
        granted = environment.warmup_s + environment.settle_s + environment.agent_timeout_s + environment.aftermath_s
        granted += settling.limit_s if settling is not None else 0.0
        return granted * self._systems

    @property
    def _systems(self) -> int:
        """The number of systems that the trial deploys, one after another."""
        return 2 if self.recommend else 1

    def _timeout_s(self) -> float:
        """Return the number of seconds after which the trial counts as hung and is killed."""
        substrate = self.scenario.environment.substrate
        waits_s = 0.0 if self.gate is None else GATE_S
        machinery_s = MACHINERY_S.get(substrate, MACHINERY_S["local"]) * self._systems
        return self.timeout_s or machinery_s + self.granted_s + waits_s

    def end_all(self) -> None:
        """Do nothing: each trial has a watchdog that ends it, so that it can remove its system."""


def run_trials(
    store: RunStore,
    jobs: Sequence[TrialRun],
    workers: int = 1,
    *,
    performer: str = PERFORM,
    progress: Progress = SILENT,
) -> list[Path]:
    """Run and grade every job without a result; return the result folders in the order of *jobs*.

    *workers* trials run in parallel, each on a system of its own, by the function *performer* (MODULE:NAME). A job whose
    attempts all failed has no folder in the answer. If the call is interrupted or killed, its trials remove their systems.
    """
    store.root.mkdir(parents=True, exist_ok=True)
    performed = [replace(job, performer=performer) for job in jobs]
    return [end.run_dir for end in make_runs(store, performed, workers, progress) if end.run_dir is not None]


def _outcome_of_trial(run_dir: Path) -> AttemptOutcome:
    """Return the outcome of the completed trial in *run_dir*: usage, isolation, and what remained of its system."""
    report = _read_json_or_empty(run_dir / REPORT)
    sealed = report.get("sealed")
    folders = (run_dir, run_dir / ASKED)
    left = [one for folder in folders for one in _read_json_or_empty(folder / BASELINE).get("left", ())]
    return AttemptOutcome(
        RunStatus.DONE,
        limits_hit=tuple(report.get("limits_hit", ())),
        spent=report.get("spent", {}),
        notes=tuple(f"not back at the baseline: {what}" for what in left),
        isolation=None if sealed is None else "sealed" if sealed else "unsealed",
    )


def _read_json_or_empty(file: Path) -> dict[str, Any]:
    """Return the file's JSON object, {} when there is no file."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found
