"""Answers to the recorded cost anomalies of ITBench-Lite, in the layout that its card and its grader tell of."""

from __future__ import annotations

import json

import pytest
from benchmarks.papers.itbench_finops import Resource, command, grade, read_resources
from click.testing import CliRunner

TRUTH = "metadata: {version: v1}\nresource:\n- resource: {name: ABC123, type: vm, root_cause: true}\n"
PLAIN = "resource:\n- {name: a, type: disk}\n- {name: b}\n- {name: c, root_cause: false}\n"


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def folders(tmp_path):
    for number, truth in ((1, TRUTH), (2, PLAIN), (3, "resource: [")):
        put(tmp_path / "truths" / "finops" / f"Scenario-{number}" / "ground_truth.yaml", truth)
        put(
            tmp_path / "truths" / "finops" / f"Scenario-{number}" / "anomaly.json",
            {"date": "2025-10-13", "account_id": "a"},
        )
    said = {
        "1/1": {"resource": [{"name": "abc123", "type": "VM"}]},
        "1/2": {"resource": [{"name": "ABC123"}, {"name": "other"}]},
        "2/1": {"resource": [{"name": "b", "type": "vm"}, {"name": "a", "type": "disk"}]},
        "2/2": {"resource": [{"name": "a", "type": "vm"}]},
        "2/3": "{",
        "3/1": {"resource": [{"name": "a"}]},
        "4/1": {"resource": [{"name": "a"}]},
    }
    for place, answer in said.items():
        put(tmp_path / "answers" / place / "outputs" / "agent_output.json", answer)
    return tmp_path / "truths", tmp_path / "answers"


def test_all_resources_have_to_match_and_one_bad_file_never_ends_the_others(folders):
    done = CliRunner().invoke(command, [*map(str, folders), "--json"])
    assert done.exit_code == 1, done.exception
    whole = json.loads(done.stdout)
    found = {(i["scenario"], i["trial"]): (i["passed"], i["precision"], i["recall"]) for i in whole["items"]}
    assert found == {
        ("1", 1): (True, 1, 1), ("1", 2): (False, 0.5, 1), ("2", 1): (True, 1, 1), ("2", 2): (False, 0, 0),
        ("2", 3): (False, 0, 0),
    }  # fmt: skip
    places = ("2/3", "Scenario-3", "answers/4")
    assert all(place in problem for place, problem in zip(places, whole["problems"], strict=True)), whole["problems"]


def test_the_table_has_pass_at_1_with_its_standard_error(folders):
    done = CliRunner(env={"COLUMNS": "200"}).invoke(command, [*map(str, folders)])
    assert "0.50 ± 0.50" in done.stdout
    assert "0.40 ± 0.24" in done.stdout  # two of five


def test_a_resource_is_its_name_and_its_type_where_both_say_one():
    true = read_resources({"resource": {"name": 7}})
    assert true == [Resource("7", "")]
    assert grade(true, [Resource("7", "disk")]) == (True, 1.0, 1.0)
    assert grade([Resource("a", "vm"), Resource("b", "")], [Resource("a", "disk"), Resource("b", "vm")]) == (
        False,
        0.5,
        0.5,
    )
    assert grade(true, []) == (False, 0.0, 0.0)
