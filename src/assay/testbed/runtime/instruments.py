"""OpenTelemetry in one process of a system: spans, logs and metrics over OTLP/HTTP to the receiver."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import psutil
from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

EXPORT_EVERY_S = 0.5
METRICS_EVERY_S = 5.0
QUEUE_SPANS = 32_768
SEVERITIES = {
    "DEBUG": SeverityNumber.DEBUG,
    "INFO": SeverityNumber.INFO,
    "WARN": SeverityNumber.WARN,
    "ERROR": SeverityNumber.ERROR,
}


class Instruments:
    """Tracer, logger and meters of one process; *resource* are its OpenTelemetry resource attributes."""

    def __init__(self, endpoint: str, resource: Mapping[str, str], *, metrics: bool = True) -> None:
        described = Resource(dict(resource))
        self._traces = TracerProvider(resource=described, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces", timeout=5)
        self._traces.add_span_processor(
            BatchSpanProcessor(exporter, max_queue_size=QUEUE_SPANS, schedule_delay_millis=EXPORT_EVERY_S * 1e3)
        )
        self.tracer = self._traces.get_tracer("assay.runtime")
        self._logs = LoggerProvider(resource=described, shutdown_on_exit=False)
        self._logs.add_log_record_processor(
            BatchLogRecordProcessor(OTLPLogExporter(endpoint=f"{endpoint}/v1/logs", timeout=5), EXPORT_EVERY_S * 1e3)
        )
        self._logger = self._logs.get_logger("assay.runtime")
        if metrics:
            self._start_metrics(endpoint, described)

    def _start_metrics(self, endpoint: str, resource: Resource) -> None:
        exporter = OTLPMetricExporter(endpoint=f"{endpoint}/v1/metrics", timeout=5)
        reader = PeriodicExportingMetricReader(exporter, METRICS_EVERY_S * 1e3)
        self._metrics = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        meter = self._metrics.get_meter("assay.runtime")
        self.server_duration = meter.create_histogram("http.server.request.duration", "s")
        process = psutil.Process()

        def memory(_: CallbackOptions) -> list[Observation]:
            return [Observation(process.memory_info().rss)]

        def threads(_: CallbackOptions) -> list[Observation]:
            return [Observation(process.num_threads())]

        meter.create_observable_gauge("process.runtime.memory", [memory], "By")
        meter.create_observable_gauge("process.runtime.thread_count", [threads], "{thread}")

    def log(self, level: str, message: str) -> None:
        """Emit a log record in the present trace context."""
        context = trace.get_current_span().get_span_context()
        self._logger.emit(
            LogRecord(
                timestamp=time.time_ns(),
                trace_id=context.trace_id,
                span_id=context.span_id,
                trace_flags=context.trace_flags,
                severity_text=level,
                severity_number=SEVERITIES[level],
                body=message,
            )
        )

    def flush(self) -> None:
        """Send what is queued; blocks up to a few seconds."""
        self._traces.force_flush(5_000)
        self._logs.force_flush(5_000)


def span_ids(span: Any) -> dict[str, str]:
    """Return trace_id and span_id of *span* in lower-case hexadecimal, as they stand in the tables."""
    context = span.get_span_context()
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
