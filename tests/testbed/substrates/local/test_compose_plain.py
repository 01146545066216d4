"""Containers that know of no telemetry: an Envoy brings them spans and faults of HTTP, and leaves no word of it."""

from __future__ import annotations

import json
import re
import sys
import time

import polars as pl
import psutil
import pytest
import yaml

from telemetry.packs import START_NS
from telemetry.past_incidents.test_round_trip import recorded
from testbed.substrates.local.compose_machine import REASON, WITHOUT, machine_in, wait_for

pytestmark = [
    pytest.mark.live,
    pytest.mark.alone,
    pytest.mark.drawn(most=2),
    pytest.mark.timeout(400),
    pytest.mark.skipif(WITHOUT, reason=REASON),
]

SYSTEM = {
    "system": "plain",
    "compose": "plain.yaml",
    "services": {
        "front": {"sidecar": "envoy"},
        "orders": {"sidecar": "envoy", "calls": ["stock"]},
        "stock": {"sidecar": "envoy", "calls": []},
    },
}
SIDECAR_MARKS = re.compile(rb"(?i)(?<!de)fault|envoy|inject|abort|response_flags|upstream|sidecar|ingress")
WINDOWS = ("--warmup", "2", "--normal", "12", "--abnormal", "12")


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    with machine_in(tmp_path_factory.mktemp("engine")) as machine:
        (machine.project / "system.yaml").write_text(yaml.safe_dump(SYSTEM))
        yield machine


@pytest.fixture
def users_own(machine):
    """Start the project as a user does; yield what a container of it shows of its network."""
    machine.run("podman-compose", "-p", "own", "-f", "plain.yaml", "up", "--detach")
    attached = {**SYSTEM, "attach": "own"}
    attached.pop("compose")
    (machine.project / "running.yaml").write_text(yaml.safe_dump(attached))
    try:
        assert wait_for(lambda: answers(machine), 60)
        yield (before := shown(machine))
        assert shown(machine) == before
    finally:
        machine.run("podman-compose", "-p", "own", "-f", "plain.yaml", "down", "--timeout", "1", code=None)


def answers(machine):
    words = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:8001/items/3")
    return machine.run(*words, code=None) == "200"


def shown(machine):
    """Return tables, sysctls and listening sockets in the networks of the user's containers, and that they answer."""
    assert wait_for(lambda: answers(machine), 20)
    found = {}
    for name in machine.run("podman", "ps", "--format", "{{.Names}}").split():
        pid = machine.run("podman", "inspect", "--format", "{{.State.Pid}}", name).strip()
        script = (
            "from pathlib import Path; import subprocess;"
            "from pyroute2.nftables.main import NFTables;"
            "print([str(t.get_attr('NFTA_TABLE_NAME')) for t in NFTables(nfgen_family=2).get_tables()]);"
            "print([p.read_text() for p in map(Path, ('/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal',"
            "'/proc/sys/net/ipv4/ip_unprivileged_port_start'))]);"
            "print(subprocess.run(['ss', '-Hltn'], capture_output=True, text=True).stdout)"
        )
        found[name] = machine.run("nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-c", script)
    return found


def envoys():
    return [one for one in psutil.process_iter(["name"]) if one.info["name"] == "envoy"]


def test_a_check_sees_spans_with_parents_and_the_faults_that_a_sidecar_brings(machine):
    found = json.loads(machine.opsassay("system", "check", "system.yaml", "--seconds", "8", "--rate", "8", "--json"))
    services = {one["service"]: one for one in found["items"]}
    assert not found["findings"]
    assert {name: one["callers"] for name, one in services.items()} == {
        "front": ["loadgenerator"], "orders": ["front"], "stock": ["orders"],
    }  # fmt: skip
    assert {one["sidecar"] for one in services.values()} == {"passes requests"}
    assert len(services["stock"]["by_sidecar"]) == 7
    assert machine.left() == []


def record(machine, system, fault, target, **parameters):
    """Return the truth of an incident of *fault*, with its tables and all that is recorded."""
    plan = {"fault": fault, "target": {"service": target}, "parameters": parameters, "duration_s": 12}
    (machine.project / "fault.yaml").write_text(yaml.safe_dump(plan))
    out = machine.project / f"{system}-{fault}"
    machine.opsassay("incident", "record", f"{system}.yaml", "fault.yaml", "-o", out.name, *WINDOWS)
    (truth,) = (out / "truth").glob("*/truth.json")
    (folder,) = {path.parent for path in out.rglob("abnormal_traces.parquet")}
    return json.loads(truth.read_text()), folder


