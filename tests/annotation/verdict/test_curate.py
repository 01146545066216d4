"""Curation: what is screened out, the two passes, the caps, and the order."""

from __future__ import annotations

from opsassay.annotation.verdict.curate import SuiteCandidate, curate, depth, unfit
from opsassay.core.schema.causal_graph import Annotation, CausalEdge, CausalGraph, CausalNode
from opsassay.core.schema.incident import Label


def candidate(id_, *pairs, root="c", alarm="a", type_="NetworkDelay", label=Label.ATTRIBUTED, system="shop"):
    """A cascade of services from edges like 'c>b'; the root may stand alone."""
    edges = tuple(CausalEdge(source=f"span|{a}::x", target=f"span|{b}::x") for a, b in (p.split(">") for p in pairs))
    names = sorted({name for p in pairs for name in p.split(">")} | {root})
    nodes = tuple(CausalNode(component=f"span|{n}::x") for n in names)
    graph = CausalGraph(
        fault_types=(type_,),
        nodes=nodes,
        edges=edges,
        root_causes=(CausalNode(component=f"span|{root}::x"),),
        alarm_nodes=(CausalNode(component=f"span|{alarm}::x"),),
        component_to_service={f"span|{n}::x": n for n in names},
    )
    return SuiteCandidate(id_, system, Annotation(label=label, reason="", graph=graph))


CHAIN = ("c>b", "b>a")


def test_screens_in_their_order():
    assert unfit(candidate("1", *CHAIN)) is None
    assert "unexplained" in unfit(candidate("2", *CHAIN, label=Label.UNEXPLAINED))
    assert "cycle" in unfit(candidate("3", "c>b", "b>c", "b>a"))
    assert "1 services deep" in unfit(candidate("4", "c>a"))
    assert "where users enter" in unfit(candidate("5", "a>b", "b>c", root="a"))


def calm(id_, system="shop", done="quiet", label=Label.NO_EFFECT):
    """A case in which nothing was broken."""
    return SuiteCandidate(id_, system, Annotation(label=label, reason="", graph=CausalGraph()), done)


def test_where_nothing_was_broken_no_cascade_is_asked_for_and_a_drift_is_a_reason():
    assert unfit(calm("1")) is None
    assert unfit(calm("2", label=Label.UNEXPLAINED)) is None
    assert "nothing was broken, and it is drifted" in unfit(calm("3", label=Label.DRIFTED))


def test_every_system_has_a_case_without_a_fault_before_a_small_suite_is_full():
    broken = [candidate(f"b{n}", *CHAIN, type_=type_) for n, type_ in enumerate(("PodKill", "CPUStress", "DNSError"))]
    quiet = [calm("q1"), calm("q2"), calm("q3", done="load_surge"), calm("q4", system="train")]
    assert {c.id for c in curate([*broken, *quiet], size=4).taken} == {"q1", "q4", "b0", "b1"}
    assert {c.id for c in curate([*broken, *quiet], size=2).taken} == {"q1", "b0"}
    assert {c.id for c in curate([*broken, *quiet], per_stratum=1).taken} == {"q1", "q3", "q4", "b0", "b1", "b2"}


def test_depth_is_the_longest_way_between_services():
    assert depth(candidate("1", "d>c", "c>b", "b>a", "d>a").annotation.graph) == 3


def test_every_stratum_gets_its_largest_case_before_any_gets_a_second():
    cases = [
        candidate("a1", *CHAIN),
        candidate("a2", "c>b", "b>a", "c>a"),
        candidate("a3", "d>c", "c>b", "b>a", root="d"),
        candidate("b1", *CHAIN, type_="PodKill"),
    ]
    # The smaller case of NetworkDelay at c comes last: both other strata and its larger sister go before it.
    assert [c.id for c in curate(cases, per_stratum=2, size=3).taken] == ["a2", "a3", "b1"]
    assert curate(cases, per_stratum=2, size=3).left_out == {"a1": "the suite has 3 already"}
    assert curate(cases, per_stratum=1).left_out == {"a1": "its stratum has 1 already"}
    assert len(curate(cases, per_stratum=2).taken) == 4


def test_the_order_of_candidates_does_not_matter():
    cases = [candidate(str(n), *CHAIN, system=f"s{n % 2}") for n in range(9)]
    assert curate(cases).taken == curate(reversed(cases)).taken
