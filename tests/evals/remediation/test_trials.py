"""Made trials in real processes: cells, resume, the watchdog, commitments, nothing scored twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import yaml

from opsassay.core.errors import ConfigError, DatapackError, NotFoundError, UserError
from opsassay.core.schema.progress import ProgressLines
from opsassay.core.schema.run import RunStatus
from opsassay.evals.remediation.plan import TrialPlan, cells_of, load_trial_plan, require_sound
from opsassay.evals.remediation.score import grade_trial, read_recording, recorded_trials
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.remediation.tasks import kept_scenario
from opsassay.evals.runner.store import RunStore, read_run
from scoring.verifiers.made import scenario

TESTS = Path(__file__).parents[2]
MADE = "evals.remediation.performers:"


@pytest.fixture(autouse=True)
def _paths(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("PERFORMED", str(tmp_path / "performed"))


def write_scenario(path, **verification):
    payload = scenario(**verification).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    payload["constrained"] = "Be careful."
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
    return cells_of(plan, tmp_path)


def performed(tmp_path):
    return (tmp_path / "performed").read_text().splitlines()


def test_a_plan_is_the_product_of_its_axes_with_repeats_outermost(tmp_path):
    write_scenario(tmp_path / "made.yaml")
    (tmp_path / "plan.yaml").write_text(
        "scenarios: [made.yaml]\nagents: ['oracle:gentle', {name: mine, command: [./agent]}]\n"
        "arms: [baseline, constrained]\nprobes: [on, off]\nrepeats: 2\nseed: 7\n"
    )
    _, cells = load_trial_plan(tmp_path / "plan.yaml")
    assert len(cells) == len({cell.cell.hash for cell in cells}) == 16
    assert [cell.seed for cell in cells] == [7] * 8 + [8] * 8
    assert cells[0].cell.arm.label == "baseline/probes-on"
    assert cells[1].cell.arm.label == "baseline/probes-off"


def test_an_arm_in_which_nothing_would_differ_is_left_out(tmp_path):
    path = write_scenario(tmp_path / "made.yaml", probe_every_s=None)
    payload = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**payload, "constrained": ""}))
    both = {"scenarios": ["made.yaml"], "agents": ["oracle:gentle"], "arms": ["baseline", "constrained"]}
    (only,) = cells_of(TrialPlan.model_validate({**both, "probes": [False, True]}), tmp_path)
    assert only.cell.arm.label == "baseline/probes-on"
    (off,) = cells_of(TrialPlan.model_validate({**both, "probes": [False]}), tmp_path)
    assert off.cell.arm.label == "baseline/probes-off"
    with pytest.raises(UserError, match="made has no `constrained` addendum"):
        cells_of(TrialPlan.model_validate({**both, "arms": ["constrained"]}), tmp_path)


def test_one_scenario_under_two_names_is_run_once(tmp_path):
    write_scenario(tmp_path / "made.yaml")
    write_scenario(tmp_path / "again.yaml")
    plan = TrialPlan.model_validate({"scenarios": ["made.yaml", "again.yaml"], "agents": ["oracle:gentle"]})
    assert len(cells_of(plan, tmp_path)) == 1


def test_a_command_is_its_files_too(tmp_path):
    write_scenario(tmp_path / "made.yaml")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "agent.py").write_text("one")
    told = {"name": "mine", "command": ["./agent"], "settings": {"files": [str(tmp_path / "mine")]}}

    def key():
        return cells_of(TrialPlan.model_validate({"scenarios": ["made.yaml"], "agents": [told]}), tmp_path)[0].cell.hash

    first = key()
    assert key() == first
    (tmp_path / "mine" / "agent.py").write_text("another")
    assert key() != first
    told["settings"]["files"] = [str(tmp_path / "none.py")]
    with pytest.raises(UserError, match=r"Agent mine: settings.files: there is no .*none.py"):
        key()


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("sree", "There is no operator 'sree'; did you mean 'sre'"),
        ("sre", "the agent sre needs a model"),
        ({"name": "sre", "model": "m", "settings": {"tokns": 5}}, r"settings.tokns: there is no such key"),
        ({"name": "sre", "model": "m", "settings": {"seconds": 5}}, "is the scenario's agent_timeout_s"),
        ({"name": "mine", "command": ["x"], "settings": {"sealed": True}}, "settings.sealed: there is no such key"),
        ({"name": "mine", "command": ["x"], "settings": {"sealing": "of"}}, "settings.sealing: expected 'auto'"),
        ({"name": "oracle:gentle", "model": "m"}, "takes no command, model, settings or tools"),
    ],
)
def test_an_agent_that_cannot_be_let_in_is_refused_with_its_line(tmp_path, agent, message):
    text = yaml.safe_dump({"scenarios": ["made.yaml"], "agents": [agent]}, sort_keys=False)
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"plan.yaml:\d+: agents.0: .*" + message):
        load_trial_plan(tmp_path / "plan.yaml")


def test_sealing_is_switched_off_by_the_word_that_yaml_takes_for_no(tmp_path):
    write_scenario(tmp_path / "made.yaml")
    (tmp_path / "plan.yaml").write_text(
        "scenarios: [made.yaml]\nagents: [{name: mine, command: [x], settings: {sealing: off}}]\n"
    )
    _, (cell,) = load_trial_plan(tmp_path / "plan.yaml")
    assert cell.agent.sealing == "off"


def test_what_could_not_begin_is_told_before_the_first_trial(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    path = write_scenario(tmp_path / "made.yaml")
    whole = yaml.safe_load(path.read_text())

    def require(agent="oracle:gentle", **environment):
        path.write_text(yaml.safe_dump({**whole, "environment": {**whole["environment"], **environment}}))
        require_sound(cells_of(TrialPlan.model_validate({"scenarios": ["made.yaml"], "agents": [agent]}), tmp_path))

    require()
    with pytest.raises(UserError, match="made needs compose; local and kubernetes are performed here"):
        require(substrate="compose")
    with pytest.raises(NotFoundError, match="'shp'; did you mean 'shop'"):
        require(system="shp")
    with pytest.raises(UserError, match=r"Cannot read .*nothing.yaml"):
        require({"name": "sre", "model": f"scripted:{tmp_path / 'nothing.yaml'}"})
    with pytest.raises(UserError, match="needs a key"):
        require({"name": "sre", "model": "m"})
    sealed = {"name": "mine", "command": ["x"], "settings": {"sealing": "required"}}
    monkeypatch.setattr("opsassay.evals.runner.commands.sealing_refusal", lambda: "no namespaces here.")
    with pytest.raises(UserError, match="is to be sealed, and no seal can be made here: no namespaces here"):
        require(sealed)


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


@pytest.mark.slow
def test_every_oracle_comes_out_as_its_file_says_and_a_second_run_does_nothing(tmp_path):
    cells = plan_of(tmp_path)
    store = RunStore(tmp_path / "store")
    folders = run_trials(store, cells, performer=MADE + "quick")
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
    assert run_trials(store, cells, performer=MADE + "quick", progress=ProgressLines(told.append)) == folders
    assert len(performed(tmp_path)) == 3
    assert sum("done before" in line for line in told) == 3
    run = read_run(folders[0])
    assert (run.status, run.item, run.arm) == (RunStatus.DONE, "made", "baseline/probes-on")
    assert run.item_hash == cells[0].scenario.digest()
    assert recorded_trials(store) == sorted(folders, key=lambda folder: folder.parent.name)


@pytest.mark.slow
def test_arms_and_probes_reach_the_trial_and_its_verdict(tmp_path):
    cells = plan_of(tmp_path, agents=["oracle:gentle"], arms=["baseline", "constrained"], probes=[True, False])
    folders = run_trials(RunStore(tmp_path / "store"), cells, performer=MADE + "quick")
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


@pytest.mark.slow
def test_failing_machinery_is_no_result_and_is_tried_again(tmp_path):
    cells = plan_of(tmp_path, agents=["oracle:gentle"])
    store = RunStore(tmp_path / "store")
    (folder,) = run_trials(store, cells, performer=MADE + "flaky")
    first, second = store.attempts_of(cells[0].cell.hash)
    assert folder == second
    assert read_run(first).status is RunStatus.ABORTED
    assert read_run(first).error == "StartError: The database did not start."
    assert [line["event"] for line in store.attempts()] == ["begun", "ended"] * 2


@pytest.mark.slow
def test_the_watchdog_ends_a_trial_that_hangs_and_one_that_dies_is_named(tmp_path):
    cells = plan_of(tmp_path, agents=["oracle:gentle"], timeout_s=4, retries=0)
    store, told = RunStore(tmp_path / "store"), []
    assert run_trials(store, cells, performer=MADE + "hanging", progress=ProgressLines(told.append)) == []
    (attempt,) = store.attempts_of(cells[0].cell.hash)
    assert read_run(attempt).error == "it hung: no end after 4 s"
    assert trials_and_warm_processes() == []
    cells = plan_of(tmp_path, agents=["oracle:gentle"], timeout_s=60, retries=0)
    assert run_trials(store, cells, performer=MADE + "dying") == []
    assert read_run(store.attempts_of(cells[0].cell.hash)[-1]).error == "its process ended with -9"
    (folder,) = run_trials(store, cells, performer=MADE + "quick")  # and the cell is still open
    assert folder.name == "3"


@pytest.mark.slow
def test_trials_run_side_by_side_and_keep_their_order(tmp_path):
    cells = plan_of(tmp_path, timeout_s=60, retries=0)
    store, told = RunStore(tmp_path / "store"), []
    folders = run_trials(store, cells, 3, performer=MADE + "meeting", progress=ProgressLines(told.append))
    assert [read_run(folder).cell for folder in folders] == [cell.cell.hash for cell in cells]
    assert [line["event"] for line in store.attempts()] == ["begun"] * 3 + ["ended"] * 3


@pytest.mark.slow
def test_trials_that_are_made_again_have_the_machine_alone(tmp_path):
    cells = plan_of(tmp_path, timeout_s=60)
    assert len(run_trials(RunStore(tmp_path / "store"), cells, 3, performer=MADE + "crowded")) == 3
    turns = [line for line in performed(tmp_path) if line in ("begun", "ended")]
    assert turns == ["begun", "ended"] * 3


@pytest.fixture
def _interruptible():
    """Ctrl-C reaches this process also where it was started in the background, which lets it be ignored."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.slow
