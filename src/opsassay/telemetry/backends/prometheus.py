"""Prometheus' HTTP API over one view, with its replies, errors and limits."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import promql_parser as promql

from opsassay import __version__
from opsassay.telemetry.backends.encoding import matrix_json, point, samples_json, seconds_text, vector_json
from opsassay.telemetry.backends.literals import decode_literals
from opsassay.telemetry.backends.naming import is_label_name
from opsassay.telemetry.backends.promql.evaluating import Evaluation, without_parentheses
from opsassay.telemetry.backends.promql.parsing import parse, parse_selector
from opsassay.telemetry.backends.promql.selecting import select
from opsassay.telemetry.backends.promql.values import PromqlError, Vectors
from opsassay.telemetry.backends.requests import TEXT, ApiCall, ApiReply, duration_s, ms_in
from opsassay.telemetry.backends.rules import alerts_of, rules_of
from opsassay.telemetry.backends.series import SeriesStore, Times, read_series
from opsassay.telemetry.backends.views import View

MOST_POINTS = 11_000
"""Most points per series in one answer, as in Prometheus."""

QUERY_TIMEOUT_S = 20.0
_VERSION = "3.0.0"
"""The release of Prometheus whose semantics and replies the API has; clients choose their queries by it."""


class PrometheusApi:
    """Answers requests to paths below /api/v1; *turn* makes queries wait for each other, to bound memory."""

    def __init__(self, view: View, turn: threading.Lock) -> None:
        self.store: SeriesStore = read_series(view)
        self._view, self._now_ms, self._one_query = view, view.now_ns // 10**6, turn
        self._plain = {
            ("-", "healthy"): "Prometheus Server is Healthy.\n",
            ("-", "ready"): "Prometheus Server is Ready.\n",
        }
        self._endpoints = {
            "query": self._reply_query, "query_range": self._query_range, "series": self._reply_series,
            "labels": self._reply_labels, "metadata": self._reply_metadata, "rules": self._reply_rules,
            "alerts": lambda _call: _data_reply(alerts_of(view.alerts)), "status/buildinfo": _reply_buildinfo,
        }  # fmt: skip

    def reply_to(self, call: ApiCall) -> ApiReply | None:
        """Return the HTTP reply to *call*, None when its path is not of Prometheus' API."""
        if call.path in self._plain:
            return ApiReply(200, self._plain[call.path].encode(), TEXT)
        if call.path[:2] != ("api", "v1"):
            return None
        endpoint = self._endpoints.get("/".join(call.path[2:]))
        try:
            if endpoint is not None:
                return endpoint(call)
            if len(call.path) == 5 and (call.path[2], call.path[4]) == ("label", "values"):
                return self._label_values(call)
        except PromqlError as error:
            return failed(error)
        return None

    def _reply_query(self, call: ApiCall) -> ApiReply:
        """Answer an instant query with a string, a scalar, a vector, or the samples of a range (matrix)."""
        at_ms = _read_time_ms(call, "time", self._now_ms)
        expression = without_parentheses(parse(call.first("query") or ""))
        if isinstance(expression, promql.StringLiteral):
            return _result_reply(
                "string", f"[{seconds_text(at_ms)},{json.dumps(decode_literals(expression.val), ensure_ascii=False)}]"
            )
        with _turn(self._one_query, _read_deadline(call)) as deadline:
            evaluation = Evaluation(self.store, np.array([at_ms], dtype=np.int64), deadline, (at_ms, at_ms))
            if isinstance(expression, promql.MatrixSelector | promql.SubqueryExpr):
                return _result_reply("matrix", samples_json(evaluation.samples(expression)))
            found = evaluation.evaluate(expression)
            if isinstance(found, Vectors):
                return _result_reply("vector", vector_json(found, at_ms, _order(expression)))
            return _result_reply("scalar", point(at_ms, float(found[0])))

    def _query_range(self, call: ApiCall) -> ApiReply:
        """Answer a range query with values at each step; raises PromqlError for strings and range vectors."""
        steps_ms, request_ms = _steps(call)
        expression = without_parentheses(parse(call.first("query") or ""))
        if isinstance(expression, promql.MatrixSelector | promql.SubqueryExpr | promql.StringLiteral):
            kind = "string" if isinstance(expression, promql.StringLiteral) else "range vector"
            raise PromqlError(
                f'invalid parameter "query": invalid expression type "{kind}" for range query, must be Scalar or '
                "instant Vector"
            )
        with _turn(self._one_query, _read_deadline(call)) as deadline:
            found = Evaluation(self.store, steps_ms, deadline, request_ms).evaluate(expression)
            if not isinstance(found, Vectors):
                found = Vectors([{}], found[None, :], np.ones((1, len(steps_ms)), dtype=bool))
            return _result_reply("matrix", matrix_json(found, steps_ms))

    def _reply_series(self, call: ApiCall) -> ApiReply:
        """Answer with the labels of the selected series; raises PromqlError without match[]."""
        if not call.parameters.get("match[]"):
            raise PromqlError("no match[] parameter provided")
        return _limited_reply(call, [self.store.labels[number] for number in self._selected_series(call)])

    def _reply_labels(self, call: ApiCall) -> ApiReply:
        """Answer with the label names of the series that *call* selects."""
        return _limited_reply(
            call, sorted({name for number in self._selected_series(call) for name in self.store.labels[number]})
        )

    def _label_values(self, call: ApiCall) -> ApiReply:
        """Answer with the values of the label that the path of *call* names."""
        name = call.path[3]
        if not is_label_name(name):
            raise PromqlError(f'invalid label name: "{name[:200]}"')
        found = {self.store.labels[number].get(name, "") for number in self._selected_series(call)}
        return _limited_reply(call, sorted(found - {""}))

    def _selected_series(self, call: ApiCall) -> list[int]:
        """Return the indices of the series that match any ``match[]`` and have a sample between start and end."""
        start_ms, end_ms = (
            _read_time_ms(call, "start", self.store.first_ms),
            _read_time_ms(call, "end", self.store.last_ms),
        )
        matches = call.parameters.get("match[]", ())
        numbers = np.arange(len(self.store.labels), dtype=np.int64)
        if matches:
            numbers = np.unique(np.concatenate([select(self.store, parse_selector(text)) for text in matches]))
        if not len(numbers):
            return []
        positions = self.store.positions(numbers, np.array([start_ms - 1, end_ms], dtype=np.int64))
        chosen: list[int] = numbers[positions[:, 1] > positions[:, 0]].tolist()
        return chosen

    def _reply_metadata(self, call: ApiCall) -> ApiReply:
        """Answer with type and help text of each metric, or of the one that the parameter metric names."""
        asked, limit = call.first("metric"), _read_limit(call)
        names = [name for name in sorted(self.store.metrics) if asked in {None, name}]
        described = {name: self.store.metrics[name] for name in names[: limit or None]}
        return _data_reply(
            {name: [{"type": one.type, "help": one.help, "unit": ""}] for name, one in described.items()}
        )

    def _reply_rules(self, call: ApiCall) -> ApiReply:
        """Answer with the alerting rules of the incident's system; there are no recording rules."""
        kind = call.first("type")
        if kind not in {None, "alert", "record"}:
            raise PromqlError(f'invalid parameter "type": not supported value "{str(kind)[:200]}"')
        return _data_reply(rules_of(self._view) if kind != "record" else {"groups": []})


