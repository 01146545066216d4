"""What an agent tries that is none of its business: every call is answered, recorded, and reaches nothing outside."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from live import state_folder
from opsassay.core.errors import UserError
from opsassay.core.schema.incident import Window
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.operations.arguments import parse_url
from opsassay.testbed.operations.live import LiveAlerts, LiveTelemetry
from opsassay.testbed.operations.telemetry_view import TelemetryView
from opsassay.testbed.operations.tool_session import OUTPUT_LIMIT, specs_of
from opsassay.testbed.operations.tools import TOOLS, VerbToolSession
from opsassay.testbed.substrates.local.environment import LocalEnvironment
from opsassay.testbed.substrates.local.operations import BREAKING
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from scoring.verifiers.made import scenario

PREY = str(Path(__file__).with_name("prey.yaml"))
SECRET = "this is none of the agent's business"


class Tripwire:
    """A server on the machine's loopback that remembers whether anybody knocked."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.knocks = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.knocks += 1
            client.close()


class Range:
    """A running system, its tools, and what lies around it."""

    def __init__(self, folder: Path, running, telemetry) -> None:
        self.folder, self.running = folder, running
        self.recorded = []
        now = time.time_ns()
        alerts = LiveAlerts(telemetry, load_system(PREY).slo, Window(start_ns=now - 10**9, end_ns=now))
        self.toolbox = VerbToolSession(running, TelemetryView(telemetry, alerts), self.recorded.append)
        self.tripwire = Tripwire()
        self.secret = folder / "secret.txt"
        self.secret.write_text(SECRET)

    def settings(self):
        return {target: self.running.operate("config get", {"target": target}) for target in ("front", "back", "cache")}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("range")
    with (
        state_folder(),
        LocalSubstrate().deployed(load_system(PREY), "prey") as running,
        LiveTelemetry(running.receiver, folder / "live") as telemetry,
    ):
        time.sleep(2)
        yield Range(folder, running, telemetry)


def hostile_calls():
    """Return name to (tool, arguments); ``{port}`` and ``{secret}`` stand for the tripwire and a file outside."""
    return {
        "a path as a target": ("logs", {"target": "../../../../etc/passwd"}),
        "an absolute path as a target": ("describe", {"target": "{secret}"}),
        "a path as a replica": ("logs", {"target": "back-0/../supervisor"}),
        "the supervisor's own log": ("logs", {"target": "supervisor"}),
        "the log of the receiver": ("logs", {"target": "receiver"}),
        "SQL in a metric": ("metrics", {"metric": "x'; DROP TABLE metrics; SELECT * FROM read_csv('/etc/passwd') --"}),
        "SQL in a service": ("traces", {"service": "front' OR 1=1 --"}),
        "curl of a file": ("exec_curl", {"source": "front", "url": "file://{secret}"}),
        "curl of the machine's loopback": ("exec_curl", {"source": "front", "url": "http://127.0.0.1:{port}/"}),
        "curl of localhost by name": ("exec_curl", {"source": "front", "url": "http://localhost:{port}/"}),
        "curl of IPv6 loopback": ("exec_curl", {"source": "front", "url": "http://[::1]:{port}/"}),
        "curl of the metadata address": ("exec_curl", {"source": "front", "url": "http://169.254.169.254/latest/"}),
        "curl of the management network": ("exec_curl", {"source": "front", "url": "http://10.78.0.1:80/"}),
        "curl of a decimal address": ("exec_curl", {"source": "front", "url": "http://2130706433:{port}/"}),
        "curl with credentials": ("exec_curl", {"source": "front", "url": "http://back@127.0.0.1:{port}/"}),
        "curl of a Unix socket": ("exec_curl", {"source": "front", "url": "http+unix://%2Ftmp%2Fmanage.sock/"}),
        "curl of another site": ("exec_curl", {"source": "front", "url": "http://example.com/"}),
        "curl with an option": ("exec_curl", {"source": "front", "url": "--output {secret} http://back:8080/"}),
        "curl with a second line": ("exec_curl", {"source": "front", "url": "http://back:8080/items\r\nX: y"}),
        "curl of a database port": ("exec_curl", {"source": "front", "url": "http://db:5432/"}),
        "curl of the machine through a port": ("exec_curl", {"source": "front", "url": "http://back:{port}/"}),
        "a key with a new line": ("config_set", {"target": "front", "key": "A\nB", "value": "1"}),
        "a value with a new line": ("config_set", {"target": "front", "key": "A", "value": "1\nUPSTREAM_BACK=x"}),
        "a value with a null byte": ("config_set", {"target": "front", "key": "A", "value": "a\x00b"}),
        "a key of the interpreter": ("config_set", {"target": "front", "key": "__class__", "value": "x"}),
        "a setting that names a folder": ("config_set", {"target": "cache", "key": "dir", "value": "/tmp"}),
        "a setting that names a file": ("config_set", {"target": "cache", "key": "dbfilename", "value": "x.rdb"}),
        "a setting that loads code": ("config_set", {"target": "cache", "key": "loadmodule", "value": "/tmp/x.so"}),
        "a setting of the database": (
            "config_set",
            {"target": "db", "key": "archive_command", "value": "touch /tmp/x"},
        ),
        "a name that leads out": ("config_set", {"target": "names", "key": "back", "value": "example.com"}),
        "a huge value": ("config_set", {"target": "front", "key": "A", "value": "x" * 10**6}),
        "a negative scale": ("scale", {"service": "back", "replicas": -1}),
        "a scale of a billion": ("scale", {"service": "back", "replicas": 10**9}),
        "a scale that is no number": ("scale", {"service": "back", "replicas": "2; rm -rf /"}),
        "a replica that is not there": ("restart", {"target": "back", "replica": 77}),
        "a wait for ever": ("wait", {"seconds": 10**9}),
        "a wait for no number": ("wait", {"seconds": float("nan")}),
        "a release that is a path": ("release", {"service": "back", "version": "../../v2"}),
        "a rule that is not there": ("firewall_delete", {"rule": "rule-1"}),
        "another system's name": ("describe", {"target": "trial-1-abcd"}),
        "a verb of the harness": ("clock_set", {"host": "host-a", "offset_s": 60}),
        "a verb of the harness with blanks": ("pool leak", {"service": "back", "store": "db", "connections": 8}),
        "a command of the supervisor": ("down", {}),
        "a fault": ("inject", {"plan": {"fault": "PodKill"}}),
        "an argument too many": ("restart", {"target": "back", "op": "down"}),
        "a method that is none": ("exec_curl", {"source": "front", "url": "http://back:8080/", "method": "CONNECT"}),
        "a regular expression that is huge": ("search_logs", {"pattern": "(((a{500}){500}){500})"}),
        "arguments that nest without end": ("describe", {"target": json.loads("[" * 500 + "]" * 500)}),
    }


