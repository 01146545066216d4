"""Compose files as systems: what is read of them, what the copy that runs has otherwise, what cannot be copied."""

from __future__ import annotations

import contextlib
import re

import pytest
import yaml

from opsassay.cli import run
from opsassay.core.errors import ConfigError, RefusedError
from opsassay.core.schema.faults import CATALOGUE
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.authoring.checks import _complain_about_call, findings
from opsassay.evals.remediation.controls.scripts import REPORT, applicable, controls_of
from opsassay.evals.remediation.trial.rehearsal import tools_of
from opsassay.testbed.apps import compose, compose_copy, load_system
from opsassay.testbed.substrates.local.actuators.table import REPERTOIRES
from opsassay.testbed.substrates.local.capabilities import level_for
from opsassay.testbed.workload.runtime.program_clock import ProgramClock
from opsassay.testbed.workload.runtime.program_telemetry import ProgramTelemetry
from opsassay.testbed.workload.runtime.stats import Stats
from test_docs import ROOT, blocks
from testbed.substrates.local.trials_page import scenario_of_the_page


@pytest.fixture(autouse=True)
def program(monkeypatch):
    """Stand in for the compose program, which is not at hand everywhere: its `config` prints the file as it is."""
    monkeypatch.setattr(compose, "compose_program", lambda: (("sh", "-c", 'cat "$2"', "compose"), ("engine",)))


def system_of(folder, services, name="compose.yaml", **top):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(yaml.safe_dump({"services": services, **top}))
    return load_system(str(folder / name))


def test_services_ports_limits_and_load_are_those_of_the_file(tmp_path):
    services = {
        "front": {"build": ".", "ports": ["127.0.0.1:8080:80/tcp"], "depends_on": ["api"]},
        "api": {
            "image": "example/api",
            "expose": [9000],
            "deploy": {"replicas": 2, "resources": {"limits": {"cpus": "0.25", "memory": "96M"}}},
        },
        "worker": {"image": "example/worker", "mem_limit": "1gb", "cpus": 2},
        "small": {"image": "example/small", "mem_limit": "24m"},
        "db": {"image": "docker.io/library/postgres:16", "ports": [{"target": 5432, "published": "5432"}]},
    }
    system = system_of(tmp_path / "My-Shop", services)
    assert system.system == "my-shop"
    found = {name: one.program.port for name, one in system.services.items()}
    assert found == {"front": 80, "api": 9000, "worker": 0, "small": 0, "db": 5432}
    assert system.compose.content["services"]["api"]["scale"] == 2
    limits = {name: (one.replicas, one.cpu_limit, one.memory_limit_mb) for name, one in system.services.items()}
    assert limits == {
        "front": (1, 1.0, 512), "api": (2, 0.25, 96), "worker": (1, 2.0, 1024), "small": (1, 1.0, 24), "db": (1, 1.0, 512),
    }  # fmt: skip
    assert system.compose.content["services"]["small"]["mem_limit"] == "24m"
    assert [kind.request for kind in system.load.mix] == ["front GET /"]  # nobody sends HTTP to a database
    assert ("front", "api") in system.calls()
    assert not any(callee == "worker" for _, callee in system.calls())


def test_the_copy_touches_nothing_of_the_users(tmp_path):
    shop = tmp_path / "shop"
    (shop / "data").mkdir(parents=True)
    (shop / "data" / "rows").write_text("1")
    (shop / "conf").mkdir()
    services = {
        "db": {
            "image": "postgres", "container_name": "db", "ports": ["5432:5432"], "environment": ["A=1"],
            "volumes": [
                "./data:/var/lib/data", "./conf:/conf:ro", "./absent:/absent:ro",
                "kept:/kept", {"type": "bind", "source": "./x", "target": "/x"},
            ],
        },
        "api": {"build": {"context": "./api"}, "image": "team/api", "ports": ["80"], "env_file": ".env"},
    }  # fmt: skip
    system = system_of(
        shop, services, volumes={"kept": {"name": "shop_kept"}}, networks={"default": {"name": "shop_net"}}
    )
    content = system.compose.content
    db, api = content["services"]["db"], content["services"]["api"]
    assert not {"ports", "container_name"} & db.keys()
    assert db["volumes"] == [
        "{copies}/copy-0:/var/lib/data", f"{shop}/conf:/conf:ro", "{copies}/copy-1:/absent",
        "kept:/kept", "{copies}/copy-2:/x",
    ]  # fmt: skip
    assert system.compose.copied == {
        "copy-0": str(shop / "data"),
        "copy-1": str(shop / "absent"),
        "copy-2": str(shop / "x"),
    }
    assert content["volumes"] == {"kept": {}}
    assert content["networks"] == {"default": {}}
    assert (db["cpus"], db["mem_limit"]) == (1.0, "512m")
    assert db["environment"]["A"] == "1"
    assert db["environment"]["OTEL_SERVICE_NAME"] == "db"
    assert api["image"] != "team/api"  # an image of the team's keeps its tag
    assert api["build"]["context"] == str(shop / "api")
    assert api["env_file"] == [str(shop / ".env")]


