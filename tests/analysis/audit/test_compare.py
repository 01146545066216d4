"""Two tables on the same cases."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from opsassay.analysis.audit.compare import PairOutcome, compare, fewest_cases, methods_to_compare, outcome, sentence
from opsassay.analysis.audit.settings import Columns
from opsassay.analysis.audit.table import long_scores
from opsassay.core.errors import UserError

from .made import QUICK, drawn, table


def long(frame):
    return long_scores(frame, Columns(), "t")


def test_the_difference_its_interval_and_what_could_be_detected():
    frame = drawn(sizes=(200, 150), families=("x", "x"), methods=("m",), seed=1)
    other = drawn(sizes=(200, 150), families=("x", "x"), methods=("m",), seed=2)
    found = compare(long(frame), long(other), ("m", "m"), QUICK.model_copy(update={"resamples": 5000}))
    differences = [
        other.filter(pl.col("system") == s)["score"].to_numpy()
        - frame.filter(pl.col("system") == s)["score"].to_numpy()
        for s in ("s0", "s1")
    ]
    mean = np.mean([d.mean() for d in differences])
    error = np.sqrt(sum(d.var(ddof=1) / len(d) for d in differences)) / 2
    assert found.overall.difference == pytest.approx(mean)
    assert found.overall.detectable == pytest.approx((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * error)
    # Percentiles of the bootstrap of 350 cases are near the normal interval.
    assert [found.overall.low, found.overall.high] == pytest.approx(
        [mean - 1.96 * error, mean + 1.96 * error], abs=0.01
    )
    assert found.weighted == pytest.approx(np.concatenate(differences).mean())


def test_turning_the_tables_turns_the_sign():
    a, b = (long(drawn(methods=("m",), seed=seed)) for seed in (3, 4))
    one, other = compare(a, b, ("m", "m"), QUICK).overall, compare(b, a, ("m", "m"), QUICK).overall
    assert (one.difference, one.low, one.high) == pytest.approx((-other.difference, -other.high, -other.low))


@pytest.mark.parametrize(
    ("low", "high", "margin", "expected"),
    [
        (0.01, 0.2, None, PairOutcome.BETTER),
        (-0.2, -0.01, None, PairOutcome.WORSE),
        (-0.1, 0.1, None, PairOutcome.UNDECIDED),
        (-0.04, 0.1, 0.05, PairOutcome.EQUIVALENT),
        (-0.06, 0.1, 0.05, PairOutcome.UNPROVEN),
        (-0.04, -0.01, 0.05, PairOutcome.EQUIVALENT),
        (-0.2, -0.1, 0.05, PairOutcome.WORSE),
    ],
)
def test_verdicts(low, high, margin, expected):
    assert outcome(low, high, margin) is expected


def test_identical_scores_are_called_so_and_nothing_collapses():
    a = long(table({"s": {"m": [1, 0, 1, 1, 0, 1]}, "t": {"m": [0, 0, 1, 1, 1, 0]}}))
    found = compare(a, a, ("m", "m"), QUICK)
    assert found.passed
    assert {found.overall.outcome, *(system.outcome for system in found.systems)} == {PairOutcome.IDENTICAL}
    assert found.overall.low < 0 < found.overall.high
    assert not compare(a, a, ("m", "m"), QUICK, margin=0.05).passed


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("margin", [None, 1.0])
def test_too_few_cases_pass_no_gate_whatever_came_out(n, after, margin):
    before, now = (long(table({"s": {"m": [score] * n}})) for score in (1, after))
    found = compare(before, now, ("m", "m"), QUICK, margin)
    assert (found.overall.outcome, found.overall.detectable, found.passed) == (PairOutcome.TOO_FEW, None, False)
    assert f"{n} case" in sentence(found.overall)
    assert "too few to find any difference, at least 6 are needed" in sentence(found.overall)
    assert "would be found" not in sentence(found.overall)


def test_six_cases_are_the_fewest_that_can_differ_at_95_percent():
    for n, level in ((6, 0.95), (8, 0.99), (5, 0.9)):
        assert fewest_cases(level) == n
        assert stats.binomtest(n, n).pvalue <= 1 - level < stats.binomtest(n - 1, n - 1).pvalue
    before, now = (long(table({"s": {"m": scores}})) for scores in ([1] * 6, [0] * 6))
    assert compare(before, now, ("m", "m"), QUICK).overall.outcome is PairOutcome.WORSE
    assert compare(before, before, ("m", "m"), QUICK).passed


@pytest.mark.parametrize("systems", range(1, 7))
def test_no_difference_over_100_points_is_ever_promised(systems):
    scores = {f"s{at}": {"m": [1, 0]} for at in range(systems)}
    turned = {f"s{at}": {"m": [0, 1]} for at in range(systems)}
    found = compare(long(table(scores)), long(table(turned)), ("m", "m"), QUICK)
    for one in (found.overall, *found.systems):
        assert one.detectable is None or one.detectable <= 1


def test_no_interval_leaves_what_a_difference_can_be():
    """One system moves a little and the other wholly and alike: the distances that are joined would pass 100 points."""
    before, after = (
        long(table({"moving": {"m": moving}, "still": {"m": [still] * 6}}))
        for moving, still in (([0, 0, 0, 0, 0, 1], 0), ([1] * 6, 1))
    )
    found = compare(long(before), long(after), ("m", "m"), QUICK)
    assert found.overall.difference > 0.9
    assert (found.overall.low <= 1.0, found.overall.high) == (True, 1.0)


def test_cases_that_one_lacks_are_counted():
    a = long(table({"s": {"m": [1, 0, 1, 1]}}))
    b = long(table({"s": {"m": [1, 0]}, "t": {"m": [1]}}))
    found = compare(a, b, ("m", "m"), QUICK)
    assert (len(found.only_before), len(found.only_after), found.overall.cases) == (2, 1, 2)
    with pytest.raises(UserError, match="share no scored case"):
        compare(a, b.with_columns(case=pl.lit("other-") + pl.col("case")), ("m", "m"), QUICK)


def test_which_methods_are_compared():
    two, one, other = (long(drawn(methods=m)) for m in (("a", "b"), ("b",), ("c",)))
    assert methods_to_compare(two, two) == [("a", "a"), ("b", "b")]
    assert methods_to_compare(one, other) == [("b", "c")]
    assert methods_to_compare(two, one) == [("b", "b")]
    with pytest.raises(UserError, match="share no method: A has a, b, B has c"):
        methods_to_compare(two, other)
