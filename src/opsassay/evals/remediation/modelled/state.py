"""The state of a modelled system: how everything is set, what runs, and, from these alone, who fails.

What a setting does is asked of the runtime's own reader; whom a failure reaches is read off the system's definition. The
model has no times of requests, no processors, no memory and no packets: what depends on them it cannot tell.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opsassay.core.schema.system import System
from opsassay.evals.remediation.controls.words import TOKEN_AGE
from opsassay.testbed.operations.protection import PROCESS, RUNS
from opsassay.testbed.scenarios.generated.hidden import FILES_PER_S, ONSET_S
from opsassay.testbed.scenarios.generated.impact_closure import reach_of
from opsassay.testbed.substrates.local.limits import PORT_RANGE, USUAL_PORTS
from opsassay.testbed.substrates.local.operations import TIME_SYNC
from opsassay.testbed.workload.runtime.settings import SERVICE_PORT, Settings, SettingsError
from opsassay.testbed.workload.runtime.stress import STRAINS
from opsassay.testbed.workload.stores import KEEPS, POLICY

SECRET = "TOKEN_SECRET"  # noqa: S105 - the name of a setting
AT_ONCE, DELAYING = frozenset({"raise_in_method", "abort_request", "replace_body"}), "delay_request"
"""The hooks that make every request fail, and the one that makes it late."""
TOO_LATE_MS = 1000
"""A request that is so late fails for its caller."""
OPENING, SIGNING = "hold_files", "sign_once"
FILES = ONSET_S * int(FILES_PER_S)
"""After so many opened files a process has no descriptor left for a socket."""
LEAST_AGE_S = 1.0
"""A token that may not be older is too old when it arrives."""
LEAST_CACHE = 2**20
"""Bytes that a cache needs to hold anything."""
LEAST_PORTS = 100
"""Local ports that a service needs which closes every connection: each stays taken for a minute."""
_SIZES = {"kb": 2**10, "mb": 2**20, "gb": 2**30, "k": 10**3, "m": 10**6, "g": 10**9}


@dataclass(frozen=True)
class Process:
    """One replica: what it was started with and when (seconds), and the release that its next start has.

    One that *crashes* ends at once; *hooks* are the features that are on; a call of one that is *misled* leads nowhere, and
    one that is *stuck* takes no work.
    """

    settings: dict[str, str]
    runs: str
    release: str
    started: int
    crashes: bool
    hooks: dict[str, dict[str, Any]]
    misled: bool
    stuck: bool = False


class ModelledSystem:
    """What *system* is set to and what runs of it, as its definition has it at first; *emptied* counts lost contents."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.settings = {name: dict(spec.config) for name, spec in system.services.items()}
        self.stores = {name: dict(store.config) for name, store in system.stores.items()}
        self.hosts = {host: {TIME_SYNC: "on"} for host in system.hosts}
        self.ports: dict[str, str] = {}
        """The changed ranges of local ports, by service: they are not the process's."""
        self.side_processes: dict[str, str] = {}
        """The side process of each store that has one: it keeps the disk of the store full."""
        self.records: dict[str, str] = {}
        self.rules: dict[str, tuple[str, str]] = {}
        self.emptied = dict.fromkeys(system.stores, 0)
        self.clocks: dict[str, float] = {}
        self.readers: dict[str, tuple[str, ...]] = {}
        self.report_due: int | None = None
        self.report_runs = False
        self._callees: dict[str, list[str]] = {name: [] for name in system.services}
        for caller, callee in system.calls():
            self._callees[caller].append(callee)
        self._reached: dict[str, frozenset[str]] = {}
        self.replicas = {name: [self.started(name, spec.release, 0)] * spec.replicas
                         for name, spec in system.services.items()}  # fmt: skip

    def copied(self) -> ModelledSystem:
        """Return a deep enough copy that changes to it leave this state as it is."""
        other = copy.copy(self)
        other.clocks = dict(self.clocks)
        for name in ("settings", "stores", "hosts", "replicas"):
            setattr(other, name, {owner: copy.copy(values) for owner, values in getattr(self, name).items()})
        other.records, other.rules, other.emptied = dict(self.records), dict(self.rules), dict(self.emptied)
        other.ports, other.side_processes = dict(self.ports), dict(self.side_processes)
        return other

    def started(self, service: str, release: str, now: int, *, alone: bool = False) -> Process:
        """Return the process that *service* runs after a start of version *release* at second *now* of the model.

        It crashes when its settings are invalid, its database refuses its password or, unless it is *alone*, a preview has
        its port; without a password it is let in.
        """
        values, spec = dict(self.settings[service]), self.system.services[service]
        settings = Settings(values)
        try:
            settings.require(spec.required)
        except SettingsError:
            return Process(values, release, release, now, crashes=True, hooks={}, misled=False)
        refused = settings.preview_port() == SERVICE_PORT and not alone
        refused |= any(values.get(k, v) != v for k, v in spec.config.items() if k.endswith("_PASSWORD"))
        hooks = {hook["type"]: hook["parameters"] for hook in settings.features()}
        misled = any(settings.upstream(callee) != (callee, None) for callee in self._callees[service])
        return Process(values, release, release, now, crashes=refused, hooks=hooks, misled=misled)

    def after_next_start(self, now: int) -> ModelledSystem:
        """Return the state if all replicas restarted at second *now* with the configured settings."""
        other = self.copied()
        other.replicas = {
            name: [self.started(name, one.release, now) for one in replicas] for name, replicas in self.replicas.items()
        }
        return other

    def items(self) -> dict[str, str]:
        """Return the value by name of all that agents can change: settings, records, rules, replicas, releases."""
        owners = {**self.settings, **self.stores, **self.hosts, "names": self.records}
        found = {f"{owner} {key}": value for owner, values in owners.items() for key, value in values.items()}
        found |= {f"{service} firewall {rule}": client for rule, (service, client) in self.rules.items()}
        found |= {f"{service} {PORT_RANGE}": ports for service, ports in self.ports.items()}
        found |= {f"{owner} {PROCESS} {name}": RUNS for owner, name in self.side_processes.items()}
        for name, replicas in self.replicas.items():
            found[f"{name} replicas"] = str(len(replicas))
            found |= {f"{name}-{number} release": one.release for number, one in enumerate(replicas)}
        return found

    # --- who fails ------------------------------------------------------------------------------------------------

    def is_broken(self, service: str, process: Process, now: int) -> bool:
        """Return whether the running *process* of *service* fails its requests at second *now*."""
        own, values, hooks = self.system.services[service], process.settings, process.hooks
        age, ages = now - process.started, self._token_ages(service)
        return (
            process.stuck
            or process.runs != own.release
            or process.misled
            or not AT_ONCE.isdisjoint(hooks)
            or _delay_ms(process) >= TOO_LATE_MS
            or (not Settings(values).keep_alive() and ports_of(self.ports.get(service, USUAL_PORTS)) < LEAST_PORTS)
            or (OPENING in hooks and age >= FILES / hooks[OPENING]["per_s"])
            or (SIGNING in hooks and any(age >= limit for limit in ages))
            or (values.get(SECRET) != own.config.get(SECRET) and (TOKEN_AGE in values or bool(ages)))
            or (TOKEN_AGE in values and float(values[TOKEN_AGE]) < LEAST_AGE_S)
        )

    def _token_ages(self, service: str) -> list[float]:
        """Return the maximum token age (s) of each callee of *service* that checks its tokens."""
        called = (one for callee in self._callees[service] for one in self.replicas[callee][:1])
        return [float(one.settings[TOKEN_AGE]) for one in called if TOKEN_AGE in one.settings and not one.crashes]

    def origins(self, now: int, down: frozenset[str] = frozenset()) -> dict[str, float]:
        """Return the failing share (0 to 1) by component that fails by itself; replicas *down* are stopped."""
        return dict(self._origins_of_failure(now, down))

    def _origins_of_failure(self, now: int, down: frozenset[str]) -> Iterator[tuple[str, float]]:
        """Yield (component, failing share from 0 to 1) for each that fails by itself; *down* are stopped."""
        for name, replicas in self.replicas.items():
            ready = [one for n, one in enumerate(replicas) if not one.crashes and f"{name}-{n}" not in down]
            share = sum(self.is_broken(name, one, now) for one in ready) / len(ready) if ready else 1.0
            if share:
                yield name, share
        if self.report_runs or self.report_begins(now):
            yield "shelf", 1.0
        for name, values in self.stores.items():
            full = (
                name in self.side_processes
                and values.get("save", "")
                and values.get("stop-writes-on-bgsave-error") != "no"
            )
            if name in down or full or (_is_too_small(values) and not self.throws_out(name)):
                yield name, 1.0
        late_s = max((abs(offset) for offset in self.clocks.values()), default=0.0)
        for name, replicas in self.replicas.items() if late_s else ():
            if any(late_s >= float(one.settings.get(TOKEN_AGE, "inf")) for one in replicas if not one.crashes):
                yield name, len(self.clocks) / len(self.hosts)
        yield from ((service, 1.0) for service, _ in self.rules.values())
        yield from ((name, 1.0) for name, backend in self.records.items() if name != backend)

    def report_begins(self, now: int) -> bool:
        """Return whether at second *now* a report is due; its session outlives its order."""
        return self.report_due is not None and now >= self.report_due

    def throws_out(self, store: str) -> bool:
        """Return whether *store* evicts data for lack of memory although its original policy was to keep them."""
        built, values = self.system.stores[store].config, self.stores[store]
        return _is_too_small(values) and values.get(POLICY, KEEPS) != KEEPS == built.get(POLICY, KEEPS)

    def failing(self, now: int, down: frozenset[str] = frozenset()) -> dict[str, float]:
        """Return the failing share (0 to 1) by service, its own or a callee's; replicas *down* are stopped."""
        found: dict[str, float] = {}
        for origin, share in self._origins_of_failure(now, down):
            for name in self._reached_by(origin).union(self.readers.get(origin, ())):
                found[name] = max(found.get(name, 0.0), share)
        return found

    def delays_s(self) -> dict[str, float]:
        """Return by how many seconds requests are late by service, its own or a callee's; without those that fail."""
        found: dict[str, float] = {}
        for origin, replicas in self.replicas.items():
            late_ms = [late for one in replicas if (late := _delay_ms(one)) < TOO_LATE_MS]
            for name in self._reached_by(origin) if any(late_ms) else ():
                found[name] = found.get(name, 0.0) + sum(late_ms) / len(late_ms) / 1e3
        return found

    def _reached_by(self, origin: str) -> frozenset[str]:
        """Return the components that a failure of *origin* reaches, itself among them."""
        if origin not in self._reached:
            edges = reach_of(self.system, origin).edges
            self._reached[origin] = frozenset({origin, *(effect for _, effect in edges)})
        return self._reached[origin]

    def strained(self) -> set[str]:
        """Return the services with a feature switched on that uses up CPU, memory or the like."""
        strains = STRAINS.keys() - {OPENING}
        return {name for name, replicas in self.replicas.items() for one in replicas
                if not one.crashes and not strains.isdisjoint(one.hooks)}  # fmt: skip


def _delay_ms(process: Process) -> float:
    """Return for how long *process* holds each request, ms."""
    return float(process.hooks.get(DELAYING, {}).get("delay_ms", 0))


def _is_too_small(values: dict[str, str]) -> bool:
    """Return whether a store with the settings *values* has less memory than its data need."""
    return 0 < size_of(values.get("maxmemory", "0")) < LEAST_CACHE


def ports_of(text: str) -> int:
    """Return how many local ports there are from "FIRST LAST"; raises ValueError."""
    first, last = map(int, text.split())
    return last - first + 1


def size_of(text: str) -> float:
    """Return the bytes that the text of a cache's memory setting means, 0 (no limit) when it is invalid."""
    number, unit = text.strip().lower(), 1
    for suffix, size in _SIZES.items():
        if number.endswith(suffix):
            number, unit = number.removesuffix(suffix), size
    return float(number) * unit if number.isdigit() else 0.0
