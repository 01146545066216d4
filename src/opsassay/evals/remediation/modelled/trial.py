"""A script played on a model of a local system: what observer, alerts and tools would have recorded, second by second.

What a verb does, and whom a failure reaches, is modelled as the docs have it, so that scripts can be held against the
verifiers by the hundred. What users lost is kept apart from the recording, and the verifiers never see it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsassay.core.errors import NotFoundError, RefusedError
from opsassay.core.schema.incident import Alert
from opsassay.core.schema.scenario import OracleStep, Scenario
from opsassay.core.schema.system import IN_MEMORY
from opsassay.core.schema.trajectory import (
    Action,
    AlertReading,
    Depth,
    Entity,
    LoadCounts,
    Observation,
    Phase,
    PhaseName,
    Probe,
    SettingsReading,
    Tick,
    Timeline,
)
from opsassay.evals.remediation.controls.scripts import REPORT, ControlScript, Script
from opsassay.evals.remediation.modelled.reading import reading_of
from opsassay.evals.remediation.modelled.runtime_faults import RUNTIME_FAULTS
from opsassay.evals.remediation.modelled.state import ModelledSystem
from opsassay.scoring.verifiers import RunRecording
from opsassay.testbed.operations.arguments import parse_url
from opsassay.testbed.operations.tools import TOOLS
from opsassay.testbed.scenarios import system_of
from opsassay.testbed.scenarios.generated.hidden import ONSET_S
from opsassay.testbed.substrates.local.limits import PORT_RANGE, USUAL_PORTS, read_ports
from opsassay.testbed.substrates.local.operations import NAMES, SETTING, STORE_SETTINGS, TIME_SYNC

NS = 1_000_000_000
BEGAN_NS = 1_000 * NS
READING_NS = NS // 100
RESTART_S, REQUESTS = 2, 3
USUAL_S, SLOW_S = 0.02, 1.0
WARMUP_S, SETTLE_S = 10, 20
ERROR_SHARE, ERRORS_S, WINDOW_S = 0.05, 3, 10
"""An alert of errors fires when in so many of the last seconds more than this share of a service's requests failed."""
MISSING_S = 6
TRIGGERS = frozenset({"firewall add", "load dip", "dns delete", *RUNTIME_FAULTS} - {"crowd", "hang"})
"""What the model can do of the verbs that only a trigger has."""
LOOKS = {name.replace("_", " ") for name, tool in TOOLS.items() if not tool.mutating} - {"wait", "exec curl"}
REPORTS = "http://archive:8080"


def refusal(scenario: Scenario) -> str:
    """Return why *scenario* cannot be simulated on this model, '' when it can."""
    if scenario.environment.substrate != "local":
        return f"it happens on {scenario.environment.substrate}"
    system = system_of(scenario)
    if system.programs() or system.compose is not None:
        return "nobody knows what programs of a team's own do"
    if scenario.trigger.faults:
        return "its fault is one of the catalogue, which acts on real processes and packets"
    verbs = {call.verb for call in scenario.trigger.operations}
    strange = sorted(verbs - TRIGGERS - {name.replace("_", " ") for name in TOOLS})
    return f"its trigger has {', '.join(strange)}, which the model does not know" if strange else ""


def clock_ns(seconds: float) -> int:
    """Return *seconds* since the start of the simulation as ns of the simulated clock."""
    return int(BEGAN_NS + seconds * NS)


