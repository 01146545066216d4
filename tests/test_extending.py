"""What can be extended: every registry finds what an installed package adds, is used and documented; the examples run."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from live import state_folder
from opsassay.core.registry import Registry
from opsassay.core.schema.faults import FAMILIES

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "opsassay"
EXAMPLES = ROOT / "examples" / "extending"


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
    former = registry.names()
    assert "added" not in former
    monkeypatch.syspath_prepend(tmp_path)
    assert set(registry.names()) == {*former, "added"}
    assert registry.load("added") is importlib.import_module("extra_package").thing
    monkeypatch.delitem(sys.modules, "extra_package")


def test_the_registries_are_found():
    assert {"METHODS", "AGENTS", "IMPORTERS", "TECHNIQUES", "METRICS", "FAMILIES", "ACTUATORS"} <= set(REGISTRIES)
    assert {"SUBSTRATES", "ENVIRONMENTS", "FAULT_SEARCHES", "DOMAINS", "REPORTS"} <= set(REGISTRIES)
    assert all(registry.group.startswith("opsassay.") for registry in REGISTRIES.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REGISTRIES))
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

    def run(program: str, code: int = 0) -> object:
        whole = f"import json, sys\nfrom pathlib import Path\n{program}"
        done = subprocess.run(
            [sys.executable, "-c", whole],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
            env={**os.environ, "COLUMNS": "80", "PYTHONPATH": f"{site}:{EXAMPLES}:{ROOT / 'tests'}"},
        )
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    return run


def test_the_example_of_a_method(extended, tmp_path):
    program = """
from opsassay.solvers.methods.base import method_named
from telemetry.packs import make_pack
found = method_named("slowest").diagnose(make_pack(Path("pack"), slow_in="store"))
print(json.dumps([row.service for row in found.ranking]))
"""
    assert extended(program)[0] == "store"


@pytest.mark.slow
def test_a_method_is_run_from_a_file_and_as_a_command_without_an_installation(extended):
    program = f"""
from opsassay.cli import cli
from telemetry.packs import make_tree
make_tree(Path("tree"), count=1)
methods = ["{EXAMPLES}/opsassay_extending/method.py:Slowest:least_spans=2", "command:{EXAMPLES}/first_alert.py"]
asked = [part for method in (*methods, "cd-1min", "alert-count") for part in ("-m", method)]
cli(["run", "diagnose", "tree", *asked, "--sweep", "{EXAMPLES}/sweep.yaml", "--json"])
"""
    items = {item["method"]: item for item in extended(program)["items"]}
    assert items["first_alert.py"]["answer"] == "frontend"
    assert len(items["slowest:least_spans=2"]["ranking"]) == 3
    assert [name for name in items if ":" in name] == [
        "slowest:least_spans=2",
        "cd-1min:change_percent=3,z=2.5",
        "cd-1min:change_percent=10,z=3.5",
        "cd-1min:window_steps=5",
        "cd-1min:window_steps=20",
        "alert-count:z=2.5",
        "alert-count:z=3.5",
    ]


def test_the_example_of_an_importer(extended, tmp_path):
    case = tmp_path / "in" / "monday"
    case.mkdir(parents=True)
    head = "time_ns,trace_id,span_id,parent_span_id,span_name,service_name,duration\n"
    (case / "normal.csv").write_text(head + "1000,t,s,,get,cart,500\n2000,t,s2,s,read,store,100\n")
    (case / "abnormal.csv").write_text(head + "3000,u,s,,get,cart,900\n4000,u,s2,s,read,store,700\n")
    program = """
from opsassay.cli import cli
cli(["incident", "import", "span-table", "in", "-o", "tree", "--json"])
"""
    (item,) = extended(program)["items"]
    assert item["status"] == "imported"
    program = """
