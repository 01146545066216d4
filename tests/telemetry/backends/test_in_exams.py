"""An external agent in its exam reaches the APIs over its own incident, and through them nothing else."""

from __future__ import annotations

import json

import pytest

from evals.commands import agent
from opsassay.core.errors import UserError
from opsassay.core.schema.run import RunStatus
from opsassay.evals.diagnosis.setups.agents import setup_of
from opsassay.evals.diagnosis.solve import run_agent
from opsassay.evals.diagnosis.tasks import IncidentItem
from opsassay.evals.runner.external_agents import ExternalAgent, ExternalTask, run_outside
from opsassay.evals.runner.store import RunStore, read_diagnosis, read_run
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.sandbox import sealing_refusal
from opsassay.telemetry.mask import Mask
from telemetry.packs import make_tree
from test_docs import ROOT

EXAMPLE = ROOT / "examples" / "agents" / "by_prometheus" / "agent.yaml"
SEALED = "required" if sealing_refusal() is None else "off"

LOOKING = """
import socket, urllib.error, urllib.request

def fetched(url):
    try:
        with urllib.request.urlopen(url, timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)

def raw(line):
    with socket.create_connection(("127.0.0.1", 9090), timeout=20) as connection:
        connection.sendall(line.encode() + b"\\r\\nHost: x\\r\\n\\r\\n")
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

BASE = os.environ.get("PROMETHEUS_URL", "")
found = {}
"""


@pytest.fixture
def tree(tmp_path):
    return make_tree(tmp_path / "tree", count=2)


@pytest.fixture
def examined(tree, tmp_path):
    """Return a function that examines the agent of a program, sealed where this machine can, and gives what it printed."""

    def run(code, *, needs=("apis",), mask=None, sealing=SEALED):
        path = agent(tmp_path / "agent", LOOKING + code + "\nprint(json.dumps(found)); sys.exit(7)", needs=needs)
        item = IncidentItem.from_datapack(tree.datapack(tree.ids()[0]))
        run_dir = run_agent(
            RunStore(tmp_path / "runs"), item, setup_of(str(path), sealing=sealing), mask=mask, again=True
        )
        said = (run_dir / "solver.log").read_text().strip().splitlines()
        assert said, read_run(run_dir).error
        return json.loads(next(line for line in said if line.startswith("{")))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("sealing", sorted({SEALED, "off"}))
def test_the_example_finds_the_service_by_prometheus_and_jaeger_alone(tree, tmp_path, sealing):
    item = IncidentItem.from_datapack(tree.datapack(tree.ids()[0]))
    run_dir = run_agent(RunStore(tmp_path / "runs"), item, setup_of(str(EXAMPLE), sealing=sealing))
    run = read_run(run_dir)
    assert (run.status, run.error, run.flags) == (RunStatus.DONE, None, ())
    assert run.isolation == ("sealed" if sealing == "required" else "unsealed")
    assert [root.service for root in read_diagnosis(run_dir).root_causes] == ["store"]
    assert "Prometheus at http://127.0.0.1:" in (run_dir / "trace.jsonl").read_text()


