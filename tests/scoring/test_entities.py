"""ITBench-AA's score: precision at full recall, by hand and against a count over all assignments."""

from __future__ import annotations

import itertools
import random

import pytest

from opsassay.core.schema.faults import FaultKind as K
from opsassay.core.schema.run import MetricStatus, RunStatus
from opsassay.scoring.aggregate import summarise
from opsassay.scoring.verdict import grade

from .cases import answer, finished_run, labelled, no_fault, ranking_only_run, truth

NAME = "precision_at_full_recall"
TWO_ROOTS = truth(("CPUStress", "cart"), ("PodKill", "order"))


def score(claimed, case, run=None):
    return grade(run or finished_run(), answer(*((name, None) for name in claimed)), case, None, None).metrics[NAME]


@pytest.mark.parametrize(
    ("claimed", "expected"),
    [
        (("cart", "order"), 1),
        (("order", "cart"), 1),
        (("cart", "order", "web", "store"), 0.5),
        (("web", "store", "cart", "order"), 0.5),  # the order of the list has no say
        (("cart", "web"), 0),
        (("cart",), 0),
        ((), 0),
        (("cart", "ts-cart", "order"), 1),  # one entity under two names
    ],
)
def test_an_answer_that_misses_a_root_scores_nothing_and_else_its_precision(claimed, expected):
    assert score(claimed, TWO_ROOTS).value == expected


def test_kinds_have_no_say_and_two_faults_on_a_service_are_one_root():
    case = truth(("CPUStress", "cart"), ("PodKill", "cart"))
    assert score(("cart",), case).value == 1
    assert grade(finished_run(), answer(("cart", K.MEM_STRESS)), case, None, None).metrics[NAME].value == 1
    assert score(("cart",), case, ranking_only_run()).value == 1
    assert score(("a",), labelled("a", "b")).value == 0
    assert score(("a", "b", "c"), labelled("a", "b")).value == pytest.approx(2 / 3)


def test_the_other_end_of_a_network_fault_is_one_too_many():
    case = truth(("NetworkDelay", "cart", "redis"))
    assert score(("redis",), case).value == 1
    assert score(("redis", "cart"), case).value == 0.5
    twice = truth(("NetworkDelay", "cart", "redis"), ("CPUStress", "cart"))
    assert score(("cart",), twice).value == 0  # one service cannot be both roots
    assert score(("cart", "redis"), twice).value == 1


def test_where_nothing_was_broken_it_is_not_asked_and_a_run_without_an_answer_counts_as_zero():
    assert score((), no_fault()).status is MetricStatus.NOT_APPLICABLE
    gone = grade(finished_run(status=RunStatus.TIMEOUT, item="i1"), None, TWO_ROOTS, None, None)
    assert gone.metrics[NAME].status is MetricStatus.FAILED
    right = grade(finished_run(), answer(("cart", None), ("order", None)), TWO_ROOTS, None, None)
    rows = summarise([right, gone]).filter(metric=NAME, scope="all").to_dicts()
    assert [(row["mean"], row["cases"], row["failed"]) for row in rows] == [(0.5, 2, 1)]


def test_it_is_what_a_count_over_all_assignments_gives():
    dice, names = random.Random(7), ("a", "b", "c", "d")
    for _ in range(200):
        links = {tuple(sorted(dice.sample(names, 2))) for _ in range(dice.randint(1, 3))}
        claimed = dice.sample(names, dice.randint(0, 4))
        ways = itertools.permutations(claimed, len(links))
        found = any(all(name in link for name, link in zip(way, links, strict=True)) for way in ways)
        expected = len(links) / len(claimed) if found else 0
        assert score(claimed, truth(*(("NetworkDelay", *link) for link in links))).value == expected
