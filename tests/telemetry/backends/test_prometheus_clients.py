"""Prometheus' API by its real, unmodified client from PyPI, prometheus-api-client, and by hand over HTTP."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import pytest
import requests
from prometheus_api_client import (
    MetricRangeDataFrame,
    MetricSnapshotDataFrame,
    PrometheusApiClientException,
    PrometheusConnect,
)

from telemetry.backends.recordings import AWKWARD, START_S, alert, every, got, recorded, served
from telemetry.packs import START_NS, make_pack

SPAN_METRICS = [
    f"traces_spanmetrics_{name}" for name in ("calls_total", "latency_bucket", "latency_count", "latency_sum")
]


def at(second):
    return datetime.fromtimestamp(START_S + second, UTC)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    series = [
        ("queue.length", {"service_name": "front", "attr.k8s.pod.name": "front-0"}, every(10, 1, 2, 3, 4)),
        ("queue.length", {"service_name": "back", "attr.k8s.pod.name": "back-0"}, every(10, 10, 20, 30, 40)),
        ("queue_length", {"service_name": "other"}, {0: 1}),
        ("9lives", {"service_name": AWKWARD, "attr.who?": AWKWARD}, {0: math.inf, 1: 1e21, 2: -0.5, 3: 1e-7}),
    ]
    alerts = (alert(), alert(service="back", signal="latency", value=120.0, severity="critical"))
    with served(recorded(tmp_path_factory.mktemp("r") / "incident", series, alerts=alerts)) as url:
        yield url


@pytest.fixture
def client(url):
    with PrometheusConnect(url=url, disable_ssl=True) as client:
        yield client


def test_the_client_finds_the_server_and_its_metrics(client):
    assert client.check_prometheus_connection()
    assert client.all_metrics() == ["_9lives", "queue_length", "queue_length_2", *SPAN_METRICS]
    own = ["__name__", "pod", "service", "who_"]
    assert client.get_label_names() == sorted([*own, "le", "span_kind", "span_name", "status_code"])
    assert client.get_label_values("service") == sorted(["back", "front", "other", AWKWARD])
    described = client.get_metric_metadata("queue_length")
    assert described[0]["help"] == "queue.length of the table metrics_sum"


def test_the_client_asks_for_percentiles_of_latency(tmp_path):
    spans = [
        {"duration": ms * 10**6, "time_s": 60 + ms, "attr.span_kind": "Server", "attr.status_code": status}
        for ms in range(1, 101)
        for status in (["Error"] if ms > 90 else ["Unset"])
    ]
    latency = 'traces_spanmetrics_latency_bucket{service="front", span_kind="SPAN_KIND_SERVER"'
    asked = {
        f"sum({latency}, le='0.064'}})": 64,  # 1 to 64 ms
        f"histogram_quantile(0.95, sum by (le) ({latency}}}))": (64 + 64 * (95 - 64) / 36) / 1000,
        f"histogram_quantile(0.5, sum by (le) (rate({latency}}}[5m] @ {START_S + 240})))": (32 + 32 * 18 / 32) / 1000,
        'sum(traces_spanmetrics_calls_total{status_code="STATUS_CODE_ERROR"})': 10,
        'sum(traces_spanmetrics_latency_sum{span_kind="SPAN_KIND_SERVER"})': sum(range(1, 101)) / 1000,
    }
    with served(recorded(tmp_path / "incident", [], spans=spans)) as url, PrometheusConnect(url=url) as client:
        for query, expected in asked.items():
            ((_, value),) = [one["value"] for one in client.custom_query(query)]
            assert float(value) == pytest.approx(expected), query
        begun = client.custom_query(f"sum({latency}, le='+Inf'}})", params={"time": START_S + 120})
    assert begun[0]["value"][1] == "59"  # those that had ended by then


def test_the_client_reads_values_at_an_instant(client):
    (found,) = client.get_current_metric_value(
        "queue_length", label_config={"service": "back"}, params={"time": START_S + 25}
    )
    labels = {"__name__": "queue_length", "service": "back", "pod": "back-0"}
    assert found == {"metric": labels, "value": [START_S + 25, "30"]}
    frame = MetricSnapshotDataFrame(client.custom_query("queue_length", params={"time": START_S + 30}))
    assert sorted(frame["value"].astype(float)) == [4, 40]


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of pandas, about the client's own code
def test_the_client_reads_samples_of_a_range(client):
    found = client.get_metric_range_data("queue_length", {"service": "front"}, start_time=at(0), end_time=at(30))
    assert [value for one in found for value in one["values"]] == [
        [START_S + 10, "2"],
        [START_S + 20, "3"],
        [START_S + 30, "4"],
    ]
    assert MetricRangeDataFrame(found)["value"].tolist() == [2, 3, 4]


def test_the_client_asks_a_query_at_steps(client):
    found = client.custom_query_range("sum(queue_length) by (pod) * 2", at(0), at(30), step="15s")
    assert found == [
        {"metric": {"pod": "back-0"}, "values": [[START_S, "20"], [START_S + 15, "40"], [START_S + 30, "80"]]},
        {"metric": {"pod": "front-0"}, "values": [[START_S, "2"], [START_S + 15, "4"], [START_S + 30, "8"]]},
    ]
    numbers = client.get_metric_aggregation("queue_length", ["sum", "max"], at(0), at(30), "30")
    assert numbers == {"sum": 55.0, "max": 40.0}


def test_the_client_lists_series(client):
    found = client.get_series(at(0), at(30), params={"match[]": 'queue_length{service=~"f.*"}'})
    assert found == [{"__name__": "queue_length", "service": "front", "pod": "front-0"}]
    assert client.get_series(at(100), at(200), params={"match[]": "queue_length"}) == []


def test_the_client_hears_what_is_wrong(client):
    with pytest.raises(PrometheusApiClientException, match=r"HTTP Status Code 400 .*outside the subset"):
        client.custom_query("histogram_fraction(0, 1, queue_length)")
    with pytest.raises(PrometheusApiClientException, match=r"exceeded maximum resolution of 11,000 points"):
        client.custom_query_range("queue_length", at(0), at(3600), step="0.1")


def test_values_of_labels_are_told_apart_whatever_is_in_them(client, url):
    for quoted in (json.dumps(AWKWARD), "`" + AWKWARD + "`"):
        (found,) = client.custom_query(f"_9lives{{who_={quoted}}}", params={"time": START_S + 3})
        assert found["metric"] == {"__name__": "_9lives", "service": AWKWARD, "who_": AWKWARD}
    assert got(url, "/api/v1/query", query='_9lives{who_="we"}')["data"]["result"] == []
    assert got(url, "/api/v1/query", query='_9lives{who_=~"we.*na.me."}', time=START_S)["data"]["result"]


def test_numbers_are_written_as_prometheus_writes_them(url):
    (series,) = got(url, "/api/v1/query", query="_9lives[10s]", time=START_S + 5)["data"]["result"]
    assert [value for _, value in series["values"]] == ["+Inf", "1000000000000000000000", "-0.5", "0.0000001"]
    assert got(url, "/api/v1/query", query="0/0")["data"]["result"][1] == "NaN"
    answer = requests.get(f"{url}/api/v1/query", params={"query": "1", "time": "1.5"}, timeout=9)
    assert answer.text == '{"status":"success","data":{"resultType":"scalar","result":[1.500,"1"]}}'
    assert answer.headers["Content-Type"] == "application/json"


def test_alerts_fire_until_the_end_and_rules_are_their_signals(url):
    (first, second) = got(url, "/api/v1/alerts")["data"]["alerts"]
    assert first == {
        "labels": {"alertname": "error_rate", "service": "front"},
        "annotations": {"summary": "half of the requests fail", "threshold": "0.1"},
        "state": "firing", "activeAt": f"{at(1800):%Y-%m-%dT%H:%M:%S}.123Z", "value": "5e-01",
    }  # fmt: skip
    assert (second["labels"]["severity"], second["value"]) == ("critical", "1.2e+02")
    (group,) = got(url, "/api/v1/rules")["data"]["groups"]
    assert [(rule["name"], len(rule["alerts"])) for rule in group["rules"]] == [("error_rate", 1), ("latency", 1)]
    assert got(url, "/api/v1/rules", type="record")["data"]["groups"] == []


def test_a_query_without_a_time_is_asked_of_the_end(url):
    assert got(url, "/api/v1/query", query="1")["data"]["result"][0] == START_S + 3600
    assert got(url, "/api/v1/query", query="last_over_time(queue_length[2h])")["data"]["result"]


def test_times_are_seconds_or_rfc_3339_and_forms_may_be_posted(url):
    written = datetime.fromtimestamp(START_S + 20, UTC).isoformat()
    for time in (START_S + 20, f"{START_S + 20}.0", written, written.replace("+00:00", "Z")):
        form = {"query": 'queue_length{service="back"}', "time": time}
        answer = requests.post(f"{url}/api/v1/query", data=form, timeout=9).json()
        assert answer["data"]["result"][0]["value"] == [START_S + 20, "30"]


def test_what_is_around_the_queries(url):
    assert requests.get(f"{url}/-/healthy", timeout=9).text == "Prometheus Server is Healthy.\n"
    assert got(url, "/api/v1/status/buildinfo")["data"]["version"] == "3.0.0"
    assert list(got(url, "/api/v1/metadata", limit=1)["data"]) == ["_9lives"]
    assert got(url, "/api/v1/series", **{"match[]": ["queue_length", "_9lives"], "limit": 2})["warnings"]
    assert requests.get(f"{url}/nowhere", timeout=9).status_code == 404
    assert requests.delete(f"{url}/api/v1/query", timeout=9).status_code == 405
    head = requests.head(f"{url}/api/v1/query?query=1", timeout=9)
    assert (head.status_code, head.content) == (200, b"")


def test_histograms_become_counters_that_add_up_and_gauges(tmp_path):
    with served(make_pack(tmp_path / "p")) as url:
        found = {
            name: got(url, "/api/v1/query", query=f'http_server_duration_{name}{{service="cart"}}[1h]')
            for name in ("count", "sum", "min", "max")
        }
        numbers = {name: [v for _, v in one["data"]["result"][0]["values"]] for name, one in found.items()}
        assert numbers == {"count": ["60", "120"], "sum": ["600", "1200"], "min": ["10", "10"], "max": ["10", "10"]}
        types = {name: one[0]["type"] for name, one in got(url, "/api/v1/metadata")["data"].items()}
        assert (types["http_server_duration_sum"], types["container_cpu_usage"]) == ("counter", "gauge")
        assert types["http_requests"] == "unknown"
        first = got(url, "/api/v1/query", query="container_cpu_usage[1h]")["data"]["result"][0]["values"][0][0]
        assert first == START_NS // 10**6 / 1000
