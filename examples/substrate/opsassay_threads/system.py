"""A running system of threads: its replicas, its load, its receiver, and what an injection sees of it."""

from __future__ import annotations

import asyncio
import queue
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanKind

from opsassay.core.errors import LostError, OpsAssayError
from opsassay.core.schema.incident import FaultPlan, PlannedFault
from opsassay.core.schema.system import System
from opsassay.core.schema.trajectory import Entity
from opsassay.telemetry.otlp.client import ReceiverControl, start_receiver
from opsassay.testbed.core.event import InjectionEvent
from opsassay.testbed.core.fleet import LOAD_GENERATOR, Fleet, Replica
from opsassay.testbed.core.injection import Injection, Repertoire
from opsassay.testbed.core.probes import PROBE_TIMEOUT_S, DepthReading, ProbeAnswer, SystemReading
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.core.status import SystemStatus
from opsassay.testbed.injection.disturbances import Quiet
from opsassay.testbed.injection.hooks import RuntimeHook
from opsassay.testbed.injection.inject import inject
from opsassay.testbed.injection.journal import Journal
from opsassay.testbed.injection.preconditions import require
from opsassay.testbed.injection.unexpected_exits import UnexpectedExits
from opsassay.testbed.workload.runtime.instruments import Instruments
from opsassay_threads.service import Counters, ReplicaServer, count, get, url_of

if TYPE_CHECKING:
    import polars as pl

READ_EVERY_S = 0.25


