"""What can be extended: every registry finds what an installed package adds, is used and documented; the examples run."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from opsassay.registry import Registry

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "opsassay"
EXAMPLES = ROOT / "examples" / "extending"
NOT_YET = {"SUBSTRATES"}
"""Registries that are neither used nor documented so far."""


def registries() -> dict[str, Registry]:
    """Return every registry that stands in a module, by the name of its constant."""
    found: dict[str, Registry] = {}
    for path in sorted(SRC.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "Registry(" not in text:
            continue
        module = ".".join(path.relative_to(SRC.parent).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and getattr(node.value.func, "id", "") == "Registry":
                    found[target.id] = getattr(importlib.import_module(module), target.id)
    return found


REGISTRIES = registries()


def install(site: Path, points: dict[str, dict[str, str]]) -> None:
    """Make the entry *points*, by group, those of a distribution that is installed in the folder *site*."""
    info = site / "extra-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    groups = ("\n".join([f"[{group}]", *(f"{n} = {path}" for n, path in of.items())]) for group, of in points.items())
    (info / "entry_points.txt").write_text("\n\n".join(groups) + "\n")


@pytest.mark.parametrize("name", REGISTRIES)
def test_an_installed_package_adds_to_every_registry(name, tmp_path, monkeypatch):
    registry = REGISTRIES[name]
    (tmp_path / "extra_package.py").write_text("thing = object()\n")
    install(tmp_path, {registry.group: {"added": "extra_package:thing"}})
    assert "added" not in registry.names()
    monkeypatch.syspath_prepend(tmp_path)
    assert registry.names() == [*registry.builtin_names(), "added"]
    assert registry.load("added") is importlib.import_module("extra_package").thing
    monkeypatch.delitem(sys.modules, "extra_package")


def test_the_registries_are_found():
    assert {"METHODS", "AGENTS", "IMPORTERS", "TECHNIQUES", "METRICS"} <= set(REGISTRIES)
    assert all(registry.group.startswith("opsassay.") for registry in REGISTRIES.values())


@pytest.mark.parametrize("name", sorted(set(REGISTRIES) - NOT_YET))
def test_every_registry_is_used_and_documented(name):
    uses = [path for path in SRC.rglob("*.py") if re.search(rf"\b{name}\.(load|names)\(", path.read_text())]
    assert uses, f"{name} is asked nowhere in src"
    assert f"`{REGISTRIES[name].group}`" in (ROOT / "docs" / "extending.md").read_text()


@pytest.fixture
def extended(tmp_path):
    """Return a function that runs a program with the examples installed, and gives back what it prints as JSON."""
    site = tmp_path / "site"
    project = tomllib.loads((EXAMPLES / "pyproject.toml").read_text())["project"]
    install(site, project["entry-points"])

    def run(program: str) -> object:
        code = f"import json, sys\nfrom pathlib import Path\n{program}"
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
            env={"PYTHONPATH": f"{site}:{EXAMPLES}:{ROOT / 'tests'}", "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_the_example_of_a_method(extended, tmp_path):
    program = """
from opsassay.methods.base import method_named
from telemetry.packs import make_pack
found = method_named("slowest").diagnose(make_pack(Path("pack"), slow_in="store"))
print(json.dumps([row.service for row in found.ranking]))
"""
    assert extended(program)[0] == "store"


def test_the_example_of_an_importer(extended, tmp_path):
    case = tmp_path / "in" / "monday"
    case.mkdir(parents=True)
    head = "time_ns,trace_id,span_id,parent_span_id,span_name,service_name,duration\n"
    (case / "normal.csv").write_text(head + "1000,t,s,,get,cart,500\n2000,t,s2,s,read,store,100\n")
    (case / "abnormal.csv").write_text(head + "3000,u,s,,get,cart,900\n4000,u,s2,s,read,store,700\n")
    program = """
from opsassay.cli import cli
cli(["import", "span-table", "in", "-o", "tree", "--json"])
"""
    (item,) = extended(program)["items"]
    assert item["status"] == "imported"
    program = """
from opsassay.telemetry.tree import Tree
(id_,) = (path.name for path in Path("tree/incidents").iterdir())
print(json.dumps(Tree(Path("tree")).datapack(id_).read("abnormal", "traces").get_column("duration").to_list()))
"""
    assert extended(program) == [900, 700]


def test_the_example_of_a_metric(extended):
    program = """
from grading.cases import annotation, answer, finished_run, truth
from opsassay.grading.verdict import grade
from opsassay.model.run import RunStatus
verdict = grade(finished_run(), answer(("cart", None)), truth(("CPUStress", "cart")), annotation("cart>web", "web"), None)
failed = grade(finished_run(status=RunStatus.ABORTED), None, truth(("CPUStress", "cart")), None, None)
print(json.dumps([verdict.metrics["claims_made"].value, failed.metrics["claims_made"].status]))
"""
    assert extended(program) == [1.0, "failed"]


def test_the_example_of_a_blame_technique(extended):
    program = """
from opsassay.blame.attribute import attribute, names
from opsassay.model.trajectory import Trace, TraceStep
steps = tuple(
    TraceStep(step_id=n, agent_id=name, agent_name=name, input_context="", output_content="")
    for n, name in ((1, "planner"), (2, "coder"))
)
trace = Trace(task_id="t", system_name="s", task_instruction="", steps=steps)
found = attribute(trace, "last-step", model=object()).attribution
print(json.dumps([found.agent_name, found.step_id, "last-step" in names()]))
"""
    assert extended(program) == ["coder", 2, True]


def test_the_example_of_an_agent(extended):
    program = """
from types import SimpleNamespace
from opsassay.agents.base import agent_named
answer = agent_named("first-service").solve(SimpleNamespace(services=("store", "cart")))
print(json.dumps([claim.service for claim in answer.diagnosis.root_causes]))
"""
    assert extended(program) == ["cart"]