@pytest.mark.skipif(SEALED == "off", reason=f"this machine cannot seal: {sealing_refusal()}")
def test_nothing_but_the_agents_own_incident_is_reached_through_the_apis(examined, tree):
    """The attack asks for files, truth and the other incident in every way that a path can say; the control is a query."""
    own, other = tree.ids()
    canary = f"{tree.truth_path(own)}/truth.json"
    attack = f"""
paths = ["/truth.json", "/../truth.json", "/api/v1/../../../truth/{own}/truth.json", "//etc/passwd",
         "/%2e%2e/%2e%2e/etc/passwd",
         "/api/traces/..%2f..%2ftruth.json", "/api/services/%2fetc%2fpasswd/operations", "/api/v1/label/..%2fx/values",
         "/loki/api/v1/../../../truth.json", "/loki/api/v1/label/..%2fx/values", "/tempo/api/traces/..%2f..%2ftruth.json",
         "/tempo/../truth.json", "/api/v2/../../truth.json", "/loki/api/v1/delete", "/tempo/api/overrides",
         "/api/v1/read", "/api/v1/admin/tsdb/snapshot", "/federate?match[]=x", "/debug/pprof/", "/api/v1/status/config"]
found["paths"] = [raw(f"GET {{path}} HTTP/1.1") for path in paths]
found["files"] = [raw("GET {canary} HTTP/1.1"), raw("GET file://{canary} HTTP/1.1"), raw("CONNECT 127.0.0.1:22 HTTP/1.1")]
found["writes"] = [raw(f"{{method}} /api/v1/series?match[]=x HTTP/1.1") for method in ("PUT", "DELETE", "PATCH")]
found["elsewhere"] = [fetched(f"http://127.0.0.1:{{port}}/")[0] for port in (9091, 8000, 22, 80)]
found["control"] = fetched(BASE + "/api/v1/query?query=count(container_cpu_usage)")
found["jaeger"] = fetched(os.environ["JAEGER_URL"] + "/api/services")
found["loki"] = fetched(os.environ["LOKI_URL"] + "/loki/api/v1/label/service_name/values")
found["alertmanager"] = fetched(os.environ["ALERTMANAGER_URL"] + "/api/v2/alerts")
found["tempo"] = fetched(os.environ["TEMPO_URL"] + "/api/search?limit=1&tags=service.name%3Dstore")
found["usual"] = [os.environ[f"{{name}}_URL"].rpartition(":")[2] for name in ("LOKI", "ALERTMANAGER", "TEMPO")]
found["traces"] = [fetched(os.environ[f"{{name}}_URL"] + "/api/traces/truth.json")[0] for name in ("JAEGER", "TEMPO")]
"""
    found = examined(attack)
    (status, control), (_, services) = found["control"], found["jaeger"]
    assert (status, json.loads(control)["data"]["result"][0]["value"][1]) == (200, "3")
    assert json.loads(services)["data"] == ["cart", "frontend", "loadgenerator", "store"]
    assert json.loads(found["loki"][1])["data"] == ["cart", "frontend", "store"]
    assert [one["labels"]["service"] for one in json.loads(found["alertmanager"][1])] == ["frontend"]
    assert json.loads(found["tempo"][1])["traces"][0]["rootServiceName"] == "loadgenerator"
    assert (found["usual"], found["traces"]) == (["3100", "9093", "3200"], [400, 400])
    everything = json.dumps(found)
    for secret in ("root:x:", "HTTPResponseAbort", other, "http_response", "causal_graph", "PAR1"):
        assert secret not in everything
    for answer in found["paths"]:
        assert answer.split(" ")[1] in {"404", "400"} or '"data": []' in answer, answer
    for answer in found["files"]:
        assert answer.split(" ")[1] in {"404", "400", "405"}, answer
    assert [answer.split(" ")[1] for answer in found["writes"]] == ["405"] * 3
    assert found["elsewhere"] == [0] * 4


@pytest.mark.slow
def test_a_mask_holds_for_the_apis_too(examined):
    code = """
for name in ("metrics", "services"):
    path = {"metrics": "/api/v1/label/__name__/values", "services": "/api/v1/label/service/values"}[name]
    found[name] = json.loads(fetched(BASE + path)[1])["data"]
found["logs"] = json.loads(fetched(os.environ["LOKI_URL"] + "/loki/api/v1/label/service_name/values")[1])["data"]
found["tempo"] = len(json.loads(fetched(os.environ["TEMPO_URL"] + "/api/search?limit=1500")[1])["traces"])
found["spans"] = len(json.loads(fetched(os.environ["JAEGER_URL"] + "/api/traces?service=cart&limit=1500")[1])["data"])
"""
    whole = examined(code)
    assert (whole["services"], whole["spans"]) == (["cart", "frontend", "loadgenerator", "store"], 120)
    masked = examined(code, mask=Mask(drop=("metrics",)))
    assert set(whole["metrics"]) - set(masked["metrics"]) == {"container_cpu_usage"}
    assert masked["spans"] == 120
    assert whole["logs"] == ["cart", "frontend", "store"]
    assert examined(code, mask=Mask(drop=("logs",)))["logs"] == []
    without = examined(code, mask=Mask(drop=("traces",)))
    assert (whole["tempo"], without["spans"], without["tempo"]) == (120, 0, 0)


@pytest.mark.skipif(SEALED == "off", reason=f"this machine cannot seal: {sealing_refusal()}")
def test_an_agent_that_does_not_need_them_has_none(examined):
    code = "found |= {'status': fetched('http://127.0.0.1:9090/')[0], 'url': BASE}"
    assert examined(code) == {"status": 200, "url": "http://127.0.0.1:9090"}
    assert examined(code, needs=()) == {"status": 0, "url": ""}


def test_where_no_apis_are_served_an_agent_that_needs_them_is_refused(tmp_path):
    outside = ExternalAgent.from_command(CommandAgent(EXAMPLE), None)
    with pytest.raises(UserError, match="no telemetry here to serve"):
        run_outside(outside, ExternalTask(tmp_path, lambda _: ""), tmp_path, tmp_path, None, sealed=False)
