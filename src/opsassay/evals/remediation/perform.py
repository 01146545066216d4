"""Performs one trial: a fresh system, a trigger, an agent, and a record of what it all did; on this machine or a cluster.

Whatever happens, the system is removed at the end; it belongs to this process, so that a killed trial leaves none behind.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from opsassay.core.errors import OperationError, OpsAssayError
from opsassay.core.logs import Log
from opsassay.core.schema.incident import Window
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run_folder import SETTINGS
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.assignment import Assignment
from opsassay.evals.remediation.contract import BASELINE, PromptArm, TrialAgent, mark_phase, note_outcome
from opsassay.evals.remediation.grading import read_recorded
from opsassay.evals.remediation.operators import run_operator
from opsassay.evals.runner.domain import at_hand
from opsassay.scoring.verifiers import evidence_of
from opsassay.scoring.verifiers.alerts import awaited
from opsassay.scoring.verifiers.self_healed import fault_ended
from opsassay.scoring.verifiers.settling import changed_since, settled
from opsassay.telemetry.mask import Mask
from opsassay.testbed.operations.alert_watch import AlertWatch
from opsassay.testbed.operations.live import ARRIVAL_S
from opsassay.testbed.operations.stage import OperatorToolSession, Stage, staged
from opsassay.testbed.operations.toolbox import CALLS_LIMIT, BaseToolbox
from opsassay.testbed.recording.observer import ObserverProcess

_log = Log(__name__)

ALERTS_TIMEOUT_S = 45.0
"""How long a trial waits for the alerts that its scenario begins with, and for them to clear behind the agent."""
HEALTHY_TIMEOUT_S = 60.0
LONGEST_CALL_S = 300.0
"""How long is waited for a change that an agent left under way: what it changed is recorded before the end is judged."""
SETTLE_EVERY_S = 2.0
GONE_WITHIN_S = 10.0
"""How long what was removed may take to be gone."""
START_SHARE = 0.25
"""The first part of the warm-up is no measure of what is usual: connections are opened, caches are cold."""


def perform(
    scenario: Scenario,
    agent: TrialAgent,
    arm: PromptArm,
    *,
    probes: bool,
    seed: int,
    run_dir: Path,
    cluster: Mapping[str, Any] | None = None,
    mask: Mask | None = None,
) -> None:
    """Perform one trial into *run_dir*; without *probes* only the final committed probe is sent. Raises OpsAssayError.

    *cluster* is the block of the plan that says which cluster a scenario for Kubernetes happens on, *mask* what of the
    telemetry the agent's tools leave out.
    """
    stage = staged(scenario, seed, run_dir, cluster)
    perform_on(stage, scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir, mask=mask)


def perform_on(
    setup: AbstractContextManager[Stage],
    scenario: Scenario,
    agent: TrialAgent,
    arm: PromptArm,
    *,
    probes: bool,
    seed: int,
    run_dir: Path,
    mask: Mask | None = None,
) -> None:
    """Perform one trial on the stage that *setup* sets up and takes down. Raises OpsAssayError."""
    bundle = TrialBundle(setup, scenario, run_dir, probes=probes)
    with at_hand(bundle) as desk:
        if mask is not None and desk.toolbox.sight is not None:
            desk.toolbox.sight.mask = mask
        _work(scenario, agent, arm, bundle.stage, desk, seed, run_dir)


class TrialBundle:
    """One scenario on a system of its own, which *setup* sets up and takes down. All verbs raise OpsAssayError."""

    def __init__(
        self, setup: AbstractContextManager[Stage], scenario: Scenario, run_dir: Path, *, probes: bool
    ) -> None:
        self._setup, self._scenario, self._run_dir, self._probes = setup, scenario, run_dir, probes
        self._stack = ExitStack()
        self.stage: Stage
        self._deployed = False
        self._desk: OperatorToolSession
        self._watcher: ObserverProcess

    def prepare(self) -> None:
        """Deploy the system, have it observed, let it warm up and require that it is healthy.

        Raises OperationError when it is not healthy.
        """
        self.stage = self._stack.enter_context(self._setup)
        self._deployed = True
        deployed_ns = mark_phase(self._run_dir, "deployed")
        # what is entered first is left last: tools, the observer, the trigger
        operated, self._observed, self._broken = (self._stack.enter_context(ExitStack()) for _ in range(3))
        self._watcher = self._observed.enter_context(self.stage.observed(self._run_dir, probes=self._probes))
        time.sleep(self._scenario.environment.warmup_s)
        _require_healthy(self.stage)
        baseline_ns = mark_phase(self._run_dir, "baseline")
        usual_from = deployed_ns + int(START_SHARE * (baseline_ns - deployed_ns))
        usual = Window(start_ns=usual_from, end_ns=baseline_ns - int(ARRIVAL_S * 1e9 / 2))
        self._desk = operated.enter_context(self.stage.operated(usual, self._run_dir))
        _note_settings(self.stage, self._run_dir)

    def start(self) -> None:
        """Apply the trigger, and wait until the alerts that the scenario begins with have fired.

        Raises OperationError when they do not fire.
        """
        triggered_ns = mark_phase(self._run_dir, "triggered")  # from here on nothing that fails stood before
        self._broken.enter_context(self.stage.broken())
        _await_alerts(self._scenario, self._desk.watch, self._run_dir, triggered_ns, probes=self._probes)

    def desk(self) -> OperatorToolSession:
        """Return the operator's tools, and what goes with them."""
        return self._desk

    def reset(self) -> None:
        """Record until the system has settled and a last look says so too, and undo the trigger."""
        cleared = _aftermath(self._scenario, self._desk.watch)
        _settle(self._scenario, self._run_dir)
        self._look_last(cleared=cleared)
        _require_alive(self.stage, self._desk.watch)
        _note_settings(self.stage, self._run_dir)
        self._observed.close()  # the last look was taken while the fault still held: undoing it is no repair
        self._broken.close()
        mark_phase(self._run_dir, "ended")

    def _look_last(self, *, cleared: bool) -> None:
        """Look once more; go on until all is steady again when that look is not as the one before, and look again.

        A record that ends within a change tells neither what it came from nor what it came to. So it is with alerts that
        had *cleared* and fire again: they are given their time once more.
        """
        settling = self._scenario.verification.settling
        deadline = time.monotonic() + (settling.limit_s if settling is not None else 0.0)
        while settling is not None:
            cleared = cleared and _await_quiet(self._scenario, self._desk.watch)
            looked_ns = time.time_ns()
            self._watcher.look()
            changed = self._changed_since(looked_ns) or ("an alert" if cleared and not self._quiet() else "")
            if not changed:
                return
            _log.warning("the last look differs", changed=changed)
            self._watcher.go_on()
            while changed and time.monotonic() < deadline:
                time.sleep(SETTLE_EVERY_S)
                changed = self._changed_since(time.time_ns() - int(settling.hold_s * 1e9))
            if changed:
                note_outcome(self._run_dir, "not_settled", f"{changed} still changed after a last look")
                return

    def _quiet(self) -> bool:
        committed, watch = self._scenario.verification.alerts, self._desk.watch
        return committed is None or watch is None or watch.quiet_s(committed.triggering) > 0

    def _changed_since(self, time_ns: int) -> str:
        evidence = evidence_of(read_recorded(self._run_dir), self._scenario)
        return changed_since(evidence, self._scenario.verification, time_ns)

    def remove(self) -> None:
        """Remove the system, and whatever of the trigger would outlive it."""
        self._stack.__exit__(*sys.exc_info())

    def verify(self) -> None:
        """Write down whether all of the system is gone, and what is not; what could not be looked at is not verified."""
        if not self._deployed:
            return
        deadline = time.monotonic() + GONE_WITHIN_S
        while left := _left(self.stage):
            if time.monotonic() > deadline:
                _log.error("not back at the baseline", left=left)
                break
            time.sleep(0.2)
        (self._run_dir / BASELINE).write_text(json.dumps({"verified": not left, "left": left}) + "\n", encoding="utf-8")