from opsassay.telemetry.tree import Tree
(id_,) = (path.name for path in Path("tree/incidents").iterdir())
print(json.dumps(Tree(Path("tree")).datapack(id_).read("abnormal", "traces").get_column("duration").to_list()))
"""
    assert extended(program) == [900, 700]


@pytest.mark.slow
def test_the_example_of_a_form_of_answers(extended, tmp_path):
    program = """
from opsassay.cli import cli
from telemetry.packs import make_tree
(id_,) = make_tree(Path("tree"), count=1).ids()
Path("me.lines").write_text(f"{id_}: store\\n{id_}: cart\\nelsewhere: cart\\nno answer\\n")
cli(["score", "import", "me.lines", "--cases", "tree", "-o", "store", "--json"])
"""
    found = extended(program, code=1)
    assert [(item["solver"], item["seed"]) for item in found["items"]] == [("me", 0), ("me", 1)]
    assert [problem.split()[0] for problem in found["problems"]] == ["me.lines:", "me.lines:4"]


def test_the_example_of_a_metric(extended):
    program = """
from scoring.cases import annotation, answer, finished_run, truth
from opsassay.scoring.verdict import grade
from opsassay.core.schema.run import RunStatus
verdict = grade(finished_run(), answer(("cart", None)), truth(("CPUStress", "cart")), annotation("cart>web", "web"), None)
failed = grade(finished_run(status=RunStatus.ABORTED), None, truth(("CPUStress", "cart")), None, None)
print(json.dumps([verdict.metrics["claims_made"].value, failed.metrics["claims_made"].status]))
"""
    assert extended(program) == [1.0, "failed"]


def test_the_example_of_a_blame_technique(extended):
    program = """
from opsassay.analysis.blame.attribute import attribute, names
from opsassay.core.schema.trajectory import Trace, TraceStep
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
from opsassay.solvers.agents.base import agent_named
answer = agent_named("first-service").solve(SimpleNamespace(services=("store", "cart")))
print(json.dumps([claim.service for claim in answer.diagnosis.root_causes]))
"""
    assert extended(program) == ["cart"]


def listed(command):
    return f"from opsassay.cli import cli\ncli({command!r}.split())\n"


@pytest.mark.slow
def test_the_example_of_a_fault_type_is_listed_and_only_where_it_has_an_actuator(extended):
    (found,) = (item for item in extended(listed("faults --json"))["items"] if item["type"] == "ProcessStutter")
    assert found["parameters"][0]["name"] == "halted_percent"
    assert found["injectable"]["plain"]
    program = """
from opsassay.testbed.substrates.kubernetes.actuators.mechanisms import CLUSTER
print(json.dumps([CLUSTER.refusal("ProcessStutter"), CLUSTER.refusal("PodKill")]))
"""
    assert extended(program) == ["nothing carries it out on Kubernetes", None]


@pytest.mark.live
@pytest.mark.alone
@pytest.mark.timeout(120)
def test_the_example_of_a_fault_type_is_injected_checked_and_undone(extended):
    program = f"""
import psutil, time
from opsassay.core.schema.incident import FaultPlan
from opsassay.testbed.apps import load_system
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
plan = FaultPlan.model_validate({{"fault": "ProcessStutter", "target": {{"service": "back"}}, "duration_s": 6}})
tiny = load_system({str(ROOT / "tests" / "testbed" / "tiny.yaml")!r})
with LocalSubstrate().deployed(tiny, "tiny", isolation="plain") as running:
    time.sleep(5)
    events = list(running.inject(plan))
    print(json.dumps([*events, running.status().not_ready]))
