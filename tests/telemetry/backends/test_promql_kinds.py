"""What must hold for all of PromQL: a value comes from its own window, its own step and its own request."""

from __future__ import annotations

import math
import statistics
import time

import numpy as np
import pytest

from opsassay.telemetry.backends.promql.evaluating import Evaluation
from opsassay.telemetry.backends.promql.histograms import histogram_quantile
from opsassay.telemetry.backends.promql.parsing import AGGREGATIONS, parse
from opsassay.telemetry.backends.promql.values import Vectors
from opsassay.telemetry.backends.promql.windows import RANGE_FUNCTIONS
from opsassay.telemetry.backends.series import NAME, SeriesStore
from telemetry.backends.recordings import START_S, every, got, recorded, served

STEPS_MS = np.arange(300_000, 1_800_000, 77_000)
OF_WINDOWS = [
    *(f"{name}(x[5m])" for name in RANGE_FUNCTIONS), "quantile_over_time(0.3, x[5m])", "predict_linear(x[5m], 60)",
    "stddev_over_time(x[5m:30s])", "avg_over_time(stddev_over_time(x[2m])[5m:1m])",
]  # fmt: skip
PARAMETERS = {"quantile": "0.5, ", "topk": "2, ", "bottomk": "2, ", "count_values": "'v', "}
OF_VECTORS = [f"{op}({PARAMETERS.get(op, '')}x)" for op in sorted(AGGREGATIONS)]
SMALL = {
    "ratio": [0.25 + 0.01 * (at % 2) for at in range(120)], "flat": [0.1] * 120, "tiny": [1e-9] * 120,
    "mixed": [math.sin(at / 9) * 10 for at in range(120)],
}  # fmt: skip


def store_of(series):
    """Return the series {(name, n): values}, a sample every 15 s and 3 s."""
    labels = [{NAME: name, "n": n} for name, n in series]
    values = [np.array(one, dtype=float) for one in series.values()]
    times = [np.arange(len(one)) * 15_000 + 3_000 for one in values]
    bounds = np.cumsum([0, *(len(one) for one in values)])
    return SeriesStore(labels, bounds, np.concatenate(times), np.concatenate(values), {})


def rows(store, query, steps=STEPS_MS):
    found = Evaluation(store, steps, time.monotonic() + 60, (int(steps[0]), int(steps[-1]))).evaluate(parse(query))
    return {
        tuple(sorted(labels.items())): np.where(present, values, -1.5).tolist()
        for labels, values, present in zip(found.labels, found.values, found.present, strict=True)
    }


@pytest.mark.parametrize("size", [1e9, 1e12, 1e15, 1e300, math.inf, math.nan])
@pytest.mark.parametrize("query", [*OF_WINDOWS, *OF_VECTORS])
def test_no_series_changes_what_another_is(query, size):
    own = {("x", n): values for n, values in SMALL.items()}
    others = {("big", f"{n}"): [size + at % 3 * size / 1e6 for at in range(120)] for n in range(3)}
    alone = rows(store_of(own), query)
    beside = rows(store_of({**dict(list(others.items())[:2]), **own, **others}), query)
    assert repr(beside) == repr(alone)


@pytest.mark.parametrize("query", [query for query in OF_WINDOWS if "[5m" in query])
def test_no_row_outside_of_a_window_changes_what_is_in_it(query):
    steps = np.array([1_200_000, 1_260_000])
    before = {
        ("x", n): [1e15 * (at + 1) if at < 30 else values[at] for at in range(120)] for n, values in SMALL.items()
    }
    after = {("x", n): [values[at] if at < 90 else math.inf for at in range(120)] for n, values in SMALL.items()}
    expected = repr(rows(store_of({("x", n): values for n, values in SMALL.items()}), query, steps))
    assert repr(rows(store_of(before), query, steps)) == expected
    assert repr(rows(store_of(after), query, steps)) == expected


def test_deviations_are_those_of_their_own_samples():
    series = {("x", n): values for n, values in SMALL.items()}
    series |= {("x", "bytes"): [8e9 + at % 3 * 4096 for at in range(120)], ("x", "disk"): [4e15] * 120}
    for name, reference in (("stddev_over_time", statistics.pstdev), ("stdvar_over_time", statistics.pvariance)):
        found = rows(store_of(series), f"{name}(x[5m])")
        for (_, n), values in series.items():
            for step, value in zip(STEPS_MS.tolist(), found[("n", n),], strict=True):
                window = [v for at, v in enumerate(values) if step - 300_000 < at * 15_000 + 3_000 <= step]
                assert value == (0 if len(set(window)) == 1 else pytest.approx(reference(window), rel=1e-9)), (n, step)
    alike = {("x", f"{n}"): [0.1] * 120 for n in range(3)}
    for op in ("stddev", "stdvar"):
        assert set(rows(store_of(alike), f"{op}(x)")[()]) == {0.0}


