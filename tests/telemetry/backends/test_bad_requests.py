"""What clients can do wrong: each gets the backend's own form of error, and the next request is answered as before."""

from __future__ import annotations

import socket
import threading
import time
from urllib.parse import urlsplit

import pytest
import requests

from opsassay.telemetry.backends.promql import evaluating, windows
from telemetry.backends.recordings import START_S, every, got, recorded, served

MANY = 10_000


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    many = [("wide", {"service_name": f"s{at % 50}", "attr.n": f"{at}"}, {0: at, 10: 2 * at}) for at in range(MANY)]
    series = [("narrow", {}, every(1, *range(600))), *many]
    with served(recorded(tmp_path_factory.mktemp("r") / "incident", series)) as url:
        yield url


@pytest.fixture(autouse=True)
def still_answered(url):
    yield
    assert got(url, "/api/v1/query", query="narrow", time=START_S + 9)["data"]["result"][0]["value"][1] == "9"


RANGE = {"query": "narrow", "start": START_S, "end": START_S + 60, "step": 15}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start": START_S + 61}, "end timestamp must not be before start time"),
        ({"step": 0}, "zero or negative query resolution step widths are not accepted"),
        ({"step": -1}, "zero or negative query resolution step widths"),
        ({"step": 0.000001}, "zero or negative query resolution step widths"),
        ({"step": "1e-300"}, "zero or negative query resolution step widths"),
        ({"step": 0.001}, "exceeded maximum resolution of 11,000 points per timeseries"),
        ({"start": START_S - 10 * 365 * 86400}, "exceeded maximum resolution"),
        ({"start": "-1e15", "end": "1e15", "step": "1e3"}, 'invalid parameter "start"'),
        ({"step": "fast"}, 'invalid parameter "step": cannot parse "fast" to a valid duration'),
        ({"step": "nan"}, 'cannot parse "nan" to a valid duration'),
        ({"step": "15x"}, "to a valid duration"),
        ({"start": "yesterday"}, 'invalid parameter "start": cannot parse "yesterday" to a valid timestamp'),
        ({"start": "1_0"}, "to a valid timestamp"),
        ({"start": "Infinity"}, "to a valid timestamp"),
        ({"end": ""}, 'invalid parameter "end"'),
        ({"end": "9" * 5000}, 'invalid parameter "end"'),
        ({"end": "2026-13-45T00:00:00Z"}, 'invalid parameter "end"'),
        ({"query": "narrow[5m]"}, 'invalid expression type "range vector" for range query'),
        ({"query": '"text"'}, 'invalid expression type "string" for range query'),
        ({"timeout": "soon"}, 'invalid parameter "timeout"'),
    ],
)
def test_a_range_query_that_is_wrong(url, change, said):
    answer = got(url, "/api/v1/query_range", 400, **(RANGE | change))
    assert answer.keys() == {"status", "errorType", "error"}
    assert (answer["status"], answer["errorType"]) == ("error", "bad_data")
    assert said in answer["error"]


def test_ranges_of_years_are_answered_when_steps_are_wide(url):
    years = got(url, "/api/v1/query_range", query="narrow", start=0, end=START_S * 2, step=START_S)["data"]["result"]
    assert years[0]["values"] == [[START_S, "0"]]
    (one,) = got(url, "/api/v1/query", query="count_over_time(narrow[200y])")["data"]["result"]
    assert one["value"][1] == "600"
    assert got(url, "/api/v1/query", query="narrow offset 90y")["data"]["result"] == []
    got(url, "/api/v1/query", 400, query="narrow[99999999999999y]")


@pytest.mark.parametrize(
    ("path", "parameters", "said"),
    [
        ("/api/v1/series", {}, "no match[] parameter provided"),
        ("/api/v1/series", {"match[]": "sum(narrow)"}, "is no series selector"),
        ("/api/v1/series", {"match[]": "{}"}, "at least one non-empty matcher"),
        ("/api/v1/labels", {"limit": "-1"}, 'invalid parameter "limit"'),
        ('/api/v1/label/a"b/values', {}, "invalid label name"),
        ("/api/v1/label/%0A/values", {}, "invalid label name"),
        ("/api/v1/rules", {"type": "x"}, "not supported value"),
        ("/api/v1/query", {}, "no expression found"),
        ("/api/v1/query", {"query": "narrow\x00"}, "parse error"),
        ("/api/v1/query", {"query": "narrow", "time": "-"}, 'invalid parameter "time"'),
    ],
)
def test_other_calls_that_are_wrong(url, path, parameters, said):
    assert said in got(url, path, 400, **parameters)["error"]