@pytest.mark.parametrize(
    ("service", "top", "words"),
    [
        ({"network_mode": "host"}, {}, "services.a.network_mode: faults need a container with its own network"),
        ({"network_mode": "none"}, {}, "services.a.network_mode"),
        ({"pid": "host"}, {}, "services.a.pid"),
        ({"network_mode": "service:b"}, {}, "services.a.network_mode"),
        ({"volumes": ["kept:/kept"]}, {"volumes": {"kept": {"external": True}}}, "volumes.kept: it is external"),
        ({"external_links": ["other"]}, {}, "services.a.external_links"),
        ({"provider": {"type": "cloud"}}, {}, "services.a.provider"),
        ({"volumes": ["/absent/docker.sock:/a.sock:ro"]}, {}, "services.a.volumes: it hands the container a socket"),
        ({"volumes": ["/dev:/dev"]}, {}, "services.a.volumes: the container may write to /dev"),
        ({}, {"volumes": {"far": {"driver_opts": {"type": "nfs", "device": ":/rows"}}}}, "volumes.far: its data"),
    ],
)
def test_what_cannot_be_copied_is_refused_with_the_reason(tmp_path, service, top, words):
    with pytest.raises(ConfigError, match=words):
        system_of(tmp_path, {"a": {"image": "a", "ports": ["80"], **service}}, **top)


@pytest.mark.parametrize(
    "service",
    [
        {"cpus": "many"}, {"mem_limit": "1 lot"}, {"deploy": None}, {"deploy": {"replicas": 99}}, {"deploy": []},
        {"ports": 3},
        {"ports": [None]}, {"ports": [{}]}, {"volumes": [3]}, {"volumes": "./a:/a"}, {"environment": 3}, {"build": 3},
        {"cpus": -1}, {"expose": [70000]}, {"scale": "x"}, {"mem_limit": "1"}, {"env_file": [{}]}, None, [], "a",
    ],
)  # fmt: skip
def test_odd_values_are_read_or_refused_in_one_sentence(tmp_path, service):
    services = {
        "a": {"image": "a", "ports": ["80"]},
        "b": {"image": "b", **service} if isinstance(service, dict) else service,
    }
    with contextlib.suppress(ConfigError):
        system_of(tmp_path, services)
        return
    with pytest.raises(ConfigError) as error:
        system_of(tmp_path, services)
    assert str(tmp_path / "compose.yaml") in str(error.value)
    assert "\n" not in str(error.value)


def test_a_large_folder_that_is_written_to_and_a_socket_are_refused(tmp_path, monkeypatch):
    import socket

    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows").write_text("1234")
    monkeypatch.setattr(compose_copy, "MOST_COPIED_BYTES", 3)
    with pytest.raises(ConfigError, match="too much to copy; use a named volume, or `:ro`"):
        system_of(tmp_path, {"a": {"image": "a", "ports": ["80"], "volumes": ["./data:/data"]}})
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "engine.sock"))
        with pytest.raises(ConfigError, match="a socket of this machine"):
            system_of(tmp_path, {"a": {"image": "a", "ports": ["80"], "volumes": ["./engine.sock:/engine.sock"]}})


