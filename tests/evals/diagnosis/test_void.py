"""Void cases: where an incident says nothing of a solver, no command or page gives a grade; calm cases are graded."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from opsassay.cli import run as command_line
from opsassay.core.errors import UserError
from opsassay.core.schema.causal_graph import Annotation, CausalGraph
from opsassay.core.schema.incident import Fault, Label
from opsassay.evals.diagnosis.harnesses.harbor import verify
from opsassay.evals.diagnosis.solve import run_method
from opsassay.evals.runner.store import RunStore
from opsassay.telemetry.tree import Tree, resolve
from telemetry.packs import make_tree

VOID = (Label.NO_EFFECT, Label.UNEXPLAINED, Label.DRIFTED)
METHODS = ("loudest", "constant", "evals.solvers:Raises")
OF_TRUTH = {
    "exact_match", "precision", "recall", "f1", "any_service", "fault_kind_accuracy", "component_match",
    "precision_at_full_recall", "acc_at_1", "acc_at_3", "path_reachability", "path_reachability_hit", "ungrounded",
    "node_precision", "node_recall", "node_f1", "edge_precision", "edge_recall", "edge_f1", "ntam_fl", "ntam_fpc",
    "time_to_diagnosis_s", "detoured_services", "covered_services",
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A store of three runs on each of two incidents; the fault of both is in `store`, which nobody names."""
    tree = make_tree(tmp_path_factory.mktemp("void") / "t", count=2)
    for case in resolve(tree.root):
        for method in METHODS:
            run_method(RunStore(tree.root), case.datapack, method)
    return tree.root


