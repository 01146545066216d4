"""What Envoy is told as a sidecar, and what becomes of its spans."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from opsassay.core.schema.faults import CATALOGUE
from opsassay.core.schema.plan import complete_parameters
from opsassay.testbed.catalogue.fault import catalogued
from opsassay.testbed.workload.runtime.sidecar_config import ADMIN, bootstrap, routes
from opsassay.testbed.workload.runtime.sidecar_spans import MOST_NAMES, SidecarSpans, general

BROUGHT = sorted(name for name in CATALOGUE if catalogued(name).by_sidecar)


def hook(name, **parameters):
    return {"type": catalogued(name).hook, "parameters": complete_parameters(catalogued(name).row, parameters)}


def route(*hooks):
    (table,) = routes(hooks, 3)["resources"]
    (virtual_host,) = table["virtual_hosts"]
    (only,) = virtual_host["routes"]
    return only


def test_the_types_that_a_sidecar_brings():
    assert BROUGHT == [
        "HTTPRequestAbort", "HTTPRequestDelay", "HTTPRequestReplaceMethod", "HTTPRequestReplacePath",
        "HTTPResponseAbort", "HTTPResponseDelay", "HTTPResponseReplaceCode",
    ]  # fmt: skip


@pytest.mark.parametrize("name", BROUGHT)
def test_each_type_changes_the_route_and_its_absence_does_not(name):
    assert route(hook(name)) != route() == route({"type": "short_of_memory", "parameters": {}})


def test_without_a_fault_a_route_leads_to_the_program_and_to_nothing_else():
    assert route()["route"] == {"cluster": "program", "timeout": "0s"}
    assert route()["typed_per_filter_config"] == {}
    assert routes((), 7)["version_info"] == "7"


def test_parameters_arrive_in_the_units_of_envoy():
    assert route(hook("HTTPRequestAbort", code=429))["direct_response"] == {"status": 429}
    (delayed,) = route(hook("HTTPRequestDelay", delay_ms=250.0))["typed_per_filter_config"].values()
    assert delayed["delay"]["fixed_delay"] == "0.250000s"
    rewritten = route(hook("HTTPRequestReplacePath", new_path="/a\\1"))["route"]["regex_rewrite"]
    assert rewritten["substitution"] == "/a\\\\1"


def script(*hooks):
    (script,) = route(*hooks)["typed_per_filter_config"].values()
    return script["source_code"]["inline_string"].splitlines()[0]


def test_a_script_is_told_its_numbers_alone():
    assert script(hook("HTTPResponseDelay", delay_ms=300.4)) == 'local asked = {wait_ms = "300", limit_ms = 10300}'
    assert script(hook("HTTPResponseAbort", code=503)) == 'local asked = {status = "503", empty = true}'
    assert script(hook("HTTPResponseReplaceCode", code=418)) == 'local asked = {status = "418"}'
    assert script(hook("HTTPRequestReplaceMethod", method="PUT")) == 'local asked = {method = "PUT"}'


def test_two_faults_act_at_once():
    both = route(hook("HTTPRequestDelay"), hook("HTTPResponseReplaceCode", code=500))
    assert len(both["typed_per_filter_config"]) == 2


def test_the_administration_is_a_socket_for_its_own_user_and_spans_are_sent_in_batches():
    config = bootstrap("orders", "10.77.0.5", 8080, 4318)
    assert config["admin"] == {"address": {"pipe": {"path": ADMIN, "mode": 0o600}}}
    (layer,) = config["layered_runtime"]["layers"]
    flushing = {"min_flush_spans": 500, "flush_interval_ms": 1000}
    assert layer["static_layer"]["tracing"]["opentelemetry"] == flushing
    listeners = json.dumps(config["static_resources"]["listeners"])
    assert listeners.count("socket_address") == 1, "the one in front of the program"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "/"),
        ("/orders", "/orders"),
        ("/orders/17", "/orders/{id}"),
        ("/v1/orders/17/lines", "/v1/orders/{id}/lines"),
        ("/users/0f8fad5b-d9cb-469f-a165-70867728950e", "/users/{id}"),
        ("/sessions/eyJhbGciOiJIUzI1NiJ9", "/sessions/{id}"),
        ("/internationalization", "/internationalization"),
    ],
)
def test_a_name_has_no_part_that_is_drawn(path, name):
    assert general(path) == name


def span(kind=Span.SPAN_KIND_SERVER, parent=b"\1" * 8, **attributes):
    texts = [
        KeyValue(key=key.replace("__", "."), value=AnyValue(string_value=text)) for key, text in attributes.items()
    ]
    return Span(name="ingress", kind=kind, parent_span_id=parent, attributes=texts)


def from_envoy(status="200", path="/items/7", **further):
    url = f"http://back:8080{path}"
    return span(http__method="GET", http__url=url, http__status_code=status, response_flags="DI", component="proxy",
                upstream_cluster="program", node_id="back", request_size="0", response_size="12", **further)  # fmt: skip


def attributes(span):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_a_span_of_envoy_is_told_as_one_of_the_programs_server():
    told = from_envoy()
    assert SidecarSpans().convert(told)
    assert told.name == "GET /items/{id}"
    assert attributes(told) == {
        "url.path": "/items/7", "http.request.method": "GET", "http.response.status_code": 200,
        "http.request.body.size": 0, "http.response.body.size": 12,
    }  # fmt: skip
    assert told.status.code == Status.STATUS_CODE_UNSET


def test_what_failed_is_an_error_and_what_had_no_answer_has_no_status():
    failed, given_up = from_envoy("503", error="true"), from_envoy("0")
    spans = SidecarSpans()
    assert spans.convert(failed)
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert spans.convert(given_up)
    assert "http.response.status_code" not in attributes(given_up)


def test_nothing_of_what_sent_a_span_is_left_and_what_the_program_sent_is():
    sdk = Resource(attributes=[KeyValue(key="telemetry.sdk.name", value=AnyValue(string_value="envoy"))])
    scope = InstrumentationScope(name="envoy", version="1.40.0")
    timed = span(Span.SPAN_KIND_CLIENT, http__url="http://timer/")
    sent = ResourceSpans(resource=sdk, scope_spans=[ScopeSpans(scope=scope, spans=[from_envoy(), timed])])
    own = ResourceSpans.FromString(sent.SerializeToString())
    SidecarSpans().place(sent, from_program=False)
    assert b"envoy" not in sent.SerializeToString()
    assert [one.name for one in sent.scope_spans[0].spans] == ["GET /items/{id}"]
    SidecarSpans().place(own, from_program=True)
    assert (own.resource, own.scope_spans[0].scope, len(own.scope_spans[0].spans)) == (sdk, scope, 2)


def test_what_its_script_asked_for_is_not_told():
    assert not SidecarSpans().convert(span(Span.SPAN_KIND_CLIENT, http__url="http://timer/"))


def test_the_programs_own_span_becomes_a_part_and_gives_its_name():
    spans, own = SidecarSpans(), span(http__request__method="GET", url__path="/items/8", http__route="/items/:id")
    spans.learn(own)
    assert own.kind == Span.SPAN_KIND_INTERNAL
    told = from_envoy()
    spans.convert(told)
    assert told.name == "GET /items/:id"


def test_what_passes_the_sidecar_by_stays_as_it_is():
    probed, called = span(parent=b""), span(Span.SPAN_KIND_CLIENT)
    for one in (probed, called):
        before = Span.FromString(one.SerializeToString())
        SidecarSpans().learn(one)
        assert one == before


def test_there_are_no_more_names_than_a_reader_can_use():
    spans, names = SidecarSpans(), set()
    for number in range(2 * MOST_NAMES):
        told = from_envoy(path=f"/word{number}")
        spans.convert(told)
        names.add(told.name)
    assert len(names) == MOST_NAMES + 1
    assert "GET" in names
