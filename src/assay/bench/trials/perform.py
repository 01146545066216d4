"""Performs one trial on the `local` substrate: a fresh system, a trigger, an agent, and a record of what it all did.

Whatever happens, the system is removed at the end; it belongs to this process, so that a killed trial leaves none behind.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import polars as pl

from assay.bench.trials.alert_watch import AlertWatch
from assay.bench.trials.contract import ACTIONS, TIMELINE, Arm, TrialAgent, append_line, mark_phase
from assay.bench.trials.operators import let_in
from assay.bench.trials.tasks import Task
from assay.errors import AssayError, OperationError, RefusedError
from assay.model.incident import FaultPlan, Window
from assay.model.scenario import Scenario, Trigger
from assay.testbed.local.substrate import LocalSubstrate, LocalSystem
from assay.testbed.observer import observing
from assay.testbed.ops.live import ARRIVAL_S, LiveAlerts, LiveTelemetry
from assay.testbed.ops.tools import Toolbox
from assay.testbed.scenarios import system_of

ALERTS_TIMEOUT_S = 45.0
"""How long a trial waits for the alerts that its scenario begins with, and for them to clear behind the agent."""
HEALTHY_TIMEOUT_S = 60.0
SERVED_OVER_S, SERVED_SHARE, SERVED_WITHIN_NS = 6.0, 0.95, 1_500_000_000
"""Users are served when of the last seconds' requests so many were answered, and so soon."""
LIVE = ".live"
"""Folder of the telemetry while the trial lasts, in the run folder."""
START_SHARE = 0.25
"""The first part of the warm-up is no measure of what is usual: connections are opened, caches are cold."""


def perform(scenario: Scenario, agent: TrialAgent, arm: Arm, *, probes: bool, seed: int, run_dir: Path) -> None:
    """Perform one trial into *run_dir*; without *probes* only the final committed probe is sent. Raises AssayError."""
    if scenario.environment.substrate != "local":
        raise RefusedError(f"{scenario.id} needs {scenario.environment.substrate}; only `local` is performed here.")
    environment, name = scenario.environment, f"trial-{os.getpid()}-{secrets.token_hex(2)}"
    with ExitStack() as stack:
        running = stack.enter_context(
            LocalSubstrate().deployed(
                system_of(scenario), name, seed=environment.seed + seed, rate_rps=environment.rate_rps
            )
        )
        deployed_ns = mark_phase(run_dir, "deployed")
        telemetry = stack.enter_context(_live(running, run_dir))
        with ExitStack() as observed:
            observed.enter_context(_observed(scenario, running, run_dir, probes=probes))
            time.sleep(scenario.environment.warmup_s)
            _require_healthy(scenario, running, telemetry)
            baseline_ns = mark_phase(run_dir, "baseline")
            usual_from = deployed_ns + int(START_SHARE * (baseline_ns - deployed_ns))
            usual = Window(start_ns=usual_from, end_ns=baseline_ns - int(ARRIVAL_S * 1e9 / 2))
            alerts = LiveAlerts(telemetry, system_of(scenario).slo, usual)
            watch = stack.enter_context(AlertWatch(alerts, run_dir))
            toolbox = Toolbox(running, telemetry, alerts, partial(append_line, run_dir / ACTIONS))
            mark_phase(run_dir, "triggered")  # from here on nothing that fails stood before
            with _broken(running, scenario.trigger):
                _await_alerts(scenario, watch)
                _work(scenario, agent, arm, toolbox, seed, run_dir)
                _aftermath(scenario, watch)
                _require_alive(running, watch)
                observed.close()  # the last probe is sent while the fault still holds: undoing it is no repair
        mark_phase(run_dir, "ended")


@contextmanager
def _live(running: LocalSystem, run_dir: Path) -> Iterator[LiveTelemetry]:
    folder = run_dir / LIVE
    try:
        with LiveTelemetry(running.receiver, folder) as telemetry:
            yield telemetry
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _observed(scenario: Scenario, running: LocalSystem, run_dir: Path, *, probes: bool) -> Iterator[None]:
    """Have the observer, a process of its own, write the timeline; it probes once more when the block has ended."""
    committed = scenario.verification
    every_s = committed.probe_every_s if probes else None
    with observing(
        running.state.name,
        run_dir / TIMELINE,
        cadence_s=committed.cadence_s,
        probe_every_s=every_s,
        protected=committed.protected_services,
    ):
        yield


