"""The example of a team's own system: Caddy, Node and Python from their packages, checked, broken and explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from live import run_opsassay, state_folder

pytestmark = [pytest.mark.live, pytest.mark.alone, pytest.mark.timeout(900)]
EXAMPLE = Path(__file__).parents[4] / "examples" / "own_system"


@pytest.fixture(scope="module")
def system():
    if not (EXAMPLE / ".installed").exists():
        pytest.skip("examples/own_system is not installed: make examples/own_system/.installed")
    with state_folder():
        yield str(EXAMPLE / "system.yaml")


def test_no_file_of_the_example_knows_of_opsassay():
    files = [path for path in EXAMPLE.rglob("*") if path.is_file() and not {".venv", "node_modules"} & set(path.parts)]
    code = [path for path in files if path.suffix in (".js", ".py", ".json", ".txt") or path.name == "Caddyfile"]
    assert len(code) >= 8
    assert [path for path in code if "opsassay" in path.read_text().lower()] == []


def test_the_check_finds_every_hop_and_nothing_to_complain_of(system):
    done = run_opsassay("system", "check", system, "--seconds", "20", "--rate", "8", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["findings"]) == (0, []), done.stderr
    callers = {item["service"]: set(item["callers"]) for item in found["items"]}
    assert callers == {
        "front": {"loadgenerator"}, "shop": {"front"}, "orders": {"shop"}, "catalog": {"shop"}, "stock": {"orders"},
        "worker": {"orders"},
    }  # fmt: skip
    assert all(len(item["faults"]) >= 12 for item in found["items"])


@pytest.mark.drawn(most=2)
def test_a_delay_in_it_is_recorded_and_explained(system, tmp_path):
    plan = tmp_path / "delay.yaml"
    plan.write_text("fault: NetworkDelay\ntarget: {service: stock}\nparameters: {delay_ms: 400}\n")
    tree = tmp_path / "tree"
    windows = ["--warmup", "20", "--normal", "40", "--abnormal", "40"]
    started = run_opsassay("system", "up", system, "--name", "own", "--rate", "8")
    assert started.returncode == 0, started.stderr
    try:
        done = run_opsassay("incident", "record", system, str(plan), "--on", "own", *windows, "-o", str(tree))
    finally:
        run_opsassay("system", "down", "own")
    assert done.returncode == 0, done.stderr
    explained = run_opsassay("incident", "annotate", str(tree), "--json")
    (item,) = json.loads(explained.stdout)["items"]
    truth = json.loads(next(tree.glob("truth/*/truth.json")).read_text())
    assert truth["effects"][0]["passed"], truth["effects"]
    if item["label"] == "drifted":
        pytest.skip(f"the machine was too busy for a steady window: {truth['notes']}")
    assert item["label"] == "attributed", item
    assert item["roots"] == ["stock"], item