def test_a_line_is_that_of_its_own_samples():
    series = {("x", "a"): [5e15 + 3.0 * at for at in range(120)], ("x", "b"): [0.1] * 120, ("x", "c"): [math.inf] * 120}
    found = rows(store_of(series), "deriv(x[5m])")
    assert found[("n", "a"),] == pytest.approx([0.2] * len(STEPS_MS))
    assert found[("n", "b"),] == [0.0] * len(STEPS_MS)
    assert np.isnan(found[("n", "c"),]).all()
    found = rows(store_of(series), "predict_linear(x[5m], 600)")
    assert found[("n", "a"),] == pytest.approx([5e15 + (step / 1000 - 3 + 600) / 5 for step in STEPS_MS])
    assert rows(store_of(series), "predict_linear(x[5m], 60 * scalar(x{n='b'}))")[("n", "b"),] == [0.1] * len(STEPS_MS)


def test_a_mean_is_a_number_where_its_sum_is_too_large_for_one():
    series = {("x", f"{n}"): [1.5e308] * 120 for n in range(3)}
    assert rows(store_of(series), "avg(x)")[()] == pytest.approx([1.5e308] * len(STEPS_MS))
    assert rows(store_of(series), "avg_over_time(x[5m])")[("n", "0"),] == pytest.approx([1.5e308] * len(STEPS_MS))


def test_quantiles_put_nan_first_and_are_linear_between_infinities():
    nan, inf = math.nan, math.inf
    for values, quantile, expected in (
        ([3.5, nan, -2.5], 0, nan), ([3.5, nan, -2.5], 0.5, -2.5), ([3.5, nan, -2.5], 1, 3.5), ([nan, -inf, 1], 0.5, -inf),
        ([3.74, 0, inf], 0.5, nan), ([1, 2, nan], 0.75, 1.5), ([nan], 0.5, nan), ([1, 2], 2, inf), ([1, 2], -1, -inf),
        ([1, 2], "NaN", nan), ([4, 1, 3, 2], 0.5, 2.5),
    ):  # fmt: skip
        across = rows(store_of({("x", f"{n}"): [value] for n, value in enumerate(values)}), f"quantile({quantile}, x)",
                      np.array([3_000]))  # fmt: skip
        along = rows(store_of({("x", "a"): values}), f"quantile_over_time({quantile}, x[5m])", np.array([60_000]))
        assert [across[()], along[("n", "a"),]] == [pytest.approx([expected], nan_ok=True)] * 2, (values, quantile)


@pytest.mark.parametrize("query", [*OF_WINDOWS, *OF_VECTORS, "x * on(n) x", "x or x", "histogram_quantile(0.5, x)",
                                   "label_replace(x, 'a', '', 'n', '')", "sort(x)", "x > 1", "-x", "abs(x)"])  # fmt: skip
def test_of_no_series_there_is_no_answer(query):
    assert rows(store_of({("other", "a"): [1.0] * 100}), query) == {}
    assert all(value == [-1.5] for value in rows(store_of({("x", "a"): [1.0]}), query, np.array([10**9])).values())


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    series = [
        ("temp", {"attr.n": "a"}, {at * 10 + 3: float(at) for at in range(360)}),
        ("hits", {"attr.n": "a"}, {at * 10 + 3: float(at) for at in range(180)}),
        ("late", {"attr.n": "a"}, {at * 10 + 3: float(at) for at in range(250, 360)}),
        *(("two", {"attr.n": "a", "attr.zone": f"{zone}"}, {at * 10 + 3: float(zone) for at in range(*span)})
          for zone, span in ((1, (0, 180)), (2, (250, 360)))),
        *(("odd", {"attr.kind": kind, "attr.le": le}, every(10, *[1] * 360))
          for kind, les in (("no", ("0.1", "1")), ("inf", ("+Inf",)), ("all", ("1", "+Inf"))) for le in les),
    ]  # fmt: skip
    with served(recorded(tmp_path_factory.mktemp("r") / "incident", series)) as url:
        yield url


def over(url, query, start=0, end=400, step=60):
    """Return {labels: values} of a range query, times in seconds of the recording."""
    found = got(url, "/api/v1/query_range", query=query, start=START_S + start, end=START_S + end, step=step)
    return {
        "/".join(one["metric"].values()): [float(value) for _, value in one["values"]]
        for one in found["data"]["result"]
    }


def at(url, query, second, expected=200):
    return got(url, "/api/v1/query", expected, query=query, time=START_S + second)