def test_an_abort_is_confirmed_and_the_recording_names_no_injector(machine):
    truth, folder = record(machine, "system", "HTTPRequestAbort", "stock", code=503)
    assert truth["effects"][0]["passed"], truth["effects"]
    traces = pl.read_parquet(folder / "abnormal_traces.parquet")
    stock = traces.filter((pl.col("service_name") == "stock") & (pl.col("attr.span_kind") == "Server"))
    assert (stock["attr.http.response.status_code"] == 503).any()
    orders = traces.filter(pl.col("service_name") == "orders")["span_id"].to_list()
    assert stock["parent_span_id"].is_in(orders).mean() > 0.9
    recorded = b"".join(
        pl.read_parquet(path).write_ndjson().encode() for path in folder.glob("*.parquet") if "normal" in path.name
    )
    assert b"/items/" in recorded or b"GET /" in recorded
    assert set(SIDECAR_MARKS.findall(recorded)) == set()
    assert machine.left() == []


def test_a_project_that_runs_is_delayed_by_a_sidecar_and_is_as_it_was(machine, users_own):
    truth, folder = record(machine, "running", "HTTPResponseDelay", "stock", delay_ms=400)
    assert truth["effects"][0]["passed"], truth["effects"]
    traces = pl.read_parquet(folder / "abnormal_traces.parquet")
    stock = traces.filter((pl.col("service_name") == "stock") & (pl.col("attr.span_kind") == "Server"))
    assert stock["duration"].max() > 400e6
    assert shown(machine) == users_own
    assert not envoys()


def test_a_recording_takes_spans_and_logs_from_the_teams_own_backends(machine, users_own):
    later_ns = time.time_ns() - START_NS
    recorded(machine.project / "held", later_ns, seconds=150, traces=300, services=("front", "orders", "stock"))
    words = [sys.executable, "-m", "opsassay", "incident", "serve-apis", "held", "--port", "13100"]
    serving = psutil.Popen(machine.entered(machine.project, *words), env=machine.variables)
    try:
        machine.run(
            "curl", "-s", "--retry", "40", "--retry-connrefused", "--retry-delay", "1", "http://127.0.0.1:13100/"
        )
        urls = ["--traces", "tempo=http://127.0.0.1:13100/tempo", "--logs", "loki=http://127.0.0.1:13100"]
        (machine.project / "running.yaml").unlink()
        entry = ["--entry", "http://127.0.0.1:8001/", "-o", "running.yaml"]
        machine.opsassay("system", "attach", "--compose", "own", *entry, *urls)
        found = json.loads(machine.opsassay("system", "check", "running.yaml", "--seconds", "8", "--json"))
        assert all(one["spans"] > 5 for one in found["items"]), found
        assert {one["service"]: one["callers"] for one in found["items"]}["stock"] == ["orders"]
        _, folder = record(machine, "running", "NetworkDelay", "stock", delay_ms=100)
    finally:
        serving.terminate()
        serving.wait()
    traces = pl.concat(pl.read_parquet(path) for path in folder.glob("*normal_traces.parquet"))
    assert {"front", "orders", "stock", "loadgenerator"} <= set(traces["service_name"])
    logs = pl.concat(pl.read_parquet(path) for path in folder.glob("*normal_logs.parquet"))
    assert {"front", "orders", "stock"} <= set(logs["service_name"])


@pytest.mark.parametrize("killed", ["supervisor", "watcher", "supervisor while look-ups fail"])
def test_a_kill_during_a_fault_leaves_a_project_that_runs_as_it_was(machine, users_own, killed):
    machine.opsassay("system", "up", "running.yaml", "--name", "mine", "--rate", "8")
    assert wait_for(lambda: answers(machine), 20), "connections that were open when the sidecars came are opened anew"
    plan = {"fault": "HTTPRequestAbort", "target": {"service": "front"}, "duration_s": 60}
    if "look-ups" in killed:
        plan = {"fault": "DNSError", "target": {"service": "orders"}, "duration_s": 60}
    (machine.project / "fault.yaml").write_text(yaml.safe_dump(plan))
    words = [sys.executable, "-m", "opsassay", "system", "inject", "fault.yaml", "--on", "mine"]
    injecting = psutil.Popen(machine.entered(machine.project, *words), env=machine.variables)
    assert wait_for(lambda: not answers(machine), 30)
    if killed == "watcher":
        min(envoys(), key=lambda one: one.create_time()).parent().parent().kill()
        time.sleep(1)
        assert wait_for(lambda: not answers(machine), 30), "its successor carries the fault on"
        injecting.kill()
        machine.opsassay("system", "down", "mine")
    else:
        (status,) = json.loads(machine.opsassay("system", "status", "--json"))["items"]
        psutil.Process(status["pid"]).kill()
    injecting.wait()
    assert wait_for(lambda: answers(machine) and not envoys(), 60), "before any other command"
    machine.opsassay("system", "status")
    assert shown(machine) == users_own