def failed(error: PromqlError) -> ApiReply:
    """Return Prometheus' JSON reply for *error*, with its HTTP status."""
    said = {"status": "error", "errorType": error.kind, "error": str(error)}
    return ApiReply(error.status, json.dumps(said).encode())


class _turn:  # noqa: N801 - used as a function is
    """A block in which no other query is evaluated; raises PromqlError if *lock* is not free before *deadline* (s)."""

    def __init__(self, lock: threading.Lock, deadline: float) -> None:
        self._lock, self._deadline = lock, deadline

    def __enter__(self) -> float:
        if not self._lock.acquire(timeout=max(0.0, self._deadline - time.monotonic())):
            raise PromqlError("query timed out in query queue", "timeout", 503)
        return self._deadline

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _order(expression: promql.Expr) -> Any:
    """Return the sort key for values of an instant query, NaN last; None unless it is topk, bottomk or a sort."""
    named = expression.op if isinstance(expression, promql.AggregateExpr) else ""
    match expression.func.name if isinstance(expression, promql.Call) else str(named):
        case "topk" | "sort_desc":
            return lambda value: (value != value, -value)  # noqa: PLR0124 - NaN comes last
        case "bottomk" | "sort":
            return lambda value: (value != value, value)  # noqa: PLR0124
    return None


