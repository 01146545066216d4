"""The environment of a trial: a fresh system that is observed, broken, and watched until it has settled.

Whatever happens, the system is removed at the end; it belongs to this process, so that a killed trial leaves none behind.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from opsassay.core.errors import OperationError, OpsAssayError
from opsassay.core.logs import Log
from opsassay.core.schema.incident import Window
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run_folder import SETTINGS
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.score import read_recorded
from opsassay.evals.remediation.trial.contract import BASELINE, GATE_S, mark_phase, note_outcome
from opsassay.scoring.verifiers import evidence_of
from opsassay.scoring.verifiers.alerts import awaited
from opsassay.scoring.verifiers.evidence import RunEvidence
from opsassay.scoring.verifiers.self_healed import fault_ended
from opsassay.scoring.verifiers.settling import changed_since, settled, unsteady
from opsassay.telemetry.mask import Mask
from opsassay.testbed.operations.alert_watch import AlertWatch
from opsassay.testbed.operations.environment import LiveEnvironment
from opsassay.testbed.operations.live import ARRIVAL_S
from opsassay.testbed.operations.tool_session import OperatorToolSession
from opsassay.testbed.recording.observer import ObserverProcess

_log = Log(__name__)

ALERTS_TIMEOUT_S = 45.0
"""How long a trial waits for the alerts that its scenario begins with, and for them to clear after the agent."""
HEALTHY_TIMEOUT_S = 60.0
SETTLE_EVERY_S, GATE_EVERY_S = 2.0, 0.05
GONE_WITHIN_S = 10.0
"""How long what was removed may take to be gone."""
START_SHARE = 0.25
"""The first part of the warm-up is no baseline: connections are opened, caches are cold."""


class TrialEnvironment:
    """The system *live* for *scenario*; without *probes* only the final committed probe is sent.

    *mask* is what of the telemetry the agent's tools leave out; with *rollback* one of them takes its own changes back;
    with *noise* harmless things happen besides.
    With a *gate* the healthy system waits for that file. All verbs raise OpsAssayError.
    """

    def __init__(
        self,
        live: LiveEnvironment,
        scenario: Scenario,
        run_dir: Path,
        *,
        probes: bool,
        mask: Mask | None = None,
        rollback: bool = False,
        noise: bool = False,
        gate: Path | None = None,
    ) -> None:
        self.live, self._scenario, self._run_dir, self._probes, self._mask = live, scenario, run_dir, probes, mask
        self._rollback, self._noise, self._gate = rollback, noise, gate
        self._observed, self._noisy = ExitStack(), ExitStack()
        self._deployed = False
        self._session: OperatorToolSession
        self._observer: ObserverProcess

    def prepare(self) -> None:
        """Deploy the system, start recording, let it warm up and require that it is healthy; raises OperationError."""
        self.live.prepare()
        self._deployed = True
        deployed_ns = mark_phase(self._run_dir, "deployed")
        self._observer = self._observed.enter_context(self.live.observed(probes=self._probes))
        time.sleep(self._scenario.environment.warmup_s)
        _require_healthy(self.live, lambda: self._read_evidence().slowdown)
        baseline_ns = mark_phase(self._run_dir, "baseline")
        begin_ns = deployed_ns + int(START_SHARE * (baseline_ns - deployed_ns))
        self.live.baseline = Window(start_ns=begin_ns, end_ns=baseline_ns - int(ARRIVAL_S * 1e9 / 2))
        self._session = self.open_tools()
        if self._mask is not None and self._session.view is not None:
            self._session.view.mask = self._mask
        if self._rollback:
            self._session.allow_undo()
        self.note_settings()

    def open_tools(self) -> OperatorToolSession:
        """Return the agent's tools, once the baseline is recorded."""
        return self.live.session()

    def start(self) -> None:
        """Apply the trigger, and wait until the alerts that open the scenario have fired; raises OperationError."""
        if self._gate is not None:
            _wait_for_file(self._gate)
        triggered_ns = mark_phase(self._run_dir, "triggered")  # from here on nothing that fails stood before
        self.trigger()
        if self._noise:
            self._begin_noise()
        _await_alerts(self._scenario, self._session.watch, self._run_dir, triggered_ns, probes=self._probes)

    def _begin_noise(self) -> None:
        """Begin the background noise, and let the operator see its alert."""
        self._observed.callback(self._noisy.close)
        noise = self._noisy.enter_context(self.live.noise())
        if self._session.view is not None:
            self._session.view.besides = lambda: noise.alerts

    def trigger(self) -> None:
        """Apply the trigger."""
        self.live.start()

    def session(self) -> OperatorToolSession:
        """Return the session with the operator's tools."""
        return self._session

    def settle(self) -> None:
        """Record until the system has settled and a last reading confirms it, then undo the trigger."""
        self._noisy.close()  # before the last change that is waited for
        cleared = _record_aftermath(self._scenario, self._session.watch)
        _record_until_settled(self._scenario, self._run_dir)
        self._read_last(cleared=cleared)
        require_alive(self.live, self._session.watch)
        self.note_settings()
        self._observed.close()  # the last look was taken while the fault still held: undoing it is no repair
        self.live.settle()
        mark_phase(self._run_dir, "ended")

    def note_settings(self) -> None:
        """Record the current settings, and which of them wait for a restart."""
        append_line(self._run_dir / SETTINGS, self.live.read_settings())

    def _read_last(self, *, cleared: bool) -> None:
        """Read the state once more; if it changed, record until it is steady again, and repeat.

        A record that ends within a change tells neither what it came from nor what it came to. So it is with alerts that
        had *cleared* and fire again: they are given their time once more.
        """
        committed = self._scenario.verification
        settling = committed.settling
        deadline = time.monotonic() + (settling.limit_s if settling is not None else 0.0)
        while settling is not None:
            cleared = cleared and _await_quiet(self._scenario, self._session.watch)
            looked_ns = time.time_ns()
            self._observer.observe_once()
            changed = changed_since(self._read_evidence(), committed, looked_ns) or (
                "an alert" if cleared and not self._is_quiet() else ""
            )
            if not changed:
                return
            _log.warning("the last look differs", changed=changed)
            self._observer.go_on()
            while changed and time.monotonic() < deadline:
                time.sleep(SETTLE_EVERY_S)
                changed = unsteady(self._read_evidence(), committed, settling.hold_s)
            if changed:
                note_outcome(self._run_dir, "not_settled", f"{changed} still changed after a last look")
                return

    def _is_quiet(self) -> bool:
        """Whether no triggering alert fires; True for a scenario without alerts."""
        committed, watch = self._scenario.verification.alerts, self._session.watch
        return committed is None or watch is None or watch.quiet_s(committed.triggering) > 0

    def _read_evidence(self) -> RunEvidence:
        """Return what the trial has recorded until now, as columns for the verifiers."""
        return evidence_of(read_recorded(self._run_dir), self._scenario)

    def remove(self) -> None:
        """Remove the system and everything of the trigger that would outlive it."""
        try:
            self._observed.__exit__(*sys.exc_info())
        finally:
            self.live.remove()

    def verify(self) -> list[str]:
        """Return and record what is left of the system, including what could not be checked."""
        if not self._deployed:
            return []
        deadline = time.monotonic() + GONE_WITHIN_S
        while left := _find_leftovers(self.live):
            if time.monotonic() > deadline:
                _log.error("not back at the baseline", left=left)
                break
            time.sleep(0.2)
        (self._run_dir / BASELINE).write_text(json.dumps({"verified": not left, "left": left}) + "\n", encoding="utf-8")
        return left


