"""What an agent on a cluster sees: by the tools of `local`, over what the cluster's receiver records, as it records it."""

from __future__ import annotations

import json
import threading
import time

import pytest
from object_server import READY
from pydantic import ValidationError
from receiver_pod import SECOND, ReceiverPod, Users, WatchedCluster, handled, logged, measured

from opsassay.core.schema.incident import Window
from opsassay.core.schema.run_folder import ACTIONS, ALERTS
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.system import Slo
from opsassay.core.schema.trajectory import Action, AlertReading
from opsassay.evals.remediation import environment as trial_environment
from opsassay.evals.remediation.authoring.checks import findings
from opsassay.evals.remediation.authoring.cluster import VERBS
from opsassay.evals.remediation.environment import TrialEnvironment
from opsassay.evals.remediation.score import read_recorded
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.remediation.trial.perform import perform_in
from opsassay.scoring.verifiers import certify
from opsassay.solvers.agents.mcp_server import serving
from opsassay.telemetry.otlp.spool import Kind, SpoolFile, frame_header, spool_path
from opsassay.testbed.operations import alert_watch, live
from opsassay.testbed.operations import live as sights
from opsassay.testbed.operations.live import LiveAlerts, LiveTelemetry, live_telemetry
from opsassay.testbed.operations.telemetry_view import LOOKS, TelemetryView
from opsassay.testbed.operations.tools import TOOLS, VerbToolSession
from opsassay.testbed.recording import alerts as rules
from opsassay.testbed.scenarios import load_scenario, names, system_of
from opsassay.testbed.substrates.kubernetes.access.kubectl import Kubectl
from opsassay.testbed.substrates.kubernetes.access.tools import TOOLS as CLUSTER_TOOLS
from opsassay.testbed.substrates.kubernetes.access.tools import ClusterToolSession
from opsassay.testbed.substrates.kubernetes.actuators.node_command import NodeCommand
from opsassay.testbed.substrates.kubernetes.api import mirror
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.small_api import served
from opsassay.testbed.substrates.kubernetes.endpoints.remote_receiver import RemoteReceiver
from opsassay.testbed.substrates.kubernetes.environment import ClusterEnvironment
from opsassay.testbed.substrates.kubernetes.manifests.system import Deployed
from opsassay.testbed.substrates.kubernetes.scenario.names import OpenNames
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate
from testbed.operations.test_mcp import talk

ABLE = {**READY, "allocatable": {"cpu": "4"}}
NAMES = OpenNames("mine", "mine-watch", "image:1", ("a",))
WATCHED_SCENARIOS = ("replicas-scaled-to-zero", "wrong-credentials")
HANDLED = "/api/v1/namespaces/{}/pods/receiver-1:9090/proxy/"


@pytest.fixture(scope="module")
def receiver(tmp_path_factory):
    pod = ReceiverPod(tmp_path_factory.mktemp("receiver"))
    yield pod
    pod.stop()


@pytest.fixture
def watched(receiver, tmp_path):
    server = WatchedCluster(receiver)
    server.config = tmp_path / "config"
    server.login("t")
    with served(server):
        yield server


@pytest.fixture
def both(watched, tmp_path):
    """Return telemetry of one receiver as it is seen on this machine and through a cluster, and the tools over each."""
    watched.put("Secret", "mine-watch", "endpoint-key", stringData={"key": "k" * 32})
    watched.put("Pod", "mine-watch", "receiver-1", metadata={"labels": {"app": "receiver"}}, status=READY)
    remote = RemoteReceiver(Api.connect(watched.config), "mine-watch")
    now = time.time_ns()
    usual = Window(start_ns=now - 60 * SECOND, end_ns=now - 20 * SECOND)
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\necho nothing\n")
    program.chmod(0o755)
    with (
        LiveTelemetry(watched.receiver.control, tmp_path / "there") as there,
        LiveTelemetry(remote, tmp_path / "here") as here,
    ):
        near, far = (TelemetryView(one, LiveAlerts(one, Slo(), usual)) for one in (there, here))
        recorded = []
        on_this = VerbToolSession(None, near, recorded.append)
        kubectl, nodes = Kubectl(tmp_path / "config", str(program)), NodeCommand((), "here")
        on_that = ClusterToolSession(kubectl, nodes, (), NAMES, recorded.append, far)
        on_that.recorded = recorded
        yield watched, on_this, on_that, far


def filled(pod):
    """Send a minute of healthy requests, ten seconds of failing ones, a log record and readings."""
    now = time.time_ns()
    pod.send(handled("front", *(now - int(age * SECOND) for age in range(14, 60))))
    pod.send(handled("front", *(now - int((3 + 0.5 * n) * SECOND) for n in range(14)), failed=True, ms=40))
    pod.send(logged("catalog", "password authentication failed", now - 5 * SECOND))
    pod.send(measured("catalog", "container.cpu.usage", 0.1, 0.4, 0.2, at_ns=now - SECOND))