class ThreadSystem:
    """A system whose replicas are threads; a `RunningSystem`, and a `SystemUnderTest` for the faults on it."""

    def __init__(self, system: System, name: str, seed: int, rate_rps: float | None) -> None:
        self.system, self.name, self.rate_rps = system, name, rate_rps or system.load.rate_rps
        self.fleet = Fleet(system, seed)
        self.state = SystemState(name, Path(tempfile.mkdtemp(prefix=f"opsassay-{name}-")))
        self.state.ledger_dir.mkdir()
        self._receiving: subprocess.Popen[bytes] = start_receiver(self.state.receiver_dir)
        self.receiver = ReceiverControl(self.state.receiver_dir)
        endpoint = f"http://127.0.0.1:{self.receiver.port}"
        resources = {replica.id: self.fleet.resource(replica) for replica in self.fleet.replicas.values()}
        self.servers = {
            id_: ReplicaServer(
                name, self.fleet.replicas[id_], self.fleet, Instruments(endpoint, resource, metrics=False)
            )
            for id_, resource in resources.items()
        }
        self._users = Instruments(endpoint, {"service.name": LOAD_GENERATOR}, metrics=False)
        self._load: Counters = {}
        self.journal, self.unexpected_exits = Journal(self.state.journal), UnexpectedExits()
        self.injection: str | None = None
        self.quiet_since = 0.0
        self.failure: OpsAssayError | None = None
        self._ended = threading.Event()
        for server in self.servers.values():
            server.start()
        for work in (self._send, self._read):
            threading.Thread(target=work, name=f"{name}-{work.__name__}", daemon=True).start()

    def end(self) -> None:
        """Stop everything and remove what was written."""
        self._ended.set()
        self.flush()
        for server in self.servers.values():
            server.stop()
        if self._receiving.stdin is not None:
            self._receiving.stdin.close()
        self._receiving.wait()
        shutil.rmtree(self.state.dir)

    def _send(self) -> None:
        """Send the load."""
        chance, mix = random.Random(self.name), self.system.load.mix
        while not self._ended.wait(chance.expovariate(self.rate_rps)):
            request = chance.choices(mix, [kind.weight for kind in mix])[0].request
            threading.Thread(target=self._send_one, args=(request,), daemon=True).start()

    def _send_one(self, request: str) -> None:
        began, url = time.monotonic(), url_of(self.fleet, request)
        with self._users.span(request, SpanKind.CLIENT):
            ok = url is not None and get(url, self.system.load.timeout_s) == 200
        for activity in (f"call:{request}", f"call:{request.split(maxsplit=1)[0]}"):
            count(self._load, activity, began, ok=ok)

    def _read(self) -> None:
        """Read all counters, as effect checks compare them."""
        while not self._ended.wait(READ_EVERY_S):
            now = time.monotonic()
            self.fleet.load.history.append((now, {name: [*row] for name, row in [*self._load.items()]}))
            for server in self.servers.values():
                server.replica.history.append((now, {name: [*row] for name, row in [*server.counters.items()]}))

    # --- RunningSystem --------------------------------------------------------------------------------------------

    def definition(self) -> System:
        """Return the system."""
        return self.system

    def require(self, plan: FaultPlan, source: Path | None = None) -> None:
        """Raise when *plan* cannot be carried out here."""
        require(self.system, plan, THREADS.refusal, source=source, fleet=self.fleet)

    def status(self) -> SystemStatus:
        """Return how it is; raises LostError when it was removed."""
        if self._ended.is_set():
            raise LostError(f"System {self.name} was removed.")
        missing = tuple(self.fleet.not_ready())
        urls = {
            entry: [f"http://127.0.0.1:{r.port}" for r in self.fleet.replicas_of(entry) if r.ready]
            for entry in self.entries
        }
        return SystemStatus(
            name=self.name,
            system=self.system.system,
            phase="ready",
            isolation="threads",
            replicas=len(self.servers),
            ready=len(self.servers) - len(missing),
            not_ready=missing,
            fault=self.injection,
            endpoints=urls,
            backends=urls,
            probe_paths=self.system.probe_paths(),
            rate_rps=self.rate_rps,
        )

    @property
    def entries(self) -> list[str]:
        """The services that users reach."""
        return sorted(self.system.entries())

    def inject(self, plan: FaultPlan, over: threading.Event | None = None) -> Iterator[InjectionEvent]:
        """Inject *plan* and yield its events; closing the iterator, or *over*, undoes it."""
        events: queue.Queue[InjectionEvent | BaseException | None] = queue.Queue()
        ended = threading.Event()

        async def run() -> None:
            lease = asyncio.Event()

            async def watch() -> None:
                while not (ended.is_set() or (over is not None and over.is_set())):  # noqa: ASYNC110 - threads set them
                    await asyncio.sleep(0.05)
                lease.set()

            async def report(event: InjectionEvent) -> None:
                events.put(event)

            watching = asyncio.create_task(watch())
            try:
                await inject(self, plan, THREADS, lease, report)
            finally:
                watching.cancel()

        def work() -> None:
            try:
                asyncio.run(run())
                events.put(None)
            except BaseException as error:  # noqa: BLE001 - raised again where the events are read
                events.put(error)

        thread = threading.Thread(target=work, name=f"{self.name}-injection", daemon=True)
        thread.start()
        try:
            while (event := events.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            ended.set()
            thread.join()

    def set_rate(self, rate_rps: float) -> float:
        """Change the load; return the former rate."""
        former, self.rate_rps = self.rate_rps, rate_rps
        return former

    def flush(self) -> None:
        """Send what is queued."""
        for instruments in (self._users, *(server.instruments for server in self.servers.values())):
            instruments.flush()

    def ledger(self, since_ns: int) -> pl.DataFrame:
        """Return what faults cost: this substrate keeps no account of it."""
        from opsassay.testbed.recording.ledger import read_ledger

        return read_ledger(self.state.ledger_dir, since_ns)

    def probes(self, protected: Sequence[str] = ()) -> ThreadProbes:
        """Return what observes this system."""
        return ThreadProbes(self, tuple(protected) or tuple(self.entries))

    # --- SystemUnderTest ------------------------------------------------------------------------------------------

    def memory_share(self, replica: Replica, host: str | None) -> float | None:
        """Return None: a thread has no memory of its own."""

    def companions_memory_mb(self, place: str) -> float:
        """Return 0: nothing runs beside the replicas."""
        return 0.0

    async def push_hooks(self, replica: Replica) -> None:
        """Do nothing: a server looks its hooks up at every request."""

    async def lost_ledger_lines(self) -> int:
        """Return 0: there is no ledger."""
        return 0

    def give_up(self, failure: OpsAssayError) -> None:
        """Note that the injection failed."""
        self.failure = failure


class KeepStopped:
    """The servers of the targets are stopped, and started again at the end."""

    def __init__(self, injection: Injection[ThreadSystem]) -> None:
        self._servers = [injection.system.servers[replica.id] for replica in injection.replicas]

    async def apply(self) -> None:
        """Stop them."""
        await asyncio.gather(*(asyncio.to_thread(server.stop) for server in self._servers))

    async def undo(self) -> None:
        """Start those that do not listen."""
        for server in self._servers:
            if server.replica.port is None:
                server.start()


class LoadSurge:
    """Users send ``factor`` times as many requests."""

    def __init__(self, system: ThreadSystem, plan: PlannedFault) -> None:
        self._system, self._former, self._factor = system, system.rate_rps, plan.parameters["factor"]

    async def apply(self) -> None:
        """Raise the rate."""
        self._system.set_rate(self._former * self._factor)

    async def undo(self) -> None:
        """Return to the former rate."""
        self._system.set_rate(self._former)


THREADS: Repertoire[ThreadSystem] = Repertoire(
    "threads",
    "threads",
    {
        "HTTPRequestAbort": RuntimeHook,
        "HTTPResponseAbort": RuntimeHook,
        "HTTPRequestDelay": RuntimeHook,
        "HTTPResponseDelay": RuntimeHook,
        "PodFailure": KeepStopped,
    },
    {"quiet": Quiet, "load_surge": LoadSurge},
    {"PodKill": "a server that stops is started again by its fault alone; use PodFailure"},
)
"""What can be done to a system of threads."""


class ThreadProbes:
    """Observes *system* from inside its process."""

    def __init__(self, system: ThreadSystem, protected: Sequence[str]) -> None:
        self._system, self.protected = system, protected

    async def __aenter__(self) -> ThreadProbes:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hold nothing."""

    async def read(self) -> SystemReading:
        """Read which replicas are ready; there is no control plane that could fail."""
        replicas, missing = self._system.fleet.replicas, tuple(self._system.fleet.not_ready())
        empty = tuple(entry for entry in self.protected if not self._system.status().backends.get(entry))
        entities = [
            Entity(id=r.id, service=r.service, ready=r.ready, host=r.host, version=r.release) for r in replicas.values()
        ]
        return SystemReading(
            ready_replicas=DepthReading(1 - len(missing) / len(replicas), missing),
            ready_backends=DepthReading(1 - len(empty) / len(self.protected), empty),
            control_plane=DepthReading(1.0),
            entities=entities,
        )

    async def request(self, service: str) -> ProbeAnswer:
        """Send one request."""
        began, url = (
            time.monotonic(),
            url_of(self._system.fleet, f"{service} GET {self._system.system.probe_paths()[service]}"),
        )
        status = None if url is None else await asyncio.to_thread(get, url, PROBE_TIMEOUT_S)
        return ProbeAnswer(status, time.monotonic() - began)
