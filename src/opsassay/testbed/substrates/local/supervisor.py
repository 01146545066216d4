"""The supervisor: one process per running system that starts, watches, breaks, heals and ends everything in it.

`opsassay system up` detaches it. It holds the lock of the system's folder as long as it lives; whoever finds the lock free
knows that it is gone and clears what it left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import psutil

from opsassay.core.errors import OpsAssayError, StartError
from opsassay.core.logs import Log, configure
from opsassay.core.schema.system import IsolationLevel, System
from opsassay.testbed.core.fleet import LOAD_GENERATOR, Fleet, Replica, sleep_until
from opsassay.testbed.core.networks import Network
from opsassay.testbed.core.state import SystemState, release_lock
from opsassay.testbed.injection.journal import Journal
from opsassay.testbed.injection.unexpected_exits import UnexpectedExits, sentences
from opsassay.testbed.kernel.namespaces import isolate
from opsassay.testbed.substrates.local import rollout
from opsassay.testbed.substrates.local.composed import ComposeContainers, ComposeNetwork
from opsassay.testbed.substrates.local.control import ControlServer
from opsassay.testbed.substrates.local.directory import Directory
from opsassay.testbed.substrates.local.namespaced import NamespacedNetwork, open_entrances
from opsassay.testbed.substrates.local.operations import Operations
from opsassay.testbed.substrates.local.orders import Orders
from opsassay.testbed.substrates.local.own_load import OwnLoadProcess
from opsassay.testbed.substrates.local.polling import poll, sample
from opsassay.testbed.substrates.local.relayed import RelayedNetwork
from opsassay.testbed.workload.containers import Containers, containers_for
from opsassay.testbed.workload.engine import CALL_S
from opsassay.testbed.workload.names import NameServer, ProgramNames
from opsassay.testbed.workload.processes import Channels, Template, log_tail
from opsassay.testbed.workload.runtime.ledger import LedgerWriter
from opsassay.testbed.workload.runtime.template import fork_template
from opsassay.testbed.workload.stores import RunningStore, start_store

_log = Log(__name__)
READY_TIMEOUT_S = 60.0
CRASHES_BEFORE_GIVING_UP = 3


class Supervisor:
    """Runs the system of *order* in *state*.

    The order holds ``system``, ``seed`` (names and load are repeatable), ``rate_rps``, ``isolation``, ``kernel_can`` (kinds
    of impairments), ``machine`` (what the kernel lends, for the record) and ``owner_pid``: a process whose end is the end
    of the system, None for a system that outlives the command that started it. *entrances* are where users of the machine
    reach a system of the `namespaced` level, *template* the pid of the template process and the socket to it.
    """

    def __init__(
        self,
        state: SystemState,
        order: dict[str, Any],
        entrances: Mapping[str, socket.socket],
        template: tuple[int, socket.socket],
    ) -> None:
        system, seed = System.model_validate(order["system"]), order["seed"]
        self.state, self.system, self.seed = state, system, seed
        self.own_load = OwnLoadProcess(self) if system.load.command else None
        self.rate_rps: float | None = None if self.own_load else order["rate_rps"] or system.load.rate_rps
        self.owner: int | None = order["owner_pid"]
        self.machine: dict[str, Any] = order["machine"]
        self.fleet = Fleet(system, seed)
        self.channels = Channels(state, lambda hello: self.spawn(self._on_hello(hello)))
        self.template = Template(state, *template, lambda *ended: self.spawn(self._on_exit(*ended)))
        self.unexpected_exits = UnexpectedExits()
        self.network, self.containers = self._isolated(order["isolation"], entrances, order["kernel_can"])
        self.directory = Directory(self)
        self.names = NameServer(self.directory.lookup)
        self.journal = Journal(state.journal)
        self.stores: dict[str, RunningStore] = {}
        self.companions: dict[str, set[int]] = {}
        self.operations = Operations(self)
        self.endpoint = ""
        self.phase = "starting"
        self.injection: str | None = None
        self.quiet_since = 0.0  # monotonic time at which the last fault was over
        self.stopping = asyncio.Event()
        self.failure: OpsAssayError | None = None
        self._receiver: int | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def _isolated(
        self, level: IsolationLevel, entrances: Mapping[str, socket.socket], kernel_impairments: Collection[str]
    ) -> tuple[Network, Containers]:
        """Return the network and control groups of the isolation *level*.

        *entrances* are sockets for users, *kernel_impairments* the packet faults that the kernel can do itself.
        """
        state, fleet, processes = self.state, self.fleet, (self.template, self.channels)
        expect = self.unexpected_exits.expect
        if level == ComposeNetwork.level:
            return ComposeNetwork(state, fleet, *processes, kernel_impairments, expect), ComposeContainers(state, fleet)
        if level == NamespacedNetwork.level:
            network = NamespacedNetwork(state, fleet, *processes, entrances, kernel_impairments, expect)
            return network, containers_for(state, fleet, limited=True)
        return RelayedNetwork(state, fleet, *processes), containers_for(state, fleet, limited=False)

    # --- the life of a system -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Start the system, serve commands until asked to stop, then end the system."""
        control = ControlServer(self)
        await control.start()
        try:
            _log.info("starting", application=self.system.system, isolation=self.network.level, pid=os.getpid())
            await self._start()
            self.phase = "ready"
            _log.info("ready", replicas=len(self.fleet.lasting()), endpoint=self.endpoint)
            await self.stopping.wait()
        finally:
            self.phase = "stopping"
            _log.info("stopping")
            await control.stop()
            await self._stop()
            _log.info("stopped")
        if self.failure:
            raise self.failure

    async def _start(self) -> None:
        """Start network, stores, the process that forks all others, receiver, replicas and load, and serve commands."""
        if self.owner is not None:
            self.spawn(self._watch_owner(self.owner))
        self.ledger = LedgerWriter(str(self.state.ledger_dir / "names.jsonl"), "names")
        self.containers.make()
        await self.network.prepare()
        await self.channels.start()
        await self.template.start()
        await asyncio.gather(self._start_receiver(), *(self._start_store(name) for name in self.system.stores))
        await self.network.open({store.name: store.port for store in self.stores.values()})
        names_port = await self.names.start(self.network.home)
        if self.system.programs() and (self.system.compose is None or self.system.load.command):
            names = ProgramNames(self.names, self.directory.addresses, self.directory.caller_at)
            await names.start(self.network.resolver)
        self.orders = Orders(
            self.state,
            self.fleet,
            self.network,
            self.containers,
            self.endpoint,
            names_port,
            secrets.token_hex(8),
            self.seed,
            self.operations.clocks,
        )
        await asyncio.gather(*(self.start_replica(replica) for replica in self.fleet.lasting()))
        await self._wait_ready()
        if self.own_load is not None:
            await self.own_load.start()
        elif self.rate_rps is not None:
            await self.template.spawn("load", LOAD_GENERATOR, self.orders.load(self.rate_rps))
        self.spawn(poll(self))
        self.spawn(sample(self))

    async def _start_store(self, name: str) -> None:
        """Start the server of the store *name*, and end the system if it ends."""
        store = await start_store(self.state, name, self.system.stores[name], self.network.site(name))
        self.stores[name] = store
        self.watch_store(store)

    async def _start_receiver(self) -> None:
        """Start the telemetry receiver and wait until it listens; raises StartError."""
        order = {"state": str(self.state.receiver_dir), "host": self.network.home}
        self._receiver = await self.template.spawn("receiver", "receiver", order)
        ready = self._receiver_file
        await sleep_until(lambda: ready.exists() or self.failure is not None, 20.0, 0.01)
        if not ready.exists():
            raise StartError("The telemetry receiver did not start.", log_tail(self.state.log("receiver")))
        self.endpoint = f"http://{self.network.home}:{json.loads(ready.read_text())['port']}"

    @property
    def _receiver_file(self) -> Path:
        """The file that the receiver writes when it listens, with its port."""
        return self.state.receiver_dir / "receiver.json"

    async def start_replica(self, replica: Replica) -> None:
        """Start a process of *replica*, or of its container's watcher, with its present settings and release."""
        replica.settings, replica.started_release = dict(self.operations.settings[replica.service]), replica.release
        await self.operations.side_processes.begin_pod(replica)
        if isinstance(self.network, ComposeNetwork):
            role, order = "container", self.orders.container(replica, self.network.containers[replica.id])
        elif replica.spec.program is not None:
            role, order = "program", self.orders.program(replica)
        else:
            role, order = "replica", self.orders.replica(replica)
        replica.started_at, replica.starts = time.monotonic(), replica.starts + 1
        replica.pid = replica.watched_by = await self.template.spawn(role, replica.id, order)

    async def _wait_ready(self) -> None:
        """Wait until all replicas are ready; raises StartError when one keeps crashing or is late."""

        def settled() -> bool:
            crashing = any(r.deaths_in_a_row >= CRASHES_BEFORE_GIVING_UP for r in self.fleet.replicas.values())
            return not self.fleet.not_ready() or crashing or self.failure is not None

        await sleep_until(settled, READY_TIMEOUT_S, 0.02)
        if self.failure:
            raise self.failure
        if missing := self.fleet.not_ready():
            worst = max((self.fleet.replicas[i] for i in missing), key=lambda r: r.deaths_in_a_row)
            ready = worst.spec.program.ready if worst.spec.program is not None else None
            why = f": {ready.awaited}" if ready is not None else ""
            if worst.spec.program is not None and worst.spec.program.clock is not None:
                why += "; some programs hang with libfaketime, so try it without `clock`"
            ended = (
                f"ended {worst.deaths_in_a_row} times while starting"
                if worst.deaths_in_a_row
                else f"did not become ready in {READY_TIMEOUT_S:g} s{why}"
            )
            raise StartError(f"Service {worst.service} {ended}.", log_tail(self.state.log(worst.id)))

    async def _stop(self) -> None:
        """Stop load, replicas, stores, receiver and network, and remove control groups."""
        for task in self._tasks:
            task.cancel()
        if self.own_load is not None:
            await self.own_load.end()
        await self.network.close()
        if self._receiver is not None:
            os.kill(self._receiver, signal.SIGTERM)  # the template, which has not reaped it, kills the others
            await sleep_until(lambda: not self._receiver_file.exists(), 3.0, 0.01)
        await self.template.stop()
        processes = [store.process for store in self.stores.values()]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)  # for PostgreSQL: do not wait for clients
        for process in processes:
            try:
                await asyncio.wait_for(process.wait(), 3)
            except TimeoutError:
                process.kill()
                await process.wait()
        self.containers.remove()

    # --- what the processes report --------------------------------------------------------------------------------

    async def _on_hello(self, hello: dict[str, Any]) -> None:
        """Handle the first message of a new process, *hello* {id, pid, port}: record it and send its faults."""
        replica = self.fleet.replicas.get(hello["id"])
        if replica is None:
            return
        replica.pid = hello["pid"]
        if replica.hooks_now or replica.watch:
            try:
                await self.push_hooks(replica)  # before it is ready: a fault does not let its successor off
            except ConnectionError:
                return  # it has ended already, which the template reports
        await self.network.listens(replica.id, hello["port"])
        with contextlib.suppress(OpsAssayError):  # it has ended already
            self.operations.limits.hold(replica)
        replica.port, replica.ready = hello["port"], not replica.draining

    async def _on_exit(self, name: str, pid: int, status: int) -> None:
        """Handle the end of the process *name* with exit *status*: restart its replica, or end the system."""
        if self.phase == "stopping":
            return
        replica = self.fleet.replicas.get(name)
        if replica is not None and pid == replica.watched_by:
            pid = replica.pid or pid  # the end of a container's watcher is that of the container
            if status == 0 and self._is_done(replica):
                replica.done, replica.ready, replica.pid, replica.port = True, False, None, None
                return
        if name == "receiver":
            self._receiver = None
            self._give_up_without(name, "The telemetry receiver", pid, status)
            return
        self.unexpected_exits.note_exit(name, pid, status)
        if replica is None:
            words = f"The {name} process ended with status {status}"
            if name == LOAD_GENERATOR and self.own_load is not None:
                words = self.own_load.how_it_ended(status)
            if name in ("template", "relay", LOAD_GENERATOR):
                self.give_up(StartError(f"{words}.", log_tail(self.state.log(name))))
            return
        if pid != replica.pid:
            return  # its successor has taken over before it ended
        _log.warning("replica died", replica=name, pid=pid, status=status)
        desired = replica.desired  # as it was when it ended: an operator may start it while we tell the others
        replica.ready, replica.pid, replica.port = False, None, None
        await self.network.listens(replica.id, None)
        if desired:
            self.spawn(self._restart(replica))

    def _is_done(self, replica: Replica) -> bool:
        """Return whether *replica*, which ended with status 0, is a finished job."""
        program, left_alone = replica.spec.program, replica.desired and not replica.held and not replica.draining
        return program is not None and not program.restarts and left_alone

    async def _restart(self, replica: Replica) -> None:
        """Start *replica* again after its back-off time, once no fault keeps it down."""
        starts = replica.starts
        await asyncio.sleep(replica.backoff_s())
        while replica.held:  # noqa: ASYNC110 - a fault or the end of the system ends it
            await asyncio.sleep(0.05)
        if replica.starts != starts or not replica.desired:
            return  # an operator has started or stopped it in the meantime
        replica.restarts += 1
        if replica.successor is not None:
            replica.pod, replica.successor, replica.restarts = replica.successor, None, 0
        await self.start_replica(replica)
        _log.info("replica restarted", replica=replica.id, pid=replica.pid, restarts=replica.restarts)

    async def _end_with(self, log: str, part_name: str, process: asyncio.subprocess.Process) -> None:
        """Wait until *process* (*part_name* in messages, *log* of its output) ends; then end the system.

        A process that an operator stopped does not end the system.
        """
        status = await process.wait()
        if process.pid not in self.operations.stopped:  # an operator starts it again
            self._give_up_without(log, part_name, process.pid, status)

    def _give_up_without(self, log: str, part_name: str, pid: int, status: int) -> None:
        """End the system because *part_name*, process *pid*, ended with *status*; the error shows the end of *log*."""
        began_ns = time.time_ns()
        self.unexpected_exits.note_exit(log, pid, status)
        known = sentences(self.unexpected_exits.found, began_ns)
        words = f"{part_name} ended with status {status}" + (f": {known[-1]}" if status < 0 and known else "")
        self.give_up(StartError(f"{words}.", log_tail(self.state.log(log))))

    def give_up(self, failure: OpsAssayError) -> None:
        """End the system because of *failure*, which commands report from then on."""
        if self.phase != "stopping":
            _log.error("giving up", reason=str(failure))
            self.failure = self.failure or failure
            with contextlib.suppress(OSError):
                self.state.write("failed.json", {"message": str(self.failure)})  # for commands that find it hung up
            self.stopping.set()

    async def _watch_owner(self, pid: int) -> None:
        """Stop the system when the process *pid*, its owner, has ended."""
        with contextlib.suppress(psutil.NoSuchProcess):
            owner = psutil.Process(pid)
            while owner.is_running() and owner.status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110 - another process's end
                await asyncio.sleep(0.5)
        self.stopping.set()

    # --- what actuators use ---------------------------------------------------------------------------------------

    def spawn(self, coroutine: Any) -> None:
        """Run *coroutine* as a task; an error in it ends the system."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)

        def finished(done: asyncio.Task[Any]) -> None:
            self._tasks.discard(done)
            if not done.cancelled() and (error := done.exception()) is not None:
                _log.exception("a task failed", error)
                self.give_up(StartError(f"The supervisor failed: {type(error).__name__}: {error}."))

        task.add_done_callback(finished)

    async def replace(self, replica: Replica, timeout_s: float) -> int | None:
        """Start a new process of *replica* next to the old; return the old pid once it is ready, None if late."""
        former, former_port = replica.pid, replica.port
        if replica.spec.program is not None:  # two of them cannot listen on the same port
            await rollout.stop(self, replica)
            return former if await rollout.start(self, replica) else None
        replica.pod = self.fleet.pod_name(replica.service)
        await self.start_replica(replica)
        replica.restarts = 0
        return former if await sleep_until(lambda: replica.port not in (None, former_port), timeout_s) else None

    def revive(self, replica: Replica) -> None:
        """Start *replica* again in the background, once no fault keeps it down."""
        self.spawn(self._restart(replica))

    def watch_store(self, store: RunningStore) -> None:
        """End the system when the server of *store* ends, unless an operator stopped it; returns at once."""
        self.spawn(self._end_with(f"store-{store.name}", f"Store {store.name}", store.process))

    def memory_share(self, replica: Replica, host: str | None) -> float | None:
        """Return the used share (0 to 1) of the memory limit of *host*, else of *replica*; None if unknown."""
        return self.containers.memory_share(replica, host)

    def companions_memory_mb(self, name: str) -> float:
        """Return the resident memory in MiB of fault processes at the replica or host *name*."""
        found = 0.0
        for pid in self.companions.get(name, ()):
            with contextlib.suppress(psutil.NoSuchProcess):  # ended by whoever ended the fault
                found += psutil.Process(pid).memory_info().rss / 2**20
        return found

    async def lost_ledger_lines(self) -> int:
        """Return how many ledger lines, on effects of faults, this process, replicas and the relay failed to write."""
        relay = await self.channels.request("relay", "ping") if "relay" in self.channels.names() else {"ledger_lost": 0}
        return self.ledger.lost + self.fleet.lost_ledger_lines() + int(relay["ledger_lost"])

    async def end_process(self, replica: Replica) -> None:
        """Kill the process of *replica*, which may be gone already; a container is killed by its engine."""
        if (pid := replica.pid) is None:
            return
        self.unexpected_exits.expect(pid)
        if self.system.compose is not None:
            with contextlib.suppress(ConnectionError):
                await self.channels.request(replica.id, "kill", timeout_s=CALL_S)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def push_hooks(self, replica: Replica) -> None:
        """Send the process of *replica* the faults that it carries out itself (its hooks)."""
        await self.channels.request(replica.id, "hooks", hooks=replica.hooks_now, watch=replica.watch)


def main() -> None:
    """Run a supervisor: ``python -m opsassay.testbed.substrates.local.supervisor``, its order as JSON on stdin."""
    supervise(json.load(sys.stdin))


def supervise(order: dict[str, Any]) -> None:
    """Run the system of *order* in this single-threaded process until it is stopped; then remove its state folder."""
    configure("supervisor")
    state = SystemState.for_system(order["name"])
    os.set_inheritable(order["lock_fd"], False)  # noqa: FBT003 - held by this process alone, until its end

    async def live(entrances: Mapping[str, socket.socket]) -> None:
        supervisor = Supervisor(state, order, entrances, template)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.stopping.set)
        await supervisor.run()

    try:
        entrances: dict[str, socket.socket] = {}
        if order["isolation"] == NamespacedNetwork.level:
            entrances = open_entrances(System.model_validate(order["system"]))
            isolate()
        for folder in ("logs", "ledger", "stores", "receiver"):
            (state.dir / folder).mkdir()
        template = fork_template(state.log("template"))
        asyncio.run(live(entrances))
    except OpsAssayError as error:
        _log.error("failed", reason=str(error))
        if order["owner_pid"] is None or _lives(order["owner_pid"]):
            state.write("failed.json", {"message": str(error)})  # for the command that waits for this system
            sys.exit(1)
    shutil.rmtree(state.dir, ignore_errors=True)
    release_lock(state, order["lock_fd"])


def _lives(pid: int) -> bool:
    """Return whether the process *pid* runs and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    main()
