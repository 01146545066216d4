"""Backends made by code that answer in the documented forms of Loki, Tempo, Jaeger and Prometheus."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

BEGIN_S = 1_767_323_000
SECOND = 10**9
NORMAL = "2026-01-02T03:03:20Z..2026-01-02T03:04:20Z"
ABNORMAL = "2026-01-02T03:04:20Z..2026-01-02T03:05:20Z"
"""Two minutes from BEGIN_S on."""


class Store:
    """One backend at *url* while `serving` runs; *asked* are the requests it got, *spoil* may answer instead of it."""

    def __init__(self, answer, spoil=None, delay_s=0.0):
        self.answer, self.spoil, self.delay_s = answer, spoil, delay_s
        self.asked, self.heads, self.url = [], [], ""
        self._lock = threading.Lock()

    def reply(self, path, parameters, headers):
        with self._lock:
            self.asked.append((path, tuple(sorted((k, tuple(v)) for k, v in parameters.items()))))
            self.heads.append(dict(headers))
            number = len(self.asked)
        time.sleep(self.delay_s)
        if self.spoil is not None and (spoilt := self.spoil(number, path, headers)) is not None:
            return spoilt
        return self.answer(path, {name: values[0] for name, values in parameters.items()})

    @property
    def repeated(self):
        return sum(count - 1 for count in Counter(self.asked).values())


@contextmanager
def serving(store):
    """Serve *store* on a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            parts = urlsplit(self.path)
            self._reply(parts.path, parse_qs(parts.query))

        def do_POST(self):
            form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            self._reply(self.path, parse_qs(form))

        def _reply(self, path, parameters):
            status, content, *further = store.reply(path, parameters, self.headers)
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                for name, value in (further[0] if further else {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass  # the client was killed, or does not wait any longer

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    store.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def loki(entries, most=5000, **knobs):
    """Return a Loki of *entries*, (ns, labels of the stream, line, structured metadata); it refuses more than *most*."""

    def answer(path, asked):
        if path.endswith("/labels"):
            return 200, {"status": "success", "data": sorted({name for _, stream, *_ in entries for name in stream})}
        start, end = int(asked["start"]), int(asked["end"])
        found = [one for one in sorted(entries, key=lambda one: one[0]) if start <= one[0] < end]
        if path.endswith("/series"):
            distinct = {json.dumps(stream, sort_keys=True) for _, stream, *_ in found}
            return 200, {"status": "success", "data": [json.loads(one) for one in sorted(distinct)]}
        found = [one for one in found if _selected(asked["query"], one[1])]
        if int(asked["limit"]) > most:
            text = (
                f"max entries limit per query exceeded, limit > max_entries_limit_per_query ({asked['limit']} > {most})"
            )
            return 400, text.encode()
        assert asked["direction"] == "forward"
        streams = {}
        for ns, stream, line, metadata in found[: int(asked["limit"])]:
            value = [str(ns), line, {"structuredMetadata": metadata}] if metadata else [str(ns), line]
            streams.setdefault(json.dumps(stream), []).append(value)
        result = [{"stream": json.loads(stream), "values": values} for stream, values in streams.items()]
        return 200, {"status": "success", "data": {"resultType": "streams", "result": result, "stats": {}}}

    return Store(answer, **knobs)


def _selected(query, stream):
    pairs = [part.partition("=") for part in query.strip("{}").split(",")]
    return all(stream.get(name, "") == json.loads(value) for name, _, value in pairs if not value.startswith("~"))


def span(trace, number, service, *, start_ns, parent="", ms=5, error=False, attributes=None, events=0, links=0):
    """Return a span as these stores keep it; *links* are to other traces."""
    return {"trace": f"{trace:032x}", "id": f"{number:016x}", "parent": parent and f"{parent:016x}", "service": service,
            "start_ns": start_ns, "ns": ms * 10**6, "error": error, "attributes": attributes or {},
            "events": events, "links": links}  # fmt: skip


def _by_trace(spans):
    found = {}
    for one in spans:
        found.setdefault(one["trace"], []).append(one)
    return found


def tempo(spans, *, v2=True, hexadecimal=False, partial=(), gone=(), **knobs):
    """Return a Tempo of *spans*; without *v2* it has the older path alone, *partial* and *gone* are numbers of traces."""
    traces = _by_trace(spans)

    def id_of(text):
        return text if hexadecimal else base64.b64encode(bytes.fromhex(text)).decode()

    def groups(trace):
        for one in traces[trace]:
            attributes = [{"key": k, "value": {"stringValue": str(v)}} for k, v in one["attributes"].items()]
            plain = {
                "traceId": id_of(one["trace"]), "spanId": id_of(one["id"]), "name": f"GET /{one['service']}",
                "kind": "SPAN_KIND_SERVER", "startTimeUnixNano": str(one["start_ns"]),
                "endTimeUnixNano": str(one["start_ns"] + one["ns"]), "attributes": attributes,
                "status": {"code": "STATUS_CODE_ERROR"} if one["error"] else {},
                "events": [{"name": "retried"}] * one["events"], "links": [{"traceId": "AA=="}] * one["links"],
            } | ({"parentSpanId": id_of(one["parent"])} if one["parent"] else {})  # fmt: skip
            resource = {"attributes": [{"key": "service.name", "value": {"stringValue": one["service"]}}]}
            yield {"resource": resource, "scopeSpans": [{"scope": {}, "spans": [plain]}]}

    def answer(path, asked):
        if path == "/api/search":
            start, end, limit = (int(asked[name]) for name in ("start", "end", "limit"))
            found = [
                trace for trace, of in traces.items()
                if any(one["start_ns"] < end * SECOND and one["start_ns"] + one["ns"] >= start * SECOND for one in of)
            ]  # fmt: skip
            return 200, {"traces": [{"traceID": trace.lstrip("0")} for trace in found[:limit]], "metrics": {}}
        if path.startswith("/api/v2/") and not v2:
            return 404, b"404 page not found"
        trace = path.rpartition("/")[2]
        if int(trace, 16) in gone:
            return 404, b"trace not found"
        if not v2:
            return 200, {"batches": list(groups(trace))}
        status = {"status": "PARTIAL", "message": "too large"} if int(trace, 16) in partial else {}
        return 200, {"trace": {"resourceSpans": list(groups(trace))}, "metrics": {}, **status}

    return Store(answer, **knobs)


def jaeger(spans, **knobs):
    """Return a Jaeger of *spans*."""
    traces = _by_trace(spans)

    def answer(path, asked):
        if path == "/api/services":
            names = sorted({one["service"] for one in spans})
            return 200, {"data": names, "total": len(names), "limit": 0, "offset": 0, "errors": None}
        start, end = int(asked["start"]) * 1000, int(asked["end"]) * 1000
        found = [
            trace for trace, of in traces.items()
            if any(one["service"] == asked["service"] and start <= one["start_ns"] <= end for one in of)
        ]  # fmt: skip
        return 200, {"data": [_jaeger_trace(one, traces[one]) for one in found[-int(asked["limit"]) :]], "errors": None}

    return Store(answer, **knobs)


def _jaeger_trace(trace, spans):
    processes = {f"p-{one['service']}": {"serviceName": one["service"], "tags": []} for one in spans}
    plain = [
        {
            "traceID": trace, "spanID": one["id"], "operationName": f"GET /{one['service']}", "flags": 1,
            "references": [
                *([{"refType": "CHILD_OF", "traceID": trace, "spanID": one["parent"]}] if one["parent"] else []),
                *[{"refType": "FOLLOWS_FROM", "traceID": "f" * 32, "spanID": "f" * 16}] * one["links"],
            ],
            "startTime": one["start_ns"] // 1000, "duration": one["ns"] // 1000, "processID": f"p-{one['service']}",
            "tags": [{"key": "span.kind", "type": "string", "value": "server"},
                     *([{"key": "error", "type": "bool", "value": True}] if one["error"] else []),
                     *({"key": k, "type": "string", "value": str(v)} for k, v in one["attributes"].items())],
            "logs": [{"timestamp": one["start_ns"] // 1000, "fields": []}] * one["events"], "warnings": None,
        }
        for one in spans
    ]  # fmt: skip
    return {"traceID": trace, "spans": plain, "processes": processes, "warnings": None}


def prometheus(series, kinds=None, most_samples=10**9, **knobs):
    """Return a Prometheus of *series*, (labels, [(second, value)]); it refuses an answer of more than *most_samples*."""
    import re

    def answer(path, asked):
        if path.endswith("/metadata"):
            data = {name: [{"type": kind, "help": "", "unit": ""}] for name, kind in (kinds or {}).items()}
            return 200, {"status": "success", "data": data}
        if path.endswith("/values"):
            return 200, {"status": "success", "data": sorted({labels["__name__"] for labels, _ in series})}
        selector, ms = re.fullmatch(r'\{__name__=~"(.*?)".*\}\[(\d+)ms\]', asked["query"]).groups()
        end_ms = round(float(asked["time"]) * 1000)
        result, size = [], 0
        for labels, samples in series:
            kept = [[at, value] for at, value in samples if end_ms - int(ms) <= at * 1000 <= end_ms]
            if kept and re.fullmatch(selector, labels["__name__"]):
                result.append({"metric": labels, "values": kept})
                size += len(kept)
        if size > most_samples:
            said = "query processing would load too many samples into memory in query execution"
            return 422, {"status": "error", "errorType": "execution", "error": said}
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": result}}

    return Store(answer, **knobs)
