"""Answers that go below the service are graded at the level that they give."""

from __future__ import annotations

import pytest

from opsassay.core.schema.causal_graph import Annotation, CausalGraph
from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim
from opsassay.core.schema.incident import Label, RootLabel, Truth
from opsassay.scoring.profiles import PROFILES
from opsassay.scoring.verdict import grade, level_metrics

from .cases import finished_run, no_fault, truth

ROOT = RootLabel(service=("ts-order-service",), pod=("order-1", "order-2"), function=("Order.create",))
SPANS = RootLabel(service=("ts-order-service",), span=("POST /orders",))
KNOWN = truth(("JVMLatency", "ts-order-service")).model_copy(update={"roots": (ROOT,)})
NOTED = Annotation(label=Label.ABSORBED, reason="", graph=CausalGraph(), roots=(SPANS,))


def claim(level, component, service="order-service"):
    return RootCauseClaim(service=service, level=level, component=component)


def match(*claims, of: Truth = KNOWN, noted: Annotation | None = NOTED):
    return level_metrics(claims, of, noted, PROFILES["default"])["component_match"]


@pytest.mark.parametrize(
    ("claims", "value"),
    [
        ([claim("pod", "order-2")], 1.0),
        ([claim("pod", " Order-1 ")], 1.0),
        ([claim("pod", "order-3")], 0.0),
        ([claim("pod", "order-1", service="cart")], 0.0),
        ([claim("function", "Order.create"), claim("pod", "cart-1", service="cart")], 0.5),
        ([claim("span", "POST /orders")], 1.0),
        ([claim("pod", None)], 0.0),
        ([claim("container", "app"), claim("pod", "order-1")], 1.0),
    ],
)
def test_a_component_is_right_at_its_level_and_at_its_service(claims, value):
    assert match(*claims).value == value


def test_what_cannot_be_graded_says_why():
    assert match(claim("service", None)).reason == "no claim goes below the service"
    assert match().reason == "no claim goes below the service"
    assert match(claim("container", "app")).reason == "the truth names no container"
    assert match(claim("span", "POST /orders"), noted=None).reason == "the truth names no span"
    assert match(claim("pod", "order-1"), of=no_fault()).reason == "nothing was broken"


def test_the_service_is_graded_whatever_the_level():
    answer = Diagnosis(root_causes=(claim("pod", "order-9"),))
    verdict = grade(finished_run(), answer, KNOWN, None, None)
    assert (verdict.metrics["any_service"].value, verdict.metrics["component_match"].value) == (1.0, 0.0)
