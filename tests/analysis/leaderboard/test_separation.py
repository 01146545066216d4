"""Who may be separated: never by luck, never on a handful of tasks, and the same as by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from opsassay.analysis.leaderboard.separation import better_than, intervals, separate


def drawn(solvers, tasks, seed, skill=None):
    random = np.random.default_rng(seed)
    ease = random.random(tasks)
    return (random.random((solvers, tasks)) < (ease if skill is None else np.asarray(skill)[:, None])).astype(float)


@pytest.mark.sampled
@pytest.mark.parametrize(("solvers", "tasks"), [(2, 6), (5, 30), (20, 40)])
def test_equal_solvers_are_told_apart_no_more_often_than_the_level_says(solvers, tasks):
    wrong = sum(separate(drawn(solvers, tasks, seed), draws=500, seed=seed).better.any() for seed in range(200))
    assert wrong <= 20  # a rate of 5% gives more than 20 of 200 once in a thousand times


def test_a_hundred_that_guess_put_nobody_first():
    first = [separate(drawn(100, 30, seed), draws=500).last.min() for seed in range(20)]
    assert sum(last < 100 for last in first) <= 4


@pytest.mark.parametrize("tasks", [1, 2, 3, 4, 5])
def test_a_handful_of_tasks_tells_nobody_apart(tasks):
    found = separate(np.array([[1.0] * tasks, [0.0] * tasks]))
    assert not found.better.any()
    assert found.first.tolist() == [1, 1]
    assert found.last.tolist() == [2, 2]


def test_six_tasks_without_exception_do():
    assert separate(np.array([[1.0] * 6, [0.0] * 6])).better.tolist() == [[False, True], [False, False]]


def test_two_solvers_are_judged_as_by_all_signs_by_hand():
    scores = np.array([[1, 1, 1, 0.5, 1, 0, 1, 1], [0, 0.5, 0, 0, 0, 1, 0, 0]])
    difference = scores[0] - scores[1]
    sums = [
        abs(sum(s * d for s, d in zip(signs, difference, strict=True)))
        for signs in itertools.product((1, -1), repeat=8)
    ]
    p = np.mean([one >= abs(difference.sum()) - 1e-9 for one in sums])
    for level in (1 - p + 1e-6, 1 - p - 1e-6):
        assert separate(scores, level=level).better[0, 1] == (p <= 1 - level)


def test_real_differences_are_found_and_ranks_say_so():
    found = separate(drawn(3, 200, 3, [0.9, 0.5, 0.1]))
    assert found.better.tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    assert found.first.tolist() == found.last.tolist() == [1, 2, 3]


def test_a_rank_holds_every_rank_that_is_possible():
    found = separate(drawn(6, 60, 5, [0.9, 0.6, 0.55, 0.5, 0.5, 0.1]))
    assert (found.first <= 1 + found.better.sum(axis=0)).all()
    assert (found.last >= 6 - found.better.sum(axis=1)).all()


def test_intervals_of_a_mean_hold_it_nineteen_times_of_twenty():
    held = 0
    for seed in range(200):
        low, high = intervals((np.random.default_rng(seed).random(60) < 0.7).astype(float), draws=500)
        held += low <= 0.7 <= high
    assert held >= 178


def test_who_is_better_does_not_depend_on_what_was_asked_before():
    for tasks in (5, 30, 300, 30, 5):
        scores = drawn(4, tasks, tasks, [0.9, 0.6, 0.5, 0.1])
        assert (better_than(scores) == separate(scores).better).all()
        random = np.random.default_rng(0)
        means = random.multinomial(tasks, np.full(tasks, 1 / tasks), 4000) @ scores[0] / tasks
        assert intervals(scores[0]) == tuple(np.percentile(means, [2.5, 97.5]))


def test_solvers_that_are_the_same_are_the_same():
    one = drawn(1, 30, 1)
    found = separate(np.vstack([one, one]))
    assert not found.better.any()
