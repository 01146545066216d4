"""The tables of a results page, from made verdicts by hand and from a small tree through the command."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from evals.commands import agent
from opsassay.cli import run as command_line
from opsassay.core.errors import UserError
from opsassay.core.schema.causal_graph import Annotation, CausalGraph
from opsassay.core.schema.incident import Fault, Label, Truth
from opsassay.core.schema.run import Run, RunStatus, Solver, Verdict
from opsassay.evals.diagnosis.results.tables import results_tables
from opsassay.evals.runner.ranking import counted_runs, most_repeats
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.evals.runner.tables import markdown
from opsassay.scoring import metrics
from opsassay.scoring.metrics import failed, not_applicable, scored
from opsassay.scoring.rates import wilson
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.tree import Case
from telemetry.packs import make_incident, make_tree


def case(name, system, label, *faults, **parameters):
    """Return a case with faults as (type, service); none is an incident without a fault, as it was disturbed."""
    incident = make_incident(name, system=system)
    made = [Fault(type=kind, service=service, start_ns=1, end_ns=2) for kind, service in faults]
    made = made or [Fault(type="NoFault", service=None, parameters=parameters, start_ns=1, end_ns=2)]
    truth = Truth(id=incident.id, system=system, faults=tuple(made))
    annotation = Annotation(label=label, reason="", graph=CausalGraph())
    return Case(Datapack(Path("/nowhere"), incident, {}), truth, annotation, None, name)


CASES = [
    case("a", "shop", Label.ATTRIBUTED, ("CPUStress", "cart")),
    case("b", "shop", Label.ABSORBED, ("CPUStress", "ads")),
    case("c", "train", Label.ATTRIBUTED, ("NetworkDelay", "order")),
    case("d", "train", Label.DRIFTED, ("NetworkDelay", "order"), ("PodKill", "seat")),
    case("e", "shop", Label.NO_EFFECT, disturbance="load_surge"),
    case("f", "train", Label.NO_EFFECT, disturbance="quiet"),
]


def verdict(of, solver, hit, *, first=None, ended=True):
    """Return the verdict on *of*: the service right or not, and the same of the ranking unless *first* says so."""
    incident, truth = of.datapack.incident, of.truth
    if not ended:
        found = failed(metrics.ALL, "it broke")
    else:
        found = not_applicable(metrics.ALL, "n/a")
        calm = truth.faults[0].type == "NoFault"
        found |= {"exact_match": scored(hit)} if calm else {"any_service": scored(hit), "exact_match": scored(0)}
        if not calm and first is not False:
            found |= {"acc_at_1": scored(hit if first is None else first), "f1": scored(hit / 2)}
        if not calm and of.annotation.label is Label.ATTRIBUTED:
            found |= {"path_reachability": scored(0), "ungrounded": scored(hit)}
    return Verdict(
        run=f"{incident.id}{solver}/1", item=incident.id, system=truth.system, solver=solver, profile="default",
        metrics=found,
    )  # fmt: skip


def tables(verdicts, not_ranked=None):
    return {table.title: table for table in results_tables(verdicts, CASES, not_ranked or {})}


def row(table, name):
    (found,) = [row for row in table.rows if row[0] == name]
    return dict(zip(table.columns, found, strict=True))


RIGHT = {"a": True, "b": False, "c": True, "d": True, "e": True, "f": False}
MADE = [verdict(of, "baro", hit) for of, hit in zip(CASES, RIGHT.values(), strict=True)]


def test_incidents_are_counted_by_label_and_by_what_was_done_where_nothing_was_broken():
    table = tables(MADE)["Incidents"]
    assert table.columns == ("label", "shop", "train", "all")
    assert table.rows == (
        ("attributed", "1", "1", "2"),
        ("absorbed", "1", "0", "1"),
        ("drifted", "0", "1", "1"),
        ("nothing broken, load surge (no_effect)", "1", "0", "1"),
        ("nothing broken, quiet (no_effect)", "0", "1", "1"),
        ("all", "3", "3", "6"),
    )


def test_outcome_is_on_all_injected_cases_with_its_n_and_wilsons_interval():
    low, high = wilson(3, 4)
    found = row(tables(MADE)["All injected cases"], "`baro`")
    assert found["Right service"] == f"75.0% [{100 * low:.1f}, {100 * high:.1f}] (4)"
    assert found["Exact"].startswith("0.0% [")
    assert found["F1"].startswith("37.5% [")
    assert found["runs without an answer"] == "0"


def test_systems_kinds_and_labels_are_apart():
    found = tables(MADE)
    of_system = row(found["Per system, Right service"], "`baro`")
    assert of_system["shop"].startswith("50.0% [")
    assert of_system["train"].startswith("100.0% [")
    assert of_system["mean of systems"].startswith("75.0% [")
    of_kind = found["Per fault kind, Right service"]
    assert [(r[0], r[1], r[2].split()[0]) for r in of_kind.rows] == [
        ("cpu_stress", "2", "50.0%"), ("network_delay", "1", "100.0%"), ("several", "1", "100.0%"),
    ]  # fmt: skip
    of_label = found["Per label of the annotation, Acc@1"]
    assert [(r[0], r[1], r[2].split()[0]) for r in of_label.rows] == [
        ("absorbed", "1", "0.0%"), ("attributed", "2", "100.0%"), ("drifted", "1", "100.0%"),
    ]  # fmt: skip


def test_where_nothing_was_broken_the_right_answer_is_that_nothing_is_wrong():
    found = row(tables(MADE)["Nothing was broken"], "`baro`")
    assert found["all"].startswith("50.0% [")
    assert (found["load surge"], found["quiet"]) == ("100.0% [20.7, 100.0] (1)", "0.0% [0.0, 79.3] (1)")
    assert "Nothing was broken" not in tables(MADE[:4])


def test_a_path_is_graded_on_attributed_cases_alone():
    found = row(tables(MADE)["Grounding, on attributed cases"], "`baro`")
    assert found["Path"].startswith("0.0% [")
    assert found["Ungrounded"].startswith("100.0% [")
    assert found["Path / right service"].startswith("0.0% [")
    assert found["NTAM loc."] == "n/a"


def test_a_run_without_an_answer_is_counted_apart_and_a_smaller_n_is_said():
    some = [*MADE[:2], verdict(CASES[2], "baro", hit=False, ended=False)]
    found = tables([*some, *(verdict(of, "agent", hit=True, first=False) for of in CASES[:3])])
    assert row(found["All injected cases"], "`baro`")["runs without an answer"] == "1"
    assert row(found["All injected cases"], "`agent`")["Acc@1"] == "n/a"
    assert row(found["All injected cases"], "`baro`")["Right service"].startswith("33.3% [")  # no answer is no success
    assert row(found["Per fault kind, Acc@1"], "network_delay")["`baro`"] == "n/a"


def test_what_shows_no_skill_stands_beside_the_rest_and_what_is_not_ranked_is_last():
    names = ("self-time", "a-loose-agent", "chance", "baro", "constant")
    made = [verdict(CASES[0], name, hit=True) for name in names]
    shown = [r[0] for r in tables(made, {"a-loose-agent": "it ran unsealed"})["All injected cases"].rows]
    assert shown == ["`baro`", "`self-time`", "`chance`", "`constant`", "`a-loose-agent` (not ranked: it ran unsealed)"]


def test_a_name_cannot_break_the_page():
    page = markdown("T", ["made by hand"], results_tables([verdict(CASES[0], "a|b\nc", hit=True)], CASES, {}))
    assert "| `a\\|b c` |" in page
    assert page.startswith("# T\n\nmade by hand\n\n## Incidents\n\n")


def test_there_is_nothing_to_tell_of_runs_on_other_incidents():
    other = case("other", "shop", Label.ATTRIBUTED, ("CPUStress", "cart"))
    with pytest.raises(UserError, match="whose truth is at hand"):
        results_tables(MADE, [other], {})


# Which runs count -------------------------------------------------------------------------------------------------------


def test_one_result_of_every_cell_counts_and_a_sealed_one_before_an_unsealed():
    run = Run(
        cell="c", attempt=1, item="i", item_hash="h", system="s", solver=Solver(name="a"), solver_hash="x",
        status=RunStatus.DONE,
    )  # fmt: skip
    again, sealed = (run.model_copy(update={"attempt": n, "isolation": i}) for n, i in ((2, "unsealed"), (3, "sealed")))
    loose, other = run.model_copy(update={"isolation": "unsealed"}), run.model_copy(update={"cell": "d", "seed": 1})
    gone = run.model_copy(update={"attempt": 0, "status": RunStatus.ABORTED})
    assert counted_runs([gone, run, again, sealed]) == [run]
    assert counted_runs([loose, again, sealed, other]) == [sealed, other]
    assert most_repeats(counted_runs([run, again, other])) == 2
    assert most_repeats([]) == 1


@pytest.fixture
def call(capsys):
    def call(*arguments, code=0):
        assert command_line([str(argument) for argument in arguments]) == code
        return capsys.readouterr()

    return call


@pytest.mark.slow
def test_the_command_writes_the_page_and_says_pass_at_k_and_who_is_not_ranked(tmp_path, call):
    tree = make_tree(tmp_path / "t", count=2)
    path = agent(tmp_path / "agent", "print(json.dumps(GOOD))")
    call("run", tree.root, "-a", path, "-a", "constant", "--repeats", 2, "-c", "sealing=off")
    out, err = call("score", "run", tree.root, "--tables", tmp_path / "tables.md")
    assert "pass@2" in out
    assert "(not" in out
    assert "unsealed" in out
    assert "tables.md" in err
    page = (tmp_path / "tables.md").read_text()
    assert "| `made` (not ranked: it ran unsealed) |" in page
    assert "| attributed | 2 | 2 |" in page
    told = json.loads(call("score", "run", tree.root, "--json")[0])
    by_name = {summary["solver"]: summary for summary in told["summary"]}
    assert by_name["made"]["not_ranked"] == ["it ran unsealed"]
    assert set(by_name["constant"]["pass_at"]) == {"1", "2"}
    collapsed = {one["solver"]: one["cases"] for one in told["collapsed"]}
    assert collapsed["constant on chain"] == 2  # cases, not their repeats
    assert {tuple(item["not_ranked"]) for item in told["items"]} == {(), ("it ran unsealed",)}


@pytest.mark.slow
def test_single_runs_and_several_stores_are_graded(tmp_path, call):
    tree = make_tree(tmp_path / "t", count=2)
    call("run", "diagnose", tree.root, "-m", "constant", "-o", tmp_path / "one")
    call("run", "diagnose", tree.root, "-m", "chance", "-o", tmp_path / "two")
    single = next((tmp_path / "one" / "runs").glob("*/1"))
    (item,) = json.loads(call("score", "run", single, "--cases", tree.root, "--json")[0])["items"]
    assert (item["solver"], item["run"]) == ("constant", f"{single.parent.name}/1")
    both = json.loads(call("score", "run", tmp_path / "one", tmp_path / "two", "--cases", tree.root, "--json")[0])
    assert sorted(item["solver"] for item in both["items"]) == ["chance", "chance", "constant", "constant"]
    _, err = call("score", "run", tmp_path / "one", tmp_path, "--cases", tree.root, code=2)
    assert "holds no runs" in err


def imported(root, incident):
    """Take the record of the fault from the truth of *incident* in *root*: its root is still named."""
    path = root / "truth" / incident / "truth.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"faults": []}))


@pytest.mark.slow
def test_a_named_root_without_a_fault_record_is_broken_wherever_it_is_told(tmp_path, call):
    tree = make_tree(tmp_path / "t", count=1)
    (incident,) = tree.ids()
    imported(tree.root, incident)
    silent = tmp_path / "silent.py"
    silent.write_text(SILENT)
    told = json.loads(call("run", "diagnose", tree.root, "-m", f"{silent}:Silent", "-m", "self-time", "--json")[0])[
        "items"
    ]
    assert {item["method"]: item["correct"] for item in told} == {"silent": False, "self-time": True}
    graded = json.loads(call("score", "run", tree.root, "--tables", tmp_path / "t.md", "--json")[0])["items"]
    assert {i["solver"]: i["metrics"]["any_service"]["value"] for i in graded} == {"silent": 0, "self-time": 1}
    page = (tmp_path / "t.md").read_text()
    assert "## Per fault kind" in page
    assert "## Nothing was broken" not in page
    call("report", tree.root, "-o", tmp_path)
    assert "Nothing was broken" not in (tmp_path / "report.html").read_text()
    said = call("compare", tree.root, tree.root, "--metric", "any_service", code=1)[0]  # one case proves nothing
    assert "1 case is too few to find any difference, at least 6 are needed." in " ".join(said.split())
    assert " pp would be found" not in said


# What may not be said ---------------------------------------------------------------------------------------------------

SILENT = (
    "from opsassay.core.schema.diagnosis import Diagnosis\n"
    "class Silent:\n    name, source, cost, configuration = 'silent', '', '', {}\n"
    "    def diagnose(self, view):\n        return Diagnosis()\n"
)


def a_tree_with_a_calm_case(root):
    """Three incidents of which one is without a fault, as an imported system has them."""
    tree = make_tree(root, count=3)
    first = tree.ids()[0]
    path = tree.root / "truth" / first / "truth.json"
    nothing = {"type": "NoFault", "service": None, "start_ns": 0, "end_ns": 1}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"faults": [nothing], "roots": []}))
    return tree


@pytest.mark.slow
def test_who_always_says_that_nothing_is_wrong_stands_last_and_apart(tmp_path, call, monkeypatch):
    tree = a_tree_with_a_calm_case(tmp_path / "t")
    (tmp_path / "silent.py").write_text(SILENT)
    call("run", "diagnose", tree.root, "-m", f"{tmp_path / 'silent.py'}:Silent", "-m", "self-time", "-m", "constant")
    told = json.loads(call("score", "run", tree.root, "--json")[0])["summary"]
    assert [summary["solver"] for summary in told] == ["self-time", "silent", "constant"]
    silent = told[1]
    assert (silent["any_service"], silent["exact_match"], silent["calm"]) == (0.0, 0.0, 1.0)
    assert silent["graded"] == {"any_service": 2, "exact_match": 2, "calm": 1}
    monkeypatch.setenv("COLUMNS", "200")
    out, _ = call("score", "run", tree.root)
    broken, calm = out.split("Nothing was broken")
    assert broken.index("self-time") < broken.index("silent")
    assert "100.0% [34.2, 100.0] (2)" in broken
    assert "100.0% [20.7, 100.0] (1)" in calm
    assert "100.0% [20.7, 100.0] (1)" not in broken
    call("report", tree.root, "-o", tmp_path)
    page = (tmp_path / "report.html").read_text()
    payload = json.loads(re.search(r'id="payload"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert payload["solvers"]["rows"][0][0] == "self-time"
    assert ["silent", "100.0% [20.7, 100.0] (1)"] in payload["solvers"]["calm"]["rows"]


@pytest.mark.slow
def test_an_edited_method_is_another_solver_and_never_a_repeat(tmp_path, call):
    tree = make_tree(tmp_path / "t", count=2)
    file = tmp_path / "silent.py"
    for text in (SILENT, SILENT + "# edited\n"):
        file.write_text(text)
        call("run", "diagnose", tree.root, "-m", f"{file}:Silent", "-m", "constant")
    runs = [read_run(path) for path in RunStore(tree.root).runs()]
    told = json.loads(call("score", "run", tree.root, "--json")[0])["summary"]
    expected = {f"silent@{run.solver_hash[:8]}" for run in runs if run.solver.name == "silent"} | {"constant"}
    assert (len(expected), {summary["solver"] for summary in told}) == (3, expected)
    assert {summary["runs"] for summary in told} == {2}
    assert all(set(summary["pass_at"]) == {"1"} for summary in told)
    out, err = call("score", "run", tree.root, "--scores", tmp_path / "s.csv")
    assert "pass@2" not in out
    assert "silent was run by 2 solvers of that name: silent@" in err
    methods = {row["method"] for row in csv.DictReader((tmp_path / "s.csv").read_text().splitlines())}
    assert len(methods) == 3


@pytest.mark.slow
def test_a_kind_that_a_method_declares_it_cannot_name_is_not_applicable(tmp_path, call):
    tree = make_tree(tmp_path / "t", count=1)  # HTTPResponseAbort
    (incident,) = tree.ids()
    path = tree.root / "truth" / incident / "truth.json"
    path.write_text(path.read_text().replace("HTTPResponseAbort", "JVMException"))
    call("run", "diagnose", tree.root, "-m", "self-time", "-m", "chance")
    items = json.loads(call("score", "run", tree.root, "--json")[0])["items"]
    exact = {item["solver"]: item["metrics"]["exact_match"] for item in items}
    assert exact["self-time"] == {
        "value": None, "status": "not_applicable",
        "reason": "the solver declares that it cannot name jvm_method_exception",
    }  # fmt: skip
    assert exact["chance"]["status"] == "scored"
    assert {i["solver"]: i["metrics"]["any_service"]["value"] for i in items}["self-time"] == 1.0
    call("report", tree.root, "-o", tmp_path)
    assert "cannot name jvm_method_exception" in (tmp_path / "report.html").read_text()