class ModelledTrial:
    """One trial of *scenario* on the model.

    *users* has, by the second, the share of each kind of request that failed; *before*, *found* and *state* are the system
    before the fault, when the agent came and now.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.system = scenario, system_of(scenario)
        committed = scenario.verification
        self._protected = committed.protected_services or tuple(sorted(self.system.entries()))
        self._probe_every = max(1, round(committed.probe_every_s)) if committed.probe_every_s is not None else None
        self.state = self.before = self.found = ModelledSystem(self.system)
        self.now = self.agent_started = self.agent_ended = self.slow_until = 0
        self.users: list[dict[str, float]] = []
        self._ticks: list[Tick] = []
        self._alerts: list[AlertReading] = []
        self._actions: list[Action] = []
        self._noted: list[SettingsReading] = []
        self._phases: list[Phase] = []
        self._load: dict[str, tuple[float, float, float]] = {}
        self._failed: dict[str, list[float]] = {name: [] for name in self.system.services}
        self._short_s = dict.fromkeys(self.system.services, 0)
        self._known: dict[str, Entity] = {}

    def play(self, script: Script) -> RunRecording:
        """Simulate the trial with *script* as the agent; return its recording. Raises UserError for a refused step."""
        self._trigger_fault()
        leaves = isinstance(script, ControlScript) and script.leaves
        for number, step in enumerate(script.steps):
            if leaves and number == len(script.steps) - 1:
                self._end_agent()
            self._carry_out(step)
            self._wait_seconds(max(1, round(step.wait_s)))
            if self.now - self.agent_started > self.scenario.environment.agent_timeout_s:
                raise RefusedError("It takes longer than the agent of this scenario may.")
        if not leaves:
            self._end_agent()
        self._noted.append(reading_of(self.state, clock_ns(self.now) - NS // 20))
        hold_s = self.scenario.verification.settling.hold_s if self.scenario.verification.settling is not None else 0.0
        self._wait_seconds(50 if hold_s <= 30 else round(2.5 * hold_s))
        self._noted.append(reading_of(self.state, clock_ns(self.now) - NS // 20))
        self.second(is_last=True)
        self._mark_phase("ended")
        return RunRecording(
            Timeline(boot_id="model", cadence_s=1.0, ticks=tuple(self._ticks)), tuple(self._phases),
            tuple(self._actions), tuple(self._alerts), settings=tuple(self._noted),
        )  # fmt: skip

    def _trigger_fault(self) -> None:
        """Simulate the healthy system, apply the trigger, and simulate until the alerts fire."""
        self._mark_phase("deployed")
        self._wait_seconds(WARMUP_S)
        self._mark_phase("baseline")
        self._noted.append(reading_of(self.state, clock_ns(self.now) - NS // 20))
        self._wait_seconds(1)
        self._mark_phase("triggered")
        self.before = self.state.copied()
        for call in self.scenario.trigger.operations:
            self.operate(call.verb, call.arguments)
        self._wait_seconds(SETTLE_S)
        self._noted.append(reading_of(self.state, clock_ns(self.now) - NS // 20))
        self._wait_seconds(1)
        self._mark_phase("agent_started")
        self.agent_started, self.found = self.now, self.state.copied()

    def _end_agent(self) -> None:
        """Record that the agent ends at the present second."""
        self._mark_phase("agent_ended")
        self.agent_ended = self.now

    def _carry_out(self, step: OracleStep) -> None:
        """Carry out *step* of the script, and record the action if it changes something."""
        if step.verb is None or step.verb in LOOKS | {REPORT}:
            return
        if step.verb == "wait":
            self._wait_seconds(round(step.arguments["seconds"]))
            return
        began, touched = self.now, self.operate(step.verb, step.arguments)
        if step.verb != "exec curl" or step.arguments.get("method", "GET") != "GET":
            self._actions.append(
                Action(tool=step.verb.replace(" ", "_"), arguments=step.arguments, started_ns=clock_ns(began) - NS // 10,
                       ended_ns=clock_ns(self.now) + READING_NS, mutating=True, touched=tuple(sorted(touched)))
            )  # fmt: skip

    def _mark_phase(self, phase: PhaseName) -> None:
        """Record that *phase* began 0.1 s before the present second."""
        self._phases.append(Phase(phase=phase, time_ns=clock_ns(self.now) - NS // 10))

    def _wait_seconds(self, seconds: int) -> None:
        """Simulate *seconds* seconds."""
        for _ in range(seconds):
            self.second()

    # --- verbs ----------------------------------------------------------------------------------------------------

    def operate(self, verb: str, arguments: Mapping[str, Any]) -> set[str]:
        """Carry out the tool call *verb*; return the names of what it touched. Raises UserError if it is refused."""
        known: dict[str, Callable[..., set[str]]] = {
            "config set": self._config_set, "config unset": self._config_unset, "restart": self._restart_target,
            "scale": self._scale_service, "release": self._release_version, "firewall add": self._firewall_add,
            "firewall delete": self._firewall_delete, "exec curl": self._request_url, "load dip": lambda **_: set(),
            "dns delete": self._dns_delete,
        }  # fmt: skip
        if verb in RUNTIME_FAULTS:
            return RUNTIME_FAULTS[verb](self, **arguments)
        if verb not in known:
            raise NotFoundError("verb of the model", verb, known)
        return known[verb](**arguments)

    def _config_set(self, target: str, key: str, value: str) -> set[str]:
        """Set *key* of *target* (service, store, host, or "names" for a DNS record) to *value*; return {*target*}."""
        state = self.state
        if target == NAMES:
            state.records[self.require_service(key)] = self.require_service(value)
        elif target in state.hosts:
            if key != TIME_SYNC or value not in ("on", "off"):
                raise RefusedError(f"A host has the setting {TIME_SYNC}, which is on or off.")
            state.hosts[target][key] = value
            if value == "on":
                state.clocks.pop(target, None)
        elif target in state.stores:
            if self.system.stores[target].engine != "valkey" or key not in STORE_SETTINGS:
                raise RefusedError(f"{target} has no setting {key!r} that could be changed.")
            state.stores[target][key] = value
            state.emptied[target] += state.throws_out(target)
        elif key == PORT_RANGE:
            state.ports[self.require_service(target)] = read_ports(value)
            if value == USUAL_PORTS:
                del state.ports[target]
        elif SETTING.fullmatch(key) is None:
            raise RefusedError("A setting is called like UPPER_CASE_1.")
        else:
            state.settings[self.require_service(target)][key] = value
        return {target}

    def _config_unset(self, target: str, key: str) -> set[str]:
        """Remove setting *key* of service *target*, or DNS record *key* if it is "names"; return {*target*}."""
        if key == PORT_RANGE:
            self.state.ports.pop(self.require_service(target), None)
            return {target}
        settings = self.state.records if target == NAMES else self.state.settings[self.require_service(target)]
        if key not in settings:
            raise NotFoundError(f"setting of {target}", key, settings)
        del settings[key]
        return {target}

    def _restart_target(self, target: str, replica: int | None = None, *, rolling: bool = False) -> set[str]:
        """Restart *target* (store, service, "all") or one *replica*, *rolling* one by one; return touched names."""
        if target in self.state.stores:
            forgets = self.system.stores[target].engine in IN_MEMORY
            self.state.emptied[target] += forgets
            self.state.report_runs &= forgets  # a database ends its sessions
            for _ in range(RESTART_S):
                self.second(down=frozenset({target}))
            return {target}
        services = list(self.state.replicas) if target == "all" else [self.require_service(target)]
        pods = [(name, number) for name in services for number in self.replica_numbers(name, replica)]
        if not pods:
            raise RefusedError(f"{target} has no replicas; scale it up.")
        return {target} - {"all"} | self._redeploy(pods, rolling=rolling)

    def _release_version(
        self, service: str, version: str, replica: int | None = None, *, rolling: bool = True
    ) -> set[str]:
        """Deploy *version* to all replicas of *service*, or to one, *rolling* one by one; return the names touched."""
        versions = self.system.services[self.require_service(service)].versions()
        if version not in versions:
            raise NotFoundError(f"release of {service}", version, versions)
        replicas = self.state.replicas[service]
        chosen = [number for number in self.replica_numbers(service, replica) if replicas[number].release != version]
        for number in chosen:
            replicas[number] = replace(replicas[number], release=version)
        return {service} | self._redeploy([(service, number) for number in chosen], rolling=rolling)

    def _redeploy(self, pods: Sequence[tuple[str, int]], *, rolling: bool) -> set[str]:
        """Restart *pods* (service, replica) at once, or *rolling* until one crashes; return those restarted."""
        done = set[str]()
        for group in [[pod] for pod in pods] if rolling else [list(pods)] if pods else []:
            for name, number in group:
                replicas = self.state.replicas[name]
                replicas[number] = self.state.started(name, replicas[number].release, self.now)
            down = frozenset(f"{name}-{number}" for name, number in group)
            done |= down
            for _ in range(RESTART_S):
                self.second(down=down)
            if any(self.state.replicas[name][number].crashes for name, number in group):
                break
        return done

    def _scale_service(self, service: str, replicas: int) -> set[str]:
        """Add or remove the last replicas until there are *replicas*; return the names that are touched."""
        present, release = self.state.replicas[self.require_service(service)], self.system.services[service].release
        former = len(present)
        fresh = [self.state.started(service, release, self.now) for _ in range(replicas - former)]
        self.state.replicas[service] = [*present[:replicas], *fresh]
        return {service, *(f"{service}-{n}" for n in range(min(former, replicas), max(former, replicas)))}

    def _firewall_add(self, service: str, client: str, delay_ms: int = 0) -> set[str]:
        """Add a rule that blocks *client* from *service*, whatever *delay_ms* is; return both names."""
        del delay_ms
        self.state.rules[f"rule-{len(self.state.rules) + 1}"] = (
            self.require_service(service),
            self.require_service(client),
        )
        return {service, client}

    def _dns_delete(self, service: str) -> set[str]:
        """Remove the DNS record of *service*; return the names that are touched."""
        self.state.records[self.require_service(service)] = ""
        return {service}

    def _firewall_delete(self, rule: str) -> set[str]:
        """Remove the firewall rule named *rule*; return the names of its service and client."""
        if rule not in self.state.rules:
            raise NotFoundError("firewall rule", rule, self.state.rules)
        return set(self.state.rules.pop(rule))

    def _request_url(self, url: str, **_: object) -> set[str]:
        """Send a request to *url*; one to the reports page starts, delays or cancels the report. Return the service."""
        due = {"/reports": self.now, "/reports/later": self.now + round(ONSET_S), "/reports/cancel": None}
        if url.startswith(REPORTS):
            self.state.report_due = due.get(url.removeprefix(REPORTS), self.state.report_due)
            self.state.report_runs &= url != f"{REPORTS}/sessions/end"
        service = self.require_service(parse_url(url).service)
        return {service, self.state.records.get(service) or service}

    def require_service(self, name: str) -> str:
        """Return *name*; raises NotFoundError when it is no service."""
        if name not in self.state.replicas:
            raise NotFoundError("service", name, self.state.replicas)
        return name

    def replica_numbers(self, service: str, replica: int | None) -> range:
        """Return the indices of all replicas, or of *replica* alone; raises NotFoundError."""
        count = len(self.state.replicas[service])
        if replica is None:
            return range(count)
        if replica >= count:
            raise NotFoundError("replica", f"{service}-{replica}", [f"{service}-{number}" for number in range(count)])
        return range(replica, replica + 1)

    # --- what is recorded -----------------------------------------------------------------------------------------

    def second(self, *, down: frozenset[str] = frozenset(), is_last: bool = False) -> None:
        """Simulate and record one second, with the replicas *down* stopped; with *is_last* it always probes."""
        self.state.report_runs |= self.state.report_begins(self.now)
        failing, state = self.state.failing(self.now, down), self.state
        entities = tuple(
            Entity(id=f"{name}-{n}", service=name, host="host-a", version=one.runs, incarnation=str(one.started),
                   ready=f"{name}-{n}" not in down and not one.crashes)
            for name, replicas in state.replicas.items() for n, one in enumerate(replicas)
        )  # fmt: skip
        seen, probes = self._observe_depths(entities), tuple[Probe, ...]()
        if is_last or (self._probe_every is not None and self.now % self._probe_every == 0):
            probes = tuple(self._send_probe(target, failing) for target in self._protected)
            lost = tuple(one.target for one in probes if not one.reachable)
            seen.append(self._make_reading("D3", 1 - len(lost) / max(len(probes), 1), lost))
        former, self._known = self._known, {one.id: one for one in entities}
        gone = tuple(sorted(former.keys() - self._known.keys()))
        changed = tuple(one for one in entities if former.get(one.id) != one)
        self._ticks.append(Tick(index=self.now, observations=tuple(seen), probes=probes, entities=changed, gone=gone,
                                load=self._count_requests(failing)))  # fmt: skip
        self._evaluate_alerts(failing, entities)
        self.now += 1

    def _make_reading(self, depth: Depth, value: float, failing: tuple[str, ...] = ()) -> Observation:
        """Return an observation of *depth* at the present second, with *value* and the names *failing*."""
        began = clock_ns(self.now)
        return Observation(depth=depth, started_ns=began, ended_ns=began + READING_NS, value=value, failing=failing)

    def _observe_depths(self, entities: Sequence[Entity]) -> list[Observation]:
        """Return D1 (ready share of *entities*), D2 (protected services are ready) and D4 (always 1) now."""
        dead = tuple(sorted(one.id for one in entities if not one.ready))
        ready = {one.service for one in entities if one.ready}
        without = tuple(one for one in self._protected if one not in ready)
        share = 1 - len(dead) / len(entities) if entities else 0.0
        return [self._make_reading("D1", share, dead), self._make_reading("D2", 0.0 if without else 1.0, without),
                self._make_reading("D4", 1.0)]  # fmt: skip

    def _send_probe(self, target: str, failing: Mapping[str, float]) -> Probe:
        """Return a probe of *target*, which fails with the probability that *failing* has as its failing share."""
        chance = random.Random(f"{self.now} {target}").random()  # noqa: S311 - a repeatable draw, not a secret
        reachable, began = chance >= failing.get(target, 0.0), clock_ns(self.now)
        return Probe(id=f"probe-{self.now}-{target}", target=target, started_ns=began, ended_ns=began + READING_NS,
                     latency_s=READING_NS / NS, status=200 if reachable else 502, reachable=reachable)  # fmt: skip

    def _count_requests(self, failing: Mapping[str, float]) -> dict[str, LoadCounts]:
        """Add a second's requests by *failing* share; return cumulative (done, failed, time in ns) by kind."""
        requests = [kind.request for kind in self.system.load.mix]
        self.users.append({one: failing.get(one.split()[0], 0.0) for one in requests})
        usual_s, late_s = SLOW_S if self.now < self.slow_until else USUAL_S, self.state.delays_s()
        for one, share in self.users[-1].items():
            done, lost, took_s = self._load.get(one, (0.0, 0.0, 0.0))
            each_s = usual_s + late_s.get(one.split()[0], 0.0)
            self._load[one] = (done + REQUESTS, lost + share * REQUESTS, took_s + each_s * REQUESTS)
        return {one: (round(done), int(lost), round(s * NS)) for one, (done, lost, s) in self._load.items()}

    def _evaluate_alerts(self, failing: Mapping[str, float], entities: Iterable[Entity]) -> None:
        """Record the firing alerts: errors over 10 s, replicas missing for 6 s, resources used up."""
        firing, strained = list[Alert](), self.state.strained()
        ready = [one.service for one in entities if one.ready]
        for name, spec in self.system.services.items():
            shares = self._failed[name] = [*self._failed[name][1 - WINDOW_S :], failing.get(name, 0.0)]
            self._short_s[name] = self._short_s[name] + 1 if ready.count(name) < spec.replicas else 0
            runs = bool(self.state.replicas[name])
            rules = {
                "error_rate": runs and sum(share > ERROR_SHARE for share in shares) >= ERRORS_S,
                "replicas_missing": self._short_s[name] >= MISSING_S,
                "saturation": name in strained,
            }
            firing += [
                Alert(time_ns=clock_ns(self.now), service=name, signal=signal, value=1, threshold=0.5, message="modelled")
                for signal, fires in rules.items() if fires
            ]  # fmt: skip
        self._alerts.append(AlertReading(time_ns=clock_ns(self.now), firing=tuple(firing)))
