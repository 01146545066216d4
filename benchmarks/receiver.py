"""How many spans a second the OTLP receiver takes on one core, at what cost, against a handler that decodes each span.

Client processes post batches of 512 spans, encoded by the OpenTelemetry SDK as its exporter does, over kept connections.
The peer is the same aiohttp server with the handler that one would write first: opentelemetry-proto objects, a dictionary
for each span. Rounds alternate, servers are started anew and held to one core if there are two. The ratio is one of CPU
time: spans/s of wall clock also measure what else runs on that core, which "waited" shows (time ready but not running).
Run: ``python benchmarks/receiver.py [SECONDS]``.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from aiohttp import web
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind

from opsassay.telemetry.otlp.client import ReceiverControl, start_receiver
from opsassay.telemetry.otlp.seal import decode_spool

SPANS_PER_BATCH = 512
CLIENTS = 4
BODIES_PER_CLIENT = 16
ROUNDS = 3


@dataclass(frozen=True)
class Load:
    """What the clients saw."""

    spans: int
    seconds: float
    refused: int


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 8.0
    bodies = [make_bodies(client) for client in range(CLIENTS)]
    size = sum(len(body) for client in bodies for body in client) / (CLIENTS * BODIES_PER_CLIENT)
    print(f"{CLIENTS} client processes, batches of {SPANS_PER_BATCH} spans, {size / 1000:.0f} kB each, {seconds:g} s")
    rounds = [(measure_receiver(bodies, seconds), measure_peer(bodies, seconds)) for _ in range(ROUNDS)]
    ours, peer = (statistics.median(costs) for costs in zip(*rounds, strict=True))
    print(f"median CPU s per 100,000 spans: receiver {ours:.3f}, per-span handler {peer:.3f}: {peer / ours:.1f}x less")
    with tempfile.TemporaryDirectory() as folder:
        print(f"seal of distinct spans: {decode_rate(Path(folder)):,.0f} spans per CPU s")


def make_bodies(seed: int) -> list[bytes]:
    """Return export requests of server and client spans with the attributes of HTTP and database instrumentation."""
    collected: list[ReadableSpan] = []

    class Collect(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            collected.extend(spans)
            return SpanExportResult.SUCCESS

    service = f"service-{seed}"
    resource = {"service.name": service, "k8s.pod.name": f"{service}-0", "k8s.namespace.name": "shop"}
    provider = TracerProvider(resource=Resource.create(resource))
    provider.add_span_processor(SimpleSpanProcessor(Collect()))
    tracer, chance = provider.get_tracer("benchmark"), random.Random(seed)
    while len(collected) < BODIES_PER_CLIENT * SPANS_PER_BATCH:
        with tracer.start_as_current_span("GET /cart/{id}", kind=SpanKind.SERVER, attributes=http_attributes(chance)):
            for _ in range(3):
                with tracer.start_as_current_span(
                    "SELECT", kind=SpanKind.CLIENT, attributes=database_attributes(chance)
                ):
                    pass
    starts = range(0, BODIES_PER_CLIENT * SPANS_PER_BATCH, SPANS_PER_BATCH)
    return [encode_spans(collected[at : at + SPANS_PER_BATCH]).SerializeToString() for at in starts]


def http_attributes(chance: random.Random) -> dict[str, str | int]:
    return {
        "http.request.method": "GET",
        "http.response.status_code": chance.choice((200, 200, 404, 503)),
        "http.response.body.size": chance.randrange(100_000),
        "url.path": f"/cart/{chance.randrange(10**6)}",
        "url.scheme": "http",
        "server.address": "cart",
        "server.port": 8080,
        "user_agent.original": "python-requests/2.32",
        "network.protocol.version": "1.1",
    }


def database_attributes(chance: random.Random) -> dict[str, str | int]:
    return {
        "db.system.name": "postgresql",
        "db.query.text": f"SELECT * FROM items WHERE id = {chance.randrange(10**6)}",
        "db.namespace": "shop",
        "server.address": "db",
        "server.port": 5432,
    }


def measure_receiver(bodies: list[list[bytes]], seconds: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        state, recording = Path(folder, "state"), Path(folder, "recording")
        process = start_receiver(state)
        try:
            use_core(process.pid, 0)
            control = ReceiverControl(state)
            control.open_session(recording, "benchmark")
            cpu_s, waited_s = control.stats().cpu_s, waited_for_core(process.pid)
            load = drive(control.port, bodies, seconds)
            cpu_s = control.stats().cpu_s - cpu_s
            waited_s = waited_for_core(process.pid) - waited_s
            stats = control.close_session("benchmark")
        finally:
            process.communicate()
        kept = stats.signals["traces"].kept_items
        print(f"  kept {kept} of {load.spans} acknowledged, refused {load.refused}, drop rate {stats.drop_rate:g}")
    return report("opsassay receiver", load, cpu_s, waited_s)


def decode_rate(folder: Path) -> float:
    from opsassay.telemetry.otlp.spool import Kind, SpoolFile, frame_header, spool_path

    files = {signal: SpoolFile(spool_path(folder, signal)) for signal in ("traces", "metrics", "logs")}
    for body in (body for seed in range(10, 20) for body in make_bodies(seed)):
        files["traces"].append(frame_header(1, Kind.PROTOBUF, body), body)
    for file in files.values():
        file.close()
    begun = time.process_time()
    return decode_spool(folder)["traces"].height / (time.process_time() - begun)


def measure_peer(bodies: list[list[bytes]], seconds: float) -> float:
    parent, child = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve_peer, args=(child,))
    process.start()
    port = parent.recv()
    use_core(process.pid or 0, 0)
    parent.send("cpu")
    cpu_s, waited_s = parent.recv(), waited_for_core(process.pid or 0)
    load = drive(port, bodies, seconds)
    parent.send("cpu")
    cpu_s = parent.recv() - cpu_s
    waited_s = waited_for_core(process.pid or 0) - waited_s
    process.terminate()
    process.join()
    return report("per-span handler", load, cpu_s, waited_s)


def serve_peer(pipe: Any) -> None:
    """Keep each span as a line of JSON, decoded field by field with opentelemetry-proto."""

    async def serve() -> None:
        with tempfile.TemporaryFile("w") as sink:

            async def export(request: web.Request) -> web.Response:
                message = ExportTraceServiceRequest.FromString(await request.read())
                for group in message.resource_spans:
                    resource = {pair.key: plain(pair.value) for pair in group.resource.attributes}
                    for scope in group.scope_spans:
                        sink.writelines(json.dumps(span_row(span, resource)) + "\n" for span in scope.spans)
                sink.flush()
                return web.Response(content_type="application/x-protobuf")

            application = web.Application(client_max_size=16 * 1024 * 1024)
            application.router.add_post("/v1/traces", export)
            runner = web.AppRunner(application, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            pipe.send(runner.addresses[0][1])
            while await asyncio.to_thread(pipe.recv):
                pipe.send(time.process_time())

    asyncio.run(serve())


def span_row(span: Any, resource: dict[str, Any]) -> dict[str, Any]:
    return {
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_span_id": span.parent_span_id.hex(),
        "name": span.name,
        "kind": span.kind,
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "status": span.status.code,
        "attributes": {pair.key: plain(pair.value) for pair in span.attributes},
        "service": resource.get("service.name"),
    }


def plain(value: Any) -> Any:
    form = value.WhichOneof("value")
    return getattr(value, form) if form else None


def drive(port: int, bodies: list[list[bytes]], seconds: float) -> Load:
    """Post from every client process for *seconds*; return what was acknowledged."""
    context = multiprocessing.get_context("spawn")
    go, results = context.Event(), context.Queue()
    clients = [context.Process(target=post, args=(port, own, seconds, go, results)) for own in bodies]
    for client in clients:
        client.start()
    for _ in clients:
        results.get(timeout=60)  # each says that it is ready
    begun = time.perf_counter()
    go.set()
    answers = [results.get(timeout=seconds + 60) for _ in clients]
    elapsed = time.perf_counter() - begun
    for client in clients:
        client.join()
    return Load(sum(spans for spans, _ in answers), elapsed, sum(refused for _, refused in answers))


def post(port: int, bodies: list[bytes], seconds: float, go: Event, results: Any) -> None:
    use_core(os.getpid(), 1)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    acknowledged = refused = number = 0
    results.put("ready")
    go.wait()
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        connection.request(
            "POST", "/v1/traces", bodies[number % len(bodies)], {"Content-Type": "application/x-protobuf"}
        )
        with connection.getresponse() as answer:
            answer.read()
            acknowledged += SPANS_PER_BATCH * (answer.status == 200)
            refused += SPANS_PER_BATCH * (answer.status != 200)
        number += 1
    connection.close()
    results.put((acknowledged, refused))


def use_core(pid: int, core: int) -> None:
    """Pin a process, so that "one core" is one and the clients have another."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > core:
        os.sched_setaffinity(pid, {cores[core]})


def report(name: str, load: Load, cpu_s: float, waited_s: float) -> float:
    rate, cost = load.spans / load.seconds, cpu_s / load.spans * 100_000
    waited = waited_s / load.seconds
    print(f"{name:>18}: {rate:>10,.0f} spans/s, {cost:.3f} CPU s per 100,000 spans, waited {waited:.0%} for its core")
    return cost


def waited_for_core(pid: int) -> float:
    """Return how long the main thread of *pid* was ready to run and did not, in seconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


if __name__ == "__main__":
    main()
