"""Graded runs as OpenTelemetry data: gen_ai spans, and a ``gen_ai.evaluation.result`` event for each metric.

Events are log records attached to the root span, as the semantic conventions for generative AI define.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.run import Metric, MetricStatus, Verdict
from opsassay.evals.runner.store import RunStore, read_run, read_verdicts
from opsassay.solvers.agents.record import TRACE
from opsassay.solvers.proxy.formats import read_one
from opsassay.solvers.proxy.formats.gen_ai import export_otlp
from opsassay.telemetry.otlp.forwarding import post

EVENT = "gen_ai.evaluation.result"
_INFO = 9
_IDS = frozenset({"traceId", "spanId", "parentSpanId"})


@dataclass(frozen=True)
class ExportedRun:
    """One run as two OTLP exports in JSON: its *spans*, and its *events*, one for each of its *metrics*."""

    run: str
    spans: Mapping[str, Any]
    events: Mapping[str, Any]
    metrics: int


def exported_runs(
    store: RunStore, on_left_out: Callable[[Path, str], None], *, folders: Container[Path] | None = None
) -> Iterator[ExportedRun]:
    """Yield every run of *store* with a trace and a verdict; *on_left_out* is called with other folders and the reason.

    *folders* limits it to these run folders; None: all.
    """
    for run_dir in store.runs():
        if folders is not None and run_dir not in folders:
            continue
        try:
            verdicts = read_verdicts(run_dir)
            if not (run_dir / TRACE).exists():
                on_left_out(run_dir, f"it has no {TRACE}")
            elif not verdicts:
                on_left_out(run_dir, "it is not graded; `opsassay score run` does it")
            else:
                yield _export_run(run_dir, verdicts)
        except OpsAssayError as error:
            on_left_out(run_dir, str(error))


def push(run: ExportedRun, url: str) -> None:
    """Send the spans and events of *run* to the OTLP/HTTP receiver at *url* as protobuf; raises as `post`."""
    push_spans(run.spans, url)
    push_events(run.events, url)


def push_spans(spans: Mapping[str, Any], url: str) -> None:
    """Send *spans*, an OTLP export in JSON, to the receiver at *url*; raises as `post`."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    post(url, "traces", _serialise_message(spans, ExportTraceServiceRequest()))


def push_events(events: Mapping[str, Any], url: str) -> None:
    """Send *events*, an OTLP export in JSON, to the receiver at *url*; raises as `post`."""
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    post(url, "logs", _serialise_message(events, ExportLogsServiceRequest()))


def _export_run(run_dir: Path, verdicts: list[Verdict]) -> ExportedRun:
    """Return the run's spans, and one event per metric of *verdicts*, attached to its first span."""
    spans, run = export_otlp(read_one(run_dir), verdicts[0].run), read_run(run_dir)
    root = spans["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    about = {"opsassay.run": verdicts[0].run, "opsassay.item": verdicts[0].item, "opsassay.solver": run.solver.label}
    records = [
        _metric_event(root, name, metric, about | {"opsassay.profile": verdict.profile})
        for verdict in verdicts
        for name, metric in verdict.metrics.items()
    ]
    scope = {"scope": {"name": "opsassay"}, "logRecords": records}
    resource = spans["resourceSpans"][0]["resource"]
    events = {"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]}
    return ExportedRun(verdicts[0].run, spans, events, len(records))


def _metric_event(root: Mapping[str, Any], name: str, metric: Metric, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the OTLP log record of *metric* called *name*, attached to span *root*: its score, or why it has none."""
    attributes = [
        _text_attribute("gen_ai.evaluation.name", name),
        *(_text_attribute(key, value) for key, value in labels.items()),
    ]
    if metric.value is not None:
        attributes.append({"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": metric.value}})
    else:
        attributes.append(_text_attribute("gen_ai.evaluation.score.label", metric.status.value))
    if metric.reason:
        attributes.append(_text_attribute("gen_ai.evaluation.explanation", metric.reason))
    if metric.status is MetricStatus.FAILED:
        attributes.append(_text_attribute("error.type", "failed_to_grade"))
    return {
        "timeUnixNano": root["endTimeUnixNano"], "severityNumber": _INFO, "severityText": "INFO", "eventName": EVENT,
        "body": {"stringValue": EVENT}, "attributes": attributes, "traceId": root["traceId"], "spanId": root["spanId"],
    }  # fmt: skip


def _text_attribute(key: str, value: str) -> dict[str, Any]:
    """Return an OTLP attribute *key* with a string value."""
    return {"key": key, "value": {"stringValue": value}}


def _serialise_message(content: Mapping[str, Any], message: Any) -> bytes:
    """Return OTLP JSON *content* serialised as the protobuf message type *message*."""
    from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]

    packed: bytes = ParseDict(with_base64(content), message).SerializeToString()
    return packed


def with_base64(value: Any) -> Any:
    """Return OTLP JSON *value* with its hexadecimal ids in base64, as protobuf's JSON parser expects."""
    if isinstance(value, Mapping):
        return {
            key: b64encode(bytes.fromhex(inner)).decode() if key in _IDS else with_base64(inner)
            for key, inner in value.items()
        }
    return [with_base64(one) for one in value] if isinstance(value, list) else value
