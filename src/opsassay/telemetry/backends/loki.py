"""Loki's HTTP API over one view: logs, labels, series, and metric queries."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import numpy as np

from opsassay import __version__
from opsassay.telemetry.backends.encoding import MOST_ANSWER_BYTES, matrix_json, vector_json
from opsassay.telemetry.backends.logql.evaluating import LogEvaluation
from opsassay.telemetry.backends.logql.parsing import LogqlError, LogQuery, MetricQuery, parse, parse_selector
from opsassay.telemetry.backends.logs import LogStore, read_logs
from opsassay.telemetry.backends.matching import Matcher, RegexError
from opsassay.telemetry.backends.naming import is_label_name
from opsassay.telemetry.backends.promql.values import PromqlError, key_of
from opsassay.telemetry.backends.requests import TEXT, ApiCall, ApiReply, duration_ns, duration_s, number_in
from opsassay.telemetry.backends.series import Times
from opsassay.telemetry.backends.views import View

DEFAULT_ENTRIES = 100
MOST_ENTRIES = 5000
"""Most log entries in one answer, as in Loki."""

MOST_POINTS = 11_000
QUERY_TIMEOUT_S = 20.0
Endpoint = Callable[[ApiCall], ApiReply]
_HOUR_NS = 3600 * 10**9
_VERSION = "3.0.0"
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", re.ASCII)
_SELECTORS = ("match", "match[]")


class LokiApi:
    """Answers requests to paths below /loki/api/v1; *turn* makes queries wait for each other, to bound memory."""

    def __init__(self, view: View, turn: threading.Lock) -> None:
        self.store: LogStore = read_logs(view)
        last_ns = int(self.store.ns[-1]) + 1 if len(self.store.ns) else 0
        self._now_ns = max(view.now_ns, last_ns)
        self._one_query = turn
        self._endpoints: dict[str, Endpoint] = {
            "query": self._reply_query, "query_range": self._query_range, "labels": self._reply_labels,
            "label": self._reply_labels, "series": self._reply_series, "status/buildinfo": _reply_buildinfo,
        }  # fmt: skip

    def reply_to(self, call: ApiCall) -> ApiReply | None:
        """Return the HTTP reply to *call*, None when its path is not of Loki's API."""
        if call.path == ("ready",):
            return ApiReply(200, b"ready\n", TEXT)
        endpoint = self._find_endpoint(call.path)
        return self._reply_in_turn(endpoint, call) if endpoint is not None else None

    def _find_endpoint(self, path: tuple[str, ...]) -> Endpoint | None:
        """Return the method that answers requests to *path*, None for a path that Loki does not have."""
        if path[:3] != ("loki", "api", "v1"):
            return None
        if len(path) == 6 and (path[3], path[5]) == ("label", "values"):
            return self._label_values
        return self._endpoints.get("/".join(path[3:]))

    def _reply_in_turn(self, endpoint: Endpoint, call: ApiCall) -> ApiReply:
        """Return *endpoint*'s reply to *call* once no other query runs; a query's error becomes a reply with its status."""
        if not self._one_query.acquire(timeout=QUERY_TIMEOUT_S):
            return ApiReply(504, b"context deadline exceeded\n", TEXT)
        try:
            return endpoint(call)
        except LogqlError as error:
            return ApiReply(error.status, f"{error}\n".encode(), TEXT)
        except (RegexError, PromqlError) as error:
            return ApiReply(400, f"{error}\n".encode(), TEXT)
        finally:
            self._one_query.release()

    def _reply_query(self, call: ApiCall) -> ApiReply:
        """Answer a metric query at one time; raises LogqlError for a log query."""
        query = parse(call.first("query") or "")
        if isinstance(query, LogQuery):
            raise LogqlError(
                "log queries are not supported as an instant query type, please change your query to a range query type"
            )
        at_ns = _time(call, "time", self._now_ns)
        found = self._make_evaluation().series(query, np.array([at_ns], dtype=np.int64))
        return _result_reply("vector", vector_json(found, at_ns // 10**6, None))

    def _query_range(self, call: ApiCall) -> ApiReply:
        """Answer a query over a time range: with log lines, or with values at each step."""
        query = parse(call.first("query") or "")
        start_ns, end_ns = self._span(call)
        if isinstance(query, LogQuery):
            return self._reply_entries(query, call, start_ns, end_ns)
        return self._matrix_reply(query, _read_steps(call, start_ns, end_ns))

    def _matrix_reply(self, query: MetricQuery, steps_ns: Times) -> ApiReply:
        """Answer with the values of the metric *query* at each of *steps_ns* (ns since 1970), as a matrix."""
        found = self._make_evaluation().series(query, steps_ns)
        return _result_reply("matrix", matrix_json(found, steps_ns // 10**6))

    def _reply_entries(self, query: LogQuery, call: ApiCall, start_ns: int, end_ns: int) -> ApiReply:
        """Answer with the lines of *query* in the range, by stream, newest or oldest first, up to the parameter limit."""
        limit, backward = _read_limit(call), _is_backward(call)
        numbers = self._make_evaluation().entries(query, start_ns, end_ns)
        numbers = numbers[: -limit - 1 : -1] if backward else numbers[:limit]
        streams: dict[int, list[list[str]]] = {}
        size = 0
        for number, line in zip(numbers.tolist(), self.store.lines[numbers].to_list(), strict=True):
            size += len(line)
            streams.setdefault(int(self.store.owners[number]), []).append([str(self.store.ns[number]), line])
        if size > MOST_ANSWER_BYTES:
            raise LogqlError(f"the answer would have more than {MOST_ANSWER_BYTES >> 20} MiB: ask for fewer lines", 413)
        found = [{"stream": self.store.labels(owner), "values": values} for owner, values in streams.items()]
        return _result_reply("streams", json.dumps(found, ensure_ascii=False))

    def _reply_labels(self, call: ApiCall) -> ApiReply:
        """Answer with the label names of the streams that *call* selects."""
        return _data_reply(
            sorted({name for labels in self.store.streams(self._selected_rows(call)) for name in labels})
        )

    def _label_values(self, call: ApiCall) -> ApiReply:
        """Answer with the values of the label that the path of *call* names."""
        name = call.path[4]
        if not is_label_name(name):
            raise LogqlError(f"invalid label name {name[:200]!r}")
        if name not in self.store.stream_names:
            return _data_reply([])
        return _data_reply(self.store.sets[name][self._selected_rows(call)].drop_nulls().unique().sort().to_list())

    def _reply_series(self, call: ApiCall) -> ApiReply:
        """Answer with the labels of the selected streams; raises LogqlError without a selector."""
        if not any(call.parameters.get(name) for name in _SELECTORS):
            raise LogqlError("0 matcher groups supplied, at least one is needed: match[]={...}")
        return _data_reply(sorted(self.store.streams(self._selected_rows(call)), key=key_of))

    def _selected_rows(self, call: ApiCall) -> Times:
        """Return the rows of `sets` with entries in the time range of *call* that any of its selectors matches."""
        texts = [text for name in ("match", "match[]", "query") for text in call.parameters.get(name, ())]
        asked: list[tuple[Matcher, ...]] = [parse_selector(text) for text in texts] or [()]
        fits = np.any([self.store.fitting(one, of_stream=True) for one in asked], axis=0)
        owners = np.unique(self.store.owners[self.store.between(*self._span(call))])
        chosen: Times = owners[fits[owners]]
        return chosen

    def _span(self, call: ApiCall) -> tuple[int, int]:
        """Return (start, end) of *call* in ns since 1970; without a start, ``since`` (default an hour) before the end."""
        end_ns, since = _time(call, "end", self._now_ns), call.first("since")
        try:
            since_ns = duration_ns(since, days=True) if since is not None else _HOUR_NS
        except ValueError as error:
            raise LogqlError(
                f"could not parse 'since' parameter: not a valid duration string: {str(since)[:200]!r}"
            ) from error
        start_ns = _time(call, "start", min(end_ns, self._now_ns) - since_ns)
        if end_ns <= start_ns:
            raise LogqlError("end timestamp must not be before or equal to start time")
        return start_ns, end_ns

    def _make_evaluation(self) -> LogEvaluation:
        """Return a fresh evaluation for one query, with the deadline after which it fails."""
        return LogEvaluation(self.store, time.monotonic() + QUERY_TIMEOUT_S)


def _time(call: ApiCall, name: str, default_ns: int) -> int:
    """Return the query parameter *name* (RFC 3339, s, or ns if it is long) in ns since 1970, else *default_ns*."""
    text = call.first(name)
    if text is None:
        return default_ns
    try:
        return _ns_in(text)
    except ValueError as error:
        raise LogqlError(f"could not parse '{name}' parameter: {text[:200]!r} is no time") from error


def _ns_in(text: str) -> int:
    """Parse *text*, a number (whole with over 10 digits: ns, else s) or RFC 3339, into ns since 1970; raises ValueError."""
    if found := _RFC3339.fullmatch(text):
        whole, fraction, zone = found.groups()
        return int(datetime.fromisoformat(whole + zone).timestamp()) * 10**9 + int((fraction or "").ljust(9, "0"))
    if re.fullmatch(r"\d{1,19}", text, re.ASCII):
        ns = int(text) * (10**9 if len(text) <= 10 else 1)
    else:
        ns = round(number_in(text) * 10**9)
    if abs(ns) > 2**61:
        raise ValueError(text)
    return ns


def _read_steps(call: ApiCall, start_ns: int, end_ns: int) -> Times:
    """Return the times from *start_ns* to *end_ns* (ns since 1970) by the query parameter step; raises LogqlError."""
    text = call.first("step")
    try:
        step_s = duration_s(text) if text is not None else max(1, (end_ns - start_ns) // (250 * 10**9))
    except ValueError as error:
        raise LogqlError(f"cannot parse {str(text)[:200]!r} to a valid duration") from error
    if step_s < 0.001:
        raise LogqlError("zero or negative query resolution step widths are not accepted. Try a positive integer")
    step_ns = int(min(step_s * 1e9, 2**62))
    if (end_ns - start_ns) // step_ns > MOST_POINTS:
        raise LogqlError(
            "exceeded maximum resolution of 11,000 points per time series. Try decreasing the query resolution (?step=XX)"
        )
    return np.arange(start_ns, end_ns + 1, step_ns, dtype=np.int64)


def _read_limit(call: ApiCall) -> int:
    """Return the query parameter limit, Loki's default when it is missing; raises LogqlError."""
    text = call.first("limit") or str(DEFAULT_ENTRIES)
    if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) < 1:
        raise LogqlError("limit must be a positive value")
    if int(text) > MOST_ENTRIES:
        raise LogqlError(
            f"max entries limit per query exceeded, limit > max_entries_limit_per_query ({int(text)} > {MOST_ENTRIES})"
        )
    return int(text)


def _is_backward(call: ApiCall) -> bool:
    """Return whether the newest lines come first: unless the query parameter direction says forward."""
    direction = (call.first("direction") or "backward").lower()
    if direction not in {"forward", "backward"}:
        raise LogqlError(f"invalid direction '{direction[:200]}'")
    return direction == "backward"


def _data_reply(data: Any) -> ApiReply:
    """Return the reply of status 200 with *data* in Loki's JSON envelope."""
    return ApiReply(200, json.dumps({"status": "success", "data": data}, ensure_ascii=False).encode("utf-8", "replace"))


def _result_reply(kind: str, result: str) -> ApiReply:
    """Return the reply with *result*, a JSON text, as a result of the type *kind*: vector, matrix or streams."""
    text = f'{{"status":"success","data":{{"resultType":"{kind}","result":{result},"stats":{{}}}}}}'
    return ApiReply(200, text.encode("utf-8", "replace"))


def _reply_buildinfo(_call: ApiCall) -> ApiReply:
    """Answer with the version of Loki that this API follows."""
    described: Mapping[str, str] = {
        "version": _VERSION,
        "revision": f"opsassay-{__version__}",
        "branch": "",
        "goVersion": "",
    }
    return ApiReply(200, json.dumps(described).encode())
