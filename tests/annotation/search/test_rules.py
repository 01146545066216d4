"""The rule table is the paper's Table 7, and every kind of fault has a signature."""

from __future__ import annotations

from opsassay.annotation.evidence.signatures import SIGNATURES
from opsassay.annotation.evidence.states import STATE_OF_REASON
from opsassay.annotation.search.rules import RULES, active_rules
from opsassay.core.schema.faults import FaultKind

TABLE_7 = {
    "C-01": ("vertical", "container", {"cpu", "mem"}, {"lat", "p99", "timeout", "missing", "err"}),
    "C-02": ("vertical", "container", {"restart"}, {"missing", "err", "timeout"}),
    "P-01": ("vertical", "pod", {"cpu", "mem"}, {"lat", "p99", "timeout"}),
    "S-01": ("first-hop", "service", {"*"}, {"lat", "p99", "timeout"}),
    "S-02": ("first-hop", "service", {"err", "unavail"}, {"err", "timeout", "reset", "missing", "log_err"}),
    "H-01": ("horizontal", "span", {"lat", "p99"}, {"lat", "p99", "timeout"}),
    "H-02": ("horizontal", "span", {"err", "timeout"}, {"err", "timeout"}),
    "H-03": ("horizontal", "span", {"missing"}, {"err", "timeout", "missing"}),
    "H-04": ("horizontal", "span", {"err", "missing"}, {"err", "missing"}),
    "H-05": ("horizontal", "span", {"err", "timeout"}, {"timeout"}),
    "H-06": ("horizontal", "span", {"inj_affected"}, {"err", "lat", "p99", "timeout", "missing"}),
    "H-07": ("horizontal", "span", {"healthy"}, {"err", "lat", "p99", "missing"}),
    "X-01": ("cross", "span", {"lat", "p99"}, {"lat", "p99", "timeout"}),
}


def test_the_papers_rules_stand_as_printed():
    ours = {r.id: (r.category, r.source, set(r.states), set(r.effects)) for r in RULES if not r.extension}
    assert ours == TABLE_7
    assert {r.id for r in RULES if r.through_healthy} == {"H-04", "H-07"}
    assert {r.confidence for r in RULES if not r.extension} == {0.8}


def test_extensions_carry_ids_of_their_own_and_can_be_switched_off():
    assert all(r.id.startswith("A-") == r.extension for r in RULES)
    assert {r.id for r in active_rules(extensions=False)} == set(TABLE_7)
    assert "H-01" not in {r.id for r in active_rules(disabled=frozenset({"H-01"}))}


def test_every_state_of_the_rules_is_one_that_a_node_can_have():
    named = {s for r in RULES for s in r.states | r.effects} - {"*", "healthy"}
    assert named <= set(STATE_OF_REASON)


def test_every_fault_kind_has_a_signature():
    assert set(SIGNATURES) == set(FaultKind)