@contextmanager
def _broken(running: LocalSystem, trigger: Trigger) -> Iterator[None]:
    """Apply the faults and wrong changes of *trigger*; faults of the catalogue are undone with the block."""
    with ExitStack() as held:
        for plan in trigger.faults:
            held.enter_context(_injected(running, plan))
        for change in trigger.operations:
            running.operate(change.verb, change.arguments)
        yield


@contextmanager
def _injected(running: LocalSystem, plan: FaultPlan) -> Iterator[None]:
    """Hold *plan* until its duration or the block is over."""
    over, applied, failures = threading.Event(), threading.Event(), list[AssayError]()

    def hold() -> None:
        try:
            for _ in running.inject(plan, over):
                applied.set()
        except AssayError as error:
            failures.append(error)
        finally:
            applied.set()

    thread = threading.Thread(target=hold, name="fault", daemon=True)
    thread.start()
    try:
        applied.wait()
        if failures:
            raise failures[0]
        yield
    finally:
        over.set()
        thread.join()


def _require_healthy(scenario: Scenario, running: LocalSystem, telemetry: LiveTelemetry) -> None:
    """Wait until everything is ready and users are served well; raises OperationError when that does not come.

    What fails before the trigger is nobody's fault but the machine's, and a trial on it would tell nothing.
    """
    entries = system_of(scenario).entries()
    deadline = time.monotonic() + HEALTHY_TIMEOUT_S
    while (missing := running.status()["not_ready"]) or not _served(telemetry, entries):
        if time.monotonic() > deadline:
            what = f"{', '.join(missing)} not ready" if missing else "users are not served in time"
            raise OperationError(f"The system is not healthy before anything is broken ({what}): is the machine busy?")
        time.sleep(1.0)


def _served(telemetry: LiveTelemetry, entries: Collection[str]) -> bool:
    """Return whether nearly all requests of the last seconds were answered well and in time."""
    since = time.time_ns() - int(SERVED_OVER_S * 1e9)
    handled = telemetry.tables()["traces"].filter(
        pl.col("service_name").is_in(list(entries))
        & (pl.col("attr.span_kind") == "Server")
        & (pl.col("time").cast(pl.Int64) >= since)
    )
    good = handled.filter((pl.col("attr.status_code") != "Error") & (pl.col("duration") < SERVED_WITHIN_NS))
    return handled.height > 0 and good.height >= SERVED_SHARE * handled.height


def _await_alerts(scenario: Scenario, watch: AlertWatch) -> None:
    """Wait as long as the scenario says, and until the alerts that it begins with have fired; not for ever."""
    time.sleep(scenario.environment.settle_s)
    committed = scenario.verification.alerts
    if committed is not None:
        rules = committed.triggering
        _wait_until(lambda: watch.have_fired(rules) and bool(watch.seen), ALERTS_TIMEOUT_S, watch)


def _work(scenario: Scenario, agent: TrialAgent, arm: Arm, toolbox: Toolbox, seed: int, run_dir: Path) -> None:
    """Let the agent in, and out again when its time is over."""
    mark_phase(run_dir, "agent_started")
    task = Task(scenario, scenario.prompt(arm), scenario.environment.agent_timeout_s, seed, run_dir)
    try:
        let_in(agent, task, toolbox)
    finally:
        toolbox.close()
        mark_phase(run_dir, "agent_ended")


def _aftermath(scenario: Scenario, watch: AlertWatch) -> None:
    """Go on recording: as long as the scenario says, and until the alerts have been quiet for their hold time."""
    time.sleep(scenario.environment.aftermath_s)
    committed = scenario.verification.alerts
    if committed is not None:
        hold_s = committed.hold_s + ARRIVAL_S + 2.0
        _wait_until(lambda: watch.quiet_s(committed.triggering) >= hold_s, ALERTS_TIMEOUT_S + hold_s, watch)


def _wait_until(condition: Callable[[], bool], timeout_s: float, watch: AlertWatch) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline and watch.failure is None:
        time.sleep(0.2)


def _require_alive(running: LocalSystem, watch: AlertWatch) -> None:
    """Raise LostError when the system ended while it was watched: then the machinery failed, and nobody is graded."""
    if watch.failure is not None:
        raise watch.failure
    running.status()
