"""Root causes, by hand and by property."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim
from opsassay.core.schema.faults import CATALOGUE
from opsassay.core.schema.faults import FaultKind as K
from opsassay.core.schema.incident import Truth
from opsassay.scoring.outcome import match, true_roots
from opsassay.scoring.profiles import PROFILES, profile_named
from opsassay.scoring.verdict import grade

from .cases import answer, finished_run, labelled, no_fault, ranking_only_run, truth

DEFAULT = PROFILES["default"]
PAIR = ("precision", "recall", "f1", "exact_match")


def values(diagnosis: Diagnosis, of: Truth, profile: str = "default", **run: Any) -> dict[str, float | None]:
    verdict = grade(finished_run(**run), diagnosis, of, None, None, profile_named(profile))
    return {name: metric.value for name, metric in verdict.metrics.items()}


def test_two_faults_and_three_claims() -> None:
    got = values(
        answer(("cart", K.CPU_STRESS), ("ts-Order", K.HTTP_SLOW), ("web", K.MEM_STRESS)),
        truth(("CPUStress", "cart"), ("PodKill", "order")),
    )
    assert got["precision"] == pytest.approx(1 / 3)
    assert got["recall"] == pytest.approx(1 / 2)
    assert got["f1"] == pytest.approx(2 / 5)
    assert got["exact_match"] == 0
    assert got["any_service"] == 1
    assert got["fault_kind_accuracy"] == pytest.approx(1 / 2)  # cart right, order wrong


def test_right_service_wrong_kind_is_a_service_hit_only() -> None:
    got = values(answer(("cart", K.MEM_STRESS)), truth(("CPUStress", "cart")))
    assert [got[name] for name in PAIR] == [0, 0, 0, 0]
    assert (got["any_service"], got["fault_kind_accuracy"]) == (1, 0)


def test_a_network_fault_may_be_named_at_either_end_once() -> None:
    fault = truth(("NetworkDelay", "cart", "redis"))
    assert values(answer(("redis", K.NETWORK_DELAY)), fault)["exact_match"] == 1
    both = values(answer(("redis", K.NETWORK_DELAY), ("cart", K.NETWORK_DELAY)), fault)
    assert (both["precision"], both["recall"], both["exact_match"]) == (0.5, 1, 0)


def test_the_peer_of_another_fault_is_not_an_answer() -> None:
    assert values(answer(("redis", K.DNS_RESOLUTION_FAILED)), truth(("DNSError", "cart", "redis")))["any_service"] == 0


def test_matching_finds_the_full_hits_that_a_greedy_walk_would_lose() -> None:
    # Claim cart fits both faults, claim redis only the first: taking the first for cart leaves redis without one.
    faults = truth(("NetworkDelay", "cart", "redis"), ("NetworkDelay", "cart"))
    got = values(answer(("cart", K.NETWORK_DELAY), ("redis", K.NETWORK_DELAY)), faults)
    assert got["exact_match"] == 1


def test_naming_a_pair_twice_is_one_hit_and_one_miss() -> None:
    got = values(answer(("cart", K.CPU_STRESS), ("cart", K.CPU_STRESS)), truth(("CPUStress", "cart")))
    assert (got["precision"], got["recall"]) == (0.5, 1)


def test_equivalent_kinds_count_only_where_the_profile_says_so() -> None:
    pod = answer(("cart", K.POD_UNAVAILABLE)), truth(("PodKill", "cart"))
    link = answer(("cart", K.NETWORK_LOSS)), truth(("NetworkPartition", "cart"))
    assert [values(*pod, p)["exact_match"] for p in ("default", "lenient", "compat")] == [0, 1, 1]
    assert [values(*link, p)["exact_match"] for p in ("default", "lenient", "compat")] == [0, 1, 0]


def test_where_nothing_was_broken_the_empty_answer_is_right() -> None:
    right, wrong = values(answer(), no_fault()), values(answer(("cart", K.CPU_STRESS)), no_fault())
    for name in ("exact_match", "precision", "f1"):
        assert (right[name], wrong[name]) == (1, 0)
    for name in ("recall", "any_service", "fault_kind_accuracy", "path_reachability", "node_f1", "ungrounded"):
        assert (right[name], wrong[name]) == (None, None)


def test_the_empty_answer_is_wrong_where_something_was_broken() -> None:
    got = values(answer(), truth(("CPUStress", "cart")))
    assert [got[name] for name in (*PAIR, "any_service")] == [0, 0, 0, 0, 0]
    assert got["fault_kind_accuracy"] is None


def test_a_solver_declared_to_name_no_kinds_is_graded_on_services() -> None:
    case = answer(("cart", None)), truth(("CPUStress", "cart"))
    declared = grade(ranking_only_run(), *case, None, None).metrics
    assert declared["any_service"].value == 1
    for name in (*PAIR, "fault_kind_accuracy"):
        assert declared[name].status == "not_applicable"
        assert "names no fault kinds" in declared[name].reason


def test_leaving_a_kind_out_without_declaring_it_is_a_miss() -> None:
    got = values(answer(("cart", None)), truth(("CPUStress", "cart")))
    assert (got["precision"], got["any_service"], got["fault_kind_accuracy"]) == (0, 1, 0)


def test_labels_of_unknown_kind_leave_the_service_to_grade() -> None:
    metrics = grade(finished_run(), answer(("cart", K.CPU_STRESS)), labelled("cart"), None, None).metrics
    assert metrics["any_service"].value == 1
    assert metrics["f1"].status == "not_applicable"


def test_a_named_root_beside_no_fault_is_a_root() -> None:
    said = no_fault().model_copy(update={"roots": labelled("cart").roots})
    empty, right = (
        grade(finished_run(), given, said, None, None).metrics for given in (answer(), answer(("cart", None)))
    )
    assert (empty["any_service"].value, right["any_service"].value) == (0, 1)
    assert empty["exact_match"].value is None  # "nothing is wrong" is not right


def test_a_truth_that_states_nothing_is_not_taken_for_a_quiet_system() -> None:
    silent = Truth(id="i", system="s")
    metrics = grade(finished_run(), answer(), silent, None, None).metrics
    assert {metrics[name].status.value for name in (*PAIR, "any_service")} == {"not_applicable"}


# Properties -----------------------------------------------------------------------------------------------------------

SERVICES = st.sampled_from(["cart", "order", "web", "redis"])
TYPES = st.sampled_from(["CPUStress", "PodKill", "NetworkDelay", "NetworkPartition"])
FAULTS = st.lists(st.tuples(TYPES, SERVICES, SERVICES), min_size=1, max_size=4)
KINDS = st.sampled_from([K.CPU_STRESS, K.POD_FAILURE, K.POD_UNAVAILABLE, K.NETWORK_DELAY, K.NETWORK_LOSS, None])
CLAIMS = st.lists(st.tuples(SERVICES, KINDS), max_size=4)
PROFILE = st.sampled_from(sorted(PROFILES))


ORDERLESS = st.sampled_from(sorted(PROFILES.keys() - {"compat"}))
"""The public scorer pairs greedily."""


@given(FAULTS, CLAIMS, ORDERLESS, st.randoms(use_true_random=False))
def test_order_does_not_matter(faults: list[Any], claims: list[Any], profile: str, rng: random.Random) -> None:
    shuffled_faults, shuffled_claims = rng.sample(faults, len(faults)), rng.sample(claims, len(claims))
    one = values(answer(*claims), truth(*faults), profile)
    other = values(answer(*shuffled_claims), truth(*shuffled_faults), profile)
    if len({service for service, _ in claims}) > 3:  # of many services any_service counts the first
        del one["any_service"], other["any_service"]
    assert one == other


def test_order_matters_to_the_public_scorer() -> None:
    faults = [("CPUStress", "cart", "cart"), ("NetworkDelay", "cart", "order")]
    claims = [("cart", K.NETWORK_DELAY), ("order", K.NETWORK_DELAY)]
    got = [values(answer(*said), truth(*faults), "compat")["fault_kind_accuracy"] for said in (claims, claims[::-1])]
    assert got == [1.0, 0.5]


@given(FAULTS, PROFILE)
def test_the_truth_as_an_answer_gets_everything(faults: list[Any], profile: str) -> None:
    got = values(answer(*((service, CATALOGUE[type_].kind) for type_, service, _ in faults)), truth(*faults), profile)
    assert {got[name] for name in (*PAIR, "any_service", "fault_kind_accuracy")} == {1.0}


@given(FAULTS, CLAIMS, ORDERLESS)
def test_the_assignment_is_the_best_of_all_assignments(faults: list[Any], claims: list[Any], profile: str) -> None:
    chosen = profile_named(profile)
    roots = true_roots(truth(*faults), chosen)
    made = [RootCauseClaim(service=s, fault_kind=k) for s, k in claims]
    got = match(made, roots, chosen)
    size = max(len(made), len(roots))
    best = (0, 0)
    for order in itertools.permutations(range(size), len(made)):
        pairs = [(c, roots[j]) for c, j in zip(made, order, strict=True) if j < len(roots)]
        services = [p for p in pairs if chosen.service(p[0].service) in p[1].services]
        full = sum(chosen.same_kind(c.fault_kind, r.kind) for c, r in services)
        best = max(best, (full, len(services)))
    assert (sum(m.full for m in got), len(got)) == best
