"""A trial on this machine: real processes, live telemetry, alerts, and the verbs of `ops`."""

from __future__ import annotations

import os
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path

from opsassay.core.draws import derived_secret
from opsassay.core.schema.cost import AutoscalerSettings, ResourceRequest
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run_folder import ACTIONS, LOAD_LOG, NOISE, TIMELINE
from opsassay.core.schema.system import System
from opsassay.core.schema.trajectory import SettingsReading
from opsassay.testbed.core.fleet import RELEASE
from opsassay.testbed.core.state import leftovers, noted_groups
from opsassay.testbed.operations.alert_watch import AlertWatch
from opsassay.testbed.operations.environment import LiveEnvironment
from opsassay.testbed.operations.held_faults import hold_faults
from opsassay.testbed.operations.live import ARRIVAL_S, LiveAlerts, LiveTelemetry, live_telemetry, users_are_served
from opsassay.testbed.operations.noise import Noise, draw_noise
from opsassay.testbed.operations.protection import EMPTIED, PROCESS, RUNS, protected_of, without_defaults, written_down
from opsassay.testbed.operations.state_alerts import AlertRules, StateAlerts
from opsassay.testbed.operations.team_telemetry import TeamTelemetry
from opsassay.testbed.operations.telemetry_view import TelemetryView
from opsassay.testbed.operations.tool_session import OperatorToolSession
from opsassay.testbed.operations.tools import VerbToolSession, operator_tools, without_url
from opsassay.testbed.recording.observer import ObserverProcess, observing
from opsassay.testbed.scenarios import system_of
from opsassay.testbed.substrates.local.costed import LocalCost
from opsassay.testbed.substrates.local.limits import PORT_RANGE
from opsassay.testbed.substrates.local.operations import NAMES
from opsassay.testbed.substrates.local.substrate import LocalSubstrate, LocalSystem

LONGEST_S = 24 * 3600.0
"""A fault of the catalogue ends with its trial, or with the process of the trial: this is no limit."""