@pytest.mark.live
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", hostile_calls())
def test_a_hostile_call_is_an_observation_and_nothing_more(place, name):
    tool, given = hostile_calls()[name]
    port, secret = str(place.tripwire.port), str(place.secret)
    given = {
        key: value.replace("{port}", port).replace("{secret}", secret) if isinstance(value, str) else value
        for key, value in given.items()
    }
    before, recorded, processes = place.settings(), len(place.recorded), set(place.running.status().pids.items())
    outcome = place.toolbox.call(tool, given)
    told = SECRET in outcome.output or "root:" in outcome.output
    assert not told, outcome.output
    harmless = name in ("SQL in a metric", "curl of the machine through a port")  # answered, with nothing in it
    assert outcome.status == ("ok" if harmless else "error"), outcome.output
    assert len(outcome.output) <= OUTPUT_LIMIT + 100
    assert place.tripwire.knocks == 0
    assert place.secret.read_text() == SECRET
    assert place.settings() == before
    assert set(place.running.status().pids.items()) == processes
    assert len(place.recorded) == recorded + 1
    assert len(place.recorded[-1].model_dump_json()) < OUTPUT_LIMIT + 10_000
    assert not place.recorded[-1].touched


@pytest.mark.live
@pytest.mark.timeout(120)
def test_nothing_is_expanded_and_no_pattern_hangs(place):
    os.environ["OPSASSAY_TEST_SECRET"] = SECRET
    try:
        value = "${OPSASSAY_TEST_SECRET} $(cat /etc/passwd) %(secret)s {secret} `id`"
        assert place.toolbox.call("config_set", {"target": "front", "key": "MOTTO", "value": value}).status == "ok"
        assert json.loads(place.toolbox.call("config_get", {"target": "front"}).output)["settings"]["MOTTO"] == value
    finally:
        del os.environ["OPSASSAY_TEST_SECRET"]
        place.running.operate("config unset", {"target": "front", "key": "MOTTO"})
    began = time.monotonic()
    assert place.toolbox.call("search_logs", {"pattern": "(a+)+$", "service": "front"}).status == "ok"
    assert time.monotonic() - began < 60