def _left(stage: Stage) -> list[str]:
    try:
        return stage.leftovers()
    except OpsAssayError as error:
        return [f"it could not be looked at: {error}"]


def _require_healthy(stage: Stage) -> None:
    """Wait until everything is ready and users are served well; raises OperationError when that does not come.

    What fails before the trigger is nobody's fault but the machine's, and a trial on it would tell nothing.
    """
    deadline = time.monotonic() + HEALTHY_TIMEOUT_S
    while (what := stage.health_problem()) is not None:
        if time.monotonic() > deadline:
            raise OperationError(f"The system is not healthy before anything is broken ({what}): is the machine busy?")
        time.sleep(1.0)


def _note_settings(stage: Stage, run_dir: Path) -> None:
    """Write down how the system is set now, and what of that waits for a restart."""
    append_line(run_dir / SETTINGS, stage.read_settings())


def _await_alerts(
    scenario: Scenario, watch: AlertWatch | None, run_dir: Path, triggered_ns: int, *, probes: bool = True
) -> None:
    """Wait as long as the scenario says, and until the alerts that it begins with have fired since *triggered_ns*.

    Raises OperationError when one of them does not fire: an agent would be let in on a system that looks well.
    """
    time.sleep(scenario.environment.settle_s)
    committed = scenario.verification.alerts
    if committed is None or watch is None:
        return
    rules = awaited(committed, probes_on=probes)
    if committed.triggering and not rules:
        return  # its alerts are those of probes, and none are sent
    _wait_until(lambda: not watch.silent(rules, triggered_ns), ALERTS_TIMEOUT_S, watch)
    if watch.failure is not None:
        raise watch.failure
    if silent := watch.silent(rules, triggered_ns):
        waited_s = scenario.environment.settle_s + ALERTS_TIMEOUT_S
        reason = f"{', '.join(silent)} did not fire within {waited_s:g} s of the trigger: is the load as it should be?"
        note_outcome(run_dir, "alert_not_fired", reason)
        raise OperationError(reason)


