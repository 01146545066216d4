"""Faults at the HTTP boundary of a service."""

from __future__ import annotations

from opsassay.core.schema.faults import Actuator, Category, Channel, FaultKind, Layer, Level
from opsassay.testbed.catalogue.fault import DELAY, INSIDE_A_PROCESS, FamilyTraits, serves_http, text, whole
from opsassay.testbed.catalogue.measures import calls_fail, handling_fails, handling_slow

_CODE = whole("code", 500, "HTTP status that the caller sees", 400, 599)

_FAMILY = FamilyTraits(
    Category.HTTP,
    Layer.APPLICATION,
    (Level.SERVICE, Level.SPAN),
    Channel.HORIZONTAL,
    Actuator.RUNTIME_HOOK,
    INSIDE_A_PROCESS,
    parameters=(text("operation", None, "the operation that is hit; all of the service's when left out"),),
    objections=serves_http,
)


FAMILY = (
    _FAMILY.fault(
        "HTTPRequestAbort",
        FaultKind.HTTP_ABORTED,
        _CODE,
        signature=handling_fails,
        hook="abort_request",
        by_sidecar=True,
    ),
    _FAMILY.fault(
        "HTTPResponseAbort",
        FaultKind.HTTP_ABORTED,
        _CODE,
        signature=handling_fails,
        hook="abort_response",
        by_sidecar=True,
    ),
    _FAMILY.fault(
        "HTTPRequestDelay", FaultKind.HTTP_SLOW, DELAY, signature=handling_slow, hook="delay_request", by_sidecar=True
    ),
    _FAMILY.fault(
        "HTTPResponseDelay", FaultKind.HTTP_SLOW, DELAY, signature=handling_slow, hook="delay_response", by_sidecar=True
    ),
    _FAMILY.fault(
        "HTTPResponseReplaceBody",
        FaultKind.HTTP_PAYLOAD_MODIFIED,
        text("body_type", "empty", "what the body becomes", ("empty", "random")),
        signature=calls_fail,
        hook="replace_body",
    ),
    _FAMILY.fault(
        "HTTPResponsePatchBody",
        FaultKind.HTTP_PAYLOAD_MODIFIED,
        text("patch", '{"patched": true}', "JSON merged into the body"),
        signature=calls_fail,
        hook="patch_body",
    ),
    _FAMILY.fault(
        "HTTPRequestReplacePath",
        FaultKind.HTTP_PAYLOAD_MODIFIED,
        text("new_path", "/nowhere", "the path that the service sees"),
        signature=calls_fail,
        hook="replace_path",
        by_sidecar=True,
    ),
    _FAMILY.fault(
        "HTTPRequestReplaceMethod",
        FaultKind.HTTP_PAYLOAD_MODIFIED,
        text("method", "DELETE", "the method that the service sees", ("GET", "POST", "PUT", "DELETE", "PATCH")),
        signature=calls_fail,
        hook="replace_method",
        by_sidecar=True,
    ),
    _FAMILY.fault(
        "HTTPResponseReplaceCode",
        FaultKind.HTTP_RESPONSE_STATUS_MODIFIED,
        _CODE,
        signature=calls_fail,
        hook="replace_code",
        by_sidecar=True,
    ),
)
