"""Drawn queries of PromQL answered by a real Prometheus over the same samples, at an instant and over a range."""

from __future__ import annotations

import math
from itertools import product
from random import Random

import pytest
import requests
from benchmarks.promql.grammar import Grammar
from benchmarks.promql.samples import HOUR_S, PACKAGES, START_S, made, served_by_prometheus, served_by_us

from opsassay.telemetry.backends.promql.elementwise import CALENDAR

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        None in PACKAGES.values(), reason="Debian's package prometheus is not installed: apt install prometheus"
    ),
]
QUERIES, SEED = 500, 20
ANGLES = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan", "tanh", "deg", "rad",
)  # fmt: skip
INSTANTS_S = (START_S + 1807.5, START_S + 3413.5, START_S + 77.5)
SPANS_S = (
    (START_S + 307.5, START_S + 3400.5, 61),
    (START_S - 299.5, START_S + 901.5, 30),
    (START_S + 3000.5, START_S + 4400.5, 47),
)
DIFFERENCES = [  # query, the series whose sample number at is the instant, s later; ours, theirs; source
    ('count_over_time(limit_bytes{service="s0"}[30s])', ("limit_bytes", 40, 0), "2", "3",
     "migration guide of 3.0: range selectors and look-back"),
    ('early_depth{service="s0"}', ("early_depth", -1, 300), None, "a value", "the same"),
    ('label_replace(label_replace(vector(1), "a", "x\\ny", "", ""), "a", "", "a", "x.y") * on(a) group_left() vector(2)',
     ("limit_bytes", 40, 0), "2", None, "migration guide of 3.0: regular expressions"),
    ('count_over_time(limit_bytes{service="s0"}[61])', ("limit_bytes", 40, 1), "4", "bad_data",
     "querying/basics of 3.0: numbers and durations"),
    ('count({"limit_bytes", "service"="s0"})', ("limit_bytes", 40, 1), "1", "bad_data",
     "migration guide of 3.0: UTF-8 names"),
    ("stddev(vector(NaN))", ("limit_bytes", 40, 1), "NaN", "0", "changelog of 3.0.0: prometheus#14941"),
    ("increase(young_total[5m])", ("young_total", 2, 1), repr(20 * 38.5 / 30), repr(20 * 46 / 30),
     "prometheus#13725"),
]  # fmt: skip
ODD_BOUNDS = (
    "8", "+8", "08", "8.", ".5", "8E+00", "0x1p3", "0X.8P+4", "0x_1p3", "1_0", "1_0.5_0e0_0", "-2", "1e-400", "inf", "+INF",
    "Infinity", " 8", "8 ", "_8", "8_", "1__0", "1_.0", "1._0", "1e_0", "0x8", "0x__1p3", "0x1p", "8f", "8L", "1e400",
    "-1e400", "0x1p2000", "1,000", "\u0668", "\u0130nf", "0b1", "--8", "()", "-inf",
)  # fmt: skip
SERIES = made(8)
SERIES += [
    one._replace(name="odd_bucket", labels={"service": f"odd{number}", "le": bound}, values=one.values * 0 + count)
    for one in SERIES[:1]
    for number, text in enumerate(ODD_BOUNDS)
    for bound, count in ((text, 4.0), ("100", 8.0), ("1_000", 9.0), ("+iNf", 10.0))
]
MATCHERS = [
    f'{label}{op}"{text}"'
    for label in ("service", "none", "__name__")
    for op in ("=", "!=", "=~", "!~")
    for text in ("", ".*", ".+", "()", "s1", "s1|", "(s1)?", "s.*", "^$", "queue_depth", "[")
]
ODD_SELECTORS = [
    "{}", "queue_depth{}", "{,}", '{service!~".*",}', "{service !~\n# ()\n'.*'}", "{service!~`.*`,none=~`.*`}",
    "queue_depth offset 5m", "queue_depth @ 5", "(queue_depth)", "queue_depth[5m]", "1", "queue_depth {none!~''}",
    "sum by (service) ({service!~'.*'})", "absent({service!~'.*'})", "rate({none!~'.*'}[5m])", "queue_depth{service!~'",
]  # fmt: skip


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beside")
    with served_by_us(folder / "ours", SERIES) as ours, served_by_prometheus(folder / "theirs", SERIES) as theirs:
        yield ours, theirs


def answered(url, path, **parameters):
    """Return the series {labels: [(time, value)]} of an answer, or its status and type of error."""
    answer = requests.get(f"{url}/api/v1/{path}", params=parameters, timeout=60)
    found = answer.json()
    if found["status"] != "success":
        return answer.status_code, found["errorType"]
    if path not in {"query", "query_range"}:
        return {tuple(sorted(one.items())) if isinstance(one, dict) else one: [] for one in found["data"]}
    if found["data"]["resultType"] == "scalar":
        return {(): [found["data"]["result"]]}
    return {
        tuple(sorted(one["metric"].items())): one.get("values") or [one["value"]] for one in found["data"]["result"]
    }


def close(ours, theirs):
    """Return whether two numbers are the same but for the last digits of their computation."""
    one, other = float(ours), float(theirs)
    return (
        ours == theirs
        or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
        or (math.isnan(one) and math.isnan(other))
    )


def same(ours, theirs):
    if isinstance(ours, tuple) or isinstance(theirs, tuple):
        return ours == theirs
    return ours.keys() == theirs.keys() and all(
        [at for at, _ in ours[key]] == [at for at, _ in theirs[key]]
        and all(close(one, other) for (_, one), (_, other) in zip(ours[key], theirs[key], strict=True))
        for key in ours
    )


