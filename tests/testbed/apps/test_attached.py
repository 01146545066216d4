"""A compose project that runs, as an engine describes it: its services, its pages, what cannot be attached to.

The engine is a script that prints what Docker and Podman print; `test_compose_live.py` asks a real one.
"""

from __future__ import annotations

import json
import os

import pytest
import yaml

from opsassay.cli import run
from opsassay.cli.demo_command import draw_fault
from opsassay.core.errors import ConfigError, NotFoundError, RefusedError, UserError
from opsassay.core.schema.incident import FaultPlan
from opsassay.testbed.apps import load_system
from opsassay.testbed.apps.attached import AttachedProject, page_at
from opsassay.testbed.injection.preconditions import require
from opsassay.testbed.substrates.local.actuators.table import REPERTOIRES

ENGINE = """#!/bin/sh
case "$1" in
  ps) echo "one two" ;;
  inspect) cat "$(dirname "$0")/inspected.json" ;;
  *) exit 1 ;;
esac
"""


def container(service, *, project="shop", number=1, running=True, **host):
    """Return a container as `inspect` has it, as far as it is read."""
    ports = {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "18000"}]} if service == "front" else {"9000/tcp": None}
    return {
        "Id": f"{service}-{number}-id",
        "Name": f"/{project}-{service}-{number}",
        "State": {"Running": running},
        "Config": {
            "Image": "postgres:16" if service == "db" else f"team/{service}",
            "Labels": {
                "com.docker.compose.project": project,
                "com.docker.compose.service": service,
                "com.docker.compose.container-number": str(number),
            },
        },
        "HostConfig": {"RestartPolicy": {"Name": "always"}, **host},
        "NetworkSettings": {"Ports": {} if service == "db" else ports, "Networks": {}},
    }


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Put an engine on the PATH that has one project with a service of two containers and a job that has ended."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "docker"
    script.write_text(ENGINE)
    script.chmod(0o755)
    limits = {"NanoCpus": 500_000_000, "Memory": 256 * 2**20}
    containers = [
        container("front"), container("orders", **limits), container("orders", number=2, **limits), container("db"),
        container("migrate", running=False), container("other", project="elsewhere"),
    ]  # fmt: skip
    (tmp_path / "bin" / "inspected.json").write_text(json.dumps(containers))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr("opsassay.testbed.apps.attached.ENGINES", ("docker",))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_containers_without_a_network_of_their_own_are_left_out_or_refused(engine):
    inspected = engine / "bin" / "inspected.json"
    containers = json.loads(inspected.read_text())
    others = [container("agent", NetworkMode="host"), container("cron", NetworkMode="none")]
    inspected.write_text(json.dumps([*containers, *others]))
    assert set(AttachedProject("shop", {}).services()) == {"front", "orders", "db"}
    inspected.write_text(json.dumps([*containers, container("tail", NetworkMode="container:front-1-id")]))
    with pytest.raises(RefusedError, match=r"shop-tail-1 is in the network of another container.*; stop it before"):
        AttachedProject("shop", {})


def attached(folder, **more):
    path = folder / "system.yaml"
    document = {"system": "mine", "attach": "shop", "load": {"mix": [{"request": "front GET /"}]}, **more}
    path.write_text(yaml.safe_dump(document))
    return load_system(str(path))


def test_its_services_are_those_whose_containers_run(engine):
    system = attached(engine, services={"orders": {"ready": {"http": "GET /healthz"}, "calls": ["db"]}})
    assert {name: (one.replicas, one.program.port) for name, one in system.services.items()} == {
        "db": (1, 5432), "front": (1, 8000), "orders": (2, 9000),
    }  # fmt: skip
    orders, front = system.services["orders"], system.services["front"]
    assert (orders.cpu_limit, orders.memory_limit_mb, orders.program.ready.http) == (0.5, 256, "GET /healthz")
    assert front.cpu_limit == os.cpu_count()
    assert front.program.restarts
    assert system.services["db"].program.calls == ()
    assert (system.compose.attached, system.compose.engine, system.compose.content) == ("shop", ("docker",), {})
    assert system.compose.unlimited == ("db", "front")
    assert system.model_validate(system.model_dump(mode="json")) == system, "as the supervisor gets it"


