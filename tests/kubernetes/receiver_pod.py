"""The receiver's pod on the loopback of this machine: the real receiver, its real endpoint, and telemetry sent to it."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from itertools import count
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from aiohttp import web
from object_server import SmallCluster
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from opsassay.telemetry.otlp.client import ReceiverControl, start_receiver
from opsassay.testbed.substrates.kubernetes.agent.receiver import application

SECOND = 1_000_000_000
_NUMBERS = count(1)


class ReceiverPod:
    """A receiver with its state and spools below *folder*; sites are served by a thread of its own until `stop`."""

    def __init__(self, folder: Path) -> None:
        self.spools = folder / "spools"
        self.process = start_receiver(folder / "state", timeout_s=120)
        self.control = ReceiverControl(folder / "state")
        self._runners = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def address(self, key: str) -> str:
        """Open the endpoint of a container that has just begun; return its address."""
        return self.site(application(self.control, self.spools, key))

    def site(self, application: web.Application) -> str:
        """Serve *application*; return its address."""
        return asyncio.run_coroutine_threadsafe(self._site(application), self._loop).result(30)

    def stop(self) -> None:
        for runner in self._runners:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.process.stdin.close()
        self.process.wait()

    def send(self, request) -> None:
        """Send an export request of any signal, as an exporter in a pod does."""
        kind = type(request).__name__.removeprefix("Export").removesuffix("ServiceRequest").lower()
        signal = "traces" if kind == "trace" else kind
        url = f"http://127.0.0.1:{self.control.port}/v1/{signal}"
        headers = {"Content-Type": "application/x-protobuf"}
        with urlopen(Request(url, request.SerializeToString(), headers)) as answer:
            assert answer.status == 200

    async def _site(self, application):
        runner = web.AppRunner(application)
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"


class WatchedCluster(SmallCluster):
    """A small cluster whose receiver is a real one: the API server passes on what is meant for its endpoint."""

    def __init__(self, receiver):
        super().__init__()
        self.receiver, self.healthy = receiver, lambda: True
        self.texts |= {"/version": {"gitVersion": "v1.20.2"}, "/readyz": "ok"}
        self._address, self._opening = None, threading.Lock()

    def answer(self, method, path, query):
        parts = path.split("/")
        if "watch" in query:
            time.sleep(1.0)  # a watch in which nothing happens
        elif parts[-3:-1] == ["serviceaccounts", "operator"]:
            return 201, {"status": {"token": "t-1"}}
        elif "/services/probe:8080/proxy/" in path:
            return 200, {"status": 200 if self.healthy() else 502, "latency_s": 0.01, "error": ""}
        elif "/pods/receiver-1:9090/proxy/" in path:
            return self.passed_on(method, path, query)
        status, found = super().answer(method, path, query)
        if parts[-2:] == ["secrets", "endpoint-key"] and status == 200:
            found = {**found, "data": {"key": base64.b64encode(found["stringData"]["key"].encode()).decode()}}
        return status, found

    def passed_on(self, method, path, query):
        namespace, _, asked = path.partition("/pods/receiver-1:9090/proxy/")
        key = self.objects["Secret", namespace.rpartition("/")[2], "endpoint-key"]["stringData"]["key"]
        headers = next(sent for _, at, _, sent, _ in reversed(self.asked) if at == path)
        with self._opening:
            self._address = self._address or self.receiver.address(key)
        url = f"{self._address}/{asked}" + (f"?{urlencode(query)}" if query else "")
        with urlopen(Request(url, headers={"X-Endpoint-Key": headers["X-Endpoint-Key"]}, method=method)) as answer:
            body, kind = answer.read(), answer.headers["Content-Type"]
        return answer.status, json.loads(body) if "json" in kind else body


def handled(service, *ended_ns, failed=False, ms=10):
    """Return requests that *service* handled, each with a call to catalog below it, ended at these instants."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.extend(_pod(service))
    spans = group.scope_spans.add().spans
    code = Status.STATUS_CODE_ERROR if failed else Status.STATUS_CODE_UNSET
    for ended in ended_ns:
        number = next(_NUMBERS)
        trace, outer, inner = (number.to_bytes(size, "big") for size in (16, 8, 7))
        times = {"start_time_unix_nano": ended - ms * 1_000_000, "end_time_unix_nano": ended}
        spans.add(trace_id=trace, span_id=outer, name="GET /", kind=Span.SPAN_KIND_SERVER, status=Status(code=code),
                  attributes=[_pair("http.response.status_code", 500 if failed else 200)], **times)  # fmt: skip
        spans.add(trace_id=trace, span_id=b"\xff" + inner, parent_span_id=outer, name="GET /items",
                  kind=Span.SPAN_KIND_CLIENT, status=Status(code=code), **times)  # fmt: skip
    return request


def logged(service, message, at_ns, severity="ERROR"):
    """Return a log record of *service*."""
    request = ExportLogsServiceRequest()
    group = request.resource_logs.add()
    group.resource.attributes.extend(_pod(service))
    group.scope_logs.add().log_records.add(
        time_unix_nano=at_ns, severity_text=severity, severity_number=17, body=AnyValue(string_value=message)
    )
    return request


def measured(service, name, *values, at_ns):
    """Return readings of the gauge *name*, a second apart, the last at *at_ns*."""
    request = ExportMetricsServiceRequest()
    group = request.resource_metrics.add()
    group.resource.attributes.extend(_pod(service))
    points = group.scope_metrics.add().metrics.add(name=name).gauge.data_points
    for age, value in enumerate(reversed(values)):
        points.add(time_unix_nano=at_ns - age * SECOND, as_double=value)
    return request


class Users(threading.Thread):
    """Users of front while the block runs, some at once ten times a second, who fail while *failing* says so."""

    def __init__(self, pod: ReceiverPod, failing) -> None:
        super().__init__(name="users", daemon=True)
        self._pod, self._failing, self._over = pod, failing, threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.1):
            for name in ("loadgenerator", "front"):
                self._pod.send(handled(name, *([time.time_ns()] * 4), failed=self._failing()))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()


def _pod(service):
    return [_pair("service.name", service), _pair("k8s.pod.name", f"{service}-7f-x1")]


def _pair(key, value):
    return KeyValue(
        key=key, value=AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
    )
