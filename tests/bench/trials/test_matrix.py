"""The run matrix with made trials in real processes: cells, resume, the watchdog, commitments, nothing scored twice."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
import yaml

from assay.bench.store import RunStore, read_run
from assay.bench.trials.grading import grade_trial, kept_scenario, read_recording, recorded_trials
from assay.bench.trials.matrix import run_matrix
from assay.bench.trials.plan import TrialPlan, cells_of, load_trial_plan
from assay.errors import ConfigError, DatapackError, NotFoundError, UserError
from assay.model.run import RunStatus
from grading.verifiers.made import scenario

TESTS = Path(__file__).parents[2]
MADE = "bench.trials.performers:"


@pytest.fixture(autouse=True)
def _paths(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("PERFORMED", str(tmp_path / "performed"))


def write_scenario(path, **verification):
    payload = scenario(**verification).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    payload["oracles"] = {
        "gentle": {"expect": "certified"},
        "harmful": {"fails": ["v_temporal"]},
        "shallow": {"fails": ["v_depth"]},
    }
    path.write_text(yaml.safe_dump(payload))
    return path


def plan_of(tmp_path, **fields):
    write_scenario(tmp_path / "made.yaml", committed_depth="D3")
    plan = TrialPlan.model_validate({"scenarios": ["made.yaml"], "agents": ["oracle:*"], **fields})
    return plan, cells_of(plan, tmp_path)


def performed(tmp_path):
    return (tmp_path / "performed").read_text().splitlines()


def test_a_plan_is_the_product_of_its_axes_with_repeats_outermost(tmp_path):
    write_scenario(tmp_path / "made.yaml")
    (tmp_path / "plan.yaml").write_text(
        "scenarios: [made.yaml]\nagents: ['oracle:gentle', {name: mine, command: [./agent]}]\n"
        "arms: [baseline, constrained]\nprobes: [on, off]\nrepeats: 2\nseed: 7\n"
    )
    _, cells = load_trial_plan(tmp_path / "plan.yaml")
    assert len(cells) == len({cell.key for cell in cells}) == 16
    assert [cell.seed for cell in cells] == [7] * 8 + [8] * 8
    assert cells[0].arms == "baseline/probes-on"
    assert cells[1].arms == "baseline/probes-off"


def test_bad_plans_are_one_sentence(tmp_path):
    write_scenario(tmp_path / "made.yaml")
    with pytest.raises(NotFoundError, match="There is no oracle of made 'gntle'; did you mean 'gentle'"):
        cells_of(TrialPlan.model_validate({"scenarios": ["made.yaml"], "agents": ["oracle:gntle"]}), tmp_path)
    (tmp_path / "plan.yaml").write_text("scenarios: [made.yaml]\nagents: [oracle:gentle]\nrepeat: 2\n")
    with pytest.raises(ConfigError, match=r"plan.yaml:3: repeat: there is no such key; did you mean 'repeats'"):
        load_trial_plan(tmp_path / "plan.yaml")
    (tmp_path / "plan.yaml").write_text("scenarios: [a, a]\nagents: [oracle:gentle]\n")
    with pytest.raises(ConfigError, match="names something twice"):
        load_trial_plan(tmp_path / "plan.yaml")


def test_every_oracle_comes_out_as_its_file_says_and_a_second_run_does_nothing(tmp_path):
    plan, cells = plan_of(tmp_path)
    store = RunStore(tmp_path / "store")
    folders = run_matrix(plan, cells, store, performer=MADE + "quick")
    verdicts = [json.loads((folder / "verdicts" / "default.json").read_text()) for folder in folders]
    failed = {v["solver"]: [j["predicate"] for j in v["judgements"] if j["status"] == "failed"] for v in verdicts}
    assert failed == {
        "oracle:gentle": [],
        "oracle:harmful": ["v_temporal", "certificate"],
        "oracle:shallow": ["v_depth", "certificate"],
    }
    harmful = next(v for v in verdicts if v["solver"] == "oracle:harmful")
    assert harmful["metrics"]["hidden_failure"]["value"] == 1.0
    told = []
    assert run_matrix(plan, cells, store, performer=MADE + "quick", tell=told.append) == folders
    assert len(performed(tmp_path)) == 3
    assert sum("done before" in line for line in told) == 3
    run = read_run(folders[0])
    assert (run.status, run.item, run.arm) == (RunStatus.DONE, "made", "baseline/probes-on")
    assert run.item_hash == cells[0].scenario.digest()
    assert recorded_trials(store) == sorted(folders, key=lambda folder: folder.parent.name)


def test_arms_and_probes_reach_the_trial_and_its_verdict(tmp_path):
    plan, cells = plan_of(tmp_path, agents=["oracle:gentle"], arms=["baseline", "constrained"], probes=[True, False])
    folders = run_matrix(plan, cells, RunStore(tmp_path / "store"), performer=MADE + "quick")
    assert performed(tmp_path) == [
        f"oracle:gentle {arm} {on} 0" for arm in ("baseline", "constrained") for on in (True, False)
    ]
    said = {
        read_run(folder).arm: {
            name: json.loads((folder / "verdicts" / "default.json").read_text())["metrics"][name]["value"]
            for name in ("v_probe", "certificate")
        }
        for folder in folders
    }
    assert said["constrained/probes-on"] == {"v_probe": 0.0, "certificate": 0.0}  # rejected only because of the probe
    assert said["constrained/probes-off"] == {"v_probe": None, "certificate": 1.0}


def test_failing_machinery_is_no_result_and_is_tried_again(tmp_path):
    plan, cells = plan_of(tmp_path, agents=["oracle:gentle"])
    store = RunStore(tmp_path / "store")
    (folder,) = run_matrix(plan, cells, store, performer=MADE + "flaky")
    first, second = store.attempts_of(cells[0].key)
    assert folder == second
    assert read_run(first).status is RunStatus.ABORTED
    assert read_run(first).error == "StartError: The database did not start."
    assert [line["event"] for line in store.attempts()] == ["begun", "ended"] * 2


def test_the_watchdog_ends_a_trial_that_hangs_and_one_that_dies_is_named(tmp_path):
    plan, cells = plan_of(tmp_path, agents=["oracle:gentle"], timeout_s=4, retries=0)
    store, told = RunStore(tmp_path / "store"), []
    assert run_matrix(plan, cells, store, performer=MADE + "hanging", tell=told.append) == []
    (attempt,) = store.attempts_of(cells[0].key)
    assert read_run(attempt).error == "it hung: no end after 4 s"
    assert not [p for p in psutil.Process().children(recursive=True) if "assay.bench.trials.worker" in p.cmdline()]
    assert run_matrix(plan, cells, store, performer=MADE + "dying") == []
    assert read_run(store.attempts_of(cells[0].key)[-1]).error == "its process ended with -9"
    (folder,) = run_matrix(plan, cells, store, performer=MADE + "quick")  # and the cell is still open
    assert folder.name == "3"


def test_trials_run_side_by_side_and_keep_their_order(tmp_path):
    plan, cells = plan_of(tmp_path, timeout_s=60, retries=0)
    store, told = RunStore(tmp_path / "store"), []
    folders = run_matrix(plan, cells, store, jobs=3, performer=MADE + "meeting", tell=told.append)
    assert [read_run(folder).cell for folder in folders] == [cell.key for cell in cells]
    assert [line["event"] for line in store.attempts()] == ["begun"] * 3 + ["ended"] * 3


def test_an_interrupted_matrix_ends_its_trials_and_marks_them(tmp_path):
    plan, cells = plan_of(tmp_path)
    store = RunStore(tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        run_matrix(plan, cells, store, jobs=2, performer=MADE + "interrupting")
    runs = [read_run(attempt) for cell in cells for attempt in store.attempts_of(cell.key)]
    assert [(run.status, run.error) for run in runs] == [
        (RunStatus.ABORTED, "interrupted")
    ] * 2  # the third never began
    assert not [p for p in psutil.Process().children(recursive=True) if "assay.bench.trials.worker" in p.cmdline()]


def test_a_second_matrix_on_the_same_store_is_refused(tmp_path):
    plan, cells = plan_of(tmp_path, agents=["oracle:gentle"])
    store = RunStore(tmp_path / "store")

    def again(_):
        with pytest.raises(UserError, match="Another matrix is running into"):
            run_matrix(plan, cells, store, performer=MADE + "quick")

    run_matrix(plan, cells, store, performer=MADE + "quick", tell=again)
    assert len(performed(tmp_path)) == 1


def test_thresholds_are_committed_before_the_run(tmp_path):
    plan, cells = plan_of(tmp_path, agents=["oracle:harmful"])
    store = RunStore(tmp_path / "store")
    (folder,) = run_matrix(plan, cells, store, performer=MADE + "quick")
    committed = kept_scenario(store.root, read_run(folder).item_hash)
    assert committed == cells[0].scenario
    payload = committed.model_dump(mode="json", by_alias=True)
    payload["verification"]["floor_availability"] = 0.4
    milder = type(committed).model_validate(payload)
    with pytest.raises(UserError, match="thresholds are committed before a run"):
        grade_trial(folder, milder)
    verdict = grade_trial(folder, milder, what_if=True)
    assert verdict.what_if
    assert verdict.metrics["certificate"].value == 1.0
    assert {path.name for path in (folder / "verdicts").iterdir()} == {"default.json", "what-if-default.json"}
    paper = grade_trial(folder, committed, profile="paper")
    assert (folder / "verdicts" / "paper.json").exists()
    assert paper.what_if  # another profile than the committed one
    first = (folder / "verdicts" / "default.json").read_bytes()
    grade_trial(folder, committed)
    assert (folder / "verdicts" / "default.json").read_bytes() == first


def test_a_changed_scenario_file_is_another_cell_and_a_tampered_copy_is_found(tmp_path):
    _, cells = plan_of(tmp_path, agents=["oracle:gentle"])
    write_scenario(tmp_path / "made.yaml", committed_depth="D1")
    changed = cells_of(TrialPlan.model_validate({"scenarios": ["made.yaml"], "agents": ["oracle:gentle"]}), tmp_path)
    assert changed[0].key != cells[0].key
    plan, cells = plan_of(tmp_path, agents=["oracle:gentle"])
    store = RunStore(tmp_path / "store")
    run_matrix(plan, cells, store, performer=MADE + "quick")
    copy = store.root / "scenarios" / f"{cells[0].scenario.digest()}.json"
    copy.write_text(copy.read_text().replace("0.85", "0.15"))
    with pytest.raises(DatapackError, match="is not what its name says"):
        kept_scenario(store.root, cells[0].scenario.digest())


def test_a_torn_record_is_named_and_its_torn_last_line_dropped(tmp_path):
    plan, cells = plan_of(tmp_path, agents=["oracle:gentle"])
    (folder,) = run_matrix(plan, cells, RunStore(tmp_path / "store"), performer=MADE + "quick")
    whole = read_recording(folder)
    for name in ("timeline.jsonl", "actions.jsonl", "phases.jsonl"):
        with (folder / name).open("a") as file:
            file.write('{"torn": ')
    assert read_recording(folder) == whole
    (folder / "timeline.jsonl").write_text("nonsense\nmore\n")
    with pytest.raises(DatapackError, match="cannot be read as a timeline"):
        read_recording(folder)


def test_a_run_says_whether_its_command_was_sealed(tmp_path):
    agents = [{"name": name, "command": ["./agent"]} for name in ("apart", "loose")]
    plan, cells = plan_of(tmp_path, agents=agents)
    runs = [read_run(f) for f in run_matrix(plan, cells, RunStore(tmp_path / "o"), performer=MADE + "kept_apart")]
    assert {run.solver.name: run.isolation for run in runs} == {"apart": "sealed", "loose": "unsealed"}