@pytest.mark.parametrize(("start", "end", "step"), [(30, 400, 60), (100, 719.5, 61), (30, 35, 3600), (50, 50, 7)])
def test_start_and_end_are_those_of_the_request_wherever_they_stand(url, start, end, step):
    for query, second in (
        ("temp @ end()", end), ("temp @ start()", start), ("temp offset 20s @ end()", end - 20),
        ("last_over_time(temp[1m] @ end())", end), ("max_over_time(temp[1m:5s] @ end())", end // 5 * 5),
        ("max_over_time((temp @ end())[1m:10s])", end), ("min_over_time((temp @ start())[1m:10s] @ end())", start),
        ("max_over_time(max_over_time((temp @ end())[40s:10s])[1m:10s] offset 30s)", end),
    ):  # fmt: skip
        (values,) = over(url, query, start, end, step).values()
        expected = float((second - 3) // 10)
        assert set(values) == {expected}, query
        assert len(values) == (end - start) // step + 1


def test_of_an_instant_start_and_end_are_its_time(url):
    for query in (
        "temp @ end()",
        "temp @ start()",
        "max_over_time((temp @ end())[1m:7s])",
        "last_over_time(temp[1m] @ start())",
    ):
        assert at(url, query, 719.5)["data"]["result"][0]["value"][1] == "71", query


def test_only_series_with_samples_can_be_the_same(url):
    for query in ('rate({__name__=~"hits|late"}[5m])', 'abs({__name__=~"hits|late"})', '{__name__=~"hits|late"} * 2',
                  '-{__name__=~"hits|late"}', 'sum by (n) ({__name__=~"hits|late"}) + 0'):  # fmt: skip
        assert len(at(url, query, 1000)["data"]["result"]) == 1, query
        assert len(at(url, query, 3000)["data"]["result"]) == 1, query
    for query in ('abs({__name__=~"hits|temp"})', '-{__name__=~"hits|temp"}', 'rate({__name__=~"hits|temp"}[5m])',
                  'sum(abs({__name__=~"hits|temp"}))'):  # fmt: skip
        assert "same labelset" in at(url, query, 1000, 422)["error"], query


def test_series_that_are_never_there_together_are_one_after_another(url):
    assert over(url, '{__name__=~"hits|late"} * 1', 1000, 3000, 1000) == {"a": [99, 179, 299]}
    assert over(url, "temp * on(n) two", 1000, 3000, 2000) == {"a": [99.0, 2 * 299.0]}
    assert over(url, "temp * on(n) group_left(zone) two", 1000, 3000, 2000) == {"a/1": [99.0], "a/2": [2 * 299.0]}
    assert over(url, "two * on(n) temp", 1000, 3000, 2000) == {"a": [99.0, 2 * 299.0]}
    assert over(url, "sum by (n) (two) or two", 1000, 3000, 2000) == {"a": [1, 2], "two/a/1": [1], "two/a/2": [2]}


def test_what_has_to_be_unique_is_so_at_each_step_with_samples(url):
    assert at(url, "temp * on(n) two", 1000)["data"]["result"][0]["value"][1] == "99"
    assert at(url, "temp * on(n) two", 2200)["data"]["result"] == []
    for query, said in (
        ('temp * on(n) {__name__=~"temp|two"}', "found duplicate series for the match group {'n': 'a'} on the right"),
        ('{__name__=~"temp|two"} * on(n) temp', "multiple matches for labels: many-to-one matching must be explicit"),
        ('{__name__=~"temp|two"} * on(n) group_left() temp', None),
        ('temp * on(n) group_right() {__name__=~"temp|two"}', None),
        ('{__name__=~"temp|two"} * on(n) group_right() temp',
         "found duplicate series for the match group {'n': 'a'} on the left"),
    ):  # fmt: skip
        found = at(url, query, 1000, 200 if said is None else 422)
        assert said is None or said in found["error"], query


@pytest.mark.parametrize(("quantile", "expected"), [("1.1", "+Inf"), ("-0.1", "-Inf"), ("NaN", "NaN")])
def test_a_quantile_outside_of_0_to_1_is_known_whatever_the_buckets_are(url, quantile, expected):
    found = at(url, f"histogram_quantile({quantile}, odd)", 1000)["data"]["result"]
    assert {one["metric"]["kind"]: one["value"][1] for one in found} == dict.fromkeys(("no", "inf", "all"), expected)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("8", 8), ("+8", 8), ("08", 8), ("8.", 8), (".5", 0.5), ("8e0", 8), ("8E+00", 8), ("0x1p3", 8), ("0X.8P+4", 8),
        ("0x_1p3", 8), ("1_0", 10), ("1_0.5_0e0_0", 10.5), ("0x1_0p-1", 8), ("-2", -2), ("1e-400", 0), ("inf", math.inf),
        *((text, None) for text in (
            "", " 8", "8 ", "8\n", "_8", "8_", "1__0", "1_.0", "1._0", "1e_0", "0x8", "0x__1p3", "0x1p", "0x1.8", "8f",
            "8d", "8L", "1e400", "-1e400", "0x1p2000", "1,000", "\u0668", "\uff18", "\u0130nf", "0b1", "0o7", "--8", "()",
        )),
    ],
)  # fmt: skip
def test_bounds_are_read_as_by_gos_parse_float(text, bound):
    buckets = [({"le": text}, 4.0), ({"le": "100"}, 8.0), ({"le": "+INF"}, 8.0)]
    found = histogram_quantile(
        np.array([0.5]),
        Vectors([labels for labels, _ in buckets], np.array([[n] for _, n in buckets]), np.ones((3, 1), dtype=bool)),
        lambda: None,
    )
    expected = {None: 50, math.inf: 75}.get(bound, bound)
    assert found.values.tolist() == [[expected]]


