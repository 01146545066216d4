"""OpenTelemetry in one process of a system: spans, logs and metrics over OTLP/HTTP to the receiver."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from opentelemetry.trace import Span, SpanKind

from opsassay.testbed.workload.runtime.clock import Clock
from opsassay.testbed.workload.runtime.program_output import OutputLine

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
        self.clock = Clock()
        self._traces = TracerProvider(resource=described, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces", timeout=5)
        self._traces.add_span_processor(
            BatchSpanProcessor(exporter, max_queue_size=QUEUE_SPANS, schedule_delay_millis=EXPORT_EVERY_S * 1e3)
        )
        self._tracer = self._traces.get_tracer("opsassay.runtime")
        self._logs = LoggerProvider(resource=described, shutdown_on_exit=False)
        self._logs.add_log_record_processor(
            BatchLogRecordProcessor(OTLPLogExporter(endpoint=f"{endpoint}/v1/logs", timeout=5), EXPORT_EVERY_S * 1e3)
        )
        self._logger = self._logs.get_logger("opsassay.runtime")
        self._metrics = self._start_metrics(endpoint, described) if metrics else None

    def _start_metrics(self, endpoint: str, resource: Resource) -> MeterProvider:
        """Start to export the runtime's metrics (memory, threads, CPU, collections) of *resource* to *endpoint*."""
        exporter = OTLPMetricExporter(endpoint=f"{endpoint}/v1/metrics", timeout=5)
        reader = PeriodicExportingMetricReader(exporter, METRICS_EVERY_S * 1e3)
        provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        meter = provider.get_meter("opsassay.runtime")
        self.server_duration = meter.create_histogram("http.server.request.duration", "s")
        self._collection_duration = meter.create_histogram("process.runtime.gc.duration", "s")
        self.collections = Collections()
        process = psutil.Process()

        def memory(_: CallbackOptions) -> list[Observation]:
            return [Observation(process.memory_info().rss)]

        def cpu(_: CallbackOptions) -> list[Observation]:
            return [Observation(time.process_time())]

        def threads(_: CallbackOptions) -> list[Observation]:
            return [Observation(process.num_threads())]

        meter.create_observable_gauge("process.runtime.memory", [memory], "By")
        meter.create_observable_gauge("process.runtime.thread_count", [threads], "{thread}")
        meter.create_observable_counter("process.runtime.cpu.time", [cpu], "s")
        return provider

    @contextmanager
    def span(
        self, name: str, kind: SpanKind, attributes: Mapping[str, str] | None = None, context: Any = None
    ) -> Iterator[Span]:
        """Run the block in a span *name*, whose start is by this process's (possibly wrong) clock; yield the span.

        *context* is that of its parent, None: the current one.
        """
        start_ns, began_ns = self.clock.time_ns(), time.perf_counter_ns()
        span = self._tracer.start_span(name, context, kind, dict(attributes or {}), start_time=start_ns)
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield span
        finally:
            span.end(start_ns + time.perf_counter_ns() - began_ns)

    def record_collections(self) -> None:
        """Record the garbage collection pauses since the last call in the histogram metric."""
        while self.collections.pauses_s:
            self._collection_duration.record(self.collections.pauses_s.popleft())

    def log(self, level: str, message: str) -> None:
        """Emit a log record of *level* ("INFO", "ERROR") with *message* in the current trace context."""
        context = trace.get_current_span().get_span_context()
        self._logger.emit(
            LogRecord(
                timestamp=self.clock.time_ns(),
                trace_id=context.trace_id,
                span_id=context.span_id,
                trace_flags=context.trace_flags,
                severity_text=level,
                severity_number=SEVERITIES[level],
                body=message,
            )
        )

    def record(self, output_line: OutputLine) -> None:
        """Emit *output_line*, a parsed line of a program's output, as a log record."""
        self._logger.emit(
            LogRecord(
                timestamp=self.clock.time_ns(),
                trace_id=output_line.trace_id,
                span_id=output_line.span_id,
                severity_text=output_line.level,
                severity_number=SeverityNumber(output_line.number),
                body=output_line.body,
            )
        )

    def flush(self) -> None:
        """Export all queued telemetry; blocks for up to a few seconds."""
        self._traces.force_flush(5_000)
        self._logs.force_flush(5_000)
        if self._metrics is not None:
            self.record_collections()
            self._metrics.force_flush(5_000)


class Collections:
    """Listens to the garbage collector of this process: *pauses_s* since they were last taken, *total_s* since the start.

    Its callback only notes numbers: it runs in the middle of any allocation, where no lock may be taken.
    """

    def __init__(self) -> None:
        self.pauses_s: deque[float] = deque(maxlen=10_000)
        self.total_s = 0.0
        self._began = 0.0
        gc.callbacks.append(self._note_pause)

    def _note_pause(self, phase: str, _: Mapping[str, int]) -> None:
        """Record the duration of a garbage collection; *phase* is "start" or "stop"; called by gc."""
        if phase == "start":
            self._began = time.perf_counter()
            return
        pause = time.perf_counter() - self._began
        self.total_s += pause
        self.pauses_s.append(pause)


def span_ids(span: Any) -> dict[str, str]:
    """Return {trace_id, span_id} of *span* in lower-case hexadecimal."""
    context = span.get_span_context()
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