def _read_time_ms(call: ApiCall, name: str, default_ms: int | None = None) -> int:
    """Return the query parameter *name*, a time, in ms since 1970; *default_ms* when absent. Raises PromqlError."""
    text = call.first(name)
    if text is None and default_ms is not None:
        return default_ms
    try:
        return ms_in(text or "")
    except ValueError as error:
        raise PromqlError(
            f'invalid parameter "{name}": cannot parse "{(text or "")[:200]}" to a valid timestamp'
        ) from error


def _read_seconds(call: ApiCall, name: str) -> float:
    """Return the duration in the query parameter *name* in seconds; raises PromqlError."""
    text = call.first(name) or ""
    try:
        return duration_s(text)
    except ValueError as error:
        raise PromqlError(f'invalid parameter "{name}": cannot parse "{text[:200]}" to a valid duration') from error


def _steps(call: ApiCall) -> tuple[Times, tuple[int, int]]:
    """Return (the steps of a range query, (start, end)), ms since 1970; the end need not be a step. Raises PromqlError."""
    start_ms, end_ms, step_s = _read_time_ms(call, "start"), _read_time_ms(call, "end"), _read_seconds(call, "step")
    if end_ms < start_ms:
        raise PromqlError('invalid parameter "end": end timestamp must not be before start time')
    if step_s < 0.001:
        raise PromqlError(
            'invalid parameter "step": zero or negative query resolution step widths are not accepted. Try a positive '
            "integer; the finest step is 1 ms"
        )
    step_ms = int(min(step_s * 1000, 2**53))
    if (end_ms - start_ms) // step_ms > MOST_POINTS:
        raise PromqlError(
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution "
            "(?step=XX)"
        )
    return np.arange(start_ms, end_ms + 1, step_ms, dtype=np.int64), (start_ms, end_ms)


def _read_deadline(call: ApiCall) -> float:
    """Return the monotonic time (s) by which the query has to end; the parameter timeout can only make it earlier."""
    asked_s = _read_seconds(call, "timeout") if call.first("timeout") is not None else QUERY_TIMEOUT_S
    return time.monotonic() + max(0.0, min(asked_s, QUERY_TIMEOUT_S))


def _read_limit(call: ApiCall) -> int:
    """Return the query parameter limit, 0 (no limit) when it is missing; raises PromqlError."""
    text = call.first("limit") or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise PromqlError('invalid parameter "limit": limit must be a number that is not negative')
    return int(text)


def _limited_reply(call: ApiCall, items: Iterable[Any]) -> ApiReply:
    """Answer with the first *items* up to the query parameter limit, and a warning when items are left out."""
    listed, limit = list(items), _read_limit(call)
    if limit and len(listed) > limit:
        return _data_reply(listed[:limit], {"warnings": ["results truncated due to limit"]})
    return _data_reply(listed)


def _data_reply(data: Any, extra: Mapping[str, Any] | None = None) -> ApiReply:
    """Return the reply of status 200 with *data* in Prometheus' JSON envelope, and the keys of *extra*."""
    return ApiReply(200, json.dumps({"status": "success", "data": data, **(extra or {})}).encode())


def _result_reply(kind: str, result: str) -> ApiReply:
    """Return the reply with *result*, a JSON text, of the result type *kind*: string, scalar, vector or matrix."""
    text = f'{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}'
    return ApiReply(200, text.encode("utf-8", "replace"))


def _reply_buildinfo(_call: ApiCall) -> ApiReply:
    """Answer with the version of Prometheus that this API follows."""
    return _data_reply(
        {
            "version": _VERSION, "revision": f"opsassay-{__version__}", "branch": "", "buildUser": "", "buildDate": "",
            "goVersion": "",
        }
    )  # fmt: skip
