"""Spans of a sidecar, in the form that the program's own server would give them: no word of a proxy or of a fault.

Only what is named here is kept of a span: Envoy's flags say which request it delayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status

MOST_NAMES = 200
"""So many operations get a name with their path; further ones are named by their method alone."""
TEXTS = {"http.method": "http.request.method", "user_agent": "user_agent.original"}
NUMBERS = {
    "http.status_code": "http.response.status_code",
    "request_size": "http.request.body.size",
    "response_size": "http.response.body.size",
    "grpc.status_code": "rpc.grpc.status_code",
}
METHODS, ROUTES = ("http.request.method", "http.method"), ("http.route",)
PATHS = ("url.path", "http.target", "url.full", "http.url")
_DRAWN = re.compile(r"\d+|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|(?=.*\d)[\w.=-]{16,}")
"""A part of a path that is another in each request: a number, a UUID, a long word with a digit."""


class SidecarSpans:
    """Names the spans of one sidecar, by the program's own names where it sends spans, else by method and path."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def place(self, group: ResourceSpans, *, from_program: bool) -> None:
        """Make the sidecar's spans in *group* server spans; if *from_program*, they become inner spans."""
        for scope in group.scope_spans:
            if from_program:
                for span in scope.spans:
                    self.learn(span)
                continue
            kept = [span for span in scope.spans if self.convert(span)]
            scope.Clear()
            scope.spans.extend(kept)
        if not from_program:
            group.resource.Clear()  # it names the library that sent them

    def convert(self, span: Span) -> bool:
        """Change the sidecar's *span* into a server span of the program; return whether it is of a request."""
        if span.kind != Span.SPAN_KIND_SERVER:
            return False  # what its script asked for
        fields = {one.key: one.value.string_value for one in span.attributes}
        path = urlsplit(fields.get("http.url", "")).path or "/"
        span.name = self._name_of_span(fields.get("http.method", ""), path)
        del span.attributes[:]
        span.attributes.extend([_text_attribute("url.path", path), *_kept_attributes(fields)])
        failed = fields.get("error") == "true"
        span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR) if failed else Status())
        span.trace_state = ""
        return True

    def learn(self, span: Span) -> None:
        """Make the program's server *span* an inner one of the sidecar's, and record its name."""
        if span.kind != Span.SPAN_KIND_SERVER or not any(span.parent_span_id):
            return
        span.kind = Span.SPAN_KIND_INTERNAL
        fields = {one.key: one.value.string_value for one in span.attributes}
        method, path, route = (_first_field(fields, names) for names in (METHODS, PATHS, ROUTES))
        if route and len(self._names) < MOST_NAMES:
            self._names[f"{method} {general(urlsplit(path).path)}"] = f"{method} {route}"

    def _name_of_span(self, method: str, path: str) -> str:
        """Return "METHOD path" with ids in the path replaced; only the method once there are MOST_NAMES names."""
        asked = f"{method} {general(path)}"
        if asked not in self._names and len(self._names) >= MOST_NAMES:
            return method
        return self._names.setdefault(asked, asked)


def general(path: str) -> str:
    """Return *path* with each part that looks like an id replaced by ``{id}``: ``/orders/{id}``."""
    return "/".join("{id}" if _DRAWN.fullmatch(part) else part for part in path.split("/"))


def _kept_attributes(fields: dict[str, str]) -> Iterator[KeyValue]:
    """Yield the span attributes for the *fields* of a sidecar's span."""
    for name, ours in TEXTS.items():
        if value := fields.get(name):
            yield _text_attribute(ours, value)
    for name, ours in NUMBERS.items():
        if (value := fields.get(name, "")).isdigit() and (int(value) or not name.startswith("http")):
            yield KeyValue(key=ours, value=AnyValue(int_value=int(value)))  # 0 where a request had no answer


def _text_attribute(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def _first_field(fields: dict[str, str], names: tuple[str, ...]) -> str:
    """Return the value of the first of *names* in *fields*, '' without one."""
    return next((fields[name] for name in names if fields.get(name)), "")