def test_containers_that_share_a_folder_share_its_copy(tmp_path):
    for name in ("site/static", "rows", "conf"):
        (tmp_path / name).mkdir(parents=True)
    device = {"driver": "local", "driver_opts": {"type": "none", "o": "bind", "device": str(tmp_path / "rows")}}
    services = {
        "app": {"image": "a", "ports": ["80"], "volumes": ["./site/static:/static", "rows:/rows"]},
        "front": {"image": "b", "volumes": ["./site:/site:ro", "./site/static:/s:ro,z", "./conf:/conf:ro"]},
        "worker": {"image": "c", "volumes": [{"type": "volume", "source": "rows", "target": "/r"}, "./rows:/x"]},
    }
    run = system_of(tmp_path, services, volumes={"rows": device}).compose
    assert run.copied == {"copy-0": str(tmp_path / "rows"), "copy-1": str(tmp_path / "site")}
    assert {name: one["volumes"] for name, one in run.content["services"].items()} == {
        "app": ["{copies}/copy-1/static:/static", "{copies}/copy-0:/rows"],
        "front": ["{copies}/copy-1:/site:ro", "{copies}/copy-1/static:/s:ro", f"{tmp_path}/conf:/conf:ro"],
        "worker": ["{copies}/copy-0:/r", "{copies}/copy-0:/x"],
    }
    assert run.content["volumes"] == {"rows": {}}  # its device would be the user's folder


def test_podman_compose_shows_configs_as_files(tmp_path, monkeypatch):
    monkeypatch.setattr(compose, "leaves_open", lambda _: True)
    service = {
        "image": "a",
        "ports": ["80"],
        "volumes": ["/x"],
        "configs": ["page", {"source": "page", "target": "/p"}],
    }
    run = system_of(tmp_path, {"a": service}, configs={"page": {"file": "./page.html"}}).compose
    copy = run.content["services"]["a"]
    assert copy["volumes"] == ["/x", f"{tmp_path}/page.html:/page:ro", f"{tmp_path}/page.html:/p:ro"]
    assert "configs" not in copy


def test_services_keep_the_names_by_which_others_call_them(tmp_path):
    services = {
        "db": {"image": "postgres", "container_name": "shop_db", "networks": {"back": {"ipv4_address": "10.9.0.5"}}},
        "api": {"image": "a", "ports": ["80"], "container_name": "api", "hostname": "api-host", "networks": ["back"]},
        "mq": {"image": "mq", "hostname": "rabbit"},
    }
    content = system_of(tmp_path, services, networks={"back": {"driver": "macvlan", "ipam": {}}}).compose.content
    assert {name: one["networks"] for name, one in content["services"].items()} == {
        "db": {"back": {"aliases": ["shop_db"]}},
        "api": {"back": {"aliases": ["api-host"]}},
        "mq": {"default": {"aliases": ["rabbit"]}},
    }
    assert content["services"]["mq"]["hostname"] == "rabbit"
    assert content["networks"] == {"back": {}}
    services["api"]["environment"] = {"DB": "10.9.0.5:5432"}
    with pytest.raises(ConfigError, match=r"api calls db by the address 10.9.0.5.*; call it by its name"):
        system_of(tmp_path, services)


def test_calls_by_each_name_of_a_service_are_calls_to_it(tmp_path):
    services = {
        "front": {"image": "i", "ports": ["80:80"], "links": ["stock:warehouse", "stock"]},
        "stock": {
            "image": "i",
            "container_name": "the-stock",
            "hostname": "stock.internal",
            "networks": {"back": {"aliases": ["shelf"]}},
        },
        "plain": {"image": "i"},
    }
    found = system_of(tmp_path / "shop", services, networks={"back": None}).services
    assert found["stock"].program.aliases == ("shelf", "stock.internal", "the-stock", "warehouse")
    assert found["plain"].program.aliases == ()
    peers = {called: name for name, one in found.items() for called in (name, *one.program.aliases)}
    telemetry = ProgramTelemetry(Stats(), ProgramClock(), "http://localhost", {}, peers, {"db": "sql:db"})
    asked = {
        host: telemetry._activity_of(host)
        for host in ("the-stock", "stock.internal", "stock.shop_default", "db", "api.example")
    }
    assert asked == {
        "the-stock": "call:stock", "stock.internal": "call:stock", "stock.shop_default": "call:stock", "db": "sql:db",
        "api.example": None,
    }  # fmt: skip


def test_nothing_on_this_machine_takes_the_copy_for_the_project(tmp_path):
    services = {
        "api": {
            "build": {"context": "https://example.com/a.git#main:api", "tags": ["team/api:1"], "cache_to": ["x"]},
            "image": "team/api", "ports": ["80"], "labels": {"traefik.enable": "true"}, "logging": {"driver": "gelf"},
            "environment": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces", "A": "1"},
        },
        "worker": {"image": "team/api", "depends_on": {"api": {}, "of a profile that is off": {"required": False}}},
    }  # fmt: skip
    content = system_of(tmp_path / "My shop_2", services).compose.content["services"]
    assert content["api"]["build"] == {"context": "https://example.com/a.git#main:api"}
    assert content["api"]["image"] == content["worker"]["image"] == "localhost/opsassay/my-shop-2-api"
    assert not {"labels", "logging"} & content["api"].keys()
    assert "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" not in content["api"]["environment"]
    assert content["worker"]["depends_on"] == {"api": {}}


