"""What each fault type does to a local system: one small class per actuator, one table from type to class.

An actuator applies a fault and takes it back. Whatever it starts or changes lives in processes of the system, so that the
end of the system is the end of every fault in it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from assay.errors import RefusedError
from assay.model.incident import FaultPlan
from assay.testbed.faults import effects
from assay.testbed.local.fleet import Replica, sleep_until

if TYPE_CHECKING:
    from assay.testbed.local.supervisor import Supervisor


@dataclass
class Injection:
    """One fault on its way through a system: the plan, the replica that it hits, and who can act."""

    id: str
    plan: FaultPlan
    replica: Replica
    pod: str  # as it was called when the fault began
    supervisor: Supervisor


class Actuator(Protocol):
    """Applies a fault, takes it back, and knows the signature by which it shows."""

    signature: ClassVar[effects.Signature]

    def __init__(self, injection: Injection) -> None: ...

    async def apply(self) -> None:
        """Make the fault act."""

    async def undo(self) -> None:
        """Take the fault back; safe to call when it was not applied or its target is gone."""


class Kill:
    """SIGKILL to the replica's process; the supervisor starts a new pod."""

    signature: ClassVar[effects.Signature] = effects.replica_gone

    def __init__(self, injection: Injection) -> None:
        self._injection = injection

    async def apply(self) -> None:
        """Kill the process; its successor is another pod."""
        replica, supervisor = self._injection.replica, self._injection.supervisor
        if replica.pid is None:
            raise RefusedError(f"Replica {replica.id} has no process to kill now; wait until it is ready.")
        pid = replica.pid
        await watch(self._injection, on=True)
        replica.pod = supervisor.fleet.pod_name(replica.service)
        os.kill(pid, signal.SIGKILL)

    async def undo(self) -> None:
        """Stop the callers' account: the supervisor restarts what died."""
        await watch(self._injection, on=False)


class Pressure:
    """CPU pressure inside the replica's limit by a companion process."""

    signature: ClassVar[effects.Signature] = effects.cpu_starved

    def __init__(self, injection: Injection) -> None:
        self._injection = injection
        self._pid: int | None = None

    async def apply(self) -> None:
        """Start the companion."""
        replica, supervisor = self._injection.replica, self._injection.supervisor
        parameters = self._injection.plan.parameters
        config = {
            "id": f"pressure-{replica.id}",
            "management": str(supervisor.state.management_socket),
            "pid": replica.pid,
            "cpu_limit": replica.spec.cpu_limit,
            "cores": parameters["cores"],
            "load_percent": parameters["load_percent"],
            "ledger": str(supervisor.state.ledger_dir / f"pressure-{replica.id}.jsonl"),
        }
        await watch(self._injection, on=True)
        self._pid = await supervisor.template.spawn("pressure", config["id"], config)
        supervisor.companions[replica.id] = self._pid

    async def undo(self) -> None:
        """End the companion and let the replica run."""
        replica, supervisor = self._injection.replica, self._injection.supervisor
        supervisor.companions.pop(replica.id, None)
        for pid, number in ((self._pid, signal.SIGKILL), (replica.pid, signal.SIGCONT)):
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        await watch(self._injection, on=False)


class RuntimeHook:
    """A fault inside the service process: HTTP boundary and database calls."""

    signature: ClassVar[effects.Signature] = effects.server_errors

    def __init__(self, injection: Injection) -> None:
        self._injection = injection

    async def apply(self) -> None:
        """Switch the hook on; a restarted process gets it again."""
        plan, replica = self._injection.plan, self._injection.replica
        replica.hooks = [{"type": plan.fault, "parameters": plan.parameters}]
        await self._injection.supervisor.push_hooks(replica)

    async def undo(self) -> None:
        """Switch the hook off."""
        replica = self._injection.replica
        replica.hooks = []
        if replica.port is not None:
            await self._injection.supervisor.push_hooks(replica)


class SlowResponse(RuntimeHook):
    """A runtime hook that shows as slow responses."""

    signature: ClassVar[effects.Signature] = effects.server_slow


class FailingStatements(RuntimeHook):
    """A runtime hook that shows as failing database calls."""

    signature: ClassVar[effects.Signature] = effects.statement_errors


class Packets:
    """Packet faults at the relay: rules over the links that begin or end at the replica."""

    signature: ClassVar[effects.Signature] = effects.links_slow

    def __init__(self, injection: Injection) -> None:
        self._injection = injection

    async def apply(self) -> None:
        """Install the rules; both ends of the links note one-way times in the ledger from now on."""
        parameters, supervisor = self._injection.plan.parameters, self._injection.supervisor
        delay = {"delay_s": parameters["delay_ms"] / 1e3, "jitter_s": parameters.get("jitter_ms", 0.0) / 1e3}
        rules = [{"link": f"{a}>{b}", "direction": direction, **delay} for a, b, direction in self._links()]
        if not rules:
            peer = parameters.get("peer")
            raise RefusedError(
                f"{self._injection.replica.service} exchanges no packets with {peer!r}; leave `peer` out or name another."
            )
        await watch(self._injection, on=True, both_ends=True)
        await supervisor.channels.request("relay", "rules", rules=rules)

    async def undo(self) -> None:
        """Remove all rules."""
        supervisor = self._injection.supervisor
        if "relay" in supervisor.channels.names():
            await supervisor.channels.request("relay", "rules", rules=[])
        await watch(self._injection, on=False)

    def _links(self) -> list[tuple[str, str, str]]:
        """Return the (source, destination, direction of the stream) triples whose packets the rule touches."""
        replica, parameters = self._injection.replica, self._injection.plan.parameters
        wanted, peer = parameters["direction"], parameters.get("peer")
        found = []
        for source, destination in self._injection.supervisor.fleet.links():
            other = destination if source == replica.id else source
            if replica.id not in (source, destination) or peer not in (None, other, other.rpartition("-")[0]):
                continue
            leaving = "forward" if source == replica.id else "backward"
            arriving = "backward" if source == replica.id else "forward"
            directions = {"from": [leaving], "to": [arriving], "both": [leaving, arriving]}[wanted]
            found += [(source, destination, direction) for direction in directions]
        return found


async def watch(injection: Injection, *, on: bool, both_ends: bool = False) -> None:
    """Have callers of the target enter what its fault costs them into the ledger; with *both_ends* the target too."""
    target, supervisor = injection.replica, injection.supervisor
    callers = {a for a, b in supervisor.fleet.links() if b == target.id} & set(supervisor.fleet.replicas)
    for name in sorted({*callers, target.id}):
        replica = supervisor.fleet.replicas[name]
        wanted = [target.service] if replica is not target else (["*"] if both_ends else [])
        replica.watch = wanted if on else []
        if replica.port is not None:
            with contextlib.suppress(ConnectionError):  # it has just ended; its successor starts without
                await supervisor.push_hooks(replica)


LOCAL_ACTUATORS: Mapping[str, type[Actuator]] = {
    "PodKill": Kill,
    "CPUStress": Pressure,
    "HTTPResponseDelay": SlowResponse,
    "HTTPResponseAbort": RuntimeHook,
    "NetworkDelay": Packets,
    "JVMMySQLException": FailingStatements,
}
"""The fault types that a local system can take now, with what carries them out."""


async def settle(injection: Injection, timeout_s: float) -> bool:
    """Wait until every replica is ready again; return whether that happened within *timeout_s*."""
    return await sleep_until(lambda: not injection.supervisor.fleet.not_ready(), timeout_s)
