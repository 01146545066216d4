"""The APIs over a running system: real, unmodified clients read what arrives, and nothing else is reached through them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import polars as pl
import pytest
import requests
from argus.backends.loki import LokiBackend
from argus.backends.tempo import TempoBackend
from prometheus_api_client import PrometheusConnect

from evals.commands import agent
from live import state_folder
from opsassay.core.errors import LostError
from opsassay.evals.remediation.trial.live_apis import apis_of, live_apis
from opsassay.evals.runner.external_agents import ExternalAgent, ExternalTask, run_outside
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.sandbox import sealing_refusal
from opsassay.telemetry.backends.serving import ApiServer, serving_on_port
from opsassay.telemetry.backends.views import AlertingRule, live
from opsassay.telemetry.mask import Mask
from opsassay.testbed.operations.alert_watch import AlertWatch
from opsassay.testing import system_in_test
from telemetry.backends.recordings import got
from telemetry.packs import make_pack

SEALED = sealing_refusal() is None

LOOKING = """
import urllib.error, urllib.request
def fetched(url):
    try:
        with urllib.request.urlopen(url, timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)
found = {}
for name in ("PROMETHEUS", "JAEGER", "LOKI", "ALERTMANAGER", "TEMPO"):
    at = os.environ[name + "_URL"]
    paths = {"PROMETHEUS": "/api/v1/label/service/values", "JAEGER": "/api/services", "ALERTMANAGER": "/api/v2/alerts",
             "LOKI": "/loki/api/v1/label/service_name/values", "TEMPO": "/api/search?limit=2"}
    found[name] = [at, *fetched(at + paths[name])]
P = os.environ["PROMETHEUS_URL"]
found["attack"] = [fetched(P + path)[0] for path in (
    "/control.sock", "/../timeline.jsonl", "/api/v1/../../truth.json", "/%2e%2e/actions.jsonl", "/loki/api/v1/push",
    "/api/v2/silences/../../x", "/tempo/../actions.jsonl", "/v1/traces", "/api/v1/admin/tsdb/delete_series")]
found["now"] = json.loads(fetched(P + "/api/v1/query?query=time()")[1])["data"]["result"][0] - time.time()
found["elsewhere"] = [fetched(f"http://127.0.0.1:{port}/")[0] for port in (22, 80, 4318, 9091)]
found["everything"] = fetched(P + "/api/v1/series?match[]={__name__!=''}")[1]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    """Return a running kiosk that has been watched for some seconds."""
    with state_folder(), system_in_test("kiosk", folder=tmp_path_factory.mktemp("s"), isolation="plain") as running:
        time.sleep(3)
        yield running


@pytest.fixture(scope="module")
def live_url(system):
    with apis_of(system.running) as server, serving_on_port(server) as url:
        time.sleep(5)
        yield url


