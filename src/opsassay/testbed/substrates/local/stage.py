"""A trial on this machine: real processes, live telemetry, alerts, and the verbs of `ops`."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from opsassay.model.faults import NO_FAULT
from opsassay.model.incident import FaultPlan, Window
from opsassay.model.json_lines import append_line
from opsassay.model.run_folder import ACTIONS, TIMELINE
from opsassay.model.scenario import Scenario
from opsassay.testbed.operations.alert_watch import AlertWatch
from opsassay.testbed.operations.live import LiveAlerts, LiveTelemetry
from opsassay.testbed.operations.sight import Sight
from opsassay.testbed.operations.sights import live_telemetry, users_are_served
from opsassay.testbed.operations.stage import OperatorDesk
from opsassay.testbed.operations.tools import Toolbox
from opsassay.testbed.recording.observer import observing
from opsassay.testbed.scenarios import system_of
from opsassay.testbed.substrates.local.substrate import LocalSubstrate, LocalSystem

LONGEST_S = 24 * 3600.0
"""A fault of the catalogue holds until its trial is over, whatever its plan says: what ends by itself needs no repair."""


@contextmanager
def staged(scenario: Scenario, seed: int, run_dir: Path, _settings: Mapping[str, Any]) -> Iterator[LocalStage]:
    """Deploy the system of *scenario*; it belongs to this process, so that a killed trial leaves none behind."""
    environment, name = scenario.environment, f"trial-{os.getpid()}-{secrets.token_hex(2)}"
    system = system_of(scenario)
    deployed = LocalSubstrate().deployed(system, name, seed=environment.seed + seed, rate_rps=environment.rate_rps)
    with deployed as running, live_telemetry(running.receiver, run_dir) as telemetry:
        yield LocalStage(scenario, running, telemetry)


@dataclass(frozen=True)
class LocalStage:
    """The system of *scenario* as it is *running*, with its *telemetry*."""

    scenario: Scenario
    running: LocalSystem
    telemetry: LiveTelemetry

    def observed(self, run_dir: Path, *, probes: bool) -> AbstractContextManager[Any]:
        """Have the observer write the timeline."""
        committed = self.scenario.verification
        return observing(
            self.running.state.name,
            run_dir / TIMELINE,
            cadence_s=committed.cadence_s,
            probe_every_s=committed.probe_every_s if probes else None,
            protected=committed.protected_services,
        )

    def health_problem(self) -> str | None:
        """Return what is not ready, or that users are not served in time."""
        if missing := self.running.status()["not_ready"]:
            return f"{', '.join(missing)} not ready"
        served = users_are_served(self.telemetry, system_of(self.scenario).entries())
        return None if served else "users are not served in time"

    @contextmanager
    def operated(self, usual: Window, run_dir: Path) -> Iterator[OperatorDesk]:
        """Provide the verbs of `ops`, and alerts by the system's SLO."""
        alerts = LiveAlerts(self.telemetry, system_of(self.scenario).slo, usual)
        record = partial(append_line, run_dir / ACTIONS)
        with AlertWatch(alerts, run_dir) as watch:
            yield OperatorDesk(Toolbox(self.running, Sight(self.telemetry, alerts), record), watch)

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Apply the faults and wrong changes of the trigger; faults of the catalogue are undone with the block."""
        with ExitStack() as held:
            for plan in self.scenario.trigger.faults:
                broken = any(part.fault != NO_FAULT for part in plan.parts)
                lasting = plan.model_copy(update={"duration_s": LONGEST_S}) if broken else plan
                held.enter_context(_injected(self.running, lasting))
            for change in self.scenario.trigger.operations:
                self.running.operate(change.verb, change.arguments)
            yield

    def start_agent(self) -> None:
        """Every change goes through the tools, which record it."""

    stop_agent = start_agent

    def require_alive(self) -> None:
        """Raise LostError when the supervisor is gone."""
        self.running.status()


@contextmanager
def _injected(running: LocalSystem, plan: FaultPlan) -> Iterator[None]:
    """Hold *plan* until its duration or the block is over; raises what kept it from being applied.

    What ends it later is not told: an agent may have taken away what it was at.
    """
    over, applied, failures = threading.Event(), threading.Event(), list[Exception]()

    def hold() -> None:
        try:
            for _ in running.inject(plan, over):
                applied.set()
        except Exception as error:  # noqa: BLE001 - whatever it is: without its fault a trial is none
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
