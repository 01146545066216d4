"""What can be done to a running system from within: an operator's verbs, and the wrong changes that a scenario begins with.

The supervisor carries them out. Every name is looked up among the system's own services, stores, hosts and replicas: no
argument can mean anything outside of it. The agents' tools (`testbed/operations`) offer the first group of verbs only.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from opsassay.core.errors import NotFoundError, OperationError, RefusedError, UserError
from opsassay.testbed.core.fleet import LOAD_GENERATOR, Replica, require_own_rate
from opsassay.testbed.core.networks import FORWARD, Stream
from opsassay.testbed.substrates.local import rollout
from opsassay.testbed.substrates.local.limits import ServiceLimits
from opsassay.testbed.substrates.local.side_processes import SideProcesses
from opsassay.testbed.workload.processes import log_tail
from opsassay.testbed.workload.stores import configure, count_losses, restart_store

if TYPE_CHECKING:
    from opsassay.testbed.substrates.local.supervisor import Supervisor

ALL = "all"
NAMES = "names"
"""The target of `config` that holds the name server's records: a name to the service whose backends are answered."""
TIME_SYNC = "time_sync"
REPLICAS_LIMIT = 12
SETTINGS_LIMIT = 40
LOG_LINES_LIMIT = 200
STORE_SETTINGS = frozenset({"maxmemory", "maxmemory-policy", "save", "stop-writes-on-bgsave-error"})
"""What may be set on a cache: nothing that names a file, a module or an address."""
SETTING = re.compile(r"[A-Z][A-Z0-9_]{0,39}")
VALUE = re.compile(r"[^\x00-\x1f\x7f]{0,200}")

BREAKING = frozenset(
    {"firewall add", "clock set", "consumer stall", "pool leak", "load dip", "crowd", "hang", "dns delete", "disk fill"}
)
"""The verbs that only the trigger of a scenario has."""

ON_CONTAINERS = ("restart", "start", "stop", "config set", "config unset", "hang", "load dip")
"""Changes that act on the containers of a compose project: the rest changes what OpsAssay's own runtime reads."""

Verb = Callable[..., Awaitable[dict[str, Any]]]