def _wait_for_file(gate: Path) -> None:
    """Wait until the file *gate* exists; raises OperationError after `GATE_S` seconds."""
    deadline = time.monotonic() + GATE_S
    while not gate.exists():
        if time.monotonic() > deadline:
            raise OperationError(f"The system was ready, and its episode did not begin within {GATE_S:g} s.")
        time.sleep(GATE_EVERY_S)


def _find_leftovers(live: LiveEnvironment) -> list[str]:
    """Return what is left of the environment, or why that could not be found out."""
    try:
        return live.verify()
    except OpsAssayError as error:
        return [f"it could not be looked at: {error}"]


def _require_healthy(live: LiveEnvironment, slowdown: Callable[[], float]) -> None:
    """Wait until everything is ready and users are served well; raises OperationError when time is up."""
    began = time.monotonic()
    while (problem := live.health_problem()) is not None:
        waited_s = time.monotonic() - began
        if waited_s > HEALTHY_TIMEOUT_S and waited_s > HEALTHY_TIMEOUT_S * slowdown():
            raise OperationError(
                f"The system is not healthy before anything is broken ({problem}): is the machine busy?"
            )
        time.sleep(1.0)


def _await_alerts(
    scenario: Scenario, watch: AlertWatch | None, run_dir: Path, triggered_ns: int, *, probes: bool = True
) -> None:
    """Wait the scenario's delay, and until its opening alerts have fired since *triggered_ns*; raises OperationError."""
    time.sleep(scenario.environment.settle_s)
    committed = scenario.verification.alerts
    if committed is None or watch is None:
        return
    rules = awaited(committed, probes_on=probes)
    if committed.triggering and not rules:
        return  # its alerts are those of probes, and none are sent
    _wait_until(lambda: not watch.silent(rules, triggered_ns), ALERTS_TIMEOUT_S + watch.late_s, watch)
    if watch.failure is not None:
        raise watch.failure
    if silent := watch.silent(rules, triggered_ns):
        waited_s = scenario.environment.settle_s + ALERTS_TIMEOUT_S
        reason = f"{', '.join(silent)} did not fire within {waited_s:g} s of the trigger: is the load as it should be?"
        note_outcome(run_dir, "alert_not_fired", reason)
        raise OperationError(reason)


