"""A system on a cluster as faults see it: the fleet from watched pods, counters and orders through its pods' agents.

It stands where the supervisor of `local` stands, so that an injection is the same there and here. It lives in the process
of whoever injects; what that process leaves behind ends by itself: an order to a pod at its deadline, a change of objects
by the undo in the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsassay.core.errors import OperationError, OpsAssayError, RefusedError
from opsassay.core.schema.system import System
from opsassay.testbed.core.fleet import Fleet, Replica
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.injection.journal import Journal
from opsassay.testbed.injection.unexpected_exits import UnexpectedExits
from opsassay.testbed.substrates.kubernetes.actuators.offers import Offers
from opsassay.testbed.substrates.kubernetes.api.client import Api, Object
from opsassay.testbed.substrates.kubernetes.api.mirror import Mirror
from opsassay.testbed.substrates.kubernetes.api.readings import is_over, is_ready
from opsassay.testbed.substrates.kubernetes.endpoints.desired import DesiredState, Lookup, Pressure
from opsassay.testbed.substrates.kubernetes.endpoints.pod_endpoint import PodEndpoints
from opsassay.testbed.substrates.kubernetes.manifests.system import LOAD, watch_of
from opsassay.testbed.workload.runtime.ledger import LedgerWriter
from opsassay.testbed.workload.runtime.settings import SERVICE_PORT

POLL_EVERY_S = 1.0
LOST_AFTER_S = 60.0
"""How long the API may be out of reach before an injection is given up; what it changed ends by itself."""
ANSWER_TIMEOUT_S, SUSPECT_TIMEOUT_S = 5.0, 2.0
SILENT_LOOKS = 2
"""A replica on a node that is down is not ready when it did not answer so often in a row: the cluster takes longer."""
CLOCK_TOLERANCE_S = 0.1


@dataclass(frozen=True, slots=True)
class PodOrder:
    """What one injection has the pod of *replica* do, by its id: whichever pod that is, or none but *pod*."""

    replica: str
    pod: str | None
    names: Mapping[str, Lookup] = field(default_factory=dict)
    pressure: tuple[Pressure, ...] = ()


class ClusterUnderTest:
    """A system on a cluster, under test; *limit_s* is how long anything may last that is done to it.

    The *lease* is ended when the cluster cannot be followed any more.
    """

    def __init__(
        self,
        api: Api,
        name: str,
        system: System,
        folder: Path,
        offers: Offers,
        lease: asyncio.Event,
        *,
        limit_s: float,
        image: str,
    ) -> None:
        self.api, self.name, self.watch_namespace, self.image = api, name, watch_of(name), image
        self._lease = lease
        self.system, self.offers = system, offers
        self.deadline = time.time() + limit_s
        self.state = SystemState(name, folder)
        (folder / "ledger").mkdir()
        self.fleet = Fleet(system, 0)
        self.pod_endpoints = PodEndpoints.for_namespace(api, self.load_namespace)
        self.journal = Journal(self.state.journal)
        self.ledger = LedgerWriter(str(self.state.ledger_dir / "injector.jsonl"), "injector")
        self.unexpected_exits = UnexpectedExits()
        self.injection: str | None = None
        self.quiet_since = 0.0
        self.orders: dict[str, PodOrder] = {}
        """By the id of the injection that gave it."""
        self.rate_rps: float | None = None
        self.expected: set[str] = set()
        """Pods whose end or restart is the fault's doing."""
        self.suspects: set[str] = set()
        """Replicas on a node that is down."""
        self.load_pod: str | None = None
        self.failure: OpsAssayError | None = None
        self.notes: list[str] = []
        self._pods = Mirror(api, "Pod", name)
        self._seen: dict[str, tuple[str, int]] = {}
        self._silent: dict[str, int] = {}
        self._answered = time.monotonic()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def load_namespace(self) -> str:
        """The namespace of the load generator."""
        return self.name

    def service_of(self, pod: Object) -> str:
        """Return the name of the service, store or load generator that *pod* belongs to, '' for another pod."""
        return str((pod["metadata"].get("labels") or {}).get("app", ""))

    async def __aenter__(self) -> ClusterUnderTest:
        self._pods.start()
        await asyncio.to_thread(self._pods.wait)
        self._assign()
        self.spawn(self._poll())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pods.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(OpsAssayError):  # this user may not see nodes, or nobody answers
            hosts = {replica.host for replica in self.fleet.replicas.values()}
            nodes = await asyncio.to_thread(self.api.list, "Node")
            lost = [n["metadata"]["name"] for n in nodes if n["metadata"]["name"] in hosts and not is_ready(n)]
            self.notes += [f"the node {name} is not ready at the end" for name in lost]
        if self._pods.drops:
            self.notes.append(f"the watch of pods was resumed {self._pods.drops} times")

    def memory_share(self, replica: Replica, host: str | None) -> float | None:
        """Return the used share (0 to 1) of the memory limit of *replica*'s container; None if *host* is given."""
        if host is not None or not replica.gauges:
            return None
        share: float | None = replica.gauges[-1][1].get("memory_share")
        return share

    def companions_memory_mb(self, name: str) -> float:  # noqa: ARG002 - they run in the container and count to it
        """Return 0: the memory of a container includes that of processes which faults run in it."""
        return 0.0

    async def lost_ledger_lines(self) -> int:
        """Return how many ledger lines, on effects of faults, this process and those in pods failed to write."""
        return self.ledger.lost + self.fleet.lost_ledger_lines()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run *coroutine* as a task; its failure fails the injection."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)

        def finished(done: asyncio.Task[Any]) -> None:
            self._tasks.discard(done)
            if not done.cancelled() and (error := done.exception()) is not None:
                self.give_up(
                    error if isinstance(error, OpsAssayError) else OperationError(f"{type(error).__name__}: {error}")
                )

        task.add_done_callback(finished)

    def give_up(self, failure: OpsAssayError) -> None:
        """End the injection with *failure*; the system is not ended."""
        self.failure = self.failure or failure
        self._lease.set()

    def desired_state(self, replica: Replica) -> DesiredState:
        """Return the state for the pod of *replica*: faults in the process, wrong look-ups, pressure, deadline."""
        orders = self.orders_of(replica)
        return DesiredState(
            until=self.deadline,
            hooks=tuple(replica.hooks_now),
            watch=tuple(replica.watch),
            names={name: how for order in orders for name, how in order.names.items()},
            pressure=tuple(pressure for order in orders for pressure in order.pressure),
        )

    def orders_of(self, replica: Replica) -> list[PodOrder]:
        """Return the orders (wrong look-ups, pressure) for the present pod of *replica*.

        An order that ends with its pod is not for the pod's successor.
        """
        mine = [order for order in self.orders.values() if order.replica == replica.id]
        return [order for order in mine if order.pod in {None, replica.pod}]

    async def push_hooks(self, replica: Replica) -> None:
        """Send the pod of *replica* its desired state; raises ConnectionError if not ready, else OperationError."""
        try:
            await asyncio.to_thread(self.pod_endpoints.set_desired, replica.pod, self.desired_state(replica))
        except OpsAssayError as error:
            if not replica.ready:
                raise ConnectionError(str(error)) from error
            raise OperationError(f"{replica.pod} does not take its orders: {error}") from error

    async def push_rate(self) -> None:
        """Send the load generator its desired rate."""
        if self.load_pod is not None:
            target_state = DesiredState(until=self.deadline, rate_rps=self.rate_rps)
            await asyncio.to_thread(self.pod_endpoints.set_desired, self.load_pod, target_state)

    async def save_ledger(self, pod: str) -> None:
        """Fetch the ledger of *pod*, what faults caused there, into the local ledger folder."""
        lines = await asyncio.to_thread(self.pod_endpoints.ledger, pod)
        (self.state.ledger_dir / f"{pod}.jsonl").write_bytes(lines)

    def addresses_of(self, name: str, *, as_callee: bool) -> list[str]:
        """Return the IP addresses that packets to or from *name* have in a pod: replica, store or load generator.

        *as_callee* adds the address of its Service, which packets have before the node translates it.
        """
        replica = self.fleet.replicas.get(name)
        app = replica.service if replica else name
        pods = [p for p in self._pods.all() if self.service_of(p) == app]
        found = [p["status"].get("podIP") for p in pods if replica is None or p["metadata"]["name"] == replica.pod]
        if as_callee and (service := self.api.get("Service", app, self.name)) is not None:
            found.append(service["spec"].get("clusterIP"))
        return [address for address in found if address and address != "None"]

    def uid_of(self, pod: str) -> str:
        """Return the Kubernetes uid of the pod called *pod*."""
        return str(self._pods.objects[self.name, pod]["metadata"]["uid"])

    def container_of(self, pod: str) -> str:
        """Return the id of the first container of the pod called *pod*, without its runtime; raises RefusedError."""
        for state in self._pods.objects[self.name, pod]["status"].get("containerStatuses") or ():
            if container := str(state.get("containerID") or "").rpartition("/")[2]:
                return container
        raise RefusedError(f"No container of {pod} runs; wait until it is ready.")

    def left_s(self) -> float:
        """Return how many seconds the injection may still last."""
        return max(self.deadline - time.time(), 0.0)

    async def _poll(self) -> None:
        """Update fleet and counters from the pods, for ever; raises an error when none has answered for long."""
        while True:
            self._assign()
            asked = [self._poll_one(replica) for replica in self.fleet.replicas.values() if self._is_listening(replica)]
            *answers, _ = await asyncio.gather(*asked, self._poll_load())
            if self._pods.fresh and (any(answers) or await asyncio.to_thread(self.api.answers, ANSWER_TIMEOUT_S)):
                self._answered = time.monotonic()
            elif time.monotonic() - self._answered > LOST_AFTER_S:
                raise self._pods.error or OperationError(f"The pods of {self.name} could not be followed.")
            await asyncio.sleep(POLL_EVERY_S)

    async def _poll_one(self, replica: Replica) -> bool:
        """Read the counters of *replica*; return whether they could be read."""
        pod, asked = replica.pod, time.time()
        try:
            limit_s = SUSPECT_TIMEOUT_S if replica.id in self.suspects else ANSWER_TIMEOUT_S
            reading = await asyncio.to_thread(self.pod_endpoints.counters, pod, limit_s)
        except OpsAssayError:  # busy, gone, or behind the fault: the counters say nothing about this moment
            self._silent[replica.id] = self._silent.get(replica.id, 0) + 1
            return False
        self._silent[replica.id], now = 0, time.monotonic()
        if replica.pod != pod:
            return True
        replica.history.append((now, reading["stats"]))
        replica.gauges.append((now, reading["gauges"]))
        self._compare_clocks(reading["now"], asked)
        afflicted = replica.hooks_now or replica.watch or self.orders_of(replica)
        if afflicted and not reading["desired"]["until"] and self.left_s():
            with contextlib.suppress(OpsAssayError, ConnectionError):  # the next look tells
                await self.push_hooks(replica)  # its container is a new one: a fault does not let it off
        return True

    async def _poll_load(self) -> None:
        """Read the load generator's counters into its history, if it answers."""
        if self.load_pod is not None:
            limit_s = SUSPECT_TIMEOUT_S if self.suspects else ANSWER_TIMEOUT_S  # it may be on the node that is down
            with contextlib.suppress(OpsAssayError):
                reading = await asyncio.to_thread(self.pod_endpoints.counters, self.load_pod, limit_s)
                self.fleet.load.history.append((time.monotonic(), reading["stats"]))

    def _is_listening(self, replica: Replica) -> bool:
        """Return whether the pod of *replica* is ready."""
        pod = self._pods.objects.get((self.name, replica.pod))
        return pod is not None and is_ready(pod)

    def _compare_clocks(self, pod_time: float, request_time: float) -> None:
        """Add a note, once, if *pod_time* is not between *request_time* and now (s since the epoch)."""
        ahead = pod_time - (request_time + time.time()) / 2
        if abs(ahead) > (time.time() - request_time) / 2 + CLOCK_TOLERANCE_S and not any(
            "clock" in note for note in self.notes
        ):
            self.notes.append(
                f"a node's clock is {ahead:+.2f} s from the recorder's: windows and telemetry differ by that"
            )

    def _assign(self) -> None:
        """Assign a present pod to every replica, which keeps its pod while that exists, and update its state."""
        pods = {p["metadata"]["name"]: p for p in self._pods.all() if not is_over(p)}
        staying = {name: p for name, p in pods.items() if "deletionTimestamp" not in p["metadata"]}
        for service in self.system.services:
            own = sorted(name for name, p in staying.items() if self.service_of(p) == service)
            replicas = self.fleet.replicas_of(service)
            free = [name for name in own if name not in {replica.pod for replica in replicas}]
            for replica in replicas:
                if replica.pod not in own and free:
                    replica.pod = free.pop(0)
                self._update_replica(replica, pods.get(replica.pod))
        self.load_pod = self._find_load(staying.values())

    def _find_load(self, pods: Iterable[Object]) -> str | None:
        """Return the name of the load generator's pod, one of *pods* that is ready."""
        return min((p["metadata"]["name"] for p in pods if self.service_of(p) == LOAD and is_ready(p)), default=None)

    def _update_replica(self, replica: Replica, pod: Object | None) -> None:
        """Copy readiness, node and starts of *pod* (None: gone) to *replica*; note an unexpected end."""
        silent = replica.id in self.suspects and self._silent.get(replica.id, 0) >= SILENT_LOOKS
        replica.ready = pod is not None and is_ready(pod) and not silent
        replica.port = SERVICE_PORT if replica.ready else None
        if pod is None:
            return
        replica.host = pod["spec"].get("nodeName") or replica.host
        statuses: list[Object] = pod["status"].get("containerStatuses") or [{"restartCount": 0}]
        seen, former = (replica.pod, int(statuses[0]["restartCount"])), self._seen.get(replica.id)
        if former == seen:
            return
        self._seen[replica.id] = seen
        if former is None:
            return
        replica.started_at = time.monotonic()
        if former[0] == seen[0] and replica.pod not in self.expected:
            self._note_end(replica.pod, statuses[0].get("lastState", {}).get("terminated") or {})

    def _note_end(self, pod: str, container_state: Object) -> None:
        """Add a note that the container of *pod* ended unexpectedly, with the reason in *container_state*."""
        why = container_state.get("reason") or "for no reason that the cluster gives"
        self.notes.append(
            f"the container of {pod} ended (exit status {container_state.get('exitCode')}, {why}), "
            "which OpsAssay did not ask for"
        )
