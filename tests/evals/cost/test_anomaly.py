"""Anomalies: what was planted is what the definition finds, and no way of answering gets by without finding it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from opsassay.evals.cost.anomaly.detector import DetectorSettings, detect
from opsassay.evals.cost.anomaly.grading import grade_claims, points_of, shares
from opsassay.evals.cost.anomaly.misreading import MISREADINGS, claims_by_definition, misreadings_of, true_claims
from opsassay.evals.cost.anomaly.task import ANOMALY_TASKS
from opsassay.evals.cost.answers.contract import Claim, read_claims
from opsassay.evals.runner.json_answers import read_object
from opsassay.solvers.agents.contract import AnswerError

HOUR = timedelta(hours=1)


def task(name="levels", seed=1):
    return ANOMALY_TASKS[f"anomalies-{name}"](seed)


def value(metrics, name):
    return metrics[name].value


SEEDS = [pytest.param(seed, marks=[pytest.mark.slow] if seed > 2 else []) for seed in range(1, 21)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_definition_of_the_goal_finds_what_was_planted_and_nothing_else(seed):
    for make in ANOMALY_TASKS.values():
        one = make(seed)
        true = set().union(*(event.points for event in one.truth))
        assert true, one.name
        assert points_of(one, claims_by_definition(one)) == true, one.name


@pytest.mark.sampled
@pytest.mark.parametrize("name", ANOMALY_TASKS)
def test_the_right_claims_pass_and_every_wrong_reading_is_named(name):
    one = ANOMALY_TASKS[name](1)
    for claims in (true_claims(one), claims_by_definition(one)):
        metrics = grade_claims(one, claims)
        assert value(metrics, "passed") == value(metrics, "anomaly_f1") == 1.0
        if one.ranked:
            assert value(metrics, "rank_importance") == value(metrics, "rank_relative") == 1.0
    for misreading in misreadings_of(one):
        said, read = MISREADINGS[misreading]
        metrics = grade_claims(one, read(one))
        assert value(metrics, "passed") == 0.0, misreading
        assert metrics["passed"].reason.startswith(said)


@pytest.mark.slow
def test_claiming_everything_is_worth_next_to_nothing():
    one = task()
    start, end = one.bounds
    everything = grade_claims(one, [Claim(slice_, start, end, 1.0) for slice_ in one.slices])
    each = [Claim(s, start + n * HOUR, start + (n + 1) * HOUR, 1.0) for s in one.slices for n in range(1464)]
    hourly = grade_claims(one, each)
    for metrics in (everything, hourly):
        assert value(metrics, "anomaly_recall") == 1.0
        assert value(metrics, "anomaly_f1") < 0.1
        assert value(metrics, "passed") == 0.0


def test_one_sure_claim_ranks_well_and_does_not_pass():
    one = task()
    largest = max(true_claims(one), key=lambda claim: claim.importance)
    metrics = grade_claims(one, [largest])
    assert value(metrics, "rank_importance") == value(metrics, "rank_relative") == 1.0
    assert value(metrics, "passed") == 0.0


def test_equal_importance_for_all_is_no_order():
    one = task()
    metrics = grade_claims(one, [replace(claim, importance=1.0) for claim in true_claims(one)])
    assert value(metrics, "rank_relative") == 0.0
    assert value(metrics, "rank_importance") == pytest.approx(1 / len(one.truth))


def test_the_two_readings_of_the_rank_score_differ():
    one = task()
    halved = [replace(claim, importance=(claim.importance or 0) / 2) for claim in true_claims(one)]
    metrics = grade_claims(one, halved)
    assert value(metrics, "rank_relative") == 1.0
    assert value(metrics, "rank_importance") < 1.0


def test_importance_is_cost_times_duration_over_the_largest():
    one = task()
    costs = {(time, slice_): cost for time, slice_, cost in one.series.rows()}
    weights = [abs(sum(costs[p] for p in event.points)) * len(event.points) for event in one.truth]
    by_hand = [weight / max(weights) for weight in weights]
    assert [claim.importance for claim in true_claims(one)] == pytest.approx(by_hand)


def test_an_anomaly_in_pieces_is_found_but_not_as_one():
    one = task()
    pieces = [
        Claim(c.slice, c.start + n * HOUR, c.start + (n + 1) * HOUR, c.importance)
        for c in true_claims(one) for n in range(int((c.end - c.start) / HOUR))
    ]  # fmt: skip
    metrics = grade_claims(one, pieces)
    assert value(metrics, "anomaly_f1") == 1.0
    assert value(metrics, "passed") == 0.0


def test_nothing_claimed_is_scored():
    metrics = grade_claims(task(), [])
    assert value(metrics, "anomaly_f1") == value(metrics, "passed") == value(metrics, "rank_importance") == 0.0


def test_claims_outside_of_the_window_and_off_the_hour_count_against():
    one = task()
    start, _ = one.bounds
    early = Claim(one.slices[0], datetime(1, 1, 2, tzinfo=UTC), start + HOUR, 1.0)
    assert points_of(one, [early]) == {(start - HOUR, one.slices[0]), (start, one.slices[0])}
    half_past = Claim(one.slices[0], start + HOUR / 2, start + HOUR / 2 + HOUR, 1.0)
    assert len(points_of(one, [half_past])) == 2


def test_ten_thousand_claims_are_graded_in_time():
    one = task("drift")
    start, end = one.bounds
    minutes = [Claim(s, start + timedelta(minutes=15 * n), start + timedelta(minutes=15 * (n + 1)))
               for s in one.slices for n in range(2000) if start + timedelta(minutes=15 * (n + 1)) < end]  # fmt: skip
    assert len(minutes) > 10_000
    assert value(grade_claims(one, minutes), "passed") == 0.0


def test_planted_cost_says_how_much_the_planting_changed():
    for event in task().truth:
        assert (event.planted_usd < 0) == (event.kind == "drop")
        assert event.cost_usd > 0


GOOD = {"slice": "a", "start": "2024-09-01T05:00:00Z", "end": "2024-09-01T06:00:00+00:00", "importance": 0.5}


def broken(**changes):
    return {"anomalies": [{**GOOD, **changes}]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (broken(slice="nobody"), "there is no slice 'nobody'"),
        (broken(slice=["a", "b"]), "there is no slice"),
        (broken(start="2024-09-01T05:00:00"), "no time with its offset"),
        (broken(start="01.09.2024 05:00"), "no time with its offset"),
        (broken(start=1725166800), "no time with its offset"),
        (broken(start="0001-01-01T00:00:00+14:00"), "beyond the calendar"),
        (broken(end="2024-09-01T05:00:00Z"), "ends at or before it starts"),
        (broken(importance="high"), "is text"),
        (broken(importance=[0, 1]), "is a list"),
        (broken(confidence=1), "each has exactly"),
        ({"anomalies": [GOOD, GOOD]}, "overlap"),
        ({"anomalies": [GOOD, {**GOOD, "start": "2024-09-01T07:30:00+02:00"}]}, "overlap"),
        ({"anomalies": "none"}, "is no list of objects"),
    ],
)
def test_a_claim_that_breaks_the_contract_is_refused(given, said):
    with pytest.raises(AnswerError, match=said):
        read_claims(given, ("a",), ranked=True)


def test_more_anomalies_than_are_graded_are_no_answer():
    with pytest.raises(AnswerError, match="20001 entries, more than 20000"):
        read_claims({"anomalies": [GOOD] * 20_001}, ("a",), ranked=True)


def test_times_of_other_zones_are_the_same_instants():
    text = '{"anomalies": [{"slice": "a", "start": "2024-10-27T02:00:00+02:00", "end": "2024-10-27T02:00:00+01:00"}]}'
    [claim] = read_claims(read_object(text), ("a",), ranked=False)
    assert claim.end - claim.start == HOUR  # the hour that the clocks repeat


def test_importance_is_given_just_where_it_is_asked_for():
    with pytest.raises(AnswerError, match="each has exactly end, slice, start"):
        read_claims(broken(), ("a",), ranked=False)


def test_shares_without_points():
    assert shares([], []) == (1.0, 1.0, 1.0)
    assert shares([], [(datetime(2024, 1, 1, tzinfo=UTC), "a")])[2] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["robust_z", "isolation_forest"])
def test_the_detector_finds_a_spike_and_says_the_same_every_time(method):
    start = datetime(2024, 9, 2, tzinfo=UTC)
    rows = [(start + n * HOUR, "a", 10.0 + (n * 7 % 5) / 10 + (90.0 if n == 300 else 0.0)) for n in range(24 * 28)]
    settings = DetectorSettings(method=method, contamination=0.01)
    found = detect(rows, settings)
    assert (start + 300 * HOUR, "a") in found
    assert len(found) < 10
    assert found == detect(list(reversed(rows)), settings)
    assert detect([], settings) == []


def test_the_detector_takes_a_series_without_any_spread():
    start = datetime(2024, 9, 2, tzinfo=UTC)
    assert detect([(start + n * HOUR, "a", 0.0) for n in range(200)]) == []


def test_the_series_has_every_point_once():
    one = task("currency")
    assert one.series.select("time", "slice").is_unique().all()
    assert one.series.group_by("slice").len()["len"].unique().to_list() == [one.data.world.hours]
    assert one.series.filter(pl.col("cost_usd") <= 0).is_empty()