class Operations:
    """The operators' side of *supervisor*'s system: present settings, name records, firewall rules, clocks."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._system = supervisor
        definition = supervisor.system
        self.settings = {name: dict(service.config) for name, service in definition.services.items()}
        self.limits = ServiceLimits(supervisor)
        self.side_processes = SideProcesses(supervisor)
        self.records: dict[str, str] = {}
        self.rules: dict[str, dict[str, str]] = {}
        self.clocks: dict[str, int] = {}
        self.stopped: set[int] = set()
        """Pids of stores that an operator stopped: their end is not the system's."""
        self._unsynced: set[str] = set()
        self._rule_count = 0
        self._changing = asyncio.Lock()
        self._reading: Mapping[str, Verb] = {
            "ps": self._ps,
            "describe": self._describe,
            "logs": self._logs,
            "config get": self._config_get,
            "firewall list": self._firewall_list,
            "exec curl": self._curl,
        }
        self._changes: Mapping[str, Verb] = {
            "restart": self._restart,
            "start": self._start,
            "stop": self._stop,
            "hang": self._hang,
            "scale": self._scale,
            "config set": self._config_set,
            "config unset": self._config_unset,
            "release": self._release,
            "firewall delete": self._firewall_delete,
            "firewall add": self._firewall_add,
            "clock set": self._clock_set,
            "consumer stall": self._stall,
            "pool leak": self._leak,
            "load dip": self._load_dip,
            "crowd": self._crowd,
            "dns delete": self._dns_delete,
            "kill": self.side_processes.kill,
            "disk fill": self.side_processes.fill_disk,
        }

    async def perform(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out the operation *verb* with *arguments* and return its result; changes run one at a time.

        Raises UserError, OperationError.
        """
        change = self._changes.get(verb)
        act = change or self._reading.get(verb)
        if act is None:
            raise NotFoundError("operation", verb, [*self._reading, *self._changes])
        if change is not None and self._system.system.compose is not None and verb not in ON_CONTAINERS:
            raise RefusedError(f"{verb} does not act on containers; {', '.join(ON_CONTAINERS)} do.")
        try:
            if change is None:
                return await act(**arguments)
            async with self._changing:
                return await act(**arguments)
        except TypeError as error:
            raise UserError(f"{verb} does not take these arguments: {error}.") from error

    # --- looking --------------------------------------------------------------------------------------------------

    async def _ps(self) -> dict[str, Any]:
        """Return {replicas: a row for each, stores: name and engine of each}."""
        replicas = sorted(self._system.fleet.lasting(), key=lambda replica: replica.id)
        return {
            "replicas": [self._row(replica) for replica in replicas],
            "stores": [{"store": store.name, "engine": store.engine} for store in self._system.stores.values()],
        }

    def _row(self, replica: Replica) -> dict[str, Any]:
        """Return id, service, pod, host, state, restarts, release and age of *replica*."""
        return {
            "replica": replica.id,
            "service": replica.service,
            "pod": replica.pod,
            "host": replica.host,
            "state": _state(replica),
            "restarts": replica.restarts,
            "release": replica.release,
            "age_s": round(time.monotonic() - replica.started_at, 1),
        }

    async def _describe(self, target: str) -> dict[str, Any]:
        """Return details of *target*, a service, store or host: replicas, settings, callers; raises NotFoundError."""
        system = self._system.system
        if target in system.services:
            spec, replicas = system.services[target], self._system.fleet.replicas_of(target)
            return {
                "service": target,
                "replicas": [self._row(replica) for replica in replicas],
                "pending_restart": {
                    one.id: names for one in replicas if (names := one.pending_restart(self.settings[target]))
                },
                "operations": sorted(spec.operations),
                "consumes": sorted(spec.consumes),
                "calls": sorted(callee for caller, callee in system.calls() if caller == target),
                "called_by": sorted(caller for caller, callee in system.calls() if callee == target),
                "stores": sorted(store for user, store in system.uses() if user == target),
                "releases": list(spec.versions()),
                "settings": sorted(self._settings(target)),
                "required_settings": list(spec.required),
                "limits": {"cpu": spec.cpu_limit, "memory_mb": spec.memory_limit_mb, "pool": spec.pool},
                "local_ports": self.limits.local_ports(replicas),
                "processes": self.side_processes.rows(target),
            }
        if target in self._system.stores:
            store = self._system.stores[target]
            users = sorted(user for user, name in system.uses() if name == target)
            settings = dict(store.settings)
            emptied = await count_losses(store, system.stores[target])
            return {
                "store": target, "engine": store.engine, "used_by": users, "settings": settings, "emptied": emptied,
                **store.disk_use(), "processes": self.side_processes.rows(target),
            }  # fmt: skip
        if target in system.hosts:
            here = sorted(replica.id for replica in self._system.fleet.replicas.values() if replica.host == target)
            return {"host": target, "replicas": here, **self._host_settings(target)}
        raise NotFoundError("service, store or host", target, [*system.services, *system.stores, *system.hosts])

    async def _logs(self, target: str, lines: int = 50) -> dict[str, Any]:
        """Return {output: {process: last *lines* of its log}} for *target*, a service, replica or store."""
        names = [f"store-{target}"] if target in self._system.stores else [one.id for one in self._replicas(target)]
        count = max(1, min(int(lines), LOG_LINES_LIMIT))
        return {"output": {name: log_tail(self._system.state.log(name), count) for name in names}}

    async def _curl(
        self, source: str, service: str, port: int, path: str, method: str, timeout_s: float
    ) -> dict[str, Any]:
        """Send an HTTP request from a replica of *source* to *service*; return from (replica), status and body."""
        if service not in self._system.system.services:
            raise NotFoundError("service", service, self._system.system.services)
        ready = [replica for replica in self._replicas(source) if replica.port is not None]
        if not ready:
            raise OperationError(f"No replica of {source} runs now; there is nowhere to send it from.")
        payload = {"service": service, "port": port, "path": path, "method": method, "limit_s": timeout_s}
        try:
            answer = await self._system.channels.request(ready[0].id, "curl", timeout_s + 5.0, **payload)
        except (TimeoutError, ConnectionError) as error:
            raise OperationError(f"{ready[0].id} does not answer; see `ps`.") from error
        return {"from": ready[0].id, **answer}

    # --- processes ------------------------------------------------------------------------------------------------

    async def _restart(self, target: str, replica: int | None = None, *, rolling: bool = False) -> dict[str, Any]:
        """Restart the store *target*, or replicas of the service, all or number *replica*, one by one if *rolling*.

        Returns {restarted, not_ready, left_alone: ids}.
        """
        if target in self._system.stores:
            return await self._restart_store(target)
        return await rollout.redeploy(self._system, self._chosen(target, replica), rolling=rolling)

    def _chosen(self, target: str, replica: int | None) -> list[Replica]:
        """Return the replicas of *target* (or "all"), or the one with index *replica*; raises RefusedError."""
        chosen = self._system.fleet.lasting() if target == ALL else self._replicas(target)
        if replica is not None:
            chosen = [self._replica(target, replica)]
        if not chosen:
            raise RefusedError(f"{target} has no replicas; scale it up.")
        return chosen

    async def _start(self, target: str, replica: int | None = None) -> dict[str, Any]:
        """Start replicas of *target* that do not run, all or number *replica*; return {started, not_ready: ids}."""
        return await rollout.start_all(self._system, self._chosen(target, replica))

    async def _stop(self, target: str, replica: int | None = None) -> dict[str, Any]:
        """Stop replicas of *target*, all or number *replica*, until they are started; return {stopped: ids}."""
        return await rollout.stop_all(self._system, self._chosen(target, replica))

    async def _restart_store(self, name: str) -> dict[str, Any]:
        """Restart the server of the store *name* with the same data; return {restarted: [name], ...}."""
        store = self._system.stores[name]
        self.stopped.add(store.process.pid)
        await restart_store(self._system.state, store)
        self._system.watch_store(store)
        await self.side_processes.follow(name)
        return {"restarted": [name], "not_ready": [], "left_alone": []}

    async def _scale(self, service: str, replicas: int) -> dict[str, Any]:
        """Set the number of *replicas* of *service*; return {removed, added, not_ready: ids}; raises RefusedError."""
        self._service(service)
        if not 0 <= replicas <= REPLICAS_LIMIT:
            raise RefusedError(f"A service has 0 to {REPLICAS_LIMIT} replicas here, not {replicas}.")
        return await self._scaled(service, replicas)

    async def _scaled(self, service: str, replicas: int, host: str | None = None) -> dict[str, Any]:
        """Scale *service*, new replicas on *host* if given, and apply firewall rules to these; return ids by change."""
        changed = await rollout.scale(self._system, service, replicas, host)
        for rule, about in self.rules.items():
            for added in changed["added"]:
                if self._system.fleet.replicas[added].service == about["service"]:
                    await self._apply_rule(rule, added)
        return changed

    async def _release(
        self, service: str, version: str, replica: int | None = None, *, rolling: bool = True
    ) -> dict[str, Any]:
        """Deploy the release *version* to all replicas of *service* (*rolling* or at once), or to number *replica*."""
        spec = self._system.system.services[self._service(service)]
        if version not in spec.versions():
            raise NotFoundError(f"release of {service}", version, spec.versions())
        chosen = self._replicas(service) if replica is None else [self._replica(service, replica)]
        changing = [one for one in chosen if one.release != version]
        for one in changing:
            one.release = version
        return {"release": version, **await rollout.redeploy(self._system, changing, rolling=rolling)}

    # --- settings -------------------------------------------------------------------------------------------------

    async def _config_get(self, target: str) -> dict[str, Any]:
        """Return the present settings of *target*: a service, store or host, or "names"."""
        return {"target": target, "settings": dict(self._settings(target))}

    async def _config_set(self, target: str, key: str, value: str) -> dict[str, Any]:
        """Set *key* of a service, store or host, or the name record *key*, to *value*; return when it takes effect.

        Raises RefusedError, NotFoundError.
        """
        if VALUE.fullmatch(value) is None:
            raise RefusedError("A value is one line of at most 200 characters.")
        system, takes_effect = self._system, "at once"
        if target == NAMES:
            self._service(key)
            self.records[key] = self._service(value)
        elif target in system.system.hosts:
            await self._synchronise(target, key, value)
        elif target in system.stores:
            if system.stores[target].engine != "valkey" or key not in STORE_SETTINGS:
                raise RefusedError(f"{target} has no setting {key!r} that could be changed here.")
            await configure(system.stores[target], {key: value})
        elif self.limits.knows(self._service(target), key):
            self.limits.change(target, key, value)
        else:
            settings = self.settings[self._service(target)]
            self.side_processes.require_ports(target, key)
            if SETTING.fullmatch(key) is None or (key not in settings and len(settings) >= SETTINGS_LIMIT):
                raise RefusedError("A setting is called like UPPER_CASE_1, and a service has at most 40 of them.")
            settings[key], takes_effect = value, "in processes that start from now on: restart the service"
        return {"target": target, "key": key, "value": value, "takes_effect": takes_effect}

    async def _config_unset(self, target: str, key: str) -> dict[str, Any]:
        """Remove *key* of *target*, a service or "names" (name records), or reset a limit; raises NotFoundError."""
        if target != NAMES and self.limits.knows(self._service(target), key):
            self.limits.change(target, key, None)
            return {"target": target, **self.limits.of(target)}
        settings = self.records if target == NAMES else self.settings[self._service(target)]
        if key not in settings:
            raise NotFoundError(f"setting of {target}", key, settings)
        del settings[key]
        return {"target": target, "key": key}

    def _settings(self, target: str) -> Mapping[str, str]:
        """Return {key: value} of *target*: a service, a store, a host, or the name records."""
        if target == NAMES:
            return {name: self.records.get(name, name) for name in self._system.system.services}
        if target in self._system.stores:
            return self._system.stores[target].settings
        if target in self._system.system.hosts:
            return self._host_settings(target)
        return self.settings[self._service(target)] | self.limits.of(target)

    def _host_settings(self, host: str) -> dict[str, str]:
        """Return whether *host* synchronises its time, as {setting: on or off}."""
        return {TIME_SYNC: "off" if host in self._unsynced else "on"}

    async def _synchronise(self, host: str, key: str, value: str) -> None:
        """Switch time synchronisation (*key*) of *host* to *value*, on (which corrects its clock) or off."""
        if key != TIME_SYNC or value not in ("on", "off"):
            raise RefusedError(f"A host has the setting {TIME_SYNC}, which is on or off.")
        if value == "off":
            self._unsynced.add(host)
            return
        self._unsynced.discard(host)
        await self._set_clock(host, 0)

    # --- firewall -------------------------------------------------------------------------------------------------

    async def _firewall_list(self) -> dict[str, Any]:
        """Return {rules: service, client and action of each}."""
        return {"rules": [{"rule": name, **about} for name, about in self.rules.items()]}

    async def _firewall_delete(self, rule: str) -> dict[str, Any]:
        """Delete the firewall rule called *rule* and end its effect; return what it was; raises NotFoundError."""
        if rule not in self.rules:
            raise NotFoundError("firewall rule", rule, self.rules)
        await self._system.network.heal(rule)
        return {"rule": rule, **self.rules.pop(rule)}

    async def _firewall_add(self, service: str, client: str, delay_ms: int = 0) -> dict[str, Any]:
        """Drop packets of *client* to *service*, or delay them by *delay_ms* if that is not 0; return the rule."""
        self._service(client)
        self._rule_count += 1
        rule = f"rule-{self._rule_count}"
        action = {"action": "inspect", "delay_ms": str(delay_ms)} if delay_ms else {"action": "drop"}
        self.rules[rule] = {"service": service, "client": client, **action}
        for replica in self._replicas(self._service(service)):
            await self._apply_rule(rule, replica.id)
        return {"rule": rule, **self.rules[rule]}

    async def _apply_rule(self, rule: str, replica: str) -> None:
        """Drop or delay the packets to the replica with id *replica* by the firewall rule called *rule*."""
        about = self.rules[rule]
        impairment: dict[str, Any] = {"kind": "partition"}
        if delay_ms := int(about.get("delay_ms", 0)):
            impairment = {"kind": "delay", "delay_s": delay_ms / 1e3, "jitter_s": 0.0}
        streams = [Stream(one.id, replica, FORWARD) for one in self._replicas(about["client"])]
        await self._system.network.impair(rule, replica, streams, impairment)

    # --- what scenarios begin with --------------------------------------------------------------------------------

    async def _clock_set(self, host: str, offset_s: float) -> dict[str, Any]:
        """Switch time synchronisation of *host* off and set its clock *offset_s* off the true time; return both."""
        if host not in self._system.system.hosts:
            raise NotFoundError("host", host, self._system.system.hosts)
        self._unsynced.add(host)
        await self._set_clock(host, int(offset_s * 1e9))
        return {"host": host, "offset_s": offset_s}

    async def _set_clock(self, host: str, offset_ns: int) -> None:
        """Shift the clocks of all processes on *host* by *offset_ns* from the true time."""
        self.clocks[host] = offset_ns
        here = [one.id for one in self._system.fleet.replicas.values() if one.host == host and one.port is not None]
        payload = (self._system.channels.request(name, "clock", offset_ns=offset_ns) for name in here)
        await asyncio.gather(*payload, return_exceptions=True)  # one that has just ended is reported when it starts

    async def _stall(self, service: str) -> dict[str, Any]:
        """Make the message consumers of *service* hang until it is restarted; return {replica id: its answer}."""
        return await self._happen(service, kind="stall")

    async def _hang(self, service: str) -> dict[str, Any]:
        """Stop (SIGSTOP) the program or container of *service*, else RefusedError; return {replica: its answer}."""
        if self._system.system.services[self._service(service)].program is None:
            raise RefusedError(f"{service} is no program of a team's own; consumer stall and pool leak break it.")
        return await self._happen(service, kind="hang")

    async def _leak(self, service: str, store: str, connections: int) -> dict[str, Any]:
        """Make each process of *service* leak *connections* of its pool to *store*; return {replica id: its answer}."""
        return await self._happen(service, kind="leak", store=store, connections=connections)

    async def _happen(self, service: str, **fault: Any) -> dict[str, Any]:
        """Start *fault* (kind and numbers) in the process of each running replica; return {replica id: its answer}."""
        running = [replica.id for replica in self._replicas(self._service(service)) if replica.port is not None]
        payload = (self._system.channels.request(name, "mishap", 60.0, **fault) for name in running)
        return dict(zip(running, await asyncio.gather(*payload), strict=True))

    async def _load_dip(self, factor: float, seconds: float) -> dict[str, Any]:
        """Multiply the rate of user requests by *factor*, return the new rate; after *seconds* it is restored."""
        require_own_rate(self._system.system)
        former = (await self._system.channels.request(LOAD_GENERATOR, "ping"))["rate_rps"]
        await self._system.channels.request(LOAD_GENERATOR, "rate", rate_rps=former * factor)

        async def recover() -> None:
            await asyncio.sleep(seconds)
            await self._system.channels.request(LOAD_GENERATOR, "rate", 30.0, rate_rps=former)

        self._system.spawn(recover())
        return {"rate_rps": former * factor, "seconds": seconds}

    async def _crowd(self, service: str, host: str) -> dict[str, Any]:
        """Replace all replicas of *service* by as many on *host*; return {removed, added, not_ready: ids}."""
        if host not in self._system.system.hosts:
            raise NotFoundError("host", host, self._system.system.hosts)
        count = len(self._replicas(self._service(service)))
        await rollout.scale(self._system, service, 0)
        return await self._scaled(service, count, host)

    # --- names ----------------------------------------------------------------------------------------------------

    async def _dns_delete(self, service: str) -> dict[str, Any]:
        """Delete the DNS record of *service*, so that callers cannot resolve its name; return {service: its name}."""
        self.records[self._service(service)] = ""
        return {"service": service}

    def _service(self, name: str) -> str:
        """Return *name* if it is a service; raises NotFoundError."""
        if name not in self._system.system.services:
            raise NotFoundError("service", name, self._system.system.services)
        return name

    def _replicas(self, target: str) -> list[Replica]:
        """Return the replicas of the service *target*, or the replica with that id as a list; raises NotFoundError."""
        if target in self._system.fleet.replicas:
            return [self._system.fleet.replicas[target]]
        return sorted(self._system.fleet.replicas_of(self._service(target)), key=lambda replica: replica.id)

    def _replica(self, service: str, index: int) -> Replica:
        """Return the replica number *index* of *service*; raises NotFoundError."""
        replica = self._system.fleet.replicas.get(f"{self._service(service)}-{index}")
        if replica is None:
            raise NotFoundError("replica", f"{service}-{index}", [one.id for one in self._replicas(service)])
        return replica


def _state(replica: Replica) -> str:
    """Return the state of *replica*: stopped, stopping, ready, starting or crashing."""
    if replica.draining:
        return "stopped" if replica.pid is None else "stopping"
    if replica.ready:
        return "ready"
    if replica.pid is not None:
        return "starting"
    return "crashing" if replica.deaths_in_a_row else "stopped"
