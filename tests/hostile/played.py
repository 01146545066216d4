"""A system whose telemetry is the same whatever is broken, so that a recording of it says only what the recorder draws.

Its clock is its own, so that two minutes of it take no time. Everything that a system draws it draws from the seed that it
is deployed with; here it says that seed outright, in a log line, beside the names that the fleet draws of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import polars as pl
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from opsassay.core.schema.incident import Fault, FaultPlan, RootLabel
from opsassay.core.schema.system import System
from opsassay.telemetry.otlp.counts import SessionStats
from opsassay.telemetry.otlp.spool import Kind, SpoolFile, frame_header, spool_path
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.fleet import Fleet, Replica
from opsassay.testbed.core.status import SystemStatus
from opsassay.testbed.recording.ledger import read_ledger
from testbed import TINY

BEGAN_NS, SECOND, TICK_NS = 1_760_000_000_000_000_000, 10**9, 500_000_000
KINDS = ("HTTPResponseAbort", "NetworkDelay", "PodKill")
UNDONE_S = {"NoFault": 0.0, "HTTPResponseAbort": 0.25, "NetworkDelay": 0.6, "PodKill": 0.0}
"""How long each takes to be undone, which is no part of what users see."""
PLAN = f"campaign: played\nisolation: plain\nsystems:\n- system: {TINY}\n  faults:\n  - {{fault: NoFault}}\n" + "".join(
    f"  - {{fault: {kind}, targets: [front, middle, back]}}\n" for kind in KINDS
)
"""Ten plans: three faults on three services, and no fault."""


class Clock:
    """The time of a played system: `sleep` takes none."""

    def __init__(self) -> None:
        self.now_ns = BEGAN_NS

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)

    def time_ns(self) -> int:
        return self.now_ns


class Stage:
    """The substrate of played systems; it says which *plan* is carried out, and whether what breaks is *seen* by alerts."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.seen = clock, True
        self.plan: FaultPlan | None = None

    def require(self, *_args: object, **_named: object) -> None:
        """Everything can be carried out."""

    @contextmanager
    def deployed(self, system: System, name: str, *, seed: int, isolation: str) -> Iterator[Played]:
        """Return a played system; nothing runs."""
        yield Played(self, system, name, seed, isolation)


class Played:
    """A running system and its receiver, played: two requests a second, which fail as long as something is broken."""

    def __init__(self, stage: Stage, system: System, name: str, seed: int, isolation: str) -> None:
        self.stage, self.system, self.seed = stage, system, seed
        self.fleet = Fleet(system, seed)
        self.receiver = self
        self._status = SystemStatus(name=name, phase="ready", system=system.system, isolation=isolation)
        self._opened, self._broken = 0, range(0)
        self._folder = Path()

    def definition(self) -> System:
        return self.system

    def require(self, plan: FaultPlan) -> None:
        self.stage.plan = plan

    def status(self) -> SystemStatus:
        return self._status

    def flush(self) -> None:
        """Nothing is queued."""

    def ledger(self, since_ns: int) -> pl.DataFrame:
        return read_ledger(self._folder, since_ns)

    def open_session(self, directory: Path, name: str) -> None:  # noqa: ARG002 - the protocol's
        directory.mkdir()
        self._folder, self._opened = directory, self.stage.clock.now_ns

    def refresh(self, name: str) -> None:  # noqa: ARG002 - the protocol's
        for path in self._folder.iterdir():
            path.unlink()
        groups = [self._of(replica) for replica in self.fleet.replicas.values()]
        logs = ResourceLogs(scope_logs=[ScopeLogs(log_records=[self._line()])])
        bodies = {
            "traces": ExportTraceServiceRequest(resource_spans=groups),
            "logs": ExportLogsServiceRequest(resource_logs=[logs]),
            "metrics": None,
        }
        for signal, request in bodies.items():
            file = SpoolFile(spool_path(self._folder, signal))
            file.append(frame_header(self._opened, Kind.OPENED, b""), b"")
            if request is not None:
                body = request.SerializeToString()
                file.append(frame_header(self.stage.clock.now_ns, Kind.PROTOBUF, body), body)
            file.close()

    def close_session(self, name: str) -> SessionStats:
        self.refresh(name)
        return SessionStats(signals={}, name=name, directory=str(self._folder), opened_ns=self._opened)

    def inject(self, plan: FaultPlan) -> Iterator[dict[str, object]]:
        begun = self.stage.clock.now_ns
        self.stage.clock.sleep(plan.duration_s)
        self.stage.clock.sleep(sum(UNDONE_S[part.fault] for part in plan.parts))
        self._broken = range(begun, self.stage.clock.now_ns) if self.stage.seen else range(0)
        (part,) = plan.parts
        service = part.target and part.target.service
        fault = Fault(type=part.fault, service=service, start_ns=begun, end_ns=self.stage.clock.now_ns)
        root = RootLabel(service=(service,) if service else ())
        yield {
            "event": "done", "faults": [fault.model_dump()], "roots": [root.model_dump()], "effects": [],
            "recovered": True, "notes": [],
        }  # fmt: skip

    def _of(self, replica: Replica) -> ResourceSpans:
        attributes = [KeyValue(key=k, value=AnyValue(string_value=v)) for k, v in self.fleet.resource(replica).items()]
        times = range(self._opened, self.stage.clock.now_ns, TICK_NS)
        spans = [self._span(replica, number, at) for number, at in enumerate(times)]
        return ResourceSpans(resource=Resource(attributes=attributes), scope_spans=[ScopeSpans(spans=spans)])

    def _span(self, replica: Replica, number: int, at: int) -> Span:
        place = list(self.fleet.replicas).index(replica.id) + 1
        trace, parent = number + 1, (place - 1).to_bytes(8) if place > 1 else b""
        status = Status(code=Status.STATUS_CODE_ERROR) if at in self._broken else None
        return Span(
            trace_id=trace.to_bytes(16), span_id=(trace * 10 + place).to_bytes(8), name="GET /", parent_span_id=parent,
            kind=Span.SPAN_KIND_SERVER, start_time_unix_nano=at, end_time_unix_nano=at + 2_000_000, status=status,
        )  # fmt: skip

    def _line(self) -> LogRecord:
        """Return the log line that says the seed."""
        return LogRecord(time_unix_nano=self._opened, body=AnyValue(string_value=f"seed {self.seed}"))


def put_on(monkeypatch, clock: Clock) -> Stage:
    """Have recordings and campaigns take played systems with *clock*; return their substrate."""
    stage = Stage(clock)
    monkeypatch.setattr(
        "opsassay.testbed.recording.record.time", SimpleNamespace(sleep=clock.sleep, time_ns=clock.time_ns)
    )
    monkeypatch.setattr("opsassay.testbed.campaign.load_substrate", lambda: stage)
    return stage


def tiny() -> System:
    """Return the system of all of this."""
    return load_system(TINY)
