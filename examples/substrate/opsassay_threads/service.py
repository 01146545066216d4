"""A replica: an HTTP server in a thread that carries out the steps of its operations."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry import propagate
from opentelemetry.trace import SpanKind, Status, StatusCode

from opsassay.core.schema.system import Step
from opsassay.testbed.core.fleet import Fleet, Replica
from opsassay.testbed.core.networks import LOOPBACK
from opsassay.testbed.workload.runtime.instruments import Instruments

Counters = dict[str, list[int]]
"""{activity: [count, errors, duration_ns]}, as effect checks read them."""


def count(counters: Counters, activity: str, began: float, *, ok: bool) -> None:
    """Book one *activity* that began at the monotonic time *began*."""
    row = counters.setdefault(activity, [0, 0, 0])
    row[0], row[1], row[2] = row[0] + 1, row[1] + (not ok), row[2] + int((time.monotonic() - began) * 1e9)


class ReplicaServer:
    """Serves the operations of *replica* of the system *instance*.

    *fleet* tells where the others listen, and *replica.hooks* which faults act.
    """

    def __init__(self, instance: str, replica: Replica, fleet: Fleet, instruments: Instruments) -> None:
        self.instance, self.replica, self._fleet, self.instruments = instance, replica, fleet, instruments
        self.counters: Counters = {}
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        """Listen on a free port."""
        self._server = ThreadingHTTPServer((LOOPBACK, 0), _handler(self.serve))
        name = f"{self.instance}-{self.replica.id}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name=name, daemon=True).start()
        self.replica.port, self.replica.ready = self._server.server_address[1], True
        self.replica.started_at = time.monotonic()

    def stop(self) -> None:
        """Stop listening; one that does not listen is fine."""
        server, self._server = self._server, None
        self.replica.port, self.replica.ready = None, False
        if server is not None:
            server.shutdown()
            server.server_close()

    def serve(self, operation: str, headers: dict[str, str]) -> int:
        """Carry out *operation* and return its HTTP status."""
        began = time.monotonic()
        with self.instruments.span(operation, SpanKind.SERVER, None, propagate.extract(headers)) as span:
            status = self._status(operation)
            span.set_attribute("http.response.status_code", status)
            if status >= 500:
                span.set_status(Status(StatusCode.ERROR))
        for activity in ("server", f"server {operation}"):
            count(self.counters, activity, began, ok=status < 400)
        return status

    def _status(self, operation: str) -> int:
        known = self.replica.spec.operations.get(operation)
        if known is None:
            return 404
        for hook in self._acting(operation):
            if "delay_ms" in hook["parameters"]:
                time.sleep(hook["parameters"]["delay_ms"] / 1e3)
            else:
                return int(hook["parameters"]["code"])
        return 200 if all(self._perform(step) for step in known.steps) else 500

    def _acting(self, operation: str) -> list[dict[str, Any]]:
        return [hook for hook in self.replica.hooks if hook["parameters"].get("operation") in (None, operation)]

    def _perform(self, step: Step) -> bool:
        """Carry out one step; a system of threads knows calls, waiting, and several of them one after the other."""
        if step.call is not None:
            return self._call(step.call, step.timeout_s)
        time.sleep((step.wait_ms or step.compute_ms or 0.0) / 1e3)
        return all(self._perform(part) for part in step.parallel or ())

    def _call(self, call: str, timeout_s: float) -> bool:
        callee = call.split(maxsplit=1)[0]
        began, url = time.monotonic(), url_of(self._fleet, call)
        with self.instruments.span(call, SpanKind.CLIENT) as span:
            headers: dict[str, str] = {}
            propagate.inject(headers)
            ok = url is not None and get(url, timeout_s, headers) == 200
            span.set_status(Status(StatusCode.OK if ok else StatusCode.ERROR))
        count(self.counters, f"call:{callee}", began, ok=ok)
        return ok


def url_of(fleet: Fleet, request: str) -> str | None:
    """Return the URL at a ready replica for *request* ('service METHOD /route'), None when there is none."""
    service, _, route = request.split()
    ports = [replica.port for replica in fleet.replicas_of(service) if replica.ready]
    return f"http://{LOOPBACK}:{random.choice(ports)}{route}" if ports else None


def get(url: str, timeout_s: float, headers: dict[str, str] | None = None) -> int | None:
    """Return the status of one GET, None without an answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=timeout_s) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def _handler(serve: Callable[[str, dict[str, str]], int]) -> type[BaseHTTPRequestHandler]:
    class OneRequest(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = serve(f"GET {self.path}", {name.lower(): value for name, value in self.headers.items()})
            body = json.dumps({"ok": status < 400}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing: the span has it."""

    return OneRequest