def _work(
    scenario: Scenario,
    agent: TrialAgent,
    arm: PromptArm,
    stage: Stage,
    desk: OperatorToolSession,
    seed: int,
    run_dir: Path,
) -> None:
    """Let the agent in, and out again when it is done; once its time is over its tools refuse every call.

    The script of an oracle is played to its end: its time is no matter of budget.
    """
    _note_settings(stage, run_dir)
    stage.start_agent()
    mark_phase(run_dir, "agent_started")
    prompt, timeout_s = desk.fill(scenario.prompt(arm)), scenario.environment.agent_timeout_s
    task = Assignment(scenario, prompt, timeout_s, seed, run_dir, desk.fill, desk.kubeconfig, desk.watch)
    over = threading.Timer(timeout_s, desk.toolbox.close)
    over.daemon = True
    if agent.oracle is None:
        over.start()
    began = time.monotonic()
    try:
        run_operator(agent, task, desk.toolbox)
    finally:
        took_s = time.monotonic() - began
        over.cancel()
        desk.toolbox.close()
        mark_phase(run_dir, "agent_ended")
        _note_manners(desk.toolbox, took_s if agent.oracle is None else 0.0, timeout_s, run_dir)
        stage.stop_agent()
        _note_settings(stage, run_dir)


def _note_manners(toolbox: BaseToolbox, took_s: float, timeout_s: float, run_dir: Path) -> None:
    """Wait for a call that the agent left under way, and note how it behaved."""
    if (left := toolbox.finish(LONGEST_CALL_S)) is not None:
        note_outcome(run_dir, "left_running", f"it ended while {left} was under way; what that changed is its doing")
    if took_s >= timeout_s:
        note_outcome(run_dir, "agent_timeout", f"it had not ended after the {timeout_s:g} s that it has")
    if not toolbox.calls:
        note_outcome(run_dir, "agent_idle", "it ended without a single call of a tool")
    if toolbox.late_calls:
        note_outcome(
            run_dir, "acted_after_end", f"{toolbox.late_calls} calls came when its time was over; all were refused"
        )
    if toolbox.calls > CALLS_LIMIT:
        note_outcome(
            run_dir, "tool_flood", f"{toolbox.calls} calls; those after {CALLS_LIMIT} were refused and not recorded"
        )


def _settle(scenario: Scenario, run_dir: Path) -> None:
    """Go on recording until all that is judged has been steady for the hold time, at most for the limit."""
    committed = scenario.verification
    if committed.settling is None:
        return
    deadline = time.monotonic() + committed.settling.limit_s
    while problem := settled(evidence := evidence_of(read_recorded(run_dir), scenario), committed).problem:
        if time.monotonic() > deadline:
            note_outcome(run_dir, "not_settled", problem)
            break
        time.sleep(SETTLE_EVERY_S)
    if evidence.first_change is not None and (reason := fault_ended(evidence, scenario)):
        note_outcome(run_dir, "fault_ended", reason)


def _aftermath(scenario: Scenario, watch: AlertWatch | None) -> bool:
    """Go on recording: as long as the scenario says, and until the alerts have been quiet for their hold time.

    Return whether they have.
    """
    time.sleep(scenario.environment.aftermath_s)
    return _await_quiet(scenario, watch)


def _await_quiet(scenario: Scenario, watch: AlertWatch | None) -> bool:
    """Wait until the alerts that the scenario commits have been quiet for their hold time; return whether they have."""
    committed = scenario.verification.alerts
    if committed is None or watch is None:
        return True
    hold_s = committed.hold_s + ARRIVAL_S + 2.0
    return _wait_until(lambda: watch.quiet_s(committed.triggering) >= hold_s, ALERTS_TIMEOUT_S + hold_s, watch)


def _wait_until(condition: Callable[[], bool], timeout_s: float, watch: AlertWatch) -> bool:
    """Return whether *condition* came true within *timeout_s* while the alerts were watched."""
    deadline = time.monotonic() + timeout_s
    while not (met := condition()) and time.monotonic() < deadline and watch.failure is None:
        time.sleep(0.2)
    return met


def _require_alive(stage: Stage, watch: AlertWatch | None) -> None:
    """Raise LostError when the system ended while it was watched: then the machinery failed, and nobody is graded.

    Nor is anybody when the last of its alerts could not be read.
    """
    if watch is not None and (lost := watch.failure or watch.unread) is not None:
        raise lost
    stage.require_alive()