"""
    with state_folder():
        *events, not_ready = extended(program)
    assert [event["event"] for event in events] == ["applied", "effect", "undone", "done"]
    assert events[1]["passed"], events[1]
    assert events[1]["after"] > events[1]["before"] + 15
    assert events[-1]["recovered"]
    assert not_ready == []


@pytest.mark.slow
def test_the_example_of_a_scenario_is_checked_and_listed_as_a_task(extended):
    file = EXAMPLES / "scenario.yaml"
    (item,) = extended(listed(f"scenarios check {file} --json"))["items"]
    assert (item["id"], item["findings"]) == ("half-drained-pool", [])
    tasks = {task["id"]: task for task in extended(listed(f"tasks {file} --domain sre --json"))["items"]}
    oracles = tasks["half-drained-pool"]["oracles"]
    assert oracles[:2] == ["gentle", "full-restart"]
    assert all(name.startswith("control-") for name in oracles[2:])
    assert round(tasks["half-drained-pool"]["complexity"], 3) == item["complexity"]


@pytest.mark.slow
def test_the_example_of_a_domain_is_listed_and_run_by_a_plan(extended):
    tasks = extended(listed("tasks --domain arithmetic --json"))["items"]
    assert [(task["id"], task["domain"], task["goal"], task["oracles"]) for task in tasks] == [
        ("small", "arithmetic", "What is 6 * 7? Write it to answer.json.", ["right"]),
        ("large", "arithmetic", "What is 1234 * 5678? Write it to answer.json.", ["right"]),
    ]
    run = listed(f"run {EXAMPLES / 'plan.yaml'} -o store --json")
    rows = extended(run)["items"]
    assert {(row["task"], row["solver"]): row["metrics"]["right"]["value"] for row in rows} == {
        ("small", "calculator"): 1.0,
        ("small", "always-42"): 1.0,
        ("large", "calculator"): 1.0,
        ("large", "always-42"): 0.0,
        ("small", "oracle:right"): 1.0,
        ("large", "oracle:right"): 1.0,
    }
    assert [row["run"] for row in extended(run)["items"]] == [row["run"] for row in rows], "results are kept"
    program = f"""
from opsassay.evals.runner.plan import load_plan
from opsassay.evals.runner.results import row_of, solver_tables
from opsassay.evals.runner.queue import make_runs
from opsassay.evals.runner.store import RunStore
jobs = load_plan(Path({str(EXAMPLES / "plan.yaml")!r}))
(table,) = solver_tables([row_of(end) for end in make_runs(RunStore(Path("store")), jobs)])
print(json.dumps([table.title, table.columns, table.rows, sorted(RunStore(Path("store")).domains())]))
"""
    title, columns, rows, domains = extended(program)
    assert (title, domains) == ("Solvers, arithmetic", ["arithmetic"])
    shown = [dict(zip(columns, row, strict=True)) for row in rows]
    assert [(row["solver"], row["right"], row["ranked"]) for row in shown] == [
        ("always-42", "50.0% [9.5, 90.5] (2)", "yes"),
        ("calculator", "100.0% [34.2, 100.0] (2)", "yes"),
        ("oracle:right", "100.0% [34.2, 100.0] (2)", "no: it is an oracle, which knows the truth"),
    ]


@pytest.mark.slow
def test_the_example_of_a_domain_is_graded_shown_in_tables_and_reported_by_the_same_commands(extended, tmp_path):
    extended(listed(f"run {EXAMPLES / 'plan.yaml'} -o store --json"))
    graded = extended(listed("grade store --scores scores.csv --metric right --json"))
    assert graded["problems"] == []
    assert {(i["case"], i["solver"]): i["metrics"]["right"]["value"] for i in graded["items"]} == {
        ("small", "calculator"): 1.0,
        ("small", "always-42"): 1.0,
        ("large", "calculator"): 1.0,
        ("large", "always-42"): 0.0,
        ("small", "oracle:right"): 1.0,
        ("large", "oracle:right"): 1.0,
    }
    scores = (tmp_path / "scores.csv").read_text()
    assert 'opsassay,none,large,always-42,"",,,0.0' in scores
    assert "oracle" not in scores, "an oracle is never ranked"
    one = next(i["run"] for i in graded["items"] if i["case"] == "large")
    (alone,) = extended(listed(f"grade store/runs/{one} --json"))["items"]
    assert alone["run"] == one
    (table,) = extended(listed("table store --json"))["items"]
    assert (table["domain"], table["title"]) == ("arithmetic", "Solvers, arithmetic")
    assert [row["right"] for row in table["rows"]] == [
        "50.0% [9.5, 90.5] (2)",
        "100.0% [34.2, 100.0] (2)",
        "100.0% [34.2, 100.0] (2)",
    ]
    assert (
        extended(
            "from opsassay.cli import run\nsys.stdout = sys.stderr\ncode = run(['report', 'store', '-o', 'pages'])\n"
            "print(code, file=sys.__stdout__)\n"
        )
        == 0
    )
    page = (tmp_path / "pages" / "arithmetic.html").read_text()
    assert "always-42" in page
    assert page.count("<tr>") == 2 + 3 + 6, "two tables, their solvers and their runs"


@pytest.mark.slow
def test_the_metric_of_a_package_is_in_tables(extended, tmp_path):
    program = f"""
