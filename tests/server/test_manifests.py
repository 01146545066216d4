"""Workers on Kubernetes: what is printed is a Deployment by the schema of the API (a real server takes it elsewhere)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from opsassay.cli.system.render import worker as command

ROOT = Path(__file__).parents[2]


def rendered(*words):
    done = CliRunner().invoke(command, ["--server", "http://opsassay-server:8400", *words])
    assert done.exit_code == 0, done.output
    return yaml.safe_load(done.output)


def unknown(given, kind, models, path=""):
    """Yield the keys of *given* that the API's type *kind* has not."""
    if kind.startswith("list["):
        for at, one in enumerate(given):
            yield from unknown(one, kind[5:-1], models, f"{path}[{at}]")
    elif (model := getattr(models, kind, None)) is not None and hasattr(model, "openapi_types"):
        names = {model.attribute_map[name]: of for name, of in model.openapi_types.items()}
        assert isinstance(given, dict), path
        for key, value in given.items():
            if key in names:
                yield from unknown(value, names[key], models, f"{path}.{key}")
            else:
                yield f"{path}.{key}"


def test_it_is_a_deployment_by_the_schema_of_the_api():
    models = pytest.importorskip("kubernetes.client.models")
    deployment = rendered("--replicas", "8", "--namespace", "boards", "--domain", "finops", "-j", "2")
    assert list(unknown(deployment, "V1Deployment", models)) == []
    assert list(unknown({**deployment, "spec": {"replica": 1}}, "V1Deployment", models)) == [".spec.replica"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"][-4:] == ["-j", "2", "--domain", "finops"]
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]


def test_what_its_container_runs_is_a_command():
    from opsassay.cli.server.worker import command as worker

    (container,) = rendered()["spec"]["template"]["spec"]["containers"]
    assert worker.make_context("worker", [*container["command"][3:], "--database", "postgresql://h/d"])


def test_its_image_is_the_one_that_has_the_platform():
    (container,) = rendered()["spec"]["template"]["spec"]["containers"]
    build = f"docker build -t {container['image']} ."
    assert build in (ROOT / "docs" / "platform.md").read_text()
    assert "server" in re.search(r"'\.\[(.+)\]'", (ROOT / "Dockerfile").read_text()).group(1).split(",")


def test_a_domain_that_is_none_is_one_sentence():
    done = CliRunner().invoke(command, ["--server", "http://s:1", "--domain", "cooking"])
    assert "cooking" in str(done.exception)