class LocalEnvironment(LiveEnvironment):
    """The *system* as it is *running*, with its *telemetry* and the control *groups* that it had.

    The settings may say the `isolation`, which is the best of this machine otherwise.
    """

    running: LocalSystem
    telemetry: LiveTelemetry
    groups: tuple[Path, ...] = ()

    @cached_property
    def system(self) -> System:
        """The system of the scenario; read once, since that may run the compose program."""
        return system_of(self.scenario)

    @contextmanager
    def deployed(self) -> Iterator[None]:
        """Deploy the system for the block, owned by this process."""
        name = f"trial-{os.getpid()}-{secrets.token_hex(2)}"
        deployed = LocalSubstrate().deployed(
            self.system, name, seed=self.drawn_seed, rate_rps=self.scenario.environment.rate_rps,
            isolation=self.settings.get("isolation"),
        )  # fmt: skip
        make = LiveTelemetry if self.system.backends is None else partial(TeamTelemetry, system=self.system)
        with deployed as self.running, live_telemetry(self.running.receiver, self.run_dir, make) as self.telemetry:
            self.groups = tuple(noted_groups(self.running.state))
            if self.system.load.command:
                self.running.keep_load_log(self.run_dir / LOAD_LOG)
            yield

    def observed(self, *, probes: bool) -> AbstractContextManager[ObserverProcess]:
        """Run the process that writes the timeline, for the block; with *probes* it sends requests regularly."""
        committed = self.scenario.verification
        return observing(
            self.running.state.name,
            self.run_dir / TIMELINE,
            cadence_s=committed.cadence_s,
            probe_every_s=committed.probe_every_s if probes else None,
            protected=committed.protected_services,
            trial=(os.getpid(), self.running.status().pid or 0),
        )

    def health_problem(self) -> str | None:
        """Return which replicas are not ready, or that users are not served in time; None when healthy."""
        if missing := self.running.status().not_ready:
            return f"{', '.join(missing)} not ready"
        return None if users_are_served(self.telemetry, self.system.seen_at()) else "users are not served in time"

    @contextmanager
    def operated(self) -> Iterator[OperatorToolSession]:
        """Yield the operator's tool session; alerts on telemetry and on the system's state are evaluated meanwhile."""
        live = LiveAlerts(self.telemetry, self.system.slo, self.baseline)
        state = StateAlerts(self.run_dir / TIMELINE, self.scenario.verification, self.baseline.end_ns)
        alerts = AlertRules(live, state, ARRIVAL_S)
        record = partial(append_line, self.run_dir / ACTIONS)
        session = VerbToolSession(
            self.running, TelemetryView(self.telemetry, alerts), record, operator_tools(self.system)
        )
        with AlertWatch(alerts, self.run_dir) as session.watch:
            yield session

    def noise(self) -> Noise:
        """Return the background noise, harmless events that scenario and seed determine."""
        events = draw_noise(self.system, self.scenario, self.seed)
        return Noise(events, self.running.operate, partial(append_line, self.run_dir / NOISE))

    def costed(self, requests: Mapping[str, ResourceRequest], autoscalers: Sequence[AutoscalerSettings]) -> LocalCost:
        """Return the system with its costs, with *requests* by service and *autoscalers* as set."""
        return LocalCost(self.running, dict(requests), {one.service: one for one in autoscalers})

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Apply the scenario's faults and changes; at the block's end faults are undone, changes stay."""
        with ExitStack() as stack:
            for plan in self.scenario.trigger.faults:
                stack.enter_context(hold_faults(self.running, plan, LONGEST_S))
            for change in self.scenario.trigger.operations:
                self.running.operate(change.verb, without_url(change.arguments))
            yield

    def read_settings(self) -> SettingsReading:
        """Return all present settings, and the replicas that were started with others.

        Besides settings of services, stores and hosts these are name records, firewall rules, replicas and
        releases, and how often a store lost its data.
        """
        system, reader = self.system, self.reader
        protected, others, configured = dict[str, str](), dict[str, str](), dict[str, str]()
        pending = defaultdict[str, tuple[str, ...]](tuple)
        for owner in (*system.services, *system.stores, *system.hosts, NAMES):
            settings = self.running.operate("config get", {"target": owner})["settings"]
            if owner in system.services:
                settings = without_defaults(settings, system.services[owner])
            protected |= protected_of(owner, settings, reader)
            others |= {f"{owner} {key}": written_down(key, value, reader) for key, value in settings.items()}
            described = {} if owner == NAMES else self.running.operate("describe", {"target": owner})
            if owner in system.stores:
                others |= {f"{owner} {PROCESS} {one['process']}": RUNS for one in described["processes"]}
                others[f"{owner} {EMPTIED}"] = str(described[EMPTIED])
            if owner not in system.services:
                continue  # what is set there takes effect at once
            started_with = {name: value for name, value in settings.items() if name != PORT_RANGE}
            configured |= {f"{owner} {name}": derived_secret(reader, value) for name, value in started_with.items()}
            others[f"{owner} replicas"] = str(len(described["replicas"]))
            releases = {row[RELEASE] for row in described["replicas"]} or {system.services[owner].release}
            others[f"{owner} {RELEASE}"] = ", ".join(sorted(releases))  # where none runs, that of the next one
            configured |= {f"{row['replica']} {RELEASE}": row[RELEASE] for row in described["replicas"]}
            for replica, names in described["pending_restart"].items():
                for name in names:
                    pending[f"{replica if name == RELEASE else owner} {name}"] += (replica,)
        for rule in self.running.operate("firewall list", {})["rules"]:
            others[f"{rule['service']} firewall {rule['rule']}"] = f"{rule['client']}: {rule['action']}"
        return SettingsReading(
            time_ns=time.time_ns(),
            settings=protected,
            others={name: value for name, value in others.items() if name not in protected},
            configured=configured,
            pending_restart=dict(pending),
        )

    def require_alive(self) -> None:
        """Raise LostError when the supervisor is gone."""
        self.running.status()

    def verify(self) -> list[str]:
        """Return a sentence for each process, control group, folder or lock that is left."""
        return leftovers(self.running.state, self.groups)
