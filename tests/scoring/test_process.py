"""The cascade, by hand and by property."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsassay.core.schema.causal_graph import Annotation
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.faults import FaultKind as K
from opsassay.core.schema.incident import Label, Truth
from opsassay.scoring.process import path_exists
from opsassay.scoring.profiles import PROFILES, profile_named
from opsassay.scoring.verdict import grade

from .cases import annotation, answer, finished_run, no_fault, ranking_only_run, truth

CPU_ON_CART = truth(("CPUStress", "cart"))
CASCADE = annotation("cart>order order>web", alarms="web")


def values(
    diagnosis: Diagnosis, of: Annotation | None = CASCADE, against: Truth = CPU_ON_CART, profile: str = "default"
) -> dict[str, float | None]:
    verdict = grade(finished_run(), diagnosis, against, of, None, profile_named(profile))
    return {name: metric.value for name, metric in verdict.metrics.items()}


def claim(edges: str, service: str = "cart", kind: K = K.CPU_STRESS) -> Diagnosis:
    return answer((service, kind), edges=edges)


def test_nodes_and_edges_are_compared_as_sets_with_direction() -> None:
    got = values(claim("cart>order web>order cart>order"))
    assert (got["edge_precision"], got["edge_recall"], got["edge_f1"]) == (1 / 2, 1 / 2, 1 / 2)
    assert (got["node_precision"], got["node_recall"], got["node_f1"]) == (1, 1, 1)


def test_no_edges_on_both_sides_is_perfect_and_on_one_side_is_zero() -> None:
    alone = annotation("", alarms="cart")
    assert values(claim(""), alone)["edge_f1"] == 1
    assert values(claim("cart>web"), alone)["edge_f1"] == 0
    assert values(claim(""))["edge_f1"] == 0


@pytest.mark.parametrize("client", ["loadgenerator", "Load-Generator", "locust"])
def test_load_generators_count_on_neither_side(client: str) -> None:
    with_load = annotation(f"cart>order order>web web>{client}", alarms=f"web {client}")
    for edges in ("cart>order order>web", f"cart>order order>web web>{client}"):
        for of in (CASCADE, with_load):
            got = values(claim(edges), of)
            assert (got["edge_f1"], got["node_f1"], got["path_reachability"]) == (1, 1, 1)


def test_the_other_end_of_a_load_edge_is_a_node_for_the_public_scorer_only() -> None:
    of = annotation("cart>order", alarms="order", nodes="web")
    assert values(claim("cart>order web>locust"), of)["node_recall"] == pytest.approx(2 / 3)
    assert values(claim("cart>order web>locust"), of, profile="compat")["node_recall"] == 1


def test_a_path_follows_the_claimed_direction() -> None:
    assert values(claim("cart>order order>web"))["path_reachability"] == 1
    backwards = claim("web>order order>cart")
    assert values(backwards)["path_reachability"] == 0
    assert values(backwards)["ungrounded"] == 1
    assert values(backwards, profile="compat")["path_reachability"] == 1


def test_a_path_runs_over_claimed_edges_even_when_they_are_not_true() -> None:
    assert values(claim("cart>web"))["path_reachability"] == 1


def test_a_wrong_root_grounds_nothing_and_is_not_ungrounded() -> None:
    got = values(claim("order>web", service="order"))
    assert (got["any_service"], got["path_reachability"], got["ungrounded"]) == (0, 0, 0)


def test_the_hit_variant_wants_the_kind_too() -> None:
    got = values(claim("cart>web", kind=K.MEM_STRESS))
    assert (got["path_reachability"], got["path_reachability_hit"]) == (1, 0)


def test_the_kind_right_root_must_have_the_path_itself() -> None:
    two = truth(("CPUStress", "cart"), ("PodKill", "redis"))
    got = values(answer(("cart", K.CPU_STRESS), ("redis", K.MEM_STRESS), edges="redis>web"), against=two)
    assert (got["path_reachability"], got["path_reachability_hit"]) == (1, 0)


def test_a_root_that_raises_the_only_alarm_needs_no_edge() -> None:
    alone = annotation("cart>order", alarms="cart")
    assert values(claim(""), alone)["path_reachability"] == 1


def test_a_root_that_raises_one_alarm_of_several_has_to_explain_the_others() -> None:
    several = annotation("cart>order order>web", alarms="cart web")
    assert values(claim(""), several)["path_reachability"] == 0
    assert values(claim(""), several)["ungrounded"] == 1
    assert values(claim("cart>web"), several)["path_reachability"] == 1
    assert values(claim(""), several, profile="compat")["path_reachability_hit"] == 1


def test_a_loop_back_to_the_root_is_no_path() -> None:
    several = annotation("cart>order order>web", alarms="cart web")
    assert values(claim("cart>order order>cart"), several)["path_reachability"] == 0


def test_either_end_of_a_network_fault_may_start_the_path() -> None:
    link = truth(("NetworkDelay", "cart", "redis"))
    assert values(claim("redis>web", service="redis", kind=K.NETWORK_DELAY), against=link)["path_reachability_hit"] == 1


@pytest.mark.parametrize(
    ("of", "against", "reason"),
    [
        (None, CPU_ON_CART, "no annotation"),
        (annotation("cart>web", "web", Label.ABSORBED), CPU_ON_CART, "absorbed"),
        (CASCADE, no_fault(), "nothing was broken"),
    ],
)
def test_without_a_verified_cascade_the_path_is_not_graded(of: Annotation | None, against: Truth, reason: str) -> None:
    metrics = grade(finished_run(), claim("cart>web"), against, of, None).metrics
    for name in ("node_f1", "edge_f1", "path_reachability", "path_reachability_hit", "ungrounded"):
        assert metrics[name].status == "not_applicable"
        assert reason in metrics[name].reason


def test_a_cascade_without_alarms_leaves_nodes_and_edges_to_grade() -> None:
    metrics = grade(finished_run(), claim("cart>order"), CPU_ON_CART, annotation("cart>order", ""), None).metrics
    assert metrics["edge_f1"].value == 1
    assert metrics["path_reachability"].status == metrics["ungrounded"].status == "not_applicable"


def test_a_solver_without_kinds_is_graded_on_its_path() -> None:
    metrics = grade(ranking_only_run(), answer(("cart", None), edges="cart>web"), CPU_ON_CART, CASCADE, None).metrics
    assert metrics["path_reachability"].value == 1
    assert metrics["path_reachability_hit"].status == "not_applicable"


# Properties -----------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["cart", "order", "web", "redis", "locust"])
EDGES = st.lists(st.tuples(NAMES, NAMES), max_size=6)
KINDS = st.sampled_from([K.CPU_STRESS, K.MEM_STRESS])
CLAIMS = st.lists(st.tuples(NAMES, KINDS), max_size=3)


def text(edges: list[tuple[str, str]]) -> str:
    return " ".join(f"{a}>{b}" for a, b in edges)


@given(EDGES, st.lists(NAMES, max_size=3), CLAIMS, EDGES, st.sampled_from(sorted(PROFILES)))
def test_bounds_that_the_paper_states(true: Any, alarms: Any, claims: Any, claimed: Any, profile: str) -> None:
    got = values(answer(*claims, edges=text(claimed)), annotation(text(true), " ".join(alarms)), profile=profile)
    if got["path_reachability"] is None:
        return
    assert got["path_reachability"] <= got["any_service"]
    assert got["path_reachability_hit"] <= got["path_reachability"]
    assert got["path_reachability_hit"] <= got["recall"]  # one fault, so recall is 0 or 1
    assert got["ungrounded"] == got["any_service"] - got["path_reachability"]


@given(EDGES, CLAIMS, EDGES, st.randoms(use_true_random=False))
def test_order_does_not_matter(true: Any, claims: Any, claimed: Any, rng: Any) -> None:
    one = values(answer(*claims, edges=text(claimed)), annotation(text(true), "web"))
    rng.shuffle(true)
    rng.shuffle(claims)
    rng.shuffle(claimed)
    assert one == values(answer(*claims, edges=text(claimed)), annotation(text(true), "web"))


@given(EDGES)
def test_the_verified_cascade_as_an_answer_gets_everything(true: Any) -> None:
    got = values(answer(("cart", K.CPU_STRESS), edges=text(true)), annotation(text(true), "web", nodes="cart"))
    graph = {name: got[name] for name in ("edge_precision", "edge_recall", "edge_f1", "edge_precision")}
    assert set(graph.values()) == {1.0}


@given(EDGES, st.sets(NAMES, max_size=2), st.sets(NAMES, max_size=2), st.booleans())
def test_paths_agree_with_a_closure_by_hand(edges: Any, starts: set[str], ends: set[str], undirected: bool) -> None:
    reach = {(a, b) for a, b in edges} | ({(b, a) for a, b in edges} if undirected else set())
    for _ in range(6):
        reach |= {(a, d) for a, b in reach for c, d in reach if b == c}
    expected = any((a, b) in reach and a != b for a in starts for b in ends)
    assert path_exists(edges, starts, ends, undirected=undirected) == expected
