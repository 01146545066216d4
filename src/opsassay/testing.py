"""A system in a test: run it, break it, let an agent or a runbook work on it, and assert on what it went through."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opsassay.core.errors import StartError, UserError
from opsassay.core.schema.incident import FaultPlan, Window
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run_folder import ACTIONS, TIMELINE
from opsassay.core.schema.trajectory import Action, Depth, Observation, Timeline
from opsassay.core.schema.validation_errors import problem
from opsassay.testbed.apps import load_system
from opsassay.testbed.operations.held_faults import hold_faults
from opsassay.testbed.operations.live import LiveAlerts, live_telemetry
from opsassay.testbed.operations.telemetry_view import TelemetryView
from opsassay.testbed.operations.tools import VerbToolSession, operator_tools
from opsassay.testbed.recording.observer import observing, read_timeline
from opsassay.testbed.substrates.local.substrate import LocalSubstrate, LocalSystem

DEPTHS: tuple[Depth, ...] = ("D1", "D2", "D3", "D4")
LONGEST_S = 24 * 3600.0
HEALTHY_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.2


@dataclass
class SystemInTest:
    """A running system, observed from its first healthy moment on.

    *tools* are those of an operating agent (`tools.specs()`, `tools.call(name, arguments)`); every call is recorded
    in *actions*. *running* is the handle beneath, *folder* holds the timeline.
    """

    running: LocalSystem
    folder: Path
    tools: VerbToolSession
    actions: list[Action] = field(default_factory=list)

    @property
    def endpoints(self) -> dict[str, list[str]]:
        """The URLs of each entry, a service that users call, by its name."""
        return {name: list(urls) for name, urls in self.running.status().endpoints.items()}

    def fault(
        self, fault: str, service: str | None = None, *, host: str | None = None, **parameters: Any
    ) -> AbstractContextManager[None]:
        """Return a context manager that keeps *fault* of the catalogue on *service* or *host*; UserError if impossible."""
        target = {key: value for key, value in (("service", service), ("host", host)) if value is not None}
        try:
            plan = FaultPlan.model_validate({"fault": fault, "target": target or None, "parameters": parameters})
        except ValidationError as error:
            raise UserError(f"the fault {fault}: {problem(error)}") from error
        self.running.require(plan)
        return hold_faults(self.running, plan, LONGEST_S)

    def change(self, verb: str, **arguments: Any) -> Mapping[str, Any]:
        """Run the operation *verb* and return its result; it is not recorded as an action of the agent."""
        return self.running.operate(verb, arguments)

    def trajectory(self) -> Timeline:
        """Return the timeline that the observer has recorded until now."""
        return read_timeline(self.folder / TIMELINE)

    def assert_recovers(self, within_s: float = 30.0) -> None:
        """Raise AssertionError unless, within *within_s* s, new readings of all depths (D1 to D4) are 1.0."""
        began_ns, deadline = time.time_ns(), time.monotonic() + within_s
        while True:
            newest = {one.depth: one for one in self._list_readings() if one.started_ns >= began_ns}
            if all(depth in newest and newest[depth].value == 1.0 for depth in DEPTHS):
                return
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_EVERY_S)
        short = [_format_reading(newest[depth]) if depth in newest else f"{depth} was not read" for depth in DEPTHS]
        raise AssertionError(f"the system did not recover within {within_s:g} s: {', '.join(short)}")

    def assert_kept(self, depth: Depth, at_least: float) -> None:
        """Raise AssertionError if *depth* has no reading yet, or was ever below the share *at_least* (0 to 1)."""
        readings = [one for one in self._list_readings() if one.depth == depth]
        if not readings:
            raise AssertionError(f"{depth} was not read; the depths are {', '.join(DEPTHS)}")
        lowest = min(readings, key=_value_or_whole)
        if _value_or_whole(lowest) < at_least:
            after_s = (lowest.started_ns - readings[0].started_ns) / 1e9
            raise AssertionError(
                f"{_format_reading(lowest)} after {after_s:.1f} s, and was to stay at {at_least:g} or above"
            )

    def assert_touched_only(self, *services: str) -> None:
        """Raise AssertionError if an action changed anything but *services* (also stores, hosts) and their replicas."""
        owners = {entity.id: entity.service for tick in self.trajectory().ticks for entity in tick.entities}
        for action in self.actions:
            others = sorted(name for name in action.touched if not {name, owners.get(name)} & set(services))
            if action.mutating and others:
                raise AssertionError(f"{action.tool} {action.arguments} touched {', '.join(others)}")

    def _list_readings(self) -> list[Observation]:
        """Return every observation so far that has a value, of all depths, in the order of ticks."""
        ticks = self.trajectory().ticks
        return [one for tick in ticks for one in tick.observations if one.value is not None]


@contextmanager
def system_in_test(
    system: str,
    *,
    folder: Path,
    rate_rps: float | None = None,
    isolation: str | None = None,
    seed: int = 0,
    warmup_s: float = 4.0,
    cadence_s: float = 0.5,
) -> Iterator[SystemInTest]:
    """Run *system* (a name, or the path of a YAML file), yield it after *warmup_s* s and record it into *folder*.

    It is read and probed every *cadence_s* s; *rate_rps* is the load in requests per second (None: its own). Raises
    UserError when *system* is none, StartError when it does not become healthy.
    """
    app, name = load_system(system), f"test-{os.getpid()}-{secrets.token_hex(2)}"
    folder.mkdir(parents=True, exist_ok=True)
    deployed = LocalSubstrate().deployed(app, name, seed=seed, rate_rps=rate_rps, isolation=isolation)
    with deployed as running, live_telemetry(running.receiver, folder) as telemetry:
        usual_from = time.time_ns()
        time.sleep(warmup_s)
        _require_ready(running)
        usual = Window(start_ns=usual_from, end_ns=time.time_ns())
        view = TelemetryView(telemetry, LiveAlerts(telemetry, app.slo, usual))
        actions: list[Action] = []

        def record(action: Action) -> None:
            """Append *action* to the list and to the file of actions."""
            actions.append(action)
            append(action)

        append = partial(append_line, folder / ACTIONS)
        with observing(name, folder / TIMELINE, cadence_s=cadence_s, probe_every_s=cadence_s):
            yield SystemInTest(running, folder, VerbToolSession(running, view, record, operator_tools(app)), actions)


def _require_ready(running: LocalSystem) -> None:
    """Wait until every service of *running* is ready; raises StartError after `HEALTHY_TIMEOUT_S` seconds."""
    deadline = time.monotonic() + HEALTHY_TIMEOUT_S
    while missing := running.status().not_ready:
        if time.monotonic() > deadline:
            raise StartError(f"After {HEALTHY_TIMEOUT_S:g} s still not ready: {', '.join(missing)}.")
        time.sleep(_LOOK_EVERY_S)


def _value_or_whole(reading: Observation) -> float:
    """Return the share that *reading* holds, and 1.0 when it could not be read."""
    return 1.0 if reading.value is None else reading.value


def _format_reading(reading: Observation) -> str:
    """Return for example "D1 is 0.50 (cart)": depth, share and what fails."""
    failing = f" ({', '.join(reading.failing)})" if reading.failing else ""
    return f"{reading.depth} is {_value_or_whole(reading):.2f}{failing}"