import shutil
shutil.copytree({str(ROOT / "tests" / "evals" / "golden" / "diagnosis_store")!r}, "store")
from opsassay.cli import cli
cli(["score", "table", "store", "--json"])
"""
    (table,) = (one for one in extended(program)["items"] if one["title"] == "All injected cases")
    assert [row["`claims_made`"] for row in table["rows"]] == ["1 (1)"] * 4
    extended(
        "from opsassay.cli import cli\nimport contextlib, io\nout = io.StringIO()\n"
        "with contextlib.redirect_stdout(out):\n    cli(['grade', 'store'], standalone_mode=False)\n"
        "rows = [line.split() for line in out.getvalue().splitlines()]\n"
        "assert rows.count(['claims_made', '1', '(1)']) == 4, out.getvalue()\nprint(1)\n"
    )


def named_for_every(names, own):
    """Return the files of src that have every one of *names* in quotes, but for the one that is its *own*."""
    texts = {str(path.relative_to(SRC)): path.read_text() for path in SRC.rglob("*.py")}
    found = ({file for file, text in texts.items() if f'"{name}"' in text and file != own(name)} for name in names)
    return set.intersection(*found)


FAULT_TYPES = {fault.row.name: family for family in FAMILIES.builtin_names() for fault in FAMILIES.load(family)}
FOREIGN = ("telemetry/importers/", "telemetry/injection.py", "testbed/scenarios/")
"""They map the names and numbers that public data has to ours, or are scenarios, which name what they break."""


@pytest.mark.sampled
@pytest.mark.parametrize("name", FAULT_TYPES)
def test_a_fault_type_is_named_in_its_family_and_one_table_per_substrate(name):
    texts = {str(path.relative_to(SRC)): path.read_text() for path in SRC.rglob("*.py")}
    named = {file for file, text in texts.items() if re.search(rf"\b{name}\b", text) and not file.startswith(FOREIGN)}
    assert named == {
        f"testbed/catalogue/{FAULT_TYPES[name]}.py",
        "testbed/substrates/local/actuators/table.py",
        "testbed/substrates/kubernetes/actuators/mechanisms.py",
    }


def test_all_types_of_the_catalogue_are_looked_at():
    assert len(FAULT_TYPES) == 31


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("METHODS", "solvers/methods/base.py"),
        ("IMPORTERS", "telemetry/importers/__init__.py"),
        ("TECHNIQUES", "analysis/blame/techniques/__init__.py"),
        ("AGENTS", "solvers/agents/base.py"),
    ],
)
def test_what_is_one_file_and_one_line_touches_the_file_of_its_registry_alone(name, file):
    own = {entry: REGISTRIES[name]._builtin[entry].partition(":")[0] for entry in REGISTRIES[name].builtin_names()}
    modules = {entry: module.removeprefix("opsassay.").replace(".", "/") + ".py" for entry, module in own.items()}
    assert named_for_every(own, modules.__getitem__) == {file}