def require_same_answers(urls, queries):
    """Compare the answers to *queries*, each at an instant and over a range; return how many hold something."""
    different, answers = [], 0
    for number, query in enumerate(queries):
        at_s = INSTANTS_S[number % len(INSTANTS_S)]
        start_s, end_s, step_s = SPANS_S[number % len(SPANS_S)]
        for path, parameters in (
            ("query", {"time": at_s}), ("query_range", {"start": start_s, "end": end_s, "step": step_s}),
        ):  # fmt: skip
            ours, theirs = (answered(url, path, query=query, **parameters) for url in urls)
            answers += bool(theirs) and isinstance(theirs, dict)
            if not same(ours, theirs):
                different.append(f"{path} {parameters}\n    {query}\n    {str(ours)[:600]}\n    {str(theirs)[:600]}")
    assert not different, f"{len(different)} of {2 * len(queries)} answers differ:\n" + "\n".join(different)
    return answers


def test_drawn_queries_are_answered_as_by_prometheus(urls):
    grammar = Grammar(SEED)
    answers = require_same_answers(urls, [grammar.query() for _ in range(QUERIES)])
    assert answers > QUERIES, "more than half of the answers have to hold something"


def drawn_calls(random):
    """Yield queries with the functions of angles and of the calendar, timestamp and count_values over drawn vectors."""
    vectors = (
        "queue_depth", "requests_total", 'limit_bytes{service="s0"}', "rate(requests_total[5m])", "early_depth * 1e7",
        "-queue_depth", "queue_depth offset 7m", "queue_depth @ end()", "vector(time())", "(early_depth)", "vector(0.5)",
        "requests_total / 0", "sum by (zone) (queue_depth)", "vector(1e9)", "vector(-86401.5)", "vector(0)", "nothing",
    )  # fmt: skip
    for name in ANGLES:
        yield from (f"{name}({vector})" for vector in random.sample(vectors, 5))
    for name in CALENDAR:  # the moment that is NaN or infinity depends on Go's architecture
        yield from (f"{name}(-1e12 < ({vector}) < 1e12)" for vector in random.sample(vectors, 7))
    yield from (f"{name}()" for name in (*CALENDAR, "pi"))
    yield from (f"timestamp({vector})" for vector in vectors)
    groupings = ("", "by (zone)", "without (service)", "by (v)", "without (v, zone)")
    for vector, grouping in product(
        ("requests_total", "round(queue_depth, 20)", "limit_bytes", "vector(1e21)"), groupings
    ):
        yield f'count_values {grouping} ("v", {vector})'
    yield from (
        'count_values("zone", queue_depth)',
        'count_values("", queue_depth)',
        'count_values("a-b", queue_depth)',
    )
    yield from (
        "sum by (v) (count_values('v', queue_depth > 40))",
        "hour(timestamp(queue_depth)) == 3",
        "day_of_week(1)",
    )
    yield from (
        "queue_depth and on() hour() > 25",
        "max_over_time(timestamp(queue_depth)[5m:30s])",
        "pi() * 2",
        "pi(1)",
    )


def test_calendar_angles_timestamps_and_counts_of_values_are_those_of_prometheus(urls):
    queries = list(drawn_calls(Random(SEED)))
    assert require_same_answers(urls, queries) > len(queries)


def test_matchers_that_fit_nothing_or_anything_are_taken_and_refused_as_by_prometheus(urls):
    random = Random(SEED)
    some = [",".join(random.sample(MATCHERS, random.choice((2, 2, 3)))) for _ in range(300)]
    selectors = [f"{name}{{{one}}}" for one in (*MATCHERS, *some) for name in ("", "queue_depth")] + ODD_SELECTORS
    listed = {"start": START_S, "end": START_S + HOUR_S}
    different, refused = [], 0
    for selector in selectors:
        for path, parameters in (
            ("query", {"query": selector, "time": INSTANTS_S[0]}), ("series", {"match[]": selector, **listed}),
            ("label/zone/values", {"match[]": selector, **listed}),
        ):  # fmt: skip
            ours, theirs = (answered(url, path, **parameters) for url in urls)
            refused += isinstance(theirs, tuple)
            if not same(ours, theirs):
                different.append(f"{path} {selector}\n    {str(ours)[:300]}\n    {str(theirs)[:300]}")
    assert not different, f"{len(different)} answers differ:\n" + "\n".join(different)
    assert len(selectors) / 2 < refused < 2 * len(selectors)


def test_bounds_of_buckets_are_read_as_by_prometheus(urls):
    for quantile in (0.2, 0.5, 0.85, 0.95):
        ours, theirs = (
            answered(url, "query", query=f"histogram_quantile({quantile}, odd_bucket)", time=INSTANTS_S[0])
            for url in urls
        )
        assert len(theirs) == len(ODD_BOUNDS)
        assert not {key: (ours[key], theirs[key]) for key in theirs if not same({key: ours[key]}, {key: theirs[key]})}


@pytest.mark.parametrize(("query", "instant", "ours", "theirs", "source"), DIFFERENCES)
def test_what_prometheus_3_does_otherwise_is_listed(urls, query, instant, ours, theirs, source):
    name, number, later_s = instant
    ms = next(one.ms for one in SERIES if one.name == name)
    at_s = f"{ms[number] / 1000 + later_s:.3f}"
    for url, expected in zip(urls, (ours, theirs), strict=True):
        found = answered(url, "query", query=query, time=at_s)
        if isinstance(found, tuple):
            assert found[1] == expected, source
        elif expected is None:
            assert found == {}, source
        else:
            ((_, value),) = next(iter(found.values()))
            assert expected == "a value" or close(value, expected), source
