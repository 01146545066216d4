"""What of a running system can be seen and broken: its load, spans and their parents, fault types of each service."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from opsassay.core.errors import UserError
from opsassay.core.schema.faults import CATALOGUE
from opsassay.core.schema.incident import FaultPlan, Window
from opsassay.core.schema.program import ENVOY
from opsassay.core.schema.system import Service, System
from opsassay.telemetry.otlp.seal import decode_spool
from opsassay.testbed.catalogue.fault import catalogued
from opsassay.testbed.core.substrate import RunningSystem
from opsassay.testbed.recording.backends import require_backends, with_backends
from opsassay.testbed.recording.baseline import user_requests
from opsassay.testbed.recording.record import unseen

if TYPE_CHECKING:
    import polars as pl

MOST_FAILURES = 0.05
WARM_UP_S = 8.0
"""How long programs have to fill caches and compile, before their requests are judged."""


@dataclass(frozen=True)
class ServiceCheck:
    """What was seen of one *service*: rows of telemetry, who calls it by its spans, the fault types that can hit it.

    *sidecar* is what its sidecar does, '' without one, and *by_sidecar* those of the types that it brings.
    """

    service: str
    spans: int
    logs: int
    callers: tuple[str, ...]
    faults: tuple[str, ...]
    sidecar: str = ""
    by_sidecar: tuple[str, ...] = ()


@dataclass(frozen=True)
class SystemCheck:
    """The services of a system, and in sentences what does not work, and what cannot be known of it as it is."""

    services: tuple[ServiceCheck, ...]
    findings: tuple[str, ...]
    not_known: tuple[str, ...] = ()


def check_system(running: RunningSystem, system: System, seconds: float) -> SystemCheck:
    """Observe *running* under its load for *seconds*, once warm, and report on its telemetry; no fault is injected."""
    require_backends(system)
    time.sleep(WARM_UP_S)
    start_ns = time.time_ns()
    with tempfile.TemporaryDirectory(prefix="opsassay-check-") as folder:
        spool = Path(folder) / "check"
        running.receiver.open_session(spool, spool.name)
        try:
            time.sleep(seconds)
            end_ns = time.time_ns()
            running.flush()
        finally:
            running.receiver.close_session(spool.name)
        frames, read_notes = with_backends(decode_spool(spool), system, Window(start_ns=start_ns, end_ns=end_ns))
    traces = frames["traces"]
    hops, served = _hops(traces), _count(traces.filter(traces["attr.span_kind"] == "Server"))
    spans, logs = (_count(frames[name]) for name in ("traces", "logs"))
    system = system.model_copy(update={"services": dict(_lasting(running, system))})
    services = tuple(
        _service_check(
            name,
            spans.get(name, 0),
            logs.get(name, 0),
            tuple(sorted(caller for caller, callee in hops if callee == name)),
            tuple(possible_faults(running, name)),
            sidecar=None if service.sidecar is None else name in served,
        )
        for name, service in system.services.items()
    )
    findings = (*_load_findings(traces, system, spans), *_trace_findings(system, traces, hops))
    return SystemCheck(services, findings, (*_read_from(read_notes), *_not_known(traces, system)))


def _read_from(notes: list[str]) -> Iterator[str]:
    """Yield one sentence that joins *notes* on what was read from backends; none without notes."""
    if notes:
        yield f"From backends: {'; '.join(one.rstrip('.') for one in notes)}."


def _not_known(traces: pl.DataFrame, system: System) -> Iterator[str]:
    """Yield sentences on what the telemetry of *system* cannot show: services without spans, a command's requests."""
    silent = _silent(system, traces) if _attached(system) else []
    if silent := [name for name in silent if system.services[name].sidecar is None]:
        at, more = "http://127.0.0.1:4318", f"give them `sidecar: {ENVOY}`, "
        if system.namespace is not None:
            at, more = f"http://receiver.{system.namespace.name}-watch:4318", ""
        yield (
            f"No spans of {', '.join(silent)}: containers that run are given no variables; {more}say where their spans are "
            f"with `backends`, or start them with OTEL_EXPORTER_OTLP_ENDPOINT={at}; without, requests are known from the "
            "load, not from them."
        )
    if system.load.command:
        words = unseen(system, traces)
        yield f"{words[0].upper()}{words[1:]}."
        yield "Trials do not judge what users lose (`v_users`), and no plan or scenario changes the load."


