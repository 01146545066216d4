"""Jaeger's query API over one view: services, operations, traces, dependencies. Its present is the latest span."""

from __future__ import annotations

import json
import re
from typing import Any

from opsassay.core.errors import UserError
from opsassay.core.untrusted import read_json
from opsassay.telemetry.backends.requests import ApiCall, ApiReply, duration_ns
from opsassay.telemetry.backends.spans import SpanStore, TraceSearch, is_trace_id, trace_ids, traces_json

DEFAULT_TRACES = 100
MOST_TRACES = 1500
MOST_SPANS = 50_000
"""Most spans in one answer."""

_DAY_MS = 24 * 3600 * 1000


class JaegerError(UserError):
    """A request that gets an error reply with the HTTP *status*."""

    def __init__(self, message: str, status: int = 400) -> None:
        self.status = status
        super().__init__(message)


class JaegerApi:
    """Answers requests to the paths below /api of Jaeger's query service from the spans in *store*."""

    def __init__(self, store: SpanStore) -> None:
        self.store = store
        times = self.store.spans["start_us"]
        first, last = times.min(), times.max()
        self._first_us, self._last_us = (int(first), int(last)) if first is not None else (0, 0)  # type: ignore[arg-type]

    def reply_to(self, call: ApiCall) -> ApiReply | None:
        """Return the HTTP reply to *call*, None when its path is not of Jaeger's query API."""
        try:
            return self._route_call(call)
        except JaegerError as error:
            said = {"code": error.status, "msg": str(error)}
            return _make_body(error.status, None, 0, [said])

    def _route_call(self, call: ApiCall) -> ApiReply | None:  # noqa: PLR0911 - one for each endpoint
        """Return the reply of the endpoint at the path of *call*; None for a path that Jaeger does not have."""
        match call.path:
            case ("api", "services"):
                return _data_reply(self.store.services)
            case ("api", "services", service, "operations"):
                return _data_reply(sorted({name for name, _ in self.store.operations(service)}))
            case ("api", "operations"):
                return self._reply_operations(call)
            case ("api", "traces"):
                return self._reply_traces(call)
            case ("api", "traces", trace):
                return self._reply_by_ids([trace])
            case ("api", "dependencies"):
                return self._reply_dependencies(call)
        return None

    def _reply_operations(self, call: ApiCall) -> ApiReply:
        """Answer with the operations of the service in the query, of one span kind if the parameter spanKind is given."""
        service = _require_service(call)
        pairs = self.store.operations(service, call.first("spanKind"))
        return _data_reply([{"name": name, "spanKind": kind} for name, kind in pairs])

    def _reply_traces(self, call: ApiCall) -> ApiReply:
        """Answer with the traces of a search, or those of the parameter traceID; raises JaegerError."""
        if ids := call.parameters.get("traceID"):
            return self._reply_by_ids(list(ids))
        search = TraceSearch(
            service=_require_service(call),
            operation=call.first("operation"),
            tags=_tags(call),
            start_us=_read_integer(call, "start", self._first_us),
            end_us=_read_integer(call, "end", self._last_us),
            min_ns=_duration_ns(call, "minDuration"),
            max_ns=_duration_ns(call, "maxDuration"),
            limit=min(_read_integer(call, "limit", DEFAULT_TRACES), MOST_TRACES),
        )
        if search.limit < 1:
            raise JaegerError("unable to parse param 'limit': it has to be a positive number")
        if search.min_ns is not None and search.max_ns is not None and search.max_ns < search.min_ns:
            raise JaegerError("'maxDuration' should be greater than 'minDuration'")
        return self._traces_reply(self.store.search(search))

    def _reply_by_ids(self, ids: list[str]) -> ApiReply:
        """Answer with the traces whose ids are *ids*; raises JaegerError (404) when none of them is there."""
        reply = self._traces_reply(list(dict.fromkeys(each for one in ids for each in trace_ids(one))))
        if reply.content.startswith(b'{"data": []'):
            for one in ids:
                if not is_trace_id(one):
                    raise JaegerError(f"{one[:200]!r} is no id of a trace: it has 1 to 32 hexadecimal digits")
            raise JaegerError("trace not found", 404)
        return reply

    def _traces_reply(self, ids: list[str]) -> ApiReply:
        """Answer with the traces whose ids are *ids*; raises JaegerError (413) when they have too many spans."""
        spans = self.store.traces(ids)
        if spans.height > MOST_SPANS:
            raise JaegerError(
                f"the answer would have {spans.height} spans, {MOST_SPANS} are sent at most: ask for fewer traces", 413
            )
        return _data_reply(traces_json(spans, ids), total=0)

    def _reply_dependencies(self, call: ApiCall) -> ApiReply:
        """Answer with (caller, callee, number of calls) in the *lookback* ms before *endTs* (ms), by service."""
        end_ms = _read_integer(call, "endTs", self._last_us // 1000 + 1)
        lookback_ms = _read_integer(call, "lookback", _DAY_MS)
        found = self.store.dependencies((end_ms - lookback_ms) * 1000, end_ms * 1000)
        return _data_reply(
            [{"parent": caller, "child": callee, "callCount": calls} for caller, callee, calls in found], total=0
        )


def _require_service(call: ApiCall) -> str:
    """Return the query parameter service; raises JaegerError when it is missing."""
    service = call.first("service")
    if service is None:
        raise JaegerError("parameter 'service' is required")
    return service


def _read_integer(call: ApiCall, name: str, default: int) -> int:
    """Return the query parameter *name* as an integer, *default* when it is missing; raises JaegerError."""
    text = call.first(name)
    if text is None:
        return default
    if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII) or abs(int(text)) > 2**53:
        raise JaegerError(f"unable to parse param '{name}': {text[:200]!r} is no whole number in range")
    return int(text)


def _duration_ns(call: ApiCall, name: str) -> int | None:
    """Return the query parameter *name*, a duration in Go's form (``1.5s``, ``100ms``), in ns; None when absent."""
    text = call.first(name)
    if text is None:
        return None
    try:
        return duration_ns(text)
    except ValueError as error:
        raise JaegerError(f"unable to parse param '{name}': time: invalid duration {text[:200]!r}") from error


def _tags(call: ApiCall) -> dict[str, str]:
    """Return key to value for a search by tags, from the parameters ``tags`` (a JSON object) and ``tag`` (KEY:VALUE)."""
    found: dict[str, str] = {}
    for text in call.parameters.get("tag", ()):
        key, colon, value = text.partition(":")
        if not colon or not key:
            raise JaegerError(f"malformed 'tag' parameter, expecting key:value, received: {text[:200]}")
        found[key] = value
    for text in call.parameters.get("tags", ()):
        try:
            read: Any = read_json(text)
        except ValueError as error:
            raise JaegerError(f"malformed 'tags' parameter, cannot unmarshal JSON: {error}") from error
        if not isinstance(read, dict) or not all(isinstance(value, str) for value in read.values()):
            raise JaegerError("malformed 'tags' parameter, cannot unmarshal JSON: an object of strings is expected")
        found |= read
    return found


def _data_reply(data: list[Any], total: int | None = None) -> ApiReply:
    """Return the reply of status 200 in Jaeger's envelope; *total* defaults to the number of items in *data*."""
    return _make_body(200, data, len(data) if total is None else total, None)


def _make_body(status: int, data: Any, total: int, errors: Any) -> ApiReply:
    """Return the reply of *status* in Jaeger's JSON envelope (data, total, limit, offset, errors)."""
    content = {"data": data, "total": total, "limit": 0, "offset": 0, "errors": errors}
    return ApiReply(status, json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
