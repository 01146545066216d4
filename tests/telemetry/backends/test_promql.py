"""Queries over given samples. The numbers follow by hand, or are those of Prometheus' own tests (promqltest/testdata)."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest

from opsassay.telemetry.backends import views
from opsassay.telemetry.backends.encoding import matrix_json, number_text, seconds_text
from opsassay.telemetry.backends.promql.evaluating import Evaluation
from opsassay.telemetry.backends.promql.histograms import histogram_quantile
from opsassay.telemetry.backends.promql.parsing import FUNCTIONS, parse
from opsassay.telemetry.backends.promql.values import PromqlError, Vectors
from opsassay.telemetry.backends.promql.windows import RANGE_FUNCTIONS
from opsassay.telemetry.backends.series import SeriesStore, read_series
from telemetry.backends.recordings import START_S, every, recorded

MINUTES = 60


def ramp(step, count, begin=0):
    return [begin + step * at for at in range(count)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    def counter(path, *values):
        return ("hits", {"attr.path": path}, every(5 * MINUTES, *values))

    jobs = [
        ("work", {"attr.job": job, "attr.instance": instance, "attr.group": group}, every(5 * MINUTES, *ramp(step, 11)))
        for job, instance, group, step in [
            ("api", "0", "production", 10), ("api", "1", "production", 20), ("api", "0", "canary", 30),
            ("api", "1", "canary", 40), ("app", "0", "production", 50), ("app", "1", "production", 60),
            ("app", "0", "canary", 70), ("app", "1", "canary", 80),
        ]
    ]  # fmt: skip
    series = [
        counter("foo", *ramp(10, 11)), counter("bar", *ramp(18, 6), *ramp(18, 6)), counter("dings", *ramp(10, 11, 10)),
        counter("bumms", *ramp(10, 11, 1)), ("again", {}, every(5 * MINUTES, 0, 1, 2, 3, 2, 3, 4)),
        ("level", {"attr.path": "up"}, every(5 * MINUTES, 0, 50, 100, 150, 200)),
        ("level", {"attr.path": "down"}, every(5 * MINUTES, 200, 150, 100, 50, 0)),
        ("odd", {"attr.n": "1"}, every(10, 3, math.nan, 5)), ("odd", {"attr.n": "2"}, every(10, math.nan, math.nan, 7)),
        ("gone", {}, {0: 1.0}), *jobs,
        *(("took.bucket", {"attr.start": "positive", "attr.le": le}, every(5 * MINUTES, *ramp(step, 11)))
          for le, step in (("0.1", 5), (".2", 7), ("1e0", 11), ("+Inf", 12))),
        ("took.bucket", {"attr.start": "negative", "attr.le": "-.2"}, every(5 * MINUTES, *ramp(1, 11))),
        ("took.bucket", {"attr.start": "negative", "attr.le": "+Inf"}, every(5 * MINUTES, *ramp(4, 11))),
        ("took.bucket", {"attr.start": "open", "attr.le": "1"}, every(5 * MINUTES, *ramp(1, 11))),
        ("took.bucket", {"attr.start": "late", "attr.le": "1"}, every(5 * MINUTES, *ramp(0, 11))),
        ("took.bucket", {"attr.start": "late", "attr.le": "2"}, every(5 * MINUTES, *ramp(2, 11))),
        ("took.bucket", {"attr.start": "late", "attr.le": "+Inf"}, every(5 * MINUTES, *ramp(2, 11))),
        ("took.bucket", {"attr.start": "none"}, every(5 * MINUTES, *ramp(1, 11))),
    ]  # fmt: skip
    return read_series(views.recorded(recorded(tmp_path_factory.mktemp("r") / "incident", series)))


def evaluated(store, query, *at_s, key=None):
    steps = np.array([(START_S + at) * 1000 for at in at_s], dtype=np.int64)
    return Evaluation(store, steps, time.monotonic() + 10, (steps[0], steps[-1])).evaluate(parse(query))


def instant(store, query, at_s):
    """Return {values of labels but the name: value} at one instant."""
    found = evaluated(store, query, at_s)
    assert isinstance(found, Vectors)
    return {
        "/".join(value for name, value in sorted(labels.items()) if name != "__name__"): float(values[0])
        for labels, values, present in zip(found.labels, found.values, found.present, strict=True)
        if present[0]
    }


@pytest.mark.parametrize(
    ("query", "at_min", "expected"),
    [
        ("increase(hits[50m])", 50, {"foo": 100, "bar": 160, "dings": 100, "bumms": 100}),
        ("increase(hits[100m])", 50, {"foo": 100, "bar": 162, "dings": 105, "bumms": 101}),
        ("increase(again[30m])", 30, {"": 7}),
        ('rate(hits{path="foo"}[50m])', 50, {"foo": 100 / 3000}),
        ('rate(hits{path="foo"}[10m] offset 5m)', 50, {"foo": 10 / 300}),
        ('rate(hits{path="foo"}[10m] offset -5m)', 45, {"foo": 10 / 300}),
        ("rate(hits[5m])", 50, {}),  # a range does not hold the instant at which it begins
        ('irate(hits{path="foo"}[50m])', 50, {"foo": 10 / 300}),
        ('irate(hits{path="bar"}[50m])', 30, {"bar": 0}),
        ('histogram_quantile(0, took_bucket{start="positive"})', 50, {"positive": 0}),
        ('histogram_quantile(0.2, took_bucket{start="positive"})', 50, {"positive": 0.048}),
        ('histogram_quantile(0.5, rate(took_bucket{start="positive"}[10m]))', 50, {"positive": 0.15}),
        ('histogram_quantile(0.8, sum by (le) (took_bucket{start="positive"}))', 50, {"": 0.72}),
        ('histogram_quantile(0.99, took_bucket{start="positive"})', 50, {"positive": 1}),
        ('histogram_quantile(0.1, took_bucket{start="negative"})', 50, {"negative": -0.2}),
        ('histogram_quantile(0, took_bucket{start="late"})', 50, {"late": math.nan}),
        ('histogram_quantile(0.5, took_bucket{start="late"})', 50, {"late": 1.5}),
        ('histogram_quantile(1.1, took_bucket{start="positive"})', 50, {"positive": math.inf}),
        ('histogram_quantile(-1, took_bucket{start="positive"})', 50, {"positive": -math.inf}),
        ('histogram_quantile(0.5, took_bucket{start=~"open|none"})', 50, {"open": math.nan}),
        ('histogram_quantile(0.5, took_bucket{start="positive"})', 0, {"positive": math.nan}),
        ("delta(level[20m])", 20, {"up": 200, "down": -200}),
        ("delta(level[20m])", 27, {"up": 155, "down": -155}),  # 100 in 10 min, 3 min to the start, half a step to the end
        ("avg_over_time(level[20m])", 20, {"up": 125, "down": 75}),
        ("sum_over_time(level[20m])", 20, {"up": 500, "down": 300}),
        ("min_over_time(level[20m])", 20, {"up": 50, "down": 0}),
        ("max_over_time(level[20m])", 20, {"up": 200, "down": 150}),
        ("count_over_time(level[20m])", 20, {"up": 4, "down": 4}),
        ("last_over_time(level[20m])", 18, {"up": 150, "down": 50}),
        ("max_over_time(odd[1m])", 0.5, {"1": 5, "2": 7}),
        ("gone", 4.9, {"": 1}),
        ("gone", 5, {}),
        ("abs(-level)", 20, {"up": 200, "down": 0}),
        ('sum by (group) (work{job="api"})', 50, {"canary": 700, "production": 300}),
        ('avg by (group) (work{job="api"})', 50, {"canary": 350, "production": 150}),
        ('sum without (instance) (work{job="api"})', 50, {"canary/api": 700, "production/api": 300}),
        ("sum(work)", 50, {"": 3600}),
        ("count by (job, nothing) (work)", 50, {"api": 4, "app": 4}),
        ("min(work) by (job)", 50, {"api": 100, "app": 500}),
        ("max(work) by (job)", 50, {"api": 400, "app": 800}),
        ("max(odd)", 10 / 60, {"": math.nan}),
        ("min(odd)", 20 / 60, {"": 5}),
        ("topk by (group) (1, work)", 50, {"production/1/app": 600, "canary/1/app": 800}),
        ("bottomk(2, work)", 50, {"production/0/api": 100, "production/1/api": 200}),
        ("topk(0, work)", 50, {}),
        ("bottomk(2, odd)", 0, {"1": 3, "2": math.nan}),
        ("sum(work) by (job) - count(work) by (job)", 50, {"api": 996, "app": 2596}),
        ("2 - sum(work) by (job)", 50, {"api": -998, "app": -2598}),
        ("sum(work) by (job) % 2 ^ 3 ^ 2", 50, {"api": 488, "app": 40}),
        ("sum(work) by (job) / 0", 50, {"api": math.inf, "app": math.inf}),
        ("sum(work) by (job) > 1000", 50, {"app": 2600}),
        ("1000 < sum(work) by (job)", 50, {"app": 2600}),
        ("sum(work) by (job) == bool 1000", 50, {"api": 1, "app": 0}),
        (
            'work{group="canary"} / ignoring(group) work{group="production"}', 50,
            {"0/api": 3, "0/app": 1.4, "1/api": 2, "1/app": 4 / 3},
        ),
        (
            'work{group="canary"} / on(instance, job) work{group="production"}', 50,
            {"0/api": 3, "0/app": 1.4, "1/api": 2, "1/app": 4 / 3},
        ),
        ('work{group="canary",job=~"a.p"}', 50, {"canary/0/app": 700, "canary/1/app": 800}),
        ('work{group="canary",job!~"ap"}', 50, {f"canary/{i}/{j}": v for i, j, v in (
            ("0", "api", 300), ("1", "api", 400), ("0", "app", 700), ("1", "app", 800))}),
        ('work{job!="api",group=~"prod.*",none=""}', 50, {"production/0/app": 500, "production/1/app": 600}),
        ('{__name__=~"gon.|agai"}', 1, {"": 1}),
        ("vector(2) * 3", 50, {"": 6}),
        ('work{job="api"} and on(instance) work{instance="1",group="canary"}', 50,
         {"production/1/api": 200, "canary/1/api": 400}),
        ('work{job="api"} unless on(instance) work{instance="1"}', 50, {"production/0/api": 100, "canary/0/api": 300}),
        ('work{group="canary",job="api"} or work{job="api"}', 50,
         {"canary/0/api": 300, "canary/1/api": 400, "production/0/api": 100, "production/1/api": 200}),
        ('work{job="api",instance="0"} or on() vector(7)', 50, {"production/0/api": 100, "canary/0/api": 300}),
        ('nothing or vector(7)', 50, {"": 7}),
        ('nothing and work', 50, {}),
        ('work{job="api"} / on(job) group_left sum by (job) (work)', 50,
         {"production/0/api": 0.1, "production/1/api": 0.2, "canary/0/api": 0.3, "canary/1/api": 0.4}),
        ('sum by (job) (work) / on(job) group_right work{job="api",group="canary"}', 50,
         {"canary/0/api": 1000 / 300, "canary/1/api": 2.5}),
        ('sum by (job) (work) * on(job) group_left(group) max by (job, group) (work{group="canary",job="api"})', 50,
         {"canary/api": 400_000}),
        ('work{job="api"} > on(job) group_left avg by (job) (work)', 50, {"canary/0/api": 300, "canary/1/api": 400}),
        ("hits @ 0", 50, {}),
        (f'hits{{path="foo"}} @ {START_S + 1500}', 50, {"foo": 50}),
        ('hits{path="foo"} @ end() - hits{path="foo"} @ start()', 50, {"foo": 0}),
        (f'rate(hits{{path="foo"}}[10m] @ {START_S + 1500} offset 5m)', 50, {"foo": 10 / 300}),
        ('max_over_time(rate(hits{path="foo"}[10m])[20m:5m])', 50, {"foo": 10 / 300}),
        ("sum_over_time(level[20m:5m])", 20, {"up": 300, "down": 500}),  # steps are multiples of 5 min of the clock
        ("count_over_time(vector(1)[5m:1m])", 50, {"": 5}),
        ("count_over_time(vector(1)[5m:])", 50, {"": 5}),
        ("avg_over_time(level[10m:5m] offset 5m)", 20, {"up": 75, "down": 125}),
        ("stddev(work) by (job)", 50, {"api": 12500**0.5, "app": 12500**0.5}),
        ("stdvar(work) by (job)", 50, {"api": 12500, "app": 12500}),
        ("group(work) by (job)", 50, {"api": 1, "app": 1}),
        ("quantile(0.5, work)", 50, {"": 450}),
        ("quantile by (job) (1, work)", 50, {"api": 400, "app": 800}),
        ("quantile by (job) (2, work)", 50, {"api": math.inf, "app": math.inf}),
        ("clamp(level, 20, 100)", 20, {"up": 100, "down": 20}),
        ("clamp(level, 100, 20)", 20, {}),
        ("clamp_min(level, 20)", 20, {"up": 200, "down": 20}),
        ("clamp_max(level, 20)", 20, {"up": 20, "down": 0}),
        ("round(level / 70)", 20, {"up": 3, "down": 0}),
        ("round(level, 30)", 20, {"up": 210, "down": 0}),
        ("floor(level / 70)", 20, {"up": 2, "down": 0}),
        ("ceil(level / 70)", 20, {"up": 3, "down": 0}),
        ("log2(level)", 20, {"up": math.log2(200), "down": -math.inf}),
        ('scalar(level{path="up"}) + vector(1)', 20, {"": 201}),
        ("vector(scalar(level))", 20, {"": math.nan}),
        ('absent(nothing{job="a",group=~"b"})', 20, {"a": 1}),
        ("absent(level)", 20, {}),
        ("stddev_over_time(level[20m])", 20, {"up": 3125**0.5, "down": 3125**0.5}),
        ("changes(again[31m])", 30, {"": 6}),
        ("resets(again[31m])", 30, {"": 1}),
        ("idelta(again[31m])", 20, {"": -1}),
        ("present_over_time(gone[5m])", 2, {"": 1}),
    ],
)  # fmt: skip
def test_what_a_query_gives_at_an_instant(store, query, at_min, expected):
    assert instant(store, query, at_min * MINUTES) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("query", "expected"),
    [("1 + 2 * 3", 7), ("-2^---1*3", -1.5), ("2/-2^---1*3+2", -10), ("1 == bool 1", 1), ("5 % 0", math.nan)],
)
def test_numbers_alone(store, query, expected):
    assert evaluated(store, query, 0, 60).tolist() == pytest.approx([expected] * 2, nan_ok=True)


def test_time_is_that_of_each_step(store):
    assert evaluated(store, "time()", 0, 60).tolist() == [START_S, START_S + 60]


def test_a_range_is_evaluated_at_every_step_as_at_an_instant(store):
    queries = ("rate(hits[12m])", "sum by (path) (level)", "topk(1, hits)", "max_over_time(level[7m]) > 60",
               "max_over_time(rate(hits[12m])[10m:90s])", "level or hits", "hits unless level > 60", "absent(gone)",
               'quantile(0.3, work)', "work * on(job) group_left sum by (job) (work)", "stddev(hits)")  # fmt: skip
    for query in queries:
        steps = range(0, 3600, 77)
        found = evaluated(store, query, *steps)
        for column, at in enumerate(steps):
            one = instant(store, query, at)
            assert found.present[:, column].sum() == len(one)
            values = sorted(found.values[found.present[:, column], column].tolist())
            assert values == pytest.approx(sorted(one.values()), rel=1e-12)


def test_a_name_stays_with_what_is_selected_and_goes_with_what_is_computed(store):
    named = {
        "gone": True, "last_over_time(gone[5m])": True, "gone > 0": True, "topk(1, gone)": True, "+gone": True,
        "gone > bool 0": False, "gone + 1": False, "-gone": False, "sum(gone)": False, "count_over_time(gone[5m])": False,
    }  # fmt: skip
    for query, stays in named.items():
        (labels,) = evaluated(store, query, 60).labels
        assert ("__name__" in labels) is stays, query


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sum(", "parse error"),
        ("", "parse error: no expression found in input"),
        ("nosuch(hits)", "unknown function with name 'nosuch'"),
        ("rate(hits)", "expected type matrix"),
        ("rate(hits[5m:0s])", "duration must be greater than 0"),
        ("rate(hits[100y:1ms])", "too many samples"),
        ("count_over_time(hits[5m:1e300])", "parse error"),
        ("hits * on(none) group_left work", "matching labels must be unique on one side"),
        ("limitk(1, hits)", "the aggregation limitk() is outside the subset"),
        ("count_values('a-b', hits)", "invalid label name"),
        ("histogram_fraction(0, 1, hits)", "the function histogram_fraction() is outside the subset"),
        ('{path="a" or job="b"}', "'or' between matchers is outside the subset"),
        ("hits * on(nothing) work", "many-to-many matching not allowed"),
        ('{__name__=~"gone|again"} + 1', "vector cannot contain metrics with the same labelset"),
        ("topk(0/0, hits)", "Parameter value is NaN"),
        ('hits{path=~"("}', "parse error"),
        ('hits{path=~"a)(b"}', "parse error"),
        (f'hits{{path=~"{"a" * 1001}"}}', "a regular expression may have 1000 characters"),
        ("hits[1e300]", "parse error"),
        ("hits offset NaN", "parse error"),
        ("hits offset 9223372036854775807", "parse error"),
        ("hits[0x7fffffffffffffff]", "parse error"),
        ("hits" + " " * 5000, "more than 4096 characters"),
        ("(" * 200 + "hits" + ")" * 200, "64 deep"),
        ("hits" + "+hits" * 300, "64 deep"),
        ("-" * 2000 + "hits", "64 deep"),
    ],
)
def test_what_is_not_evaluated_says_why(store, query, said):
    with pytest.raises(PromqlError) as caught:
        evaluated(store, query, 60)
    assert said in str(caught.value)
    assert (caught.value.kind, caught.value.status) in {("bad_data", 400), ("execution", 422)}


def test_no_regular_expression_takes_its_time(store):
    began = time.monotonic()
    assert evaluated(store, 'hits{path=~"((a*)*)*b"}', 60).labels == []
    assert time.monotonic() - began < 2


def test_a_query_ends_at_its_deadline(store):
    with pytest.raises(PromqlError) as caught:
        Evaluation(store, np.array([0]), time.monotonic() - 1, (0, 0)).evaluate(parse("hits"))
    assert (caught.value.kind, caught.value.status) == ("timeout", 503)


def test_many_histograms_are_given_up_when_the_time_is_over():
    labels = [{"n": f"{number}", "le": le} for number in range(1, 101) for le in (f"{number}", "+Inf")]  # none alike
    buckets = Vectors(labels, np.ones((200, 3)), np.ones((200, 3), dtype=bool))
    left = iter([False] * 5)

    def in_time():
        if next(left, True):
            raise PromqlError("query timed out", "timeout", 503)

    with pytest.raises(PromqlError, match="timed out"):
        histogram_quantile(np.full(3, 0.5), buckets, in_time)
    assert histogram_quantile(np.full(3, 0.5), buckets, lambda: None).values.tolist() == [
        [number / 2] * 3 for number in range(1, 101)
    ]


def test_a_bucket_that_is_not_there_at_a_step_is_none_of_that_step():
    buckets = Vectors(
        [{"le": le} for le in ("1", "2", "4", "+Inf")],
        np.array([[2.0, 2], [3, 3], [4, 4], [4, 4]]),
        np.array([[True, True], [True, False], [True, True], [True, False]]),
    )
    found = histogram_quantile(np.array([0.75, 0.75]), buckets, lambda: None)
    assert found.present.all()
    assert found.values[0, 0] == 2
    assert math.isnan(found.values[0, 1])  # without the last bucket it is no histogram
    buckets.present[3, 1] = True
    assert histogram_quantile(np.array([0.75, 0.75]), buckets, lambda: None).values.tolist() == [[2, 2.5]]


def some_series(random):
    """Return ten histograms of three series a bound, most of them sampled at the same instants, some that begin again."""
    shared, labels, ms, values = np.sort(random.choice(600_000, 40, replace=False)), [], [], []
    for number, le in (
        (number, le) for number in range(30) for le in ("0.1", "1", "5", "+Inf") if random.random() < 0.9
    ):
        alone = np.sort(random.choice(600_000, random.integers(1, 30), replace=False))
        at = shared if random.random() < 0.7 else alone
        counts = np.cumsum(random.integers(0, 9, len(at)) * 0.37)
        counts[len(at) // 2 :] -= counts[len(at) // 2] if random.random() < 0.3 else 0
        labels.append({"__name__": "took_bucket", "job": f"{number % 10}", "pod": f"{number}", "le": le})
        ms.append(at)
        values.append(counts)
    return labels, ms, values


def store_of(labels, ms, values):
    bounds = np.cumsum([0, *(len(one) for one in ms)])
    return SeriesStore(labels, bounds, np.concatenate(ms), np.concatenate(values), {})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_series_at_once_are_what_each_is_by_itself(seed):
    labels, ms, values = some_series(np.random.default_rng(seed))
    steps = np.arange(-10_000, 620_000, 7_000)

    def found(query, *series):
        whole = Evaluation(store_of(*zip(*series, strict=True)), steps, time.monotonic() + 20, (0, 0)).evaluate(
            parse(query)
        )
        rows = np.where(whole.present, whole.values, -1.0)
        return {tuple(one.items()): row.tobytes() for one, row in zip(whole.labels, rows, strict=True)}

    series = list(zip(labels, ms, values, strict=True))
    for name in RANGE_FUNCTIONS:
        query, alone = f"{name}(took_bucket[2m])", {}
        for one in series:
            alone |= found(query, one)
        assert found(query, *series) == alone, name
    of_jobs = [[one for one in series if one[0]["job"] == f"{job}"] for job in range(10)]
    for query in (
        "sum by (job, le) (rate(took_bucket[2m]))", "count by (job) (took_bucket)",
        "histogram_quantile(0.9, sum by (job, le) (rate(took_bucket[2m])))", "histogram_quantile(0.5, took_bucket)",
    ):  # fmt: skip
        alone = {}
        for of_job in of_jobs:
            alone |= found(query, *of_job)
        assert found(query, *series) == alone, query
    added = Evaluation(store_of(labels, ms, values), steps, time.monotonic() + 20, (0, 0)).evaluate(
        parse("sum(took_bucket)")
    )
    rows = Evaluation(store_of(labels, ms, values), steps, time.monotonic() + 20, (0, 0)).evaluate(parse("took_bucket"))
    assert added.values[0].tolist() == np.cumsum(np.where(rows.present, rows.values, 0.0), axis=0)[-1].tolist()


def test_every_function_of_the_subset_is_on_its_page_and_evaluated(store):
    from test_docs import ROOT

    page = (ROOT / "docs" / "adapters.md").read_text()
    assert [name for name in FUNCTIONS if f"`{name}`" not in page and f"`{name}()`" not in page] == []
    for name in FUNCTIONS:
        argument = {"time": "", "pi": "", "vector": "1", "clamp": "hits, 1, 2", "clamp_min": "hits, 1",
                    "clamp_max": "hits, 1", "histogram_quantile": "0.5, hits", "quantile_over_time": "0.5, hits[10m]",
                    "predict_linear": "hits[10m], 60", "absent_over_time": "hits[10m]",
                    "label_join": "hits, 'a', '-', 'path'", "label_replace": "hits, 'a', '$1', 'path', '(.*)'"}  # fmt: skip
        if name not in argument:
            argument[name] = "hits[10m]" if name in RANGE_FUNCTIONS else "hits"
        evaluated(store, f"{name}({argument[name]})", 600)


def test_numbers_of_a_range_are_written_one_way_whatever_stands_beside_them():
    numbers = [0.1, 1e-5, 1e16, 123456.789, 3.0, -2.5, 1e-4, 9.999e15, math.inf, -0.0, 5e-324, 1.5e300]
    for chosen in ([0.1, -2.5, 123456.789], numbers, numbers * 1000, [math.nan, -math.inf, 1e15, 7.0, 1e-300] * 2000):
        values = np.array([chosen])
        found = Vectors([{}], values, np.ones_like(values, dtype=bool))
        (series,) = json.loads(matrix_json(found, np.arange(len(chosen)) * 1000))
        assert [text for _, text in series["values"]] == [number_text(number) for number in chosen]
        assert all("e" not in text for _, text in series["values"])


STEPS = [(0, 10**6, 15_000), (1_767_322_800_500, 1_767_323_800_500, 15_000), (-5_500, 10_000, 1_000), (7, 500_000, 333),
         (1_000, 1_001, 1)]  # fmt: skip


@pytest.mark.parametrize(("begin", "end", "step"), STEPS)
@pytest.mark.parametrize("series", [1, 50])
def test_every_value_of_a_range_stands_at_its_time_in_its_series(begin, end, step, series):
    steps = np.arange(begin, end, step)
    values = np.arange(series * len(steps)).reshape(series, -1) / 4
    present = values % 3 != 0
    labels = [{"n": f'"{number}.0"'} for number in range(series)]
    found = json.loads(matrix_json(Vectors(labels, values, present), steps), parse_float=str, parse_int=str)
    expected = [
        {"metric": one, "values": [[seconds_text(ms), number_text(value)] for ms, value, there in zip(
            steps.tolist(), row.tolist(), kept.tolist(), strict=True) if there]}
        for one, row, kept in zip(labels, values, present, strict=True)
    ]  # fmt: skip
    expected = [one for one in expected if one["values"]]
    assert found == sorted(expected, key=lambda one: one["metric"]["n"])