EACH_LOOK = {
    "alerts": ({}, "front: 100% of requests fail"),
    "metrics": ({"metric": "container.cpu.usage"}, "catalog catalog-7f-x1: last 0.2, 0.1..0.4; 0.1 0.4 0.2"),
    "traces": ({"service": "front", "failed": True, "limit": 2}, "front GET / Server 40.0 ms 500"),
    "search_logs": ({"pattern": "password", "level": "ERROR"}, "catalog-7f-x1 ERROR password authentication failed"),
    "summarise": ({"since_s": 120.0}, "1 x catalog: password authentication failed"),
    "topology": ({}, "No call between services was traced"),
}


def test_the_same_tools_say_the_same_on_this_machine_and_on_a_cluster(both):
    watched, near, far, _ = both
    filled(watched.receiver)
    assert set(EACH_LOOK) == set(LOOKS) == set(TOOLS) & set(CLUSTER_TOOLS) - {"wait"}
    for name, (arguments, said) in EACH_LOOK.items():
        here, there = far.call(name, arguments), near.call(name, arguments)
        assert here == there
        assert here.status == "ok"
        assert said in here.output
    described = {one.name: one for one in near.specs()}
    assert [one for one in far.specs() if one.name in described] == [described[name] for name in (*LOOKS, "wait")]
    assert {"metrics", "wait", "kubectl_read"} <= {one.name for one in far.specs(changing=False)}


def test_what_arrives_between_two_looks_is_there_at_the_second(both):
    watched, _, far, sight = both
    asked = {"service": "front"}
    assert far.call("traces", asked).output == "front handled no request in the last 30 s."
    watched.receiver.send(handled("front", time.time_ns(), failed=True))
    assert "front GET / Server 10.0 ms 500" in far.call("traces", asked).output
    assert sight.telemetry.clock_ahead_s == 0.0


def test_any_mcp_client_on_a_cluster_sees_the_telemetry_and_every_look_is_recorded(both, tmp_path):
    watched, _, far, _ = both
    filled(watched.receiver)
    with serving(far, tmp_path / "s.sock") as path:
        offered, answers = talk(path, *((name, arguments) for name, (arguments, _) in EACH_LOOK.items()))
    assert {tool.name for tool in offered} == {*LOOKS, "wait", "kubectl", "kubectl_read"}
    for answer, (_, said) in zip(answers, EACH_LOOK.values(), strict=True):
        assert not answer.is_error
        assert said in answer.content[0].text
    assert [(a.tool, a.status, a.mutating) for a in far.recorded] == [(name, "ok", False) for name in EACH_LOOK]


HOSTILE = [
    ("traces", {"service": "mine-watch/receiver"}),
    ("traces", {"service": "../../mine-watch/secrets/endpoint-key"}),
    ("metrics", {"service": "front?labelSelector=x"}),
    ("metrics", {"metric": "/api/v1/namespaces/mine-watch/secrets/endpoint-key"}),
    ("search_logs", {"pattern": "(a|b", "service": "front"}),
    ("search_logs", {"service": "front", "namespace": "mine-watch"}),
    ("summarise", {"since_s": 1e9}),
    ("alerts", {"session": ".live"}),
]


def test_no_look_asks_the_cluster_for_anything_but_the_trials_own_recording(both):
    watched, _, far, _ = both
    filled(watched.receiver)
    began = len(watched.asked)
    for name, arguments in [*HOSTILE, *((name, given) for name, (given, _) in EACH_LOOK.items())]:
        answer = far.call(name, arguments).output
        assert "k" * 32 not in answer
        assert "mine-watch" not in answer or answer.startswith(("Error: ", "No readings of "))
    session = HANDLED.format("mine-watch") + "sessions/here"
    allowed = {session, *(f"{session}/spool-{signal}.bin" for signal in ("traces", "metrics", "logs"))}
    asked = watched.asked[began:]
    assert {(method, path) for method, path, *_ in asked} == {("GET", path) for path in allowed}
    assert {name for _, _, query, *_ in asked for name in query} == {"offset", "size"}


def test_the_key_that_a_pod_of_the_system_has_opens_no_door_of_the_watchers():
    objects = Deployed(system_of(load_scenario("wrong-credentials")), "mine").manifests()
    keys = {
        one["metadata"]["namespace"]: one["stringData"]["key"]
        for one in objects
        if (one["kind"], one["metadata"]["name"]) == ("Secret", "endpoint-key")
    }
    assert set(keys) == {"mine", "mine-watch"}
    assert keys["mine"] != keys["mine-watch"]