def test_ten_thousand_series_are_answered_whole(url):
    found = got(url, "/api/v1/query", query="wide", time=START_S + 10)["data"]["result"]
    assert sorted(int(one["value"][1]) for one in found) == [2 * at for at in range(MANY)]
    (total,) = got(url, "/api/v1/query_range", **(RANGE | {"query": "sum(wide)"}))["data"]["result"]
    assert total["values"][0] == [START_S, str(MANY * (MANY - 1) // 2)]
    assert len(got(url, "/api/v1/series", **{"match[]": "wide"})["data"]) == MANY


@pytest.mark.parametrize("query", ["wide", "sum(wide)", "rate(wide[5m])", 'topk(3, {__name__=~".+"})'])
def test_what_is_too_much_is_refused_before_it_is_computed(url, query):
    began = time.monotonic()
    answer = got(url, "/api/v1/query_range", 422, query=query, start=START_S, end=START_S + 1000, step=1)
    assert answer["errorType"] == "execution"
    assert "too many samples" in answer["error"]
    assert time.monotonic() - began < 5


def test_ranges_that_hold_too_much_are_refused(url, monkeypatch):
    monkeypatch.setattr(windows, "MOST_SAMPLES", 1000)
    query = {"query": "sum_over_time(narrow[10m])", "start": START_S, "end": START_S + 600, "step": 10}
    assert got(url, "/api/v1/query_range", 422, **query)["errorType"] == "execution"
    monkeypatch.setattr(evaluating, "MOST_CELLS", 100)
    assert got(url, "/api/v1/query", 422, query="narrow[1h]")["errorType"] == "execution"


def test_a_timeout_that_has_passed_is_said(url):
    answer = got(url, "/api/v1/query", 503, query="narrow", timeout=0)
    assert (answer["errorType"], "timed out" in answer["error"]) == ("timeout", True)


def connected(url):
    return socket.create_connection(("127.0.0.1", urlsplit(url).port), timeout=20)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\x16\x03\x01\x02\x00", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"POST /api/v1/query HTTP/1.1\r\nContent-Length: 70000\r\n\r\n", 413),
        (b"POST /api/v1/query HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"GET /api/v1/query?" + b"&".join(b"a=%d" % n for n in range(200)) + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET /api/v1/query?query=%ff%fe HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_gets_an_error_of_prometheus_form(url, raw, status):
    with connected(url) as connection:
        connection.sendall(raw)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert body.startswith(b'{"status": "error", "errorType": "bad_data"')


def test_clients_that_hang_up_take_nothing_with_them(url):
    for sent in (
        b"",
        b"GET",
        b"GET /api/v1/query?query=wide HTTP/1.1\r\n",
        b"GET /api/v1/query?query=wide HTTP/1.1\r\n\r\n",
    ):
        for _ in range(20):
            with connected(url) as connection:
                connection.sendall(sent)
    found = got(url, "/api/v1/query", query="count(wide)", time=START_S)["data"]["result"]
    assert found[0]["value"][1] == str(MANY)


def test_queries_side_by_side_are_each_answered_whole(url):
    answers = []

    def ask(second):
        found = got(url, "/api/v1/query", query="narrow", time=START_S + second)
        answers.append((second, int(found["data"]["result"][0]["value"][1])))

    threads = [threading.Thread(target=ask, args=(second,)) for second in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [(second, second) for second in range(40)]


def test_a_fault_of_ours_is_an_error_and_not_silence(url, monkeypatch, caplog):
    monkeypatch.setattr(evaluating, "select", lambda *_: 1 / 0)
    answer = requests.get(f"{url}/api/v1/query", params={"query": "narrow"}, timeout=9)
    assert (answer.status_code, answer.json()["errorType"]) == (500, "internal")
    assert "ZeroDivisionError" in caplog.text