@pytest.mark.live
def test_clients_read_a_running_system_as_it_is_now(system, live_url):
    services = set(system.running.definition().services)
    with PrometheusConnect(url=live_url, disable_ssl=True) as client:
        assert client.check_prometheus_connection()
        assert services <= set(client.get_label_values("service"))
        (count,) = client.custom_query("sum(http_server_request_duration_count)")
        age_s = time.time() - count["value"][0]
        assert float(count["value"][1]) > 0
        assert -0.5 < age_s < 5
        rules = got(live_url, "/api/v1/rules")["data"]["groups"][0]["rules"]
        assert {"error_rate", "latency_p99_ms", "traffic_rps", "saturation"} <= {rule["name"] for rule in rules}
        time.sleep(2.5)
        (later,) = client.custom_query("sum(http_server_request_duration_count)")
        assert later["value"][0] > count["value"][0]
        assert float(later["value"][1]) >= float(count["value"][1])

    async def ask():
        loki, tempo = LokiBackend(live_url), TempoBackend(f"{live_url}/tempo")
        now_ns = time.time_ns()
        span = {"start_ns": now_ns - 60 * 10**9, "end_ns": now_ns}
        logged = await loki.label_values("service_name", **span)
        found = await tempo.search("{}", start_seconds=now_ns // 10**9 - 60, end_seconds=now_ns // 10**9 + 1, limit=3)
        trace = await tempo.get_trace(found[0].trace_id)
        await loki.aclose()
        await tempo.aclose()
        return logged, trace

    logged, trace = asyncio.run(ask())
    assert set(logged) <= services | {"loadgenerator", *logged}
    assert trace.spans
    assert services <= set(got(live_url, "/api/services")["data"])


@pytest.mark.live
def test_a_sealed_agent_finds_them_at_their_usual_ports_and_nothing_else(system, tmp_path):
    """The attack asks for files, other ports and writing paths; the control are the APIs themselves, a mask applied."""
    view = system.tools.view
    view.mask = Mask(drop=("logs",))
    outside = ExternalAgent.from_command(CommandAgent(agent(tmp_path / "agent", LOOKING, needs=("apis",))), None)
    folder, run_dir = tmp_path / "f", tmp_path / "r"
    for made in (folder, run_dir, folder / "view"):
        made.mkdir()
    with AlertWatch(view.alerts, run_dir) as watch:
        time.sleep(1)
        task = ExternalTask(folder / "view", lambda _: "look", apis=live_apis(view, watch))
        ended = run_outside(outside, task, folder, run_dir, Meter(Limits()), sealed=SEALED)
    assert ended.exit_code == 0, ended.stderr_tail
    found = json.loads(ended.stdout_tail)
    services = set(system.running.definition().services)
    assert services <= set(json.loads(found["PROMETHEUS"][2])["data"])
    assert services <= set(json.loads(found["JAEGER"][2])["data"])
    assert json.loads(found["LOKI"][2])["data"] == []
    assert found["ALERTMANAGER"][1] == 200
    assert json.loads(found["TEMPO"][2])["traces"]
    assert abs(found["now"]) < 10
    assert set(found["attack"]) <= {404, 405}
    for secret in (str(system.folder), "boot_id", "injection", "opsassay_token"):
        assert secret not in json.dumps(found)
    if SEALED:
        ports = [
            found[name][0].rpartition(":")[2] for name in ("PROMETHEUS", "JAEGER", "LOKI", "ALERTMANAGER", "TEMPO")
        ]
        assert ports == ["9090", "16686", "3100", "9093", "3200"]
        assert found["elsewhere"] == [0] * 4


def tables_of(pack):
    return {name: pack.both(name).drop("period").collect() for name in ("traces", "logs", "metrics", "metrics_sum")}


def test_what_is_served_follows_what_arrives_and_its_end_is_told(tmp_path, monkeypatch):
    """A view is looked at anew after its time; one that cannot be had is answered 503, in no words of ours."""
    monkeypatch.setattr("opsassay.telemetry.backends.serving.REFRESH_S", 0.0)
    pack = make_pack(tmp_path / "p")
    tables, now_ns = tables_of(pack), pack.incident.abnormal.end_ns
    views = [
        live({}, 0, now_ns, (), {"error_rate": AlertingRule(0.0, "critical", "request")}),
        live(tables, 0, now_ns + 10**9, pack.incident.alerts, {"error_rate": AlertingRule(0.0, "critical", "request")}),
    ]

    def now():
        if not views:
            raise LostError("the socket at /secret/place is gone")
        return views.pop(0)

    with serving_on_port(ApiServer.live(now)) as url:
        (group,) = got(url, "/api/v1/rules")["data"]["groups"]
        assert (group["name"], group["rules"][0]["state"]) == ("live", "inactive")
        assert group["rules"][0]["labels"] == {"severity": "critical"}
        found = got(url, "/api/v1/query", query="count(container_cpu_usage)")["data"]["result"]
        assert found[0]["value"] == [(now_ns + 10**9) // 10**6 / 1000, "3"]
        gone = requests.get(f"{url}/api/v1/alerts", timeout=9)
        assert (gone.status_code, gone.json()["errorType"]) == (503, "unavailable")
        assert "secret" not in gone.text


def test_an_alert_fires_since_its_first_reading(tmp_path):
    pack = make_pack(tmp_path / "p")
    (first, *_) = pack.incident.alerts
    readings = [(first,), (first.model_copy(update={"time_ns": first.time_ns + 10**9}),), ()]
    watch = AlertWatch(None, Path(tmp_path))
    for expected in ([first.time_ns], [first.time_ns], []):
        watch._note_alerts(first.time_ns, readings.pop(0))
        assert [alert.time_ns for alert in watch.firing] == expected


def test_a_histogram_that_adds_up_is_served_as_it_adds_up():
    """Of what is kept the first point stands for all before it: a counter does not fall when older points go."""
    from opsassay.telemetry.otlp.metrics import histogram_deltas

    points = pl.DataFrame(
        {
            "time": pl.Series([10, 20, 30]).cast(pl.Int64) * 10**9, "metric": ["d"] * 3, "service_name": ["a"] * 3,
            "count": [5.0, 7.0, 9.0], "sum": [50.0, 70.0, 90.0], "min": [1.0] * 3, "max": [9.0] * 3,
            "start_ns": [1] * 3, "cumulative": [True] * 3, "series": [0] * 3,
        }
    ).with_columns(pl.from_epoch("time", time_unit="ns").dt.replace_time_zone("UTC"))  # fmt: skip
    for kept in (points, points.tail(2)):
        tables = {"metrics_histogram": histogram_deltas(kept, 0)}
        with serving_on_port(ApiServer.live(lambda tables=tables: live(tables, 0, 31 * 10**9, (), {}))) as url:
            (found,) = got(url, "/api/v1/query", query="d_count")["data"]["result"]
            assert found["value"][1] == "9"
