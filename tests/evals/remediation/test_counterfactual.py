"""Replays of a trial with one change left out: what they say of a repair, of an idle change and of a harmful one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from evals.remediation.test_trials import MADE, TESTS, plan_of
from opsassay.cli import run
from opsassay.core.errors import UserError
from opsassay.evals.remediation.authoring import counterfactual
from opsassay.evals.remediation.authoring.counterfactual import NoiseFloor, RecordedTrial, Replays, effect_of, replay
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.runner.store import RunStore
from opsassay.scoring.verifiers import TrajectoryVerdict
from opsassay.scoring.verifiers.repairs import RightChanges

PERFORMER = MADE + "three_changes"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose agent made three changes: an idle one, the repair, a harmful one."""
    root = tmp_path_factory.mktemp("three")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(TESTS))
        (made,) = run_trials(RunStore(root / "store"), plan_of(root, agents=["oracle:gentle"]), performer=PERFORMER)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("by", ["action", pytest.param("tool", marks=pytest.mark.slow)])
def test_each_change_is_named_for_what_it_did(folder, tmp_path, monkeypatch, by):
    monkeypatch.setenv("PYTHONPATH", os.fspath(TESTS))
    found = replay(RecordedTrial.read(folder), tmp_path, grouping=by, performer=PERFORMER)
    said = [(one.verdict, "v_depth" in one.repairs, "v_temporal" in one.harms) for one in found.effects]
    both = [("repairs and harms", True, True)]
    apart = [("repairs", True, False), ("harms", False, True)]
    assert said == [("nothing", False, False), *(apart if by == "action" else both)]
    assert found.noise == NoiseFloor(frozenset(), found.noise.spreads, frozenset())
    assert len(found.reference.verdicts) == 2
    assert "of 2 replays with nothing left out no predicate differs." in found.note


def test_changes_are_made_as_long_after_the_last_as_they_were(folder):
    trial = RecordedTrial.read(folder)
    steps = trial.without(frozenset({1})).scenario.oracles["replayed"].steps
    assert [(step.verb, step.wait_s) for step in steps] == [
        (None, 1.0), ("scale", 0.0), (None, 3.9), ("restart", 0.0), (None, 4.9)
    ]  # fmt: skip
    assert trial.scenario.digest() != trial.without(frozenset()).scenario.digest()


def test_a_replay_has_no_change_count_as_right(folder):
    """What a certified script sets is right; the recorded changes are what is judged."""
    trial = RecordedTrial.read(folder)
    replayed = trial.without(frozenset()).scenario
    assert RightChanges.from_scenario(replayed) == RightChanges.from_scenario(trial.scenario)


def verdict(*failed, **numbers):
    names = ("v_outcome", "v_depth", "v_temporal")
    return TrajectoryVerdict.model_validate({
        "run": "", "item": "", "system": "", "solver": "", "profile": "default", "scenario_digest": "",
        "metrics": {name: {"value": value, "status": "scored"} for name, value in numbers.items()},
        "judgements": [
            {"predicate": name, "status": "failed" if name in failed else "passed", "reason": ""} for name in names
        ],
    })  # fmt: skip


def test_what_differs_by_chance_is_no_effect():
    whole = Replays("nothing", (verdict("v_temporal", lost_requests=10), verdict(lost_requests=30)))
    noise = counterfactual.noise_of(whole, verdict("v_temporal"))
    assert (noise.unsteady, noise.spreads, noise.unlike_record) == ({"v_temporal"}, {"lost_requests": 20}, frozenset())
    assert effect_of(Replays("a", (verdict(lost_requests=69),)), whole, noise).verdict == "nothing"
    assert effect_of(Replays("a", (verdict(lost_requests=71),)), whole, noise).numbers == {"lost_requests": -51}
    assert effect_of(Replays("a", (verdict("v_depth", lost_requests=5),)), whole, noise).verdict == "repairs"


def test_replays_that_are_not_like_the_record_say_so():
    whole = Replays("nothing", (verdict(), verdict()))
    assert counterfactual.noise_of(whole, verdict("v_depth")).unlike_record == {"v_depth"}


def test_an_action_whose_replays_came_to_nothing_has_no_verdict():
    whole = Replays("nothing", (verdict(), verdict()))
    effect = effect_of(Replays("a", (), ("starved: ...",)), whole, counterfactual.noise_of(whole, verdict()))
    assert (effect.verdict, effect.reason) == ("no result", "starved: ...")


def test_the_record_alone_is_explained(folder, capsys):
    assert run(["run", "explain", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [(i["change"], i["after_s"], i["what"]) for i in said["items"]] == [
        (1, 1.0, "scale service=web replicas=1"), (2, 3.0, "restart target=cart"), (3, 5.0, "restart target=web")
    ]  # fmt: skip
    assert {i["predicate"]: i["after_change"] for i in said["judgements"]}["v_temporal"] == 3


def test_arguments_that_were_too_long_to_be_kept_are_not_replayed(folder, tmp_path):
    store = shutil.copytree(folder.parents[2], tmp_path / "store")
    copied = store / folder.relative_to(folder.parents[2])
    lines = (copied / "actions.jsonl").read_text().replace('"target":"cart"', '"target":["c"]')
    (copied / "actions.jsonl").write_text(lines)
    with pytest.raises(UserError, match="recorded arguments of restart are not whole"):
        replay(RecordedTrial.read(copied), tmp_path / "replays")
    assert not (tmp_path / "replays").exists()


def test_a_replay_has_the_arm_of_the_trial_but_a_plan_is_carried_out_at_once(folder, tmp_path):
    store = shutil.copytree(folder.parents[2], tmp_path / "store")
    copied = store / folder.relative_to(folder.parents[2])
    about = json.loads((copied / "run.json").read_text())
    about["arm"] = "baseline/probes-on/rollback-on/noise-on/recommend-on"
    (copied / "run.json").write_text(json.dumps(about))
    actions = (copied / "actions.jsonl").read_text().splitlines()
    undone = json.loads(actions[-1]) | {"tool": "undo_last", "arguments": {}}
    (copied / "actions.jsonl").write_text("\n".join([*actions[:-1], json.dumps(undone)]) + "\n")
    trial = RecordedTrial.read(copied)
    assert trial.without(frozenset()).cell.arm.label == "baseline/probes-on/rollback-on/noise-on"
    tools = counterfactual.replayed_tools(trial)
    for action in trial.changes:
        counterfactual._require_replayable(action, tools.get(action.tool))
    assert "undo_last" not in counterfactual.replayed_tools(RecordedTrial.read(folder))


def test_a_folder_that_is_no_run_is_one_sentence(tmp_path, capsys):
    assert run(["run", "explain", str(Path(tmp_path))]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_run_outside_of_its_store_is_one_sentence(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "alone")
    assert run(["run", "explain", str(tmp_path / "alone")]) == 2
    assert "is in no store" in capsys.readouterr().err
