"""Loki's API over HTTP: logs in Loki's form, the subset of LogQL, and errors as Loki says them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest
import requests

from opsassay.telemetry.backends.logql import evaluating
from opsassay.telemetry.datapack import Datapack
from telemetry.backends.recordings import AWKWARD, SECOND, START_S, got, recorded, served, timed

RANGE, QUERY = "/loki/api/v1/query_range", "/loki/api/v1/query"
ALL = '{service_name=~".+"}'


def entry(at_s, service, line, *, level="INFO", **further):
    return {"time_s": at_s, "service_name": service, "level": level, "message": line, "trace_id": None, **further}


LINES = [
    entry(10, "front", "GET / 200", **{"attr.k8s.pod.name": "front-0"}, trace_id="a1"),
    entry(20, "front", "GET /slow took 1.5s", **{"attr.k8s.pod.name": "front-1"}, trace_id="a2"),
    entry(30, "back", 'refused: "no room"', level="ERROR"),
    entry(31, "back", "refused: (again)", level="ERROR"),
    entry(40, AWKWARD, AWKWARD),
    *[entry(100 + at, "back", f"tick {at}") for at in range(60)],
]


def with_logs(path, lines):
    recorded(path, [])
    timed(pl.DataFrame(lines, infer_schema_length=None)).write_parquet(path / "normal_logs.parquet")
    return Datapack.open(path)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with served(with_logs(tmp_path_factory.mktemp("r") / "incident", LINES)) as url:
        yield url


def span(start=0, end=3600, **further):
    return {"start": (START_S + start) * SECOND, "end": (START_S + end) * SECOND, **further}


def streams(url, query, **further):
    data = got(url, RANGE, query=query, **(span(limit=5000) | further))["data"]
    assert data["resultType"] == "streams"
    return data["result"]


def lines(url, query, **further):
    """Return the lines of all streams in the order of time."""
    values = [value for stream in streams(url, query, **further) for value in stream["values"]]
    return [line for _, line in sorted(values, key=lambda value: int(value[0]))]


def refused(url, path, expected=400, **parameters):
    answer = requests.get(f"{url}{path}", params=parameters, timeout=30)
    assert (answer.status_code, answer.headers["Content-Type"]) == (expected, "text/plain; charset=utf-8"), answer.text
    return answer.text


def test_a_stream_has_lokis_shape(url):
    found = got(url, RANGE, query='{service_name="front"}', **span())
    assert found == {
        "status": "success",
        "data": {
            "resultType": "streams",
            "result": [
                {
                    "stream": {
                        "detected_level": "info",
                        "k8s_pod_name": "front-1",
                        "level": "INFO",
                        "service_name": "front",
                        "trace_id": "a2",
                    },
                    "values": [[str((START_S + 20) * SECOND), "GET /slow took 1.5s"]],
                },
                {
                    "stream": {
                        "detected_level": "info",
                        "k8s_pod_name": "front-0",
                        "level": "INFO",
                        "service_name": "front",
                        "trace_id": "a1",
                    },
                    "values": [[str((START_S + 10) * SECOND), "GET / 200"]],
                },
            ],
            "stats": {},
        },
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('{service_name="front"} |= "slow"', ["GET /slow took 1.5s"]),
        ('{service_name="front"} != "slow"', ["GET / 200"]),
        ('{level="ERROR"} |~ "ref.sed"', ['refused: "no room"', "refused: (again)"]),
        ('{level="ERROR"} !~ `\\(`', ['refused: "no room"']),
        ('{level="ERROR"} |= "\\"no" |= "room"', ['refused: "no room"']),
        ('{level="ERROR"} |= "(again)"', ["refused: (again)"]),
        ('{service_name=~"fr.*|none", level!="ERROR"} |= "200"', ["GET / 200"]),
        ('{service_name=~"fron"}', []),
        ('{level="INFO", service_name!~"front|back"}', [AWKWARD]),
        ('{level=~".+"} | trace_id = "a2"', ["GET /slow took 1.5s"]),
        ('{level=~".+"} | trace_id =~ "a." |= "GET" | k8s_pod_name != "front-0"', ["GET /slow took 1.5s"]),
        ('{level=~".+", trace_id="a2"}', []),
        ('{level="ERROR", no_such=""}', ['refused: "no room"', "refused: (again)"]),
        ('{level=~".+"} |= "REFUSED"', []),
        ('# all that fail\n{level="ERROR"} |~ "(?i)REFUSED" |= "again"', ["refused: (again)"]),
    ],
)
def test_selectors_and_filters(url, query, expected):
    assert lines(url, query) == expected


def test_limit_and_direction(url):
    ticks = '{service_name="back"} |= "tick"'
    (backward,) = streams(url, ticks, limit=3)
    assert [line for _, line in backward["values"]] == ["tick 59", "tick 58", "tick 57"]
    (forward,) = streams(url, ticks, limit=3, direction="FORWARD")
    assert [line for _, line in forward["values"]] == ["tick 0", "tick 1", "tick 2"]
    (unsaid,) = got(url, RANGE, query=ticks)["data"]["result"]
    assert len(unsaid["values"]) == 60
    assert len(got(url, RANGE, query=ALL, limit=7)["data"]["result"][0]["values"]) == 7


def test_a_range_holds_its_start_and_not_its_end_in_any_form_of_time(url):
    query = '{service_name="back"} |= "tick"'
    assert lines(url, query, **span(100, 102)) == ["tick 0", "tick 1"]
    assert lines(url, query, start=START_S + 100, end=START_S + 102) == ["tick 0", "tick 1"]
    assert lines(url, query, start=f"{START_S + 100}.5", end=f"{START_S + 102}.5") == ["tick 1", "tick 2"]
    assert lines(url, query, start=(START_S + 100) * SECOND + 1, end=(START_S + 102) * SECOND + 1) == [
        "tick 1",
        "tick 2",
    ]
    assert lines(url, query, start="2026-01-02T03:05:00Z", end="2026-01-02T03:05:02.000000001Z") == [
        "tick 0", "tick 1", "tick 2"
    ]  # fmt: skip
    assert lines(url, query, since="2h", start="", end=START_S + 103) == ["tick 0", "tick 1", "tick 2"]


def test_labels_values_and_series(url):
    assert got(url, "/loki/api/v1/labels", **span())["data"] == ["k8s_pod_name", "level", "service_name"]
    assert got(url, "/loki/api/v1/labels", **span(25, 35))["data"] == ["level", "service_name"]
    values = "/loki/api/v1/label/service_name/values"
    assert got(url, values) == {"status": "success", "data": ["back", "front", AWKWARD]}
    assert got(url, values, query='{level="ERROR"}')["data"] == ["back"]
    assert got(url, "/loki/api/v1/label/trace_id/values")["data"] == []
    found = got(url, "/loki/api/v1/series", **{"match[]": ['{service_name="back"}', '{k8s_pod_name="front-0"}']})[
        "data"
    ]
    assert found == [
        {"k8s_pod_name": "front-0", "level": "INFO", "service_name": "front"},
        {"level": "ERROR", "service_name": "back"},
        {"level": "INFO", "service_name": "back"},
    ]
    assert requests.get(f"{url}/ready", timeout=9).text == "ready\n"
    assert got(url, "/loki/api/v1/status/buildinfo")["version"] == "3.0.0"


def test_any_of_several_texts_is_enough(url):
    assert lines(url, f'{ALL} |= "no room" or "again"') == ['refused: "no room"', "refused: (again)"]
    assert lines(url, f'{ALL} |~ "GET .$" or "1\\\\.5s" or "(again)$"') == ["GET /slow took 1.5s"]
    assert lines(url, '{service_name="back"} != "tick" or "again"') == ['refused: "no room"']
    assert lines(url, '{service_name="back"} !~ "t.ck" or "^refused: .n" or "nothing"') == ["refused: (again)"]


def test_grafana_is_told_that_loki_lives(url):
    assert counted(url, "vector(1)+vector(1)") == {(): 2}
    assert counted(url, "vector(2.5) * vector(2) - vector(1)") == {(): 4}
    assert counted(url, "sum(vector(3))") == {(): 3}


def test_each_entry_has_the_level_that_loki_detects(tmp_path):
    levels = {
        "ERROR": "error",
        "Warning": "warn",
        "INFO": "info",
        "debug": "debug",
        "FATAL": "fatal",
        "odd": "unknown",
        None: "unknown",
    }
    made = [entry(at, "a", f"{level}", level=level) for at, level in enumerate(levels)]
    with served(with_logs(tmp_path / "incident", made)) as url:
        for level in set(levels.values()):
            expected = [f"{one}" for one, detected in levels.items() if detected == level]
            assert lines(url, f'{ALL} | detected_level = "{level}"') == expected
        assert (
            counted(url, f"sum by (detected_level) (count_over_time({ALL}[1h]))")[("detected_level", "unknown"),] == 2
        )
        assert "detected_level" not in got(url, "/loki/api/v1/labels", **span())["data"]


def counted(url, query, **further):
    found = got(url, QUERY, query=query, **further)["data"]
    assert found["resultType"] == "vector"
    return {tuple(sorted(one["metric"].items())): float(one["value"][1]) for one in found["result"]}


def test_counts_over_ranges_against_a_count_by_hand(url):
    at = START_S + 130
    assert counted(url, 'count_over_time({service_name="back"} |= "tick" [10s])', time=at) == {
        (("detected_level", "info"), ("level", "INFO"), ("service_name", "back")): 10
    }  # ticks 21 to 30: the instant at which a range begins is outside
    assert counted(url, f"sum(count_over_time({ALL}[1h]))", time=at) == {(): 36}
    assert counted(url, f"sum by (level) (rate({ALL}[1m]))", time=START_S + 60) == {
        (("level", "INFO"),): 3 / 60, (("level", "ERROR"),): 2 / 60
    }  # fmt: skip
    assert counted(url, f"max(count_over_time({ALL}[1h]))", time=at) == {(): 31}
    assert counted(url, f"count(count_over_time({ALL}[1h]))", time=at) == {(): 5}
    assert counted(url, f"topk(1, sum by (service_name) (count_over_time({ALL}[1h])))", time=at) == {
        (("service_name", "back"),): 33
    }
    assert counted(url, 'sum(bytes_over_time({level="ERROR"}[1h]))', time=at) == {(): 18 + 16}
    assert counted(url, 'sum(count_over_time({service_name="back"}[10s] offset 30s))', time=START_S + 160) == {(): 10}
    without = "level, detected_level, trace_id, k8s_pod_name"
    found = counted(url, f"sum without ({without}) (count_over_time({ALL}[1h]))", time=at)
    assert found[("service_name", "front"),] == 2
    assert counted(url, 'sum(count_over_time({service_name="none"}[1h]))') == {}


def test_a_sum_over_groups_is_the_sum_of_the_series(url):
    ask = span(0, 300, step=7, query=f"sum by (service_name) (count_over_time({ALL}[40s]))")
    grouped = got(url, RANGE, **ask)["data"]
    every = got(url, RANGE, **(ask | {"query": f"count_over_time({ALL}[40s])"}))["data"]
    assert grouped["resultType"] == every["resultType"] == "matrix"
    total = Counter()
    for one in every["result"]:
        for at, value in one["values"]:
            total[one["metric"]["service_name"], at] += float(value)
    assert total == {(o["metric"]["service_name"], at): float(v) for o in grouped["result"] for at, v in o["values"]}
    assert len(total) > 20


def test_counts_at_random_times_against_a_loop(tmp_path):
    random = np.random.default_rng(7)
    seconds = np.sort(random.integers(0, 600, 500)).tolist()
    rows = [entry(at, f"s{random.integers(4)}", "x" * int(random.integers(9))) for at in seconds]
    with served(with_logs(tmp_path / "incident", rows)) as url:
        ask = span(0, 600, step=13, query=f"bytes_rate({ALL}[29s])")
        found = {
            (one["metric"]["service_name"], at): float(value)
            for one in got(url, RANGE, **ask)["data"]["result"]
            for at, value in one["values"]
        }
    expected = {}
    for at in range(0, 601, 13):
        for row in rows:
            if at - 29 < row["time_s"] <= at:
                key = row["service_name"], START_S + at
                expected[key] = expected.get(key, 0) + len(row["message"]) / 29
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "parse error at line 1, col 1: syntax error: unexpected end of the query"),
        ("{", "parse error at line 1, col 2: syntax error: unexpected end of the query, expecting a label"),
        ('{a="b"', "expecting ,"),
        ("{a=b}", "parse error at line 1, col 4: syntax error: unexpected b, expecting a text in quotes"),
        ('{a="b"} |= ', "expecting a text in quotes"),
        ('{a="b"}\n| json', "parse error at line 2, col 3: syntax error: | json is not served here"),
        ('{a="b"} | line_format "x"', "| line_format is not served here"),
        ('{a="b"} | size > 3', "| size is not served here"),
        ('{a="b"} |> "x"', "|> is not served here"),
        ('{a="b"} | x="1" or x="2"', "or is not served here"),
        ('{a="b"} | (x="1")', "| ( is not served here"),
        ('({a="b"})', "parentheses around a query of logs are not served here"),
        ('{a="b"} |= ip("1.2.3.4")', "ip() is not served here"),
        ('count_over_time({a="b"}[1m]) by (a)', "by is not served here"),
        ("{}", "queries require at least one regexp or equality matcher that does not have an empty-compatible value"),
        ('{a=~".*"}', "queries require at least one regexp or equality matcher"),
        ('{a!="x"}', "queries require at least one regexp or equality matcher"),
        ('{a=~"("}', "error parsing regexp"),
        ('{a="b"} |~ "a)(b"', "error parsing regexp"),
        ('{a=~"' + "x" * 1001 + '"}', "a regular expression may have 1000 characters"),
        ('{a="b"}' + " " * 5000, "a query may have 4096 characters"),
        ('quantile_over_time({a="b"}[1m])', "quantile_over_time is not served here"),
        ('count_over_time({a="b"})', "unexpected ), expecting ["),
        ('count_over_time({a="b"}[0s])', "a duration has to be greater than 0"),
        ('count_over_time({a="b"}[900y])', "36 years at most"),
        ("sum(" * 20 + 'rate({a="b"}[1m])' + ")" * 20, "nested too deeply"),
        ('{a="b"} {a="b"}', "expecting the end of the query"),
        *(
            (query, f"{what} is not served here")
            for query, what in (
                ('rate({a="b"}[1m]) > 3', ">"),
                ('rate({a="b"}[1m]) >= 3', ">="),
                ('sum(rate({a="b"}[1m])) / 2.5', "/"),
                ('rate({a="b"}[1m]) and rate({a="b"}[1m])', "and"),
                ("vector(1) > 0", ">"),
                ('quantile_over_time(0.9, {a="b"} | unwrap x [1m])', "quantile_over_time"),
                ('label_replace(rate({a="b"}[1m]), "x", "y", "z", ".")', "label_replace"),
                ("absent_over_time({a='b'}[1m])", "'"),
            )
            if what != "'"
        ),
        *((query, "numbers alone are not served here") for query in ("5", "1.5", "1 + 1", "1e3")),
        ('topk(1.5, rate({a="b"}[1m]))', "expecting a whole number"),
        ("{a='b'}", "unexpected"),
        ('{a="\\q"}', "unknown escape sequence"),
        ("{a\x00}", "unexpected"),
    ],
)
def test_what_is_no_logql_or_outside_is_said_in_lokis_form(url, query, said):
    text = refused(url, RANGE, query=query, **span())
    assert text.startswith("parse error")
    assert said in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"limit": 0}, "limit must be a positive value"),
        ({"limit": 5001}, "max entries limit per query exceeded, limit > max_entries_limit_per_query (5001 > 5000)"),
        ({"direction": "up"}, "invalid direction 'up'"),
        ({"start": "x"}, "could not parse 'start' parameter"),
        ({"end": "9" * 30}, "could not parse 'end' parameter"),
        ({"end": START_S}, "end timestamp must not be before or equal to start time"),
        ({"since": "soon", "start": ""}, "could not parse 'since' parameter"),
        ({"query": 'rate({a="b"}[1m])', "step": "0"}, "zero or negative query resolution step widths"),
        ({"query": 'rate({a="b"}[1m])', "step": "fast"}, "to a valid duration"),
        ({"query": 'rate({a="b"}[1m])', "step": "0.001"}, "exceeded maximum resolution of 11,000 points"),
    ],
)
def test_parameters_that_are_wrong(url, change, said):
    assert said in refused(url, RANGE, **(span(query='{level="ERROR"}') | change))


def test_other_calls_that_are_wrong(url):
    assert "not supported as an instant query type" in refused(url, QUERY, query='{level="ERROR"}')
    assert "0 matcher groups supplied" in refused(url, "/loki/api/v1/series")
    assert "only label matchers are allowed" in refused(url, "/loki/api/v1/series", match='{a="b"} |= "x"')
    assert "invalid label name" in refused(url, '/loki/api/v1/label/a"b/values')
    for path in ("/loki/api/v1/push", "/loki/api/v1/delete", "/loki/api/v1/tail", "/loki/api/v1/rules"):
        assert requests.post(f"{url}{path}", timeout=9).status_code == 404


def test_what_is_too_much_is_refused(url, monkeypatch):
    monkeypatch.setattr(evaluating, "MOST_CELLS", 10)
    assert "maximum number of series" in refused(url, RANGE, query=f"count_over_time({ALL}[1m])", step=60, **span())
    assert counted(url, f"sum(count_over_time({ALL}[1h]))", time=START_S + 130) == {(): 36}


def test_an_incident_without_logs_has_none(tmp_path):
    with served(recorded(tmp_path / "incident", [])) as url:
        assert got(url, "/loki/api/v1/labels")["data"] == []
        assert got(url, RANGE, query=ALL)["data"]["result"] == []
        assert got(url, QUERY, query=f"sum(count_over_time({ALL}[1h]))")["data"]["result"] == []