# --- what there is where there is no telemetry ----------------------------------------------------------------------------


def test_stand_ins_have_no_such_tools_and_a_call_of_one_names_those_that_there_are(tmp_path):
    program = tmp_path / "kubectl"
    program.touch(0o755)
    recorded = []
    tools = ClusterToolSession(Kubectl(tmp_path, str(program)), NodeCommand((), "here"), (), NAMES, recorded.append)
    assert {one.name for one in tools.specs()} == {"kubectl", "kubectl_read", "wait"}
    answer = tools.call("alerts", {})
    assert answer.output == "Error: there is no tool 'alerts'; there are kubectl_read, kubectl, wait."
    assert answer.status == "error"
    assert [action.status for action in recorded] == ["error"]


def changed(name, **verification):
    payload = load_scenario(name).model_dump(mode="json")
    payload["verification"] |= verification
    return payload


def test_alerts_are_committed_where_services_are_real_and_refused_where_they_are_stand_ins():
    errors = {"service": "auth-service", "signal": "error_rate"}
    silent = changed("unreachable-service", alerts={"triggering": [errors], "hold_s": 5})
    with pytest.raises(
        ValidationError,
        match="error_rate: the services are stand-ins, which send no telemetry for it; take a signal of",
    ):
        Scenario.model_validate(silent)
    committing = {name for name in names("kubernetes") if load_scenario(name).verification.alerts}
    assert committing >= set(WATCHED_SCENARIOS)
    scenario = Scenario.model_validate(changed("network-policy", alerts={"hold_s": 5}))
    assert [one for one in findings(scenario, system_of(scenario), {}) if one.error] == []


def test_an_author_is_told_that_stand_ins_cannot_be_looked_at():
    assert {"alerts", "search logs", "kubectl", "kubectl_read", "wait"} <= set(VERBS)
    payload = load_scenario("unreachable-service").model_dump(mode="json")
    looks = [{"verb": "search logs", "arguments": {"service": "web"}}, {"verb": "search logs", "arguments": {"x": 1}}]
    payload["oracles"]["gentle"]["steps"] = looks
    payload["cluster"]["stand_ins"] = False
    real = Scenario.model_validate(payload)
    (wrong,) = [one for one in findings(real, system_of(real), {}) if one.error]
    assert "there is no such key; it takes service, level" in wrong.message
    payload["cluster"]["stand_ins"] = True
    told = findings(Scenario.model_validate(payload), system_of(real), {})
    assert [one.message for one in told if one.field == "oracles.gentle.steps.0"] == [
        "search logs: its services send no telemetry here that could be looked at"
    ]


# --- a whole trial --------------------------------------------------------------------------------------------------------


@pytest.fixture
def hurried(monkeypatch):
    """Have two seconds be enough for an alert to fire and to clear."""
    monkeypatch.setattr(rules, "WINDOW_S", 2.0)
    monkeypatch.setattr(rules, "_WINDOW_NS", 2 * SECOND)
    monkeypatch.setattr(sights, "SERVED_OVER_S", 1.5)
    monkeypatch.setattr(alert_watch, "TICK_S", 0.2)
    monkeypatch.setattr(trial_environment, "ALERTS_TIMEOUT_S", 20.0)
    for module in (live, trial_environment):
        monkeypatch.setattr(module, "ARRIVAL_S", 0.5)
    monkeypatch.setattr(mirror, "RETRY_S", 0.5)


def test_nothing_is_broken_before_the_telemetry_shows_users_who_are_served_at_the_right_time(watched, tmp_path):
    scenario = load_scenario("wrong-credentials")
    watched.put("Node", "", "worker1", spec={}, status=ABLE)
    running = KubernetesSubstrate(watched.config).deploy(system_of(scenario), "mine")
    with live_telemetry(running.receiver, tmp_path) as telemetry:
        environment = ClusterEnvironment(scenario, 0, tmp_path, {})
        environment.running, environment.telemetry = running, telemetry
        environment.names = OpenNames("mine", "mine-watch", "image:1", ("worker1",))
        assert environment.health_problem() == "users are not served in time, by the telemetry that has arrived"
        watched.receiver.send(handled("loadgenerator", time.time_ns()))
        assert environment.health_problem() is None
        watched.receiver.send(handled("loadgenerator", time.time_ns(), failed=True))
        assert environment.health_problem() is not None
        watched.healthy = lambda: False
        assert environment.health_problem() == "front answers 502"