@pytest.mark.live
@pytest.mark.timeout(120)
def test_an_upstream_that_leads_to_the_machine_leads_nowhere(place):
    for upstream in (
        f"127.0.0.1:{place.tripwire.port}",
        f"localhost:{place.tripwire.port}",
        f"back:{place.tripwire.port}",
    ):
        place.running.operate("config set", {"target": "front", "key": "UPSTREAM_BACK", "value": upstream})
        place.running.operate("restart", {"target": "front"})
        place.toolbox.call("exec_curl", {"source": "back", "url": "http://front:8080/"})
    assert place.tripwire.knocks == 0
    place.running.operate("config set", {"target": "front", "key": "UPSTREAM_BACK", "value": "back:8080"})
    place.running.operate("restart", {"target": "front"})
    answer = json.loads(place.toolbox.call("exec_curl", {"source": "back", "url": "http://front:8080/"}).output)
    assert answer["status"] == 200


def stage_of(place):
    """Return the running system as a trial has it."""
    preyed = scenario()
    preyed = preyed.model_copy(update={"environment": preyed.environment.model_copy(update={"system": PREY})})
    environment = LocalEnvironment(preyed, 0, None, {})
    environment.running = place.running
    return environment


@pytest.mark.live
@pytest.mark.timeout(120)
def test_what_is_left_for_the_next_start_to_fail_on_is_seen_until_there_was_one(place):
    stage, operate = stage_of(place), place.running.operate
    before = stage.read_settings()
    assert before.pending_restart == {}
    operate("config set", {"target": "back", "key": "DB_PASSWORD", "value": "wrong-one"})
    trapped = stage.read_settings()
    assert trapped.pending_restart == {"back DB_PASSWORD": ("back-0", "back-1")}
    assert trapped.configured["back DB_PASSWORD"] != before.configured["back DB_PASSWORD"]
    assert "wrong-one" not in trapped.model_dump_json()
    operate("config set", {"target": "back", "key": "DB_PASSWORD", "value": "sesame"})
    operate("config set", {"target": "back", "key": "MOTTO", "value": "x"})
    operate("restart", {"target": "back", "replica": 0})
    assert stage.read_settings().pending_restart == {"back MOTTO": ("back-1",)}
    operate("config unset", {"target": "back", "key": "MOTTO"})
    assert stage.read_settings().pending_restart == {"back MOTTO": ("back-0",)}
    operate("restart", {"target": "back", "replica": 0})
    after = stage.read_settings()
    assert (after.pending_restart, after.configured, after.settings) == ({}, before.configured, before.settings)


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_clock_that_nobody_holds_any_more_is_seen_before_it_runs_wrong(place):
    stage, operate = stage_of(place), place.running.operate
    (host, *_) = load_system(PREY).hosts
    before = stage.read_settings().settings
    assert before[f"{host} time_sync"] == "on"
    operate("config set", {"target": host, "key": "time_sync", "value": "off"})
    assert stage.read_settings().settings == before | {f"{host} time_sync": "off"}
    operate("config set", {"target": host, "key": "time_sync", "value": "on"})
    assert stage.read_settings().settings == before


@pytest.mark.live
@pytest.mark.timeout(120)
def test_calls_after_the_time_is_over_reach_nothing(place):
    late = VerbToolSession(place.running, None, place.recorded.append)
    late.close()
    outcome = late.call("restart", {"target": "all"})
    assert outcome.status == "error"
    assert place.running.status().not_ready == ()


@pytest.mark.parametrize(
    "url",
    ["ftp://back/", "http:///items", "http://back:80800000/", "HTTP://BACK/", "http://back:8080/../../etc", "http://back/%2e%2e",
     "http://ba ck/", "http://back:8080/items#x", "//back/", "http://back:8080\\@evil/", "http://bаck:8080/"],
)  # fmt: skip
def test_urls_have_one_form(url):
    if ".." in url and "%" not in url:
        assert parse_url(url).service == "back"  # dots stay in the path of a request to the same service
        return
    with pytest.raises(UserError):
        parse_url(url)


def test_every_tool_tells_its_schema_and_takes_nothing_else():
    for one in specs_of(TOOLS, changing=True):
        assert one.description, one.name
        assert one.parameters["additionalProperties"] is False, one.name
    looking = {one.name for one in specs_of(TOOLS, changing=False)}
    assert {name for name, tool in TOOLS.items() if tool.mutating}.isdisjoint(looking)


def test_the_tools_name_no_verb_of_the_harness():
    assert len(BREAKING) >= 6
    assert BREAKING.isdisjoint({tool.verb for tool in TOOLS.values()})


def test_a_state_folder_is_not_a_name(monkeypatch, tmp_path):
    monkeypatch.setenv("OPSASSAY_STATE", str(tmp_path))
    with pytest.raises(UserError):
        SystemState.for_system("../other")
