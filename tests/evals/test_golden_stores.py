"""Stores that earlier versions wrote: read, gone on with, graded again to the same verdicts, shown in the same tables."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from benchmarks.papers.running import run as run_script
from benchmarks.papers.side_effects import command as paper_tables

from opsassay.cli import run as command_line
from opsassay.core.schema.run import RunStatus
from opsassay.core.schema.task import Arm
from opsassay.evals.diagnosis.tasks import IncidentItem
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.runner.run import RunSpec, attempt
from opsassay.evals.runner.store import RunStore, cell_hash, read_diagnosis, read_run, read_verdicts
from opsassay.telemetry.tree import resolve

GOLDEN = Path(__file__).parent / "golden"

ADDED_SINCE = ("precision_at_full_recall",)
"""Metrics that there were not when the stores were written; everything else is as it was."""

TABLES_SINCE = {1, 2, 4, 5, 6, 7}
"""Tables that there were not."""


@pytest.fixture
def store(request, tmp_path):
    """A copy of a store, which may be written to."""
    shutil.copytree(GOLDEN / request.param, tmp_path / request.param)
    return RunStore(tmp_path / request.param)


def same_as(name, capsys, *arguments, call=command_line):
    assert call([*arguments, "--json"]) == 0
    found, golden = json.loads(capsys.readouterr().out), json.loads((GOLDEN / name).read_text())
    for whole in (found, golden):
        for item in whole["items"]:
            if "/runs/" in str(item.get("run")):
                item["run"] = item["run"].rpartition("runs/")[2]
    return found, golden


@pytest.mark.parametrize(
    ("store", "count"), [("diagnosis_store", 4), ("sre_store", 6)], indirect=["store"], ids=["diagnosis", "sre"]
)
def test_every_run_is_read_and_its_cell_has_its_name(store, count):
    folders = list(store.runs())
    assert len(folders) == count
    for folder in folders:
        run = read_run(folder)
        assert run.status is RunStatus.DONE
        assert len(read_verdicts(folder)) == 1
        assert Arm.parse(run.arm).label == run.arm
        identity = (
            run.solver_hash if run.arm.startswith(("default", "mask-")) else f"{run.solver.name}:{run.solver_hash}"
        )
        assert cell_hash(run.item_hash, identity, run.arm, run.seed) == run.cell
    assert len(store.attempts()) == 2 * count


@pytest.mark.parametrize("store", ["diagnosis_store"], indirect=True)
def test_an_incident_that_has_a_result_is_not_run_again(store):
    (case,) = resolve(store.root)
    for folder in list(store.runs()):
        run = read_run(folder)
        assert read_diagnosis(folder) is not None
        cell = RunSpec(
            IncidentItem.from_datapack(case.datapack).task, run.solver, run.solver_hash, Arm.parse(run.arm), run.seed
        )
        assert cell.hash == run.cell

        def never(*_):
            raise AssertionError("it was run again")

        assert attempt(store, cell, never, limits={}) == folder


@pytest.mark.parametrize("store", ["sre_store"], indirect=True)
def test_a_trial_that_has_a_result_is_not_run_again(store):
    plan = TrialPlan.model_validate({"scenarios": ["made.yaml"], "agents": ["oracle:*"], "probes": [True, False]})
    jobs = cells_of(plan, GOLDEN)
    folders = run_trials(store, jobs, performer="nothing.at.all:perform")
    assert [read_run(folder).cell for folder in folders] == [job.cell.hash for job in jobs]
    assert len(store.attempts()) == 12


@pytest.mark.parametrize("store", ["diagnosis_store", "sre_store"], indirect=True)
def test_a_torn_last_line_is_dropped_and_the_store_goes_on(store):
    log = store.root / "attempts.jsonl"
    whole = store.attempts()
    with log.open("a") as out:
        out.write('{"event":"begun","cell":"to')
    assert store.attempts() == whole
    run = read_run(next(store.runs()))
    folder, numbered = store.begin(run)
    store.end(folder, numbered.model_copy(update={"status": RunStatus.ABORTED}))
    assert store.attempts()[: len(whole)] == whole
    assert len(store.attempts()) == len(whole) + 2


@pytest.mark.slow
@pytest.mark.parametrize("store", ["diagnosis_store"], indirect=True)
def test_incidents_are_graded_to_the_same_verdicts(store, capsys):
    before = {path: path.read_bytes() for path in store.root.rglob("verdicts/*.json")}
    found, golden = same_as("diagnosis_grade.json", capsys, "score", "run", str(store.root))
    for item in found["items"]:
        assert all(item["metrics"].pop(name)["status"] == "scored" for name in ADDED_SINCE)
    assert found["items"] == golden["items"]
    assert [{key: one[key] for key in old} for one, old in zip(found["summary"], golden["summary"], strict=True)] == (
        golden["summary"]
    )
    after = {path: path.read_bytes() for path in store.root.rglob("verdicts/*.json")}
    assert {path: after[path] for path in before} == before
    for path in after.keys() - before.keys():  # what was written since says beside each statement what of it ran
        again, first = json.loads(after[path]), json.loads(before[path.parent / "default.json"])
        assert all(result.pop("executed") for result in again["evidence"])
        assert all(again["metrics"].pop(name) for name in ADDED_SINCE)
        assert again.pop("fingerprinted")  # it was recorded before draws had a secret
        assert again == first


@pytest.mark.parametrize("store", ["sre_store"], indirect=True)
def test_trials_are_graded_to_the_same_verdicts_and_tables(store, capsys):
    before = {path: path.read_bytes() for path in store.root.rglob("verdicts/*.json")}
    found, golden = same_as("sre_grade.json", capsys, "score", "trials", str(store.root))
    assert {tuple(item.pop("not_ranked")) for item in found["items"]} == {("it is an oracle, which knows the truth",)}
    assert {item.pop("validity")["status"] for item in found["items"]} == {"not_assessed"}
    assert found["items"] == golden["items"]
    found, golden = same_as("sre_table.json", capsys, str(store.root), call=partial(run_script, paper_tables))
    found["items"] = [item for item in found["items"] if item["table"] not in TABLES_SINCE]
    per_agent = next(item["rows"] for item in found["items"] if item["table"] == 11)
    per_cell = next(item["rows"] for item in found["items"] if item["table"] == 10)
    assert {(row.pop("MTTD"), row.pop("MTTR")) for row in per_cell} == {(None, None)}
    assert [row.pop("ranked") for row in per_agent] == ["no: it is an oracle, which knows the truth"] * 3 + [None]
    assert found["items"] == golden["items"]
    assert {path: path.read_bytes() for path in store.root.rglob("verdicts/*.json")} == before