@pytest.mark.parametrize("fault", ["CPUStress", "MemoryStress"])
def test_pressure_needs_a_limit(engine, fault):
    system, refusal = attached(engine), REPERTOIRES["compose"].refusal
    require(system, FaultPlan.model_validate({"fault": fault, "target": {"service": "orders"}}), refusal)
    with pytest.raises(RefusedError, match="nothing limits the containers of front"):
        require(system, FaultPlan.model_validate({"fault": fault, "target": {"service": "front"}}), refusal)
    assert fault not in {draw_fault(system, seed, None)[0] for seed in range(20)}, "the demo draws what is possible"


def test_a_page_is_at_a_port_that_is_published_and_answers(engine):
    project = AttachedProject("shop", {})
    with pytest.raises(UserError, match=r"publishes port 80; published are 18000 \(front\)\.$"):
        project.request_of(page_at("http://localhost/"))
    with pytest.raises(UserError, match=r"is not answered well .* give a page that users get from front"):
        project.request_of(page_at("http://127.0.0.1:18000/items?id=1"))
    assert page_at("http://127.0.0.1:18000/items?id=1").path == "/items?id=1"
    for wrong in ("8080", "https://shop/", "http://", "http://shop:x/", "http://shop/a b"):
        with pytest.raises(UserError, match="--entry is a URL such as"):
            page_at(wrong)


def test_what_cannot_be_attached_to_is_one_sentence(engine, monkeypatch, capsys):
    with pytest.raises(NotFoundError, match="no compose project 'shp'; did you mean 'shop'"):
        AttachedProject("shp", {})
    with pytest.raises(ConfigError, match="give either compose, a file that is copied, or attach"):
        attached(engine, compose="compose.yaml")
    with pytest.raises(ConfigError, match="no service of the compose project shop 'ordres'; did you mean 'orders'"):
        attached(engine, services={"ordres": {"port": 80}})
    (engine / "bin" / "inspected.json").write_text(json.dumps([container("front", running=False)]))
    with pytest.raises(UserError, match="No container of the compose project shop runs"):
        AttachedProject("shop", {})
    (engine / "bin" / "docker").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(RefusedError, match="No container engine answers on this machine"):
        AttachedProject("shop", {})
    assert run(["system", "attach", "--compose", "shop", "--entry", "http://127.0.0.1:1/", "-o", "system.yaml"]) == 2
    assert "system.yaml exists; remove it" in capsys.readouterr().err


def test_backends_of_a_project_that_runs_are_in_its_system_file(engine, monkeypatch):
    monkeypatch.setattr("opsassay.testbed.apps.attached.AttachedProject.request_of", lambda *_: "front GET /")
    words = ["system", "attach", "--compose", "shop", "--entry", "http://127.0.0.1:18000/", "-o", "running.yaml"]
    urls = {
        "--traces": "jaeger=http://j:16686",
        "--metrics": "prometheus=http://p:9090",
        "--logs": "loki=http://l:3100",
    }
    assert run([*words, *(word for pair in urls.items() for word in pair)]) == 0
    backends = {
        "jaeger": {"url": "http://j:16686"},
        "prometheus": {"url": "http://p:9090"},
        "loki": {"url": "http://l:3100"},
    }
    assert yaml.safe_load((engine / "running.yaml").read_text())["backends"] == backends
    assert set(load_system("running.yaml").backends.backends()) == {"prometheus", "loki", "jaeger"}


def test_backends_go_with_a_project_that_runs_and_hold_its_spans_alone(engine):
    tempo = {"tempo": "http://tempo:3200"}
    with pytest.raises(ConfigError, match=r"services.front.sidecar: its spans are in a backend already"):
        attached(engine, backends=tempo, services={"front": {"sidecar": "/usr/bin/true"}})
    (engine / "copy.yaml").write_text(yaml.safe_dump({"system": "a", "compose": "compose.yaml", "backends": tempo}))
    with pytest.raises(ConfigError, match="backends go with attach: a copy sends them nothing"):
        load_system(str(engine / "copy.yaml"))