class Elsewhere:
    """A receiver whose clock is another one; it takes a second to open a session."""

    def __init__(self, ahead_s):
        self._ahead_s = ahead_s

    def open_session(self, directory, _name):
        directory.mkdir()
        for signal in ("traces", "metrics", "logs"):
            file = SpoolFile(spool_path(directory, signal))
            file.append(frame_header(time.time_ns() + int(self._ahead_s * SECOND), Kind.OPENED, b""), b"")
            file.close()
        time.sleep(1.0)

    def refresh(self, name):
        """It is there."""

    close_session = refresh


@pytest.mark.slow
@pytest.mark.parametrize(("ahead_s", "told"), [(-5.0, -5.0), (0.5, 0.0), (6.0, 5.0)])
def test_a_clock_that_differs_by_more_than_the_opening_took_is_known(tmp_path, ahead_s, told):
    with live_telemetry(Elsewhere(ahead_s), tmp_path) as telemetry:
        assert telemetry.tables()["traces"].is_empty()
        assert telemetry.clock_ahead_s == pytest.approx(told, abs=0.4)
        scenario = load_scenario("wrong-credentials")
        environment = ClusterEnvironment(scenario, 0, tmp_path, {})
        environment.telemetry = telemetry
        apart = f"the clock of the receiver's node is {telemetry.clock_ahead_s:+.1f} s from this machine's"
        assert (environment._blindness() == apart) == bool(told)


class BrokenByHand(ClusterEnvironment):
    """An environment whose trigger is said to have happened: its users fail from then on."""

    broken_at = None

    def broken(self):
        self.broken_at.set()
        return super().broken()


LOOKING_FIRST = {
    "expect": "certified",
    "steps": [
        {"verb": "alerts"},
        {"verb": "kubectl", "arguments": {"args": ["scale", "deployment/catalog", "--replicas=2"]}, "wait_s": 4},
        {"verb": "alerts"},
        {"verb": "summarise", "arguments": {"since_s": 60.0}},
    ],
}
QUICKLY = {"warmup_s": 4.0, "settle_s": 0.0, "aftermath_s": 0.0}


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
def test_a_trial_on_a_cluster_begins_when_its_alert_fires_and_is_judged_by_whether_it_clears(
    watched, tmp_path, monkeypatch
):
    """Only kubectl and the breaking are played: users fail from the trigger on until somebody scales the catalog."""
    broken, repaired = threading.Event(), tmp_path / "repaired"
    told = json.dumps({"clientVersion": {"gitVersion": "v1.20.2"}})
    program = tmp_path / "kubectl"
    program.write_text(
        f"#!/bin/sh\ncase \"$*\" in *version*) echo '{told}';; *scale*) : > {repaired}; echo scaled;; esac\n"
    )
    program.chmod(0o755)
    payload = changed("replicas-scaled-to-zero", alerts={"triggering": [{"service": "front", "signal": "error_rate"}],
                                                         "hold_s": 1}, cadence_s=1)  # fmt: skip
    payload["oracles"]["gentle"] = LOOKING_FIRST
    payload["environment"] |= QUICKLY
    payload["cluster"] |= {"changes": [{"kind": "ConfigMap", "name": "wrong", "create": {"data": {}}}], "until": []}
    scenario, run_dir = Scenario.model_validate(payload), tmp_path / "run"
    run_dir.mkdir()
    watched.put("Node", "", "worker1", spec={}, status=ABLE)
    failing = lambda: broken.is_set() and not repaired.exists()  # noqa: E731
    watched.healthy = lambda: not failing()
    monkeypatch.setattr(BrokenByHand, "broken_at", broken)
    block = {"kubeconfig": str(watched.config), "kubectl": str(program), "open_nodes": True}
    with Users(watched.receiver, failing):
        trial = TrialEnvironment(BrokenByHand(scenario, 0, run_dir, block), scenario, run_dir, probes=False)
        perform_in(trial, scenario, TrialAgent(name="oracle:gentle"), "baseline", 0, run_dir)
    actions = [Action.model_validate_json(line) for line in (run_dir / ACTIONS).read_text().splitlines()]
    before, after = (one.output for one in actions if one.tool == "alerts")
    assert "[error_rate]" in before
    assert "[error_rate]" not in after
    readings = [AlertReading.model_validate_json(line) for line in (run_dir / ALERTS).read_text().splitlines()]
    fired = [{(a.service, a.signal) for a in one.firing} for one in readings]
    assert [("front", "error_rate") in one for one in (fired[0], set().union(*fired), fired[-1])] == [
        False,
        True,
        False,
    ]
    judged = certify(read_recorded(run_dir, probes_on=False), scenario).judgement("alerts_cleared")
    assert judged.passed, judged.reason
    assert not (run_dir / ".live").exists()
    assert watched.namespaces() == []
