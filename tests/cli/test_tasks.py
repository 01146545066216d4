"""The list of tasks: scenarios of both substrates, incidents of given folders, and nothing of the truth of either."""

from __future__ import annotations

import json

import pytest

from opsassay.cli import run
from opsassay.evals.remediation.controls.scripts import controls_of
from opsassay.testbed.scenarios import generated_names, load_scenario, names
from telemetry.packs import make_tree

KEYS = {
    "id", "domain", "name", "description", "class", "stratum", "complexity", "system", "goal", "limits", "oracles",
    "commitment",
}  # fmt: skip


@pytest.fixture
def items(capsys):
    def items(*arguments):
        assert run(["task", "list", *map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)["items"]

    return items


def test_every_scenario_that_ships_or_is_generated_is_a_task_of_sre(items):
    found = items("--domain", "sre")
    assert [task["id"] for task in found] == [*names(), *generated_names()]
    assert all(set(task) == KEYS for task in found)
    assert {task["stratum"] for task in found} == {"local", "kubernetes"}
    for task in found:
        scenario = load_scenario(task["id"])
        assert task["commitment"] == scenario.digest()
        controls = [control.name for control in controls_of(scenario) if not control.why_not]
        assert task["oracles"] == [*scenario.oracles, *controls]
        assert task["goal"] == scenario.prompt()
        assert task["complexity"] >= 1


def test_incidents_are_tasks_whose_truth_is_not_told(items, tmp_path, capsys):
    tree = make_tree(tmp_path / "tree", count=2)
    found = items(tree.root, "--domain", "diagnosis")
    assert sorted(task["id"] for task in found) == sorted(tree.ids())
    assert {(task["domain"], task["class"], task["complexity"]) for task in found} == {("diagnosis", None, None)}
    roots = {service for id_ in tree.ids() for root in tree.truth(id_).roots for service in root.service}
    assert roots
    assert not any(root in json.dumps(found) for root in roots)
    assert len(items(tree.root)) == len(items()) + 2
    assert run(["task", "list", "--domain", "sr"]) == 2
    assert "did you mean 'sre'" in capsys.readouterr().err


def test_a_scenario_file_is_a_task_and_the_table_has_every_one(items, tmp_path, capsys):
    from evals.remediation.test_trials import write_scenario

    write_scenario(tmp_path / "made.yaml")
    assert [task["id"] for task in items(tmp_path / "made.yaml", "--domain", "sre")][-1] == "made"
    assert run(["task", "list"]) == 0
    out = capsys.readouterr().out
    assert "drained-pool" in out