@pytest.mark.parametrize(
    ("image", "port"),
    [
        ("redis:7", 6379), ("docker.io/bitnami/postgresql:16@sha256:0a", 5432), ("confluentinc/cp-kafka", 9092),
        ("redis/redis-stack-server:latest", 6379), ("mongo", 27017), ("mongodb/mongodb-community-server", 27017),
        ("oliver006/redis_exporter", 0), ("mongo-express", 0), ("provectuslabs/kafka-ui", 0), ("minio/mc", 0),
        ("prometheuscommunity/postgres-exporter", 0), ("redis/redisinsight", 0), ("timescale/timescaledb-ha", 5432),
    ],
)  # fmt: skip
def test_stores_are_known_by_their_images_and_their_tools_are_no_stores(tmp_path, image, port):
    system = system_of(tmp_path, {"a": {"image": "a", "ports": ["80"]}, "b": {"image": image}})
    assert system.services["b"].program.port == port


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({"mem_limit": "2m"}, "services.a.mem_limit: '2m' is not an amount of memory of 6 MiB or more"),
        ({"mem_limit": "junk"}, "services.a.mem_limit: 'junk' is not an amount of memory"),
        ({"deploy": {"resources": {"limits": {"memory": "2M"}}}}, "services.a.deploy.resources.limits.memory: '2M'"),
        ({"deploy": {"resources": {"limits": {"cpus": "-1"}}}}, "services.a.deploy.resources.limits.cpus: '-1' is not"),
        ({"cpus": "many"}, "services.a.cpus: 'many' is not a number of cores"),
        ({"cpu_quota": "x"}, "services.a.cpu_quota: 'x' is not a number of microseconds"),
        ({"deploy": {"replicas": 30}}, "services.a.deploy.replicas: 30 is not a number of containers, 20 at most"),
        ({"scale": "x"}, "services.a.scale: 'x' is not a number of containers"),
        ({"ports": ["99999"]}, "services.a.ports: 99999 is no port; one is 1 to 65535"),
        ({"expose": ["0"]}, "services.a.expose: 0 is no port"),
    ],
)
def test_a_value_that_no_container_can_have_is_named_by_its_key_in_the_file(tmp_path, described, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        system_of(tmp_path, {"a": {"image": "a", "ports": ["80"], **described}})


def test_wrong_words_of_a_system_file_are_named_by_its_own_keys(shop):
    for service, words in {
        "api": ({"calls": ["zz"]}, "services.api.calls: 'zz' is not one of"),
        "worker": ({"ready": {"http": "GET /"}}, "services.worker.ready: its http needs a port"),
    }.items():
        stated, message = words
        with pytest.raises(ConfigError, match=re.escape(message)):
            with_sidecar(shop, **{service: stated})


def test_users_ask_for_pages_where_there_may_be_some(tmp_path):
    services = {
        "dns": {"image": "a", "ports": ["53:53/udp", {"target": 53, "protocol": "udp"}]},
        "git": {"image": "a", "ports": ["2222:22", "3000:3000"]},
        "rows": {"build": ".", "ports": ["5432:5432"]},
        "idle": {"image": "a", "ports": ["80"], "deploy": {"replicas": 0}},
        "quota": {"image": "a", "cpu_quota": 50000, "mem_limit": 0, "cpus": "0"},
    }
    system = system_of(tmp_path, services)
    assert {name: one.program.port for name, one in system.services.items()} == {
        "dns": 0, "git": 3000, "rows": 5432, "quota": 0,
    }  # fmt: skip
    assert [kind.request for kind in system.load.mix] == ["git GET /"]
    assert (system.services["quota"].cpu_limit, system.services["quota"].memory_limit_mb) == (0.5, 512)


@pytest.mark.parametrize(
    "text",
    [
        "include: [other.yaml]", "services: {a: {extends: {service: b, file: c.yaml}}}",
        "x-a: 1\nservices: {a: {ports: [80]}}",
        "name: a\nservices:\n  a: {image: a, ports: !reset null}", "version: 3.8\nservices: {a: {<<: {image: a}}}",
    ],
)  # fmt: skip
def test_a_compose_file_is_known_as_one(tmp_path, text):
    (tmp_path / "compose.yaml").write_text(text)
    assert compose.is_compose_file(tmp_path / "compose.yaml")


@pytest.mark.parametrize(
    "text", ["services: {a: {program: {command: [a]}}}", "system: a", "load: {}", "[]", "services: []"]
)
def test_a_system_file_is_none(tmp_path, text):
    (tmp_path / "a.yaml").write_text(text)
    assert not compose.is_compose_file(tmp_path / "a.yaml")


def test_a_system_file_says_what_the_compose_file_does_not(tmp_path):
    (tmp_path / "compose.yaml").write_text(
        yaml.safe_dump({"services": {"api": {"image": "a"}, "db": {"image": "valkey"}}})
    )
    written = {
        "system": "shop",
        "compose": "compose.yaml",
        "services": {"api": {"port": 8000, "ready": {"http": "GET /healthz"}, "calls": ["db"]}},
        "load": {"rate_rps": 5, "mix": [{"request": "api POST /orders", "body": "{}"}]},
    }
    (tmp_path / "system.yaml").write_text(yaml.safe_dump(written))
    system = load_system(str(tmp_path / "system.yaml"))
    assert system.services["api"].program.ready.http == "GET /healthz"
    assert system.calls() == {("api", "db")}
    assert system.load.rate_rps == 5
    for wrong, words in (
        ({"services": {"app": {"port": 1}}}, "'app'"),
        ({"compose": "absent.yaml"}, "there is no compose file absent.yaml"),
        ({"services": {"api": {"port": 0}}}, "services.api.port"),
        ({"load": {"mix": [{"request": "api GET"}]}}, "service METHOD /route"),
        ({"load": {"mix": [{"request": "nobody GET /"}]}}, "there is no service 'nobody'"),
    ):
        (tmp_path / "system.yaml").write_text(yaml.safe_dump(written | wrong))
        with pytest.raises(ConfigError) as error:
            load_system(str(tmp_path / "system.yaml"))
        assert words in str(error.value)


def test_the_system_file_of_the_page_is_read(tmp_path):
    (written,) = (one for one in blocks(ROOT / "docs" / "own-system.md", "yaml") if "compose:" in one)
    (tmp_path / "system.yaml").write_text(written)
    services = {"front": {"image": "a", "ports": ["80:8080"]}, "orders": {"build": "."}, "db": {"image": "postgres:16"}}
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump({"services": services}))
    system = load_system(str(tmp_path / "system.yaml"))
    assert {("orders", "db"), ("front", "orders")} <= system.calls()
    assert system.entries() == {"front"}