@pytest.mark.usefixtures("_interruptible")
def test_an_interrupted_matrix_ends_its_trials_and_marks_them(tmp_path):
    cells = plan_of(tmp_path)
    store = RunStore(tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        run_trials(store, cells, 2, performer=MADE + "interrupting")
    runs = [read_run(attempt) for cell in cells for attempt in store.attempts_of(cell.cell.hash)]
    assert [(run.status, run.error) for run in runs] == [
        (RunStatus.ABORTED, "interrupted")
    ] * 2  # the third never began
    assert trials_and_warm_processes() == []


KILLED = """
import sys
from pathlib import Path
from opsassay.evals.runner.store import RunStore
from opsassay.evals.remediation.solve import run_trials
from evals.remediation.test_trials import MADE, plan_of
folder = Path(sys.argv[1])
run_trials(RunStore(folder / "store"), plan_of(folder, agents=["oracle:gentle"]), performer=MADE + "undoing")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a trial runs to its end")
def test_a_killed_matrix_takes_its_trial_with_it_which_undoes_everything(tmp_path):
    matrix = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
    await_true((tmp_path / "performed").exists)
    children = psutil.Process(matrix.pid).children()
    (worker,) = (one for one in children if "opsassay.evals.remediation.trial.perform" in one.cmdline())
    matrix.kill()
    matrix.wait()
    time.sleep(0.2)
    worker.terminate()  # as the kernel tells a child of a parent's end once more when the parent had several threads
    await_true(lambda: not any(one.is_running() for one in children))  # the warm process among them
    assert performed(tmp_path) == ["begun", "undone"]
    cells = plan_of(tmp_path, agents=["oracle:gentle"])
    store = RunStore(tmp_path / "store")
    run_trials(store, cells, performer=MADE + "quick")
    assert [read_run(a).status for a in store.attempts_of(cells[0].cell.hash)] == [RunStatus.ABORTED, RunStatus.DONE]


def trials_and_warm_processes():
    """Return the processes of trials, and those that fork systems, that this process left running."""
    modules = {"opsassay.evals.remediation.trial.perform", "opsassay.testbed.substrates.local.warm"}
    return [one for one in psutil.Process().children(recursive=True) if modules & {*one.cmdline()}]


def await_true(condition, within_s=60):
    ends = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.slow
def test_two_workers_share_a_store_and_perform_every_trial_once(tmp_path):
    cells = plan_of(tmp_path, probes=[True, False])
    stores = [RunStore(tmp_path / "store") for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda store: run_trials(store, cells, performer=MADE + "quick"), stores)
    assert first == second
    assert len(performed(tmp_path)) == len(first) == 6
    assert {folder.name for folder in first} == {"1"}


@pytest.mark.slow
def test_thresholds_are_committed_before_the_run(tmp_path):
    cells = plan_of(tmp_path, agents=["oracle:harmful"])
    store = RunStore(tmp_path / "store")
    (folder,) = run_trials(store, cells, performer=MADE + "quick")
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


@pytest.mark.slow
def test_a_changed_scenario_file_is_another_cell_and_a_tampered_copy_is_found(tmp_path):
    cells = plan_of(tmp_path, agents=["oracle:gentle"])
    write_scenario(tmp_path / "made.yaml", committed_depth="D1")
    changed = cells_of(TrialPlan.model_validate({"scenarios": ["made.yaml"], "agents": ["oracle:gentle"]}), tmp_path)
    assert changed[0].cell.hash != cells[0].cell.hash
    cells = plan_of(tmp_path, agents=["oracle:gentle"])
    store = RunStore(tmp_path / "store")
    run_trials(store, cells, performer=MADE + "quick")
    copy = store.root / "scenarios" / f"{cells[0].scenario.digest()}.json"
    copy.write_text(copy.read_text().replace("0.85", "0.15"))
    with pytest.raises(DatapackError, match="is not what its name says"):
        kept_scenario(store.root, cells[0].scenario.digest())


@pytest.mark.slow
def test_a_torn_record_is_named_and_its_torn_last_line_dropped(tmp_path):
    cells = plan_of(tmp_path, agents=["oracle:gentle"])
    (folder,) = run_trials(RunStore(tmp_path / "store"), cells, performer=MADE + "quick")
    whole = read_recording(folder)
    for name in ("timeline.jsonl", "actions.jsonl", "phases.jsonl"):
        with (folder / name).open("a") as file:
            file.write('{"torn": ')
    assert read_recording(folder) == whole
    (folder / "timeline.jsonl").write_text("nonsense\nmore\n")
    with pytest.raises(DatapackError, match="is no timeline"):
        read_recording(folder)


@pytest.mark.slow
def test_a_run_says_whether_its_command_was_sealed(tmp_path):
    agents = [{"name": name, "command": ["./agent"]} for name in ("apart", "loose")]
    cells = plan_of(tmp_path, agents=agents)
    runs = [read_run(f) for f in run_trials(RunStore(tmp_path / "o"), cells, performer=MADE + "kept_apart")]
    assert {run.solver.name: run.isolation for run in runs} == {"apart": "sealed", "loose": "unsealed"}
