"""Small deterministic datapacks with a known cascade: a call tree with exclusive times, and what a fault does to it.

The simulator knows nothing of `opsassay.annotation`: it walks the tree request by request and writes the spans that
services with OpenTelemetry would write (client span, server span under it, store calls as client spans without a child,
messages as producer and consumer).
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from opsassay.core.schema.incident import Fault, Incident, Window
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack

NANO = 1_000_000_000
EPOCH = 1_700_000_000 * NANO
SECONDS = 60
NET_MS = 1.0


@dataclass(frozen=True)
class Call:
    """A request to *service*; *way* is call, message (asynchronous) or store; an *optional* one may fail unnoticed.

    After *breaker* failures in a row the caller makes no such call for three seconds, and fails at once.
    The caller of a *demanding* one fails by itself when the answer is hollow: changed, or made without an optional part.
    """

    service: str
    operation: str
    own_ms: float = 10.0
    calls: tuple[Call, ...] = ()
    way: str = "call"
    optional: bool = False
    attempts: int = 1
    timeout_ms: float = 60_000.0
    parallel: bool = False
    demanding: bool = False
    breaker: int = 0


@dataclass(frozen=True)
class Effect:
    """What goes wrong in the abnormal window, from *from_s* to *to_s* after its start, by service.

    *directed_ms* slows down calls of a caller to a callee, either of which may be ``*``; by *queued_ms* at most do calls
    wait for a callee that has no room for them, one hardly and another for long.
    """

    own_ms: dict[str, float] = field(default_factory=dict)
    store_ms: dict[str, float] = field(default_factory=dict)
    link_ms: dict[str, float] = field(default_factory=dict)
    link_share: float = 1.0
    directed_ms: dict[tuple[str, str], float] = field(default_factory=dict)
    queued_ms: dict[tuple[str, str], float] = field(default_factory=dict)
    fails: dict[str, float] = field(default_factory=dict)
    changes: dict[str, float] = field(default_factory=dict)
    spoils: dict[str, float] = field(default_factory=dict)
    skips: dict[str, float] = field(default_factory=dict)
    misleads: dict[str, str] = field(default_factory=dict)
    store_fails: dict[str, float] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    cpu: dict[str, float] = field(default_factory=dict)
    restarts: frozenset[str] = frozenset()
    redelivered: bool = False
    from_s: float = 2.0
    to_s: float = 60.0


CALM = Effect()


class _Recorder:
    def __init__(self, effect: Effect, period: str, start_ns: int, seed: int) -> None:
        self.effect, self.period, self.start_ns = effect, period, start_ns
        self.random = random.Random(f"{seed}-{period}")
        self.ids = itertools.count(1)
        self.rows: list[dict[str, object]] = []
        self.hollow = False
        self.circuits: dict[tuple[str, str], tuple[int, float]] = {}

    def acts(self, at_ms: float) -> bool:
        return self.period == "abnormal" and self.effect.from_s * 1e3 <= at_ms < self.effect.to_s * 1e3

    def jitter(self, ms: float) -> float:
        return ms * self.random.lognormvariate(0.0, 0.2)

    def span(self, trace, parent, kind, service, name, start, end, *, ok=True, code=None, size=None) -> None:
        identity = parent[1]
        self.rows.append(
            {
                "time": self.start_ns + round(start * 1e6),
                "trace_id": trace,
                "span_id": identity,
                "parent_span_id": parent[0],
                "span_name": name,
                "service_name": service,
                "duration": max(round((end - start) * 1e6), 1),
                "attr.span_kind": kind,
                "attr.status_code": "Unset" if ok else "Error",
                "attr.http.response.status_code": code,
                "attr.http.response.content_length": size,
                "attr.k8s.pod.name": f"{service}-0",
            }
        )

    def new_id(self) -> str:
        return f"{self.period[0]}{next(self.ids):08x}"

    def link(self, a: str, b: str, at: float) -> float:
        ways = [self.effect.directed_ms.get(way, 0.0) for way in ((a, b), (a, "*"), ("*", b))]
        ends = [self.effect.link_ms.get(end, 0.0) for end in (a, b)]
        extra = max(*ends, *ways) if self.acts(at) else 0.0
        if extra and self.effect.link_share < 1.0 and self.random.random() >= self.effect.link_share:
            extra = 0.0  # this packet was not among the lost ones
        if (a, b) in self.effect.queued_ms and self.acts(at):
            extra += self.random.uniform(0.0, self.effect.queued_ms[a, b])
        return NET_MS + extra / 2

    def exit(self, trace: str, caller: str, parent: str, call: Call, start: float) -> tuple[float, bool]:
        """Make one outgoing call with its attempts; return when it ended and whether it went well."""
        now, ok = start, False
        failures, open_until = self.circuits.get((caller, call.service), (0, 0.0))
        if call.breaker and start < open_until:
            return start, False
        for _ in range(call.attempts):
            now, ok = self.attempt(trace, caller, parent, call, now)
            if ok:
                break
        failures = 0 if ok else failures + 1
        self.circuits[caller, call.service] = (failures, now + 3000.0 if failures >= call.breaker else 0.0)
        return now, ok

    def attempt(self, trace: str, caller: str, parent: str, call: Call, start: float) -> tuple[float, bool]:
        mine = self.new_id()
        self.hollow = False
        if call.way == "store":
            bad = self.acts(start) and self.random.random() < self.effect.store_fails.get(caller, 0.0)
            slow = self.effect.store_ms.get(caller, 0.0) if self.acts(start) else 0.0
            end = start + self.jitter(call.own_ms) + slow + 2 * (self.link(caller, call.service, start) - NET_MS)
            self.span(trace, (parent, mine), "Client", caller, call.operation, start, end, ok=not bad)
            return end, not bad
        if call.way == "message":
            self.span(trace, (parent, mine), "Producer", caller, f"publish {call.operation}", start, start + 1)
            gone = self.acts(start) and call.service in self.effect.gone
            if not gone:
                self.serve(trace, mine, call, start + 5, "Consumer", f"process {call.operation}")
            elif self.effect.redelivered:
                later = self.effect.to_s * 1e3 + self.random.random() * 500
                self.serve(trace, mine, call, later, "Consumer", f"process {call.operation}")
            return start + 1, True
        if self.acts(start) and call.service in self.effect.gone:
            self.span(trace, (parent, mine), "Client", caller, call.operation, start, start + 2, ok=False)
            return start + 2, False
        if self.acts(start) and caller in self.effect.misleads:
            other = self.effect.misleads[caller]
            self.span(trace, (mine, self.new_id()), "Server", other, "GET", start + 1, start + 2, code=404)
            self.span(trace, (parent, mine), "Client", caller, call.operation, start, start + 3, ok=False, code=404)
            return start + 3, False
        there = self.link(caller, call.service, start)
        end, ok = self.serve(trace, mine, call, start + there, "Server", call.operation)
        end += self.link(caller, call.service, start)
        if end - start > call.timeout_ms:
            end, ok = start + call.timeout_ms, False
        if self.acts(start) and self.random.random() < self.effect.spoils.get(call.service, 0.0):
            ok = False
        self.span(trace, (parent, mine), "Client", caller, call.operation, start, end, ok=ok)
        return end, ok

    def serve(self, trace: str, parent: str, call: Call, start: float, kind: str, name: str) -> tuple[float, bool]:
        mine = self.new_id()
        own = self.jitter(call.own_ms) + (self.effect.own_ms.get(call.service, 0.0) if self.acts(start) else 0.0)
        now, ok, hollow = start + own / 2, True, False
        if self.acts(start) and self.random.random() < self.effect.fails.get(call.service, 0.0):
            now, ok = start + 1, False
        elif self.acts(start) and self.random.random() < self.effect.skips.get(call.service, 0.0):
            now = start + 0.2  # it answers without asking anyone
        else:
            ends = [now]
            for child in call.calls:
                end, went = self.exit(trace, call.service, mine, child, now)
                ends.append(end)
                if not call.parallel:
                    now = end
                hollow |= self.hollow or not went
                if (not went and not child.optional) or (child.demanding and self.hollow):
                    ok = False
                    break
            now = max(ends) + own / 2
        changed = self.acts(start) and self.random.random() < self.effect.changes.get(call.service, 0.0)
        self.hollow = ok and (hollow or changed)
        size = 2 if changed else 500 + self.random.randrange(20)
        code = 200 if ok else 500
        self.span(trace, (parent, mine), kind, call.service, name, start, now, ok=ok, code=code, size=size)
        return now, ok


def frames(
    requests: dict[Call, float], effect: Effect = CALM, seed: int = 0, shift_ns: int = 0
) -> dict[tuple[str, str], pl.DataFrame]:
    """Return the tables of a datapack: *requests* gives the rate per second of each entrance."""
    tables: dict[tuple[str, str], pl.DataFrame] = {}
    for index, period in enumerate(("normal", "abnormal")):
        recorder = _Recorder(effect, period, EPOCH + shift_ns + index * SECONDS * NANO, seed)
        for position, (call, rate) in enumerate(requests.items()):
            for number in range(int(SECONDS * rate)):
                at = (number + recorder.random.random()) / rate * 1e3
                recorder.exit(f"{period[0]}-{position}-{number}", "loadgenerator", "", call, at)
        rows = pl.DataFrame(recorder.rows, infer_schema_length=None)
        tables[period, "traces"] = rows.with_columns(pl.col("time").cast(pl.Datetime("ns", "UTC")))
        services = sorted(set(rows["service_name"]) - {"loadgenerator"})
        tables[period, "metrics"] = _metrics(services, recorder)
    return tables


def _metrics(services: list[str], recorder: _Recorder) -> pl.DataFrame:
    rows = []
    for second, service in itertools.product(range(0, SECONDS, 5), services):
        acting = recorder.acts(second * 1e3)
        cpu = 0.05 + 0.002 * recorder.random.random() + (recorder.effect.cpu.get(service, 0.0) if acting else 0.0)
        restarts = 1.0 if acting and service in recorder.effect.restarts else 0.0
        for metric, value in (("container.cpu.usage", cpu), ("k8s.container.restarts", restarts)):
            rows.append(
                {
                    "time": recorder.start_ns + second * NANO,
                    "metric": metric,
                    "value": value,
                    "service_name": service,
                    "attr.k8s.pod.name": f"{service}-0",
                }
            )
    return pl.DataFrame(rows).with_columns(pl.col("time").cast(pl.Datetime("ns", "UTC")))


def incident(shift_ns: int = 0) -> Incident:
    """Return the description that goes with `frames`."""
    middle = EPOCH + shift_ns + SECONDS * NANO
    return Incident(
        id="0" * 16,
        system="cascade",
        normal=Window(start_ns=middle - SECONDS * NANO, end_ns=middle),
        abnormal=Window(start_ns=middle, end_ns=middle + SECONDS * NANO),
    )


def make_pack(folder: Path, requests: dict[Call, float], effect: Effect = CALM, seed: int = 0) -> Datapack:
    """Write a datapack into the new *folder* and open it."""
    write_datapack(folder, frames(requests, effect, seed), incident(), {})
    return Datapack.open(folder)


def fault(type_: str, service: str | None, effect: Effect = CALM, shift_ns: int = 0, **more: object) -> Fault:
    """Return the fault that *effect* stands for."""
    start = EPOCH + shift_ns + SECONDS * NANO
    return Fault(
        type=type_,
        service=service,
        start_ns=start + int(effect.from_s * NANO),
        end_ns=start + int(effect.to_s * NANO),
        **more,
    )