def _service_check(
    name: str, spans: int, logs: int, callers: tuple[str, ...], faults: tuple[str, ...], *, sidecar: bool | None
) -> ServiceCheck:
    """Return the report on the service *name*: numbers of *spans* and *logs*, *callers*, and possible *faults*.

    *sidecar*: whether a request passed its sidecar, None without one.
    """
    if sidecar is None:
        return ServiceCheck(name, spans, logs, callers, faults)
    state = "passes requests" if sidecar else "no request yet"
    brought = tuple(fault for fault in faults if catalogued(fault).by_sidecar)
    return ServiceCheck(name, spans, logs, callers, faults, state, brought)


def _lasting(running: RunningSystem, system: System) -> Iterator[tuple[str, Service]]:
    """Yield (name, service) of *system*, without jobs that have ended."""
    left = {replica.rpartition("-")[0] for replica in running.status().pids}
    for name, service in system.services.items():
        if service.program is None or service.program.restarts or name in left:
            yield name, service


def possible_faults(running: RunningSystem, service: str) -> Iterator[str]:
    """Yield the fault types that can be injected into *service* of *running* with their default parameters."""
    for name in CATALOGUE:
        plan = FaultPlan.model_validate({"fault": name, "target": {"service": service}})
        try:
            running.require(plan)
        except UserError:
            continue
        yield name


def _count(frame: pl.DataFrame) -> dict[str, int]:
    """Return {service: number of its rows in *frame*}."""
    return dict(frame.group_by("service_name").len().iter_rows())


def _hops(traces: pl.DataFrame) -> set[tuple[str, str]]:
    """Return the (caller, callee) pairs of services whose spans are parent and child."""
    parents = traces.select("trace_id", parent_span_id="span_id", caller="service_name")
    pairs = traces.join(parents, on=["trace_id", "parent_span_id"]).select("caller", "service_name").unique()
    return {(caller, callee) for caller, callee in pairs.iter_rows() if caller != callee}


def _attached(system: System) -> bool:
    """Return whether *system* is a compose project, or a namespace, that OpsAssay did not start."""
    return system.namespace is not None or (system.compose is not None and system.compose.attached is not None)


def _silent(system: System, traces: pl.DataFrame) -> list[str]:
    """Return the services, not stores, that have no span in *traces*."""
    seen = set(traces["service_name"])
    stores = {
        name for name, service in system.services.items() if service.program is not None and service.program.is_store
    }
    return [name for name in system.services if name not in seen | stores]


def _load_findings(traces: pl.DataFrame, system: System, spans: dict[str, int]) -> Iterator[str]:
    """Yield a sentence if no user request, or too many failed ones, are in *traces*; *spans* is service to count."""
    sent = user_requests(traces, system.seen_at())
    failed = sent.filter(sent["attr.status_code"] == "Error") if sent.height else sent
    if not sent.height and system.load.command:
        if quiet := sorted(system.seen_at() & spans.keys()):
            yield f"No request of {system.load.command_line} reached {', '.join(quiet)}: see `opsassay system logs`."
    elif not sent.height:
        yield "No request of the load was answered: see `load:` and the ports of the entry services."
    elif failed.height > MOST_FAILURES * sent.height:
        share = f"{failed.height} of {sent.height}"
        yield f"{share} requests of the load fail before anything is broken; mend that first (`opsassay system logs`)."


def _trace_findings(system: System, traces: pl.DataFrame, hops: set[tuple[str, str]]) -> Iterator[str]:
    """Yield sentences on services without spans and calls without a parent; *hops* are (caller, callee) of spans."""
    for name in _silent(system, traces):
        words = f"name its runtime, send OTLP to OTEL_EXPORTER_OTLP_ENDPOINT, or give it `sidecar: {ENVOY}`"
        if system.services[name].sidecar is not None:
            words = "no request reached its sidecar; see who calls it, and the load"
        elif _attached(system):
            continue  # of those it cannot be known
        elif system.compose is not None:
            words = f"send OTLP to OTEL_EXPORTER_OTLP_ENDPOINT, which it has, or give it `sidecar: {ENVOY}`"
        yield f"{name} sends no spans: {words}."
    seen = set(system.services) & set(traces["service_name"])
    broken = sorted((a, b) for a, b in system.calls() if a in seen and b in seen and (a, b) not in hops)
    stated = [(a, b) for a, b in broken if (program := system.services[a].program) is None or program.calls is not None]
    for caller, callee in stated:
        yield f"No span of {callee} has its parent in {caller}: {caller} does not pass `traceparent` on, or never calls it."
    for queue in (name for name, store in system.stores.items() if store.engine == "nats"):
        users = sorted(service for service, store in system.uses() if store == queue and service in seen)
        alone = [one for one in users if not any(one in hop for hop in hops)]
        if alone:
            whose = ", ".join(alone)
            yield f"Spans of {whose} have no parents across {queue}: pass `traceparent` on in the message's headers."