def _record_until_settled(scenario: Scenario, run_dir: Path) -> None:
    """Keep recording until everything judged was steady for the hold time, or can no longer be within the limit."""
    committed = scenario.verification
    if committed.settling is None:
        return
    deadline = time.monotonic() + committed.settling.limit_s
    while (over := settled(evidence := evidence_of(read_recorded(run_dir), scenario), committed)).problem:
        if over.decided or time.monotonic() > deadline:
            note_outcome(run_dir, "not_settled", over.problem)
            break
        time.sleep(SETTLE_EVERY_S)
    if evidence.first_change is not None and (reason := fault_ended(evidence, scenario)):
        note_outcome(run_dir, "fault_ended", reason)


def _record_aftermath(scenario: Scenario, watch: AlertWatch | None) -> bool:
    """Keep recording for the set time and until the alerts were quiet; return whether they were for their hold time."""
    time.sleep(scenario.environment.aftermath_s)
    return _await_quiet(scenario, watch)


def _await_quiet(scenario: Scenario, watch: AlertWatch | None) -> bool:
    """Wait until the committed alerts were quiet for their hold time; return whether they were in time."""
    committed = scenario.verification.alerts
    if committed is None or watch is None:
        return True
    hold_s = committed.hold_s + max(watch.late_s, ARRIVAL_S) + 2.0
    return _wait_until(lambda: watch.quiet_s(committed.triggering) >= hold_s, ALERTS_TIMEOUT_S + hold_s, watch)


def _wait_until(condition: Callable[[], bool], timeout_s: float, watch: AlertWatch) -> bool:
    """Return whether *condition* came true within *timeout_s* seconds and before *watch* failed."""
    deadline = time.monotonic() + timeout_s
    while not (met := condition()) and time.monotonic() < deadline and watch.failure is None:
        time.sleep(0.2)
    return met


def require_alive(live: LiveEnvironment, watch: AlertWatch | None) -> None:
    """Raise LostError when the system ended during the trial, or its alerts could not be read."""
    if watch is not None and (lost := watch.failure or watch.unread) is not None:
        raise lost
    live.require_alive()
