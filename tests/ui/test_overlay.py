"""The true cascade and answers held against it."""

from __future__ import annotations

import pytest

from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.incident import Fault, Label, RootLabel, Truth
from opsassay.ui.overlay import OverlayMark, answer_overlay, root_groups, truth_overlay

from . import cases


def marks(overlay):
    return {n.service: n.mark.value for n in overlay.nodes}, {(e.source, e.target): e.mark.value for e in overlay.edges}


def network_truth(roots=()):
    fault = Fault(type="NetworkDelay", service="cart", peer="pricing", start_ns=1, end_ns=2)
    return Truth(id="x", system="shop", faults=(fault,), roots=roots)


def test_the_truth_shows_roots_affected_services_alarms_and_onsets():
    overlay = truth_overlay(cases.truth(), cases.annotation())
    assert marks(overlay)[0] == {
        "pricing": "root",
        "cart": "affected",
        "checkout": "affected",
        "frontend": "alarm",
        "gateway": "alarm",
    }
    pricing = next(n for n in overlay.nodes if n.service == "pricing")
    assert (pricing.states, pricing.onset_ns) == (("slow",), cases.BOUNDARY + int(6.4 * cases.S))
    assert len(overlay.edges) == 5
    assert overlay.edges[0].rules == ("caller waits for callee",)


def test_an_answer_is_split_into_right_missing_and_wrong():
    said = cases.diagnosis("cart", [("pricing", "cart"), ("catalogue", "frontend")])
    nodes, edges = marks(answer_overlay(said, cases.truth(), cases.annotation()))
    assert nodes == {"cart": "wrong", "pricing": "missing"}
    assert edges == {
        ("pricing", "cart"): "agrees",
        ("catalogue", "frontend"): "wrong",
        ("cart", "checkout"): "missing",
        ("cart", "frontend"): "missing",
        ("checkout", "frontend"): "missing",
        ("frontend", "gateway"): "missing",
    }


def test_names_are_compared_as_in_grading():
    said = cases.diagnosis("Pri-Cing", [("PRICING", "cart")])
    nodes, edges = marks(answer_overlay(said, cases.truth(), cases.annotation(), ["pricing"]))
    assert nodes == {"pricing": "agrees"}
    assert edges["pricing", "cart"] == "agrees"


@pytest.mark.parametrize("roots", [(), (RootLabel(service=("cart", "pricing")),), (RootLabel(service=("cart",)),)])
@pytest.mark.parametrize("named", ["cart", "pricing"])
def test_either_end_of_a_faulted_link_is_right_and_the_other_is_not_missing(named, roots):
    assert marks(answer_overlay(cases.diagnosis(named), network_truth(roots), None))[0] == {named: "agrees"}


def test_two_roots_that_are_not_a_link_are_both_wanted():
    truth = cases.truth().model_copy(update={"roots": (RootLabel(service=("pricing", "payment")),)})
    assert marks(answer_overlay(cases.diagnosis("pricing"), truth, None))[0] == {
        "pricing": "agrees",
        "payment": "missing",
    }


def test_in_a_no_fault_case_every_root_is_wrong_and_silence_is_right():
    truth = cases.no_fault_truth("n")
    assert root_groups(truth, None) == []
    assert marks(answer_overlay(cases.diagnosis("cart"), truth, None))[0] == {"cart": "wrong"}
    assert answer_overlay(Diagnosis(), truth, None).nodes == ()


def test_without_truth_nothing_is_judged():
    overlay = answer_overlay(cases.diagnosis("cart", [("cart", "frontend")]), None, None)
    assert marks(overlay) == ({"cart": "claimed"}, {("cart", "frontend"): "claimed"})
    assert not overlay.judged_roots
    assert not overlay.judged_edges


def test_edges_of_a_case_that_is_not_attributed_are_not_judged():
    note = cases.annotation().model_copy(update={"label": Label.ABSORBED})
    overlay = answer_overlay(cases.diagnosis("cart", [("cart", "frontend")]), cases.truth(), note)
    assert [e.mark for e in overlay.edges] == [OverlayMark.CLAIMED]
    assert overlay.judged_roots


def test_a_solver_without_an_answer_misses_everything():
    overlay = answer_overlay(None, cases.truth(), cases.annotation())
    assert {n.mark for n in overlay.nodes} | {e.mark for e in overlay.edges} == {OverlayMark.MISSING}


def test_a_fault_type_outside_the_catalogue_is_shown_all_the_same():
    fault = Fault(type="NetworkGremlins", service="cart", peer="pricing", start_ns=1, end_ns=2)
    truth = Truth(id="x", system="shop", faults=(fault,))
    assert root_groups(truth, None) == [frozenset({"cart", "pricing"})]