def scenario_on(system, **changed):
    given = {**yaml.safe_load(scenario_of_the_page()), **changed}
    return Scenario.model_validate(given | {"environment": {**given["environment"], "system": str(system)}})


def test_the_scenario_of_the_page_fits_a_compose_project_and_so_do_its_controls(tmp_path):
    services = {"front": {"image": "a", "ports": ["80:8080"]}, "orders": {"image": "b", "deploy": {"replicas": 2}}}
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump({"services": services}))
    one = scenario_on(tmp_path / "compose.yaml")
    tools = tools_of(one)
    assert {"restart", "stop", "start", "config_set"} <= set(tools)
    assert not {"scale", "release", "firewall_delete"} & set(tools)
    verbs = {tool.verb or name.replace("_", " "): tool.arguments for name, tool in tools.items()}
    assert [found for found in findings(one, load_system(str(tmp_path / "compose.yaml")), verbs) if found.error] == []
    made = {control.name: control for control in controls_of(one)}
    assert made["control-scale-to-zero"].steps[-1].verb == "stop"
    assert made["control-drift"].steps[-2].arguments["value"] == "1535"  # of three containers of 512 MiB
    assert made["control-scale-up"].why_not == "no tool changes how many containers there are"
    assert "next start" in made["control-set-trap"].why_not
    for control in applicable(one):
        for step in control.steps:
            assert step.verb in {None, REPORT} or _complain_about_call(step.verb, step.arguments, verbs) is None, (
                control.name,
                step,
            )


def test_a_project_whose_users_reach_nothing_is_told_what_to_write(tmp_path):
    with pytest.raises(
        ConfigError, match=r"no service publishes a port.*write a system file with `compose: compose.yaml`"
    ):
        system_of(tmp_path, {"worker": {"image": "a"}})