@pytest.fixture
def store(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


def relabelled(store, label, count=1, *, calm=False):
    """Give the first *count* incidents the label, and with *calm* a truth in which nothing was broken."""
    tree = Tree(store)
    for id_ in tree.ids()[:count]:
        tree.write_annotation(id_, Annotation(label=label, reason="made", graph=CausalGraph(), made_from="a test"))
        if calm:
            calm_fault = Fault(type="NoFault", service=None, start_ns=1, end_ns=2)
            tree.write_truth(tree.truth(id_).model_copy(update={"faults": (calm_fault,), "roots": ()}))
    return tree.ids()[0]


def said(capsys, *arguments):
    assert command_line([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def told(capsys, *arguments):
    return json.loads(said(capsys, *arguments, "--json"))


@pytest.mark.sampled
@pytest.mark.parametrize("label", VOID)
def test_a_void_case_grades_nobody_and_every_metric_of_the_truth_names_the_label(store, label, capsys):
    void = relabelled(store, label)
    items = told(capsys, "score", "run", store)["items"]
    of_void = [item for item in items if item["case"] == void]
    assert len(of_void) == len(METHODS)
    for item in of_void:
        for name in OF_TRUTH:
            metric = item["metrics"][name]
            assert (metric["status"], metric["value"]) == ("not_applicable", None), name
            assert metric["reason"].startswith(f"the incident is labelled {label.value}: ")
            assert metric["reason"].endswith("so no answer is graded")
    graded = [item["metrics"]["any_service"]["status"] for item in items if item["case"] != void]
    assert sorted(graded) == ["failed", "scored", "scored"]


@pytest.mark.sampled
@pytest.mark.parametrize("label", [Label.ATTRIBUTED, Label.ABSORBED])
def test_other_labels_are_graded(store, label, capsys):
    relabelled(store, label, count=2)
    items = told(capsys, "score", "run", store)["items"]
    assert {item["metrics"]["any_service"]["status"] for item in items} == {"scored", "failed"}


@pytest.mark.sampled
@pytest.mark.parametrize("label", VOID)
def test_where_nothing_was_broken_the_label_voids_nothing(store, label, capsys):
    relabelled(store, label, count=2, calm=True)
    items = told(capsys, "score", "run", store)["items"]
    assert {item["metrics"]["exact_match"]["status"] for item in items} == {"scored", "failed"}


@pytest.mark.slow
def test_a_published_graph_without_roots_voids_nothing(store, capsys):
    tree = Tree(store)
    for id_ in tree.ids():
        given = Annotation(label=Label.UNEXPLAINED, reason="imported from causal_graph.json", graph=CausalGraph())
        tree.write_annotation(id_, given)
    items = told(capsys, "score", "run", store)["items"]
    assert {item["metrics"]["any_service"]["status"] for item in items} == {"scored", "failed"}


@pytest.mark.slow
def test_aggregates_leave_void_cases_out_and_count_them_apart(store, capsys):
    relabelled(store, Label.NO_EFFECT)
    told_ = told(capsys, "score", "run", store)
    for summary in told_["summary"]:
        assert (summary["cases"], summary["void"]) == (2, 1)
        assert (summary["graded"]["any_service"], summary["any_service"]) == (1, 0.0)
        assert summary["answer_time"]["attempts"] == 1
    assert "1 of 2 cases is void and grades no solver." in said(capsys, "score", "run", store)
    assert "1 of 2 cases is void and grades no solver." in said(capsys, "score", "table", store)
    board = told(capsys, "leaderboard", store)
    assert "1 of 2 tasks is void and grades no solver." in board["warnings"]["diagnosis"]
    assert {item["success"]["tasks"] for item in board["items"]} == {1}
    assert not [why for item in board["items"] for why in item["not_ranked"] if "no graded run" in why]


@pytest.mark.slow
def test_a_store_of_void_cases_has_no_rate_in_any_command(store, capsys, tmp_path):
    relabelled(store, Label.UNEXPLAINED, count=2)
    summaries = told(capsys, "score", "run", store, "--scores", tmp_path / "scores.csv")["summary"]
    assert {(one["any_service"], one["exact_match"], one["void"]) for one in summaries} == {(None, None, 2)}
    assert all(one["pass_at"] == {} for one in summaries)
    assert " 0.0%" not in said(capsys, "score", "run", store)
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 1
    board = told(capsys, "leaderboard", store)
    assert {item["success"] for item in board["items"]} == {None}
    assert "2 of 2 tasks are void and grade no solver." in board["warnings"]["diagnosis"]
    results = told(capsys, "score", "table", store)["items"]
    whole = next(table for table in results if table["title"] == "All injected cases")
    assert {cell for row in whole["rows"] for name, cell in row.items() if "`" in name and name != "solver"} == {"n/a"}


def test_diagnose_calls_nothing_right_or_wrong_on_a_void_case(store, capsys):
    relabelled(store, Label.NO_EFFECT, count=2)
    assert {item["correct"] for item in told(capsys, "run", "diagnose", store, "-m", "loudest")["items"]} == {None}


def test_pages_say_not_applicable(store, capsys, tmp_path):
    relabelled(store, Label.DRIFTED, count=2)
    said(capsys, "score", "run", store)
    said(capsys, "report", store, "-o", tmp_path / "report")
    report = (tmp_path / "report" / "report.html").read_text()
    payload = json.loads(re.search(r"<script[^>]*application/json[^>]*>(.*?)</script>", report, re.DOTALL)[1])
    for case in payload["cases"]:
        assert case["solved"] == "–"
        assert any(name == "Void" and "labelled drifted" in text for name, text in case["facts"])
        titles = [column["name"] for column in case["grades"]["columns"]]
        cells = [dict(zip(titles, row["cells"], strict=True)) for row in case["grades"]["rows"]]
        assert {row[name]["text"] for row in cells for name in OF_TRUTH} == {"n/a"}
    said(capsys, "view", store, "--export", tmp_path / "pages")
    pages = {path: path.read_text() for path in (tmp_path / "pages").rglob("*.html")}
    assert any("2 of 2 tasks are void" in text for text in pages.values())
    home = next(text for path, text in pages.items() if path.name == "index.html")
    assert "not applicable" in home
    assert "did not succeed</span>" not in home
    assert any("is not graded on" in text for path, text in pages.items() if path.parent.name == "runs")


def test_a_task_of_harbor_is_neither_made_of_a_void_case_nor_worth_nothing_there(store, tmp_path, capsys):
    relabelled(store, Label.NO_EFFECT)
    said(capsys, "incident", "export", "harbor", store, "-o", tmp_path / "tasks")
    (task,) = (tmp_path / "tasks").iterdir()
    relabelled(task / "tests" / "case", Label.NO_EFFECT)
    with pytest.raises(UserError, match="labelled no_effect"):
        verify(task / "tests" / "case", tmp_path / "answer.json", tmp_path / "reward.json")
    assert not (tmp_path / "reward.json").exists()
