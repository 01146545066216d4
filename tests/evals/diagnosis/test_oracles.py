"""Oracles of incidents: the right and the wrong answer run through the same cells as every solver, and are not ranked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from opsassay.cli import run as command_line
from telemetry.packs import make_tree

GOLDEN = Path(__file__).parents[1] / "golden" / "diagnosis_store"


@pytest.fixture
def call(capsys):
    def call(*arguments, code=0):
        assert command_line([*map(str, arguments), "--json"]) == code, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return call


def test_they_are_listed_by_name_where_the_truth_is_at_hand(call, tmp_path):
    make_tree(tmp_path, count=1)
    (task,) = call("task", "list", tmp_path, "--domain", "diagnosis")["items"]
    assert task["oracles"] == ["right", "wrong"]
    (task,) = call(
        "task", "list", next((tmp_path / "incidents").iterdir()).rename(tmp_path / "alone"), "--domain", "diagnosis"
    )["items"]
    assert task["oracles"] == []


@pytest.mark.slow
def test_the_right_answer_is_right_the_wrong_one_wrong_and_neither_is_ranked(call, tmp_path):
    make_tree(tmp_path, count=2)
    made = call("run", tmp_path, "-a", "oracle:*", "-a", "constant")
    assert {(i["solver"], i["status"]) for i in made["items"]} == {
        ("oracle:right", "done"), ("oracle:wrong", "done"), ("constant", "done"),
    }  # fmt: skip
    again = call("run", tmp_path, "-a", "oracle:right")
    assert {i["run"] for i in again["items"]} < {i["run"] for i in made["items"]}, "they are cells: kept, not run again"
    scores = tmp_path / "scores.csv"
    graded = call("score", "run", tmp_path, "--scores", scores)
    values = {(i["case"], i["solver"]): i["metrics"]["exact_match"]["value"] for i in graded["items"]}
    assert {value for (_, solver), value in values.items() if solver == "oracle:right"} == {1.0}
    assert {value for (_, solver), value in values.items() if solver == "oracle:wrong"} == {0.0}
    unranked = {i["solver"] for i in graded["items"] if i["not_ranked"]}
    assert unranked == {"oracle:right", "oracle:wrong"}
    assert "oracle" not in scores.read_text()
    assert "constant" in scores.read_text()


def test_the_right_answer_has_the_cascade_that_was_verified(call, tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "store")
    call("run", tmp_path / "store", "-a", "oracle:*", "-o", tmp_path / "runs")
    graded = call("score", "run", tmp_path / "runs", "--cases", tmp_path / "store")["items"]
    metrics = {i["solver"]: {name: metric["value"] for name, metric in i["metrics"].items()} for i in graded}
    assert [metrics["oracle:right"][name] for name in ("exact_match", "edge_precision", "path_reachability")] == [
        1.0
    ] * 3
    assert [metrics["oracle:wrong"][name] for name in ("any_service", "path_reachability")] == [0.0, 0.0]


def test_an_unknown_oracle_and_a_missing_truth_are_one_sentence_and_nothing_runs(tmp_path, capsys):
    make_tree(tmp_path, count=1)
    assert command_line(["run", str(tmp_path), "-a", "oracle:gentle", "-o", str(tmp_path / "runs")]) == 2
    assert "There is no oracle of" in capsys.readouterr().err
    alone = next((tmp_path / "incidents").iterdir()).rename(tmp_path / "alone")
    assert command_line(["run", str(alone), "-a", "oracle:right", "-o", str(tmp_path / "runs")]) == 2
    assert "nobody knows the right answer" in capsys.readouterr().err
    assert not (tmp_path / "runs" / "runs").exists()
