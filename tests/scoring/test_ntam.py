"""NTAM against Appendix F: the drawn example worked by hand, Figure 30's ordering, and what the appendix leaves open."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsassay.scoring.ntam import Chain, Ntam, chains_of
from opsassay.scoring.topology import Topology, chains, levels
from opsassay.scoring.verdict import grade

from .cases import annotation, answer, finished_run, truth

FIGURE_30 = Topology(
    owns=frozenset({("A1", "A2")}),
    calls=frozenset({("A3", "A2"), ("A4", "A3"), ("A5", "A2"), ("A6", "A2"), ("A6", "A7")}),
)
"""Deployment A1 owns pod A2; A3 calls A2 and A4 calls A3 (the chain A2, A3, A4); A6 calls A2 and A7, A5 only A2."""

TRUTH = chains_of([("A2", "A3"), ("A3", "A4")], ["A2"], FIGURE_30)


def alone(entity: str) -> tuple[Chain, ...]:
    return chains_of([], [entity], FIGURE_30)


def test_identity_is_one() -> None:
    match = Ntam(FIGURE_30)
    assert match.propagation(TRUTH, TRUTH) == match.localisation(TRUTH, TRUTH) == 1.0


def test_the_ordering_of_figure_30() -> None:
    # the pod itself, its deployment, the caller of nothing else, the caller of another as well, that other one
    scores = [Ntam(FIGURE_30).localisation(TRUTH, alone(name)) for name in ("A2", "A1", "A5", "A6", "A7")]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 5


def test_the_worked_example_of_the_documentation() -> None:
    """docs/grading.md, "NTAM by hand": the answer names the deployment A1 for the pod A2."""
    # levels A2 = 3 = K, A3 = 2, A4 = 1, so GI = 4, 2, 4/3; entering A1 costs 1 x subtree {A1, A2} = 2
    gi = {"A2": 4 / 1, "A3": 4 / 2, "A4": 4 / 3}
    to_a1 = {"A2": 2.0, "A3": 2.1 * 1 + 2.0, "A4": 2.1 * 2 + 2.1 * 1 + 2.0}
    itd = {g: gi[g] * (1 / (to_a1[g] + 1)) ** 0.289 for g in gi}
    to_a2 = {"A2": 0.0, "A3": 2.1 * 1, "A4": 2.1 * 2 + 2.1 * 1}
    ideal = {g: gi[g] * (1 / (to_a2[g] + 1)) ** 0.289 for g in gi}
    expected = (itd["A2"] * sum(itd.values()) / 3) / (ideal["A2"] * sum(ideal.values()) / 3)
    page = (Path(__file__).parents[2] / "docs" / "grading.md").read_text()
    assert f"FL (NTAM) = {expected:.10f}." in page
    assert Ntam(FIGURE_30).localisation(TRUTH, alone("A1")) == pytest.approx(expected, abs=1e-9)
    # as a chain of one entity against three: sum of S1 over g, times S2, over (|1 - 3| + 1) ** 0.5
    score = sum(itd.values()) * (sum(itd.values()) / 3) / math.sqrt(3)
    distances = {
        ("A2", "A3"): 2.1 * 2, ("A2", "A4"): 2.1 * 2 + 2.1 * 3, ("A3", "A4"): 2.1 * 3,
        ("A3", "A2"): 2.1, ("A4", "A2"): 2.1 * 2 + 2.1, ("A4", "A3"): 2.1 * 2,
    }  # fmt: skip

    def near(g: str, o: str) -> float:
        return gi[g] * (1 / (distances.get((g, o), 0.0) + 1)) ** 0.289

    best = max(sum(near(g, o) for g in gi) / 3 for o in gi)
    perfect = sum(gi.values()) * best
    assert score / perfect == pytest.approx(0.30036544755, abs=1e-9)
    assert Ntam(FIGURE_30).propagation(TRUTH, alone("A1")) == pytest.approx(score / perfect, abs=1e-9)


def test_a_hub_can_exceed_one_and_is_clamped() -> None:
    # the root R owns 1,000 nodes, so coming to it is dear; the hub H, owned by all, is cheap for everyone
    hub = Topology(
        owns=frozenset({(name, "H") for name in ("R", "x", "y", "z")} | {("R", f"node-{i}") for i in range(1000)})
    )
    true = chains_of([("R", "x"), ("x", "y"), ("y", "z")], ["R"], hub)
    match, claimed = Ntam(hub), chains_of([], ["H"], hub)
    assert match.localisation_unclamped(true, claimed) > 1.2
    assert match.localisation(true, claimed) == 1.0


def test_an_unknown_or_unreachable_entity_earns_nothing_and_is_counted() -> None:
    island = Topology(calls=FIGURE_30.calls, owns=FIGURE_30.owns, entities=frozenset({"far"}))
    match = Ntam(island)
    assert match.localisation(TRUTH, alone("nobody")) == match.localisation(TRUTH, alone("far")) == 0.0
    two = chains_of([], ["A2", "nobody"], island)  # two chains against one
    assert match.localisation(TRUTH, two) == pytest.approx(1 / math.sqrt(2))


def test_no_answer_is_zero() -> None:
    assert Ntam(FIGURE_30).localisation(TRUTH, ()) == Ntam(FIGURE_30).propagation(TRUTH, ()) == 0.0


def test_aliases_are_one_entity() -> None:
    same = Topology(owns=FIGURE_30.owns, calls=FIGURE_30.calls, aliases=(frozenset({"A2", "a2-service"}),))
    named = chains_of([("a2-service", "A3"), ("A3", "A4")], ["a2-service"], same)
    assert Ntam(same).propagation(chains_of([("A2", "A3"), ("A3", "A4")], ["A2"], same), named) == 1.0


def test_a_dag_is_cut_into_chains_from_roots_to_leaves_and_a_cycle_is_one_level() -> None:
    edges = [("r", "a"), ("r", "b"), ("a", "c"), ("b", "c"), ("c", "d"), ("d", "c")]
    assert chains(edges, ["r"], 10) == (("r", "a", "c", "d"), ("r", "b", "c", "d"))
    assert levels(edges, ["r"]) == {"c": 1, "d": 1, "a": 2, "b": 2, "r": 3}
    assert chains([("a", "b"), ("b", "a")], [], 10) == (("a", "b"),)


def test_ten_thousand_edges_end() -> None:
    layers = [[f"{layer}-{i}" for i in range(10)] for layer in range(101)]
    edges = [(a, b) for upper, lower in itertools.pairwise(layers) for a in upper for b in lower]
    assert len(edges) == 10_000
    assert len(chains(edges, [layers[0][0]], 200)) == 200


entities = st.sampled_from(["A1", "A2", "A3", "A4", "A5", "A6", "A7", "nobody"])


@given(edges=st.lists(st.tuples(entities, entities), max_size=8), roots=st.lists(entities, max_size=3))
def test_every_score_lies_between_zero_and_one(edges: list[tuple[str, str]], roots: list[str]) -> None:
    claimed = chains_of(edges, roots, FIGURE_30)
    for score in (Ntam(FIGURE_30).propagation(TRUTH, claimed), Ntam(FIGURE_30).localisation(TRUTH, claimed)):
        assert 0.0 <= score <= 1.0


def test_a_verdict_has_both_scores_when_the_topology_is_at_hand() -> None:
    system = Topology(calls=frozenset({("frontend", "cart"), ("cart", "store")}))
    case = (truth(("CPUStress", "store")), annotation("store>cart cart>frontend", "frontend"))
    case[1].graph.root_causes  # noqa: B018 - the roots of a verified cascade are what is matched
    graph = case[1].graph.model_copy(update={"root_causes": (case[1].graph.nodes[2],)})
    verified = case[1].model_copy(update={"graph": graph})
    right = answer(("store", None), edges="store>cart cart>frontend")
    metrics = grade(finished_run(), right, case[0], verified, None, topology=system).metrics
    assert (metrics["ntam_fl"].value, metrics["ntam_fpc"].value) == (1.0, 1.0)
    without = grade(finished_run(), right, case[0], verified, None).metrics
    assert without["ntam_fl"].status.value == "not_applicable"
