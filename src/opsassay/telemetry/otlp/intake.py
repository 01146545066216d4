"""The data port: POST /v1/traces, /v1/metrics and /v1/logs as OTLP/HTTP, protobuf or JSON. It controls nothing.

Answers as the OTLP specification wants them: an empty export response when everything was kept, else a
google.rpc.Status with one sentence. 503 with Retry-After is the retryable answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web
from aiohttp.client_exceptions import ClientError
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from opsassay.core.logs import Log
from opsassay.telemetry.otlp.counts import SIGNALS
from opsassay.telemetry.otlp.requests import BrokenBodyError, LargeBodyError, count_items, parse, parse_json, unpack
from opsassay.telemetry.otlp.sessions import OverloadError, SessionRecorder
from opsassay.telemetry.otlp.spool import MAX_PAYLOAD_BYTES, Kind

CONTENT_TYPE, JSON = "application/x-protobuf", "application/json"
MAX_BODIES_BYTES = 256 * 1024 * 1024
BODY_TIMEOUT_S = 30.0
_RETRY_AFTER_S = 1
_KINDS = {"": Kind.PROTOBUF, "identity": Kind.PROTOBUF, "gzip": Kind.GZIP}


_log = Log(__name__)


class Budget:
    """A number of bytes that requests in flight may hold together; who does not fit waits, which slows its client."""

    def __init__(self, limit_bytes: int) -> None:
        self._free, self._changed = limit_bytes, asyncio.Condition()

    @contextlib.asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        """Wait until *size_bytes* of memory are free in the budget, and reserve them while the block runs."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._free >= size_bytes)
            self._free -= size_bytes
        try:
            yield
        finally:
            async with self._changed:
                self._free += size_bytes
                self._changed.notify_all()


class Intake:
    """The handlers of the data port over one *recorder*."""

    def __init__(self, recorder: SessionRecorder) -> None:
        self._recorder, self._budget = recorder, Budget(MAX_BODIES_BYTES)

    def application(self) -> web.Application:
        """Return the aiohttp application; run it with auto_decompress=False, since frames keep compressed bodies."""
        application = web.Application(client_max_size=MAX_PAYLOAD_BYTES)
        for signal in SIGNALS:
            application.router.add_post(f"/v1/{signal}", self._take_export)
        return application

    async def _take_export(self, request: web.Request) -> web.Response:
        """Answer one export request; it is read once the budget has memory for its body."""
        signal = request.path.rsplit("/", 1)[-1]
        kind = _KINDS.get(request.headers.get("Content-Encoding", "").strip().lower())
        if request.content_type not in (CONTENT_TYPE, JSON) or kind is None:
            return self._refuse_request(
                signal, 415, f"Send {CONTENT_TYPE} or {JSON}, plain or with Content-Encoding gzip."
            )
        length = request.content_length
        if length is not None and length > MAX_PAYLOAD_BYTES:
            return self._refuse_request(signal, 413, _TOO_LARGE)
        # A body without a length may grow to the limit, and so may one that is packed.
        holds = length if length is not None and kind == Kind.PROTOBUF else MAX_PAYLOAD_BYTES
        async with self._budget.hold(holds):
            return await self._accept_request(request, signal, kind)

    async def _accept_request(self, request: web.Request, signal: str, kind: Kind) -> web.Response:
        """Read, check and record the body of *request*; return the response of success or failure."""
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                payload = await request.read()
            body = unpack(kind, payload)
            if as_json := request.content_type == JSON:
                message = parse_json(signal, body)
                kind, payload = Kind.PROTOBUF, message.SerializeToString()
            else:
                message = parse(signal, body)
            await self._recorder.record(signal, kind, payload, count_items(signal, message))
        except (LargeBodyError, web.HTTPRequestEntityTooLarge):
            return self._refuse_request(signal, 413, _TOO_LARGE)
        except BrokenBodyError as error:
            return self._refuse_request(signal, 400, str(error))
        except OverloadError as error:
            return _make_status_response(503, str(error), {"Retry-After": str(_RETRY_AFTER_S)})
        except TimeoutError:
            return self._refuse_request(
                signal, 408, f"The body did not arrive within {BODY_TIMEOUT_S:.0f} s; send it again."
            )
        except (OSError, ClientError, web.RequestPayloadError):
            return self._refuse_request(signal, 400, "The body ended before its length; send it again.")
        return web.json_response({}) if as_json else web.Response(content_type=CONTENT_TYPE)

    def _refuse_request(self, signal: str, status: int, sentence: str) -> web.Response:
        """Count and log a refused request of *signal*; return the response with *status* and *sentence*."""
        self._recorder.tallies[signal].invalid_requests += 1
        _log.warning("request refused", signal=signal, status=status, reason=sentence)
        return _make_status_response(status, sentence)


_TOO_LARGE = f"The body is larger than {MAX_PAYLOAD_BYTES} bytes; export smaller batches."


def _make_status_response(status: int, sentence: str, headers: dict[str, str] | None = None) -> web.Response:
    """Return the HTTP response of *status* with *sentence* as a protobuf google.rpc.Status."""
    body = Status(message=sentence).SerializeToString()
    return web.Response(status=status, body=body, content_type=CONTENT_TYPE, headers=headers)