def test_what_the_compose_program_refuses_is_said(tmp_path, monkeypatch):
    words = ("sh", "-c", "echo 'services.a: unknown key' >&2; exit 15", "compose")
    monkeypatch.setattr(compose, "compose_program", lambda: (words, ("engine",)))
    with pytest.raises(ConfigError, match=r"compose.yaml: `sh .* config` refuses it: services.a: unknown key"):
        system_of(tmp_path, {"a": {"image": "a", "ports": ["80"]}})


def test_without_an_engine_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.undo()
    compose.compose_program.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError, match="start Docker, or install podman and podman-compose"):
        system_of(tmp_path, {"a": {"image": "a", "ports": ["80"]}})


def test_containers_are_no_manifests_of_a_cluster(tmp_path, capsys):
    system_of(tmp_path, {"a": {"image": "a", "ports": ["80"]}})
    assert run(["system", "render", str(tmp_path / "compose.yaml")]) == 2
    assert "a is a container of this machine; on a cluster services are of" in capsys.readouterr().err


def test_what_no_container_has_is_refused_with_the_reason(tmp_path):
    system = system_of(tmp_path, {"a": {"image": "a", "ports": ["80"]}})
    assert REPERTOIRES["compose"].refusal("NetworkDuplicate") is None
    with pytest.raises(RefusedError, match="have no plain isolation"):
        level_for(system, "plain")
    from opsassay.testbed.injection.preconditions import require

    on_host = FaultPlan.model_validate({"fault": "CPUStress", "target": {"host": "host-a"}})
    with pytest.raises(RefusedError, match="containers"):
        require(system, on_host, REPERTOIRES["compose"].refusal)


def with_sidecar(folder, **services):
    """Return the system of the compose file in *folder* whose *services* have a sidecar, as its system file says."""
    (folder / "system.yaml").write_text(yaml.safe_dump({"system": "shop", "compose": "c.yaml", "services": services}))
    return load_system(str(folder / "system.yaml"))


@pytest.fixture
def shop(tmp_path):
    """Return a folder with a compose file, and with an Envoy of its own."""
    (tmp_path / "envoy").write_bytes(b"\x7fELF")
    (tmp_path / "envoy").chmod(0o755)
    tmp_path.chmod(0o755)
    services = {"api": {"image": "a", "ports": ["80"]}, "db": {"image": "postgres"}, "worker": {"image": "w"}}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"services": services}))
    return tmp_path


def test_a_sidecar_in_front_of_a_container_needs_a_port_that_takes_http(shop):
    envoy = str(shop / "envoy")
    system = with_sidecar(shop, api={"sidecar": envoy})
    assert {name: one.sidecar for name, one in system.services.items()} == {"api": envoy, "db": None, "worker": None}
    assert [kind.request for kind in system.load.mix] == ["api GET /"], "a system file may leave out the load"
    for service, words in {
        "db": "services.db.sidecar: port 5432 takes no HTTP", "worker": "services.worker.sidecar: it has no port",
    }.items():  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            with_sidecar(shop, **{service: {"sidecar": envoy}})


def faults_of_the_page(first_cell):
    """Yield fault types and what the page says of them, from its table that begins with *first_cell*."""
    _, _, after = (ROOT / "docs" / "own-system.md").read_text().partition(f"| faults | {first_cell} |\n")
    for line in after.partition("\n\n")[0].splitlines()[1:]:
        named, says = (cell.strip() for cell in line.strip("|").split("|")[:2])
        for name in named.split(", "):
            yield from ((one, says) for one in CATALOGUE if one == name or ("…" in name and one[:3] == name[:3]))


@pytest.mark.parametrize(("cell", "level"), [("act on a program", "namespaced"), ("act on a container", "compose")])
def test_the_table_of_the_page_says_what_the_code_does(shop, cell, level):
    from opsassay.testbed.injection.preconditions import require

    def possible(fault, sidecar):
        system = with_sidecar(shop, api={"calls": ["db"], "sidecar": sidecar})
        if level == "namespaced":
            system = system.model_copy(update={"compose": None})
        plan = FaultPlan.model_validate({"fault": fault, "target": {"service": "api"}})
        with contextlib.suppress(RefusedError):
            require(system, plan, REPERTOIRES[level].refusal)
            return True
        return False

    said = dict(faults_of_the_page(cell))
    assert set(said) == set(CATALOGUE)
    for fault, says in said.items():
        expected = (False, True) if says.startswith("with a") else (says.startswith("yes"),) * 2
        assert (possible(fault, None), possible(fault, str(shop / "envoy"))) == expected, fault
