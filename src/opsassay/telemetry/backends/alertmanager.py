"""Alertmanager's API v2 over one view, with the alerts that fire now.

Forms, orders and errors are those of Alertmanager 0.25; where it is installed, tests compare both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsassay import __version__
from opsassay.core.errors import UserError
from opsassay.core.schema.incident import Alert
from opsassay.telemetry.backends.matching import Matcher, RegexError, compile_regex
from opsassay.telemetry.backends.requests import ApiCall, ApiReply
from opsassay.telemetry.backends.rules import alert_annotations, alert_labels, rfc3339
from opsassay.telemetry.backends.series import Labels
from opsassay.telemetry.backends.views import View

_VERSION = "0.25.0"
_RESOLVE_NS = 5 * 60 * 10**9
_FILTER = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(=~|=|!=|!~)\s*(.*?)\s*", re.ASCII | re.DOTALL)
_TRUE = {"true", "1", "yes", "ok", "y", "on", "selected", "checked", "t", "enabled"}
_FNV_BASIS, _FNV_PRIME = 14695981039346656037, 1099511628211


class AlertmanagerError(UserError):
    """An invalid request; the message is the text that Alertmanager sends."""


class AlertmanagerApi:
    """Answers requests to paths below /api/v2 from the alerts of *view*; it has no silences."""

    def __init__(self, view: View) -> None:
        self._receiver, self._began_ns = view.kind, view.began_ns
        self._alerts = _alerts(view.alerts, view.now_ns, self._receiver)
        self._endpoints: dict[str, Callable[[ApiCall], ApiReply]] = {
            "alerts": lambda call: _json_reply(self._matching_alerts(call)), "alerts/groups": self._reply_groups,
            "status": self._reply_status,
            "receivers": lambda _call: _json_reply([{"name": self._receiver}]), "silences": lambda _call: _json_reply([]),
        }  # fmt: skip

    def reply_to(self, call: ApiCall) -> ApiReply | None:
        """Return the HTTP reply to *call*, None when its path is not of Alertmanager's API v2."""
        if call.path[:2] != ("api", "v2"):
            return None
        endpoint = self._endpoints.get("/".join(call.path[2:]))
        if endpoint is None:
            return _json_reply({"code": 404, "message": f"path /{'/'.join(call.path)[:200]} was not found"}, 404)
        if call.method == "POST":
            return _json_reply({"code": 405, "message": "method POST is not allowed, but [GET] are"}, 405)
        try:
            return endpoint(call)
        except AlertmanagerError as error:
            return _json_reply(str(error), 400)

    def _matching_alerts(self, call: ApiCall) -> list[dict[str, Any]]:
        """Return the alerts, as JSON, that match the query parameters filter, receiver and active."""
        matchers = [_parse_matcher(text) for text in call.parameters.get("filter", ())]
        receiver = _whole_regex(call.first("receiver") or ".*", "failed to parse receiver param: ")
        shown = call.parameters.get("active", ("true",))[0].lower() in _TRUE and receiver.test([self._receiver])(
            self._receiver
        )
        return [alert for alert in self._alerts if shown and _matches_labels(alert["labels"], matchers)]

    def _reply_groups(self, call: ApiCall) -> ApiReply:
        """Answer with the alerts that match the parameters of *call*, grouped by alertname."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for alert in self._matching_alerts(call):
            groups.setdefault(alert["labels"]["alertname"], []).append(alert)
        return _json_reply(
            [
                {"alerts": groups[name], "labels": {"alertname": name}, "receiver": {"name": self._receiver}}
                for name in sorted(groups)
            ]
        )

    def _reply_status(self, _call: ApiCall) -> ApiReply:
        """Answer with the version, the start time and the configuration of this Alertmanager."""
        version = {
            "branch": "", "buildDate": "", "buildUser": "", "goVersion": "", "revision": f"opsassay-{__version__}",
            "version": _VERSION,
        }  # fmt: skip
        name = self._receiver
        config = f"route:\n  receiver: {name}\n  group_by:\n  - alertname\nreceivers:\n- name: {name}\n"
        return _json_reply(
            {
                "cluster": {"peers": [], "status": "disabled"}, "config": {"original": config},
                "uptime": rfc3339(self._began_ns), "versionInfo": version,
            }
        )  # fmt: skip


def fingerprint(labels: Labels) -> str:
    """Return the fingerprint of *labels* as Prometheus computes it: FNV-1a of 64 bits over the sorted pairs."""
    value = _FNV_BASIS
    for name in sorted(labels):
        for byte in b"%b\xff%b\xff" % (name.encode(), labels[name].encode("utf-8", "replace")):
            value = (value ^ byte) * _FNV_PRIME % 2**64
    return f"{value:016x}"


def _alerts(alerts: Sequence[Alert], now_ns: int, receiver: str) -> list[dict[str, Any]]:
    """Return *alerts* as Alertmanager's JSON, merged by labels, sorted by fingerprint.

    *now_ns* is the present, ns of UTC. *receiver* is the name of the receiver that every alert is routed to.
    """
    found: dict[str, dict[str, Any]] = {}
    for alert in sorted(alerts, key=lambda one: one.time_ns):
        labels = alert_labels(alert)
        key = fingerprint(labels)
        started = found[key]["startsAt"] if key in found else rfc3339(alert.time_ns)
        found[key] = {
            "annotations": alert_annotations(alert), "endsAt": rfc3339(now_ns + _RESOLVE_NS), "fingerprint": key,
            "receivers": [{"name": receiver}], "startsAt": started,
            "status": {"inhibitedBy": [], "silencedBy": [], "state": "active"}, "updatedAt": rfc3339(now_ns),
            "labels": labels,
        }  # fmt: skip
    return [found[key] for key in sorted(found)]


def _parse_matcher(text: str) -> Matcher:
    """Parse one label matcher, such as `service="cart"` or `service=~"c.*"`; raises AlertmanagerError."""
    found = _FILTER.fullmatch(text)
    if found is None:
        raise AlertmanagerError(f"bad matcher format: {text[:200]}")
    name, op, value = found.groups()
    if len(value) > 1 and value.startswith('"') and value.endswith('"'):
        value = value[1:-1].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
    return _whole_regex(value, "", name, op) if op.endswith("~") else Matcher(name, op, value)


def _whole_regex(regex: str, prefix: str, name: str = "", op: str = "=~") -> Matcher:
    """Return a matcher of label *name* with *op* (=~ or !~) and *regex*; AlertmanagerError begins with *prefix*."""
    try:
        compile_regex(regex)
    except RegexError as error:
        raise AlertmanagerError(f"{prefix}error parsing regexp: {error}") from error
    return Matcher(name, op, regex)


def _matches_labels(labels: Mapping[str, str], matchers: Sequence[Matcher]) -> bool:
    """Return whether *labels* satisfy all *matchers*; a missing label counts as ""."""
    values = [(matcher, labels.get(matcher.name, "")) for matcher in matchers]
    return all(matcher.test([value])(value) for matcher, value in values)


def _json_reply(content: Any, status: int = 200) -> ApiReply:
    """Return the HTTP reply of *status* with *content* as JSON."""
    return ApiReply(status, json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