@pytest.mark.parametrize(
    ("template", "regex", "expected"),
    [
        ("$1", "(.)", "a"), ("${1}", "(.)", "a"), ("$1x", "(.)", None), ("${1}x", "(.)", "ax"), ("$x", "(?P<x>.)", "a"),
        ("${x}y", "(?P<x>.)", "ay"), ("$xy", "(?P<x>.)", None), ("$$1", "(.)", "$1"),
        ("$0$0", ".", "aa"), ("$2", "(.)", None),
        ("$", ".", "$"), ("a$-b", ".", "a$-b"), ("${1", "(.)", "${1"), ("$01", "(.)", None), ("x", "b", "old"),
        ("x", "", "old"),
        (r"\1", "(.)", r"\1"), ("é$1", "(.)", "éa"), ("$1", "(b)?.", None), ("x", "(?i)A", "x"),
    ],
)  # fmt: skip
def test_a_template_of_label_replace_is_gos(url, template, regex, expected):
    query = f"label_replace(label_replace(temp, 'to', 'old', '', ''), 'to', `{template}`, 'n', `{regex}`)"
    (one,) = at(url, query, 1000)["data"]["result"]
    assert one["metric"].get("to") == expected


def test_labels_are_joined_and_replaced_as_the_documentation_says(url):
    (one,) = at(url, "label_join(temp, 'to', '-', 'n', 'none', '__name__')", 1000)["data"]["result"]
    assert one["metric"] == {"__name__": "temp", "n": "a", "to": "a--temp"}
    (one,) = at(url, "label_join(temp, 'n', '-')", 1000)["data"]["result"]
    assert one["metric"] == {"__name__": "temp"}
    assert "same labelset" in at(url, "label_replace(two{zone=~'.'} or odd, 'le', '', 'le', '.*')", 1000, 422)["error"]
    assert (
        "invalid regular expression in label_replace()"
        in at(url, "label_replace(temp, 'a', '', 'n', '(')", 1000, 422)["error"]
    )
    assert "invalid destination label name" in at(url, "label_join(temp, '', '-', 'n')", 1000, 422)["error"]


def test_absent_over_time_has_the_labels_that_have_to_be_equal(url):
    for query in ("absent_over_time(none{%s}[5m])", "absent(none{%s})"):
        asked = query % "a='1', b=~'2', c='3', c='4', d=~'5', d='5', e='6', e!='7', f=''"
        (one,) = at(url, asked, 1000)["data"]["result"]
        assert one == {"metric": {"a": "1", "d": "5"}, "value": [START_S + 1000, "1"]}
    assert over(url, "absent_over_time(hits[5m])", 1000, 3000, 1000) == {"": [1]}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("temp @ -5", None), ("temp @ 1e12", None), ("max_over_time(temp[5m:1m] @ -5)", None),
        ("clamp_min(temp / 0, NaN)", "+Inf"), ("clamp_max(-temp / 0, NaN)", "-Inf"), ("clamp(temp / 0, NaN, Inf)", "+Inf"),
        ("clamp_min(temp, NaN)", "NaN"), ("histogram_quantile(0.5, -odd{kind='all'})", "1"),
    ],
)  # fmt: skip
def test_a_value_at_its_edge_is_that_of_prometheus(url, query, expected):
    found = at(url, query, 1000)["data"]["result"]
    assert [one["value"][1] for one in found] == ([] if expected is None else [expected])


def test_an_escape_of_one_byte_is_none_of_go(url):
    assert "invalid escape sequence" in at(url, r"temp{n=~`\C`}", 1000, 400)["error"]
    assert at(url, r"temp{n!~`\\C`}", 1000)["data"]["result"]
