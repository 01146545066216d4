"""The report says why each path was accepted or rejected."""

from __future__ import annotations

import pytest

from annotation import systems
from annotation.cascade import Effect, fault, make_pack
from opsassay.annotation.verdict.annotate import annotate
from opsassay.annotation.verdict.explain import GATES, explain
from opsassay.ui.view import explain_view

EFFECT = Effect(own_ms={"payment": 300})


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return make_pack(tmp_path_factory.mktemp("explain") / "pack", systems.deep(), EFFECT)


@pytest.fixture(scope="module")
def annotation(pack):
    return annotate(pack, [fault("HTTPResponseDelay", "payment", EFFECT)])


def test_every_hop_of_an_accepted_path_has_its_rule_and_what_carried_it(annotation):
    told = explain(annotation)
    (longest,) = [p for p in told.accepted if p.path.endswith("gateway::POST /checkout")]
    assert longest.path == ("service payment → payment::POST /charge → orders::POST /orders → gateway::POST /checkout")
    assert ["by S-01" in longest.reasons[0], *("by H-01" in r for r in longest.reasons[1:])] == [True] * 3
    assert all("of its added time is the root's" in reason for reason in longest.reasons)


NO_DIRECTION = "0 of 2 links of bank are slower or break, in no direction"


def test_a_rejected_path_has_the_first_gate_that_it_failed(pack):
    told = explain(annotate(pack, [fault("HTTPResponseDelay", "bank", EFFECT)]))
    assert [(p.path, p.gate, p.reasons) for p in told.rejected] == [
        ("service bank", "signature", (f"bank spends no more time of its own than before; {NO_DIRECTION}",))
    ]
    assert f"Rejected: 1 at signature ({GATES['signature']})." in told.summary


def test_the_view_holds_the_same(annotation):
    view = explain_view(annotation)
    assert len(view["accepted"]) == len(annotation.paths)
    assert [row[1] for row in view["rejected"]] == [r.gate for r in annotation.rejected]
    assert explain_view(None) is None
