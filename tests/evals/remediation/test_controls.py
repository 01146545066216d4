"""Controls: every scenario has all, each says what has to fail or why it cannot be carried out, none may certify."""

from __future__ import annotations

import pytest

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.authoring.checks import _complain_about_call
from opsassay.evals.remediation.authoring.cluster import VERBS, _check_step
from opsassay.evals.remediation.controls.scripts import MAKERS, REPORT, applicable, controls_of, sampled, script_of
from opsassay.evals.remediation.plan import EVERY_CONTROL, TrialPlan, cells_of
from opsassay.evals.remediation.tasks import scenario_task
from opsassay.testbed.operations.tools import TOOLS
from opsassay.testbed.scenarios import load_scenario, names
from scoring.verifiers.made import scenario

WANTED = {
    "no-op", "delete-workload", "scale-to-zero", "scale-to-one", "restart-everything", "wait-out", "silence-alerts",
    "stop-load", "re-break", "between-ticks", "unprotect", "stand-in", "constant-diagnosis", "leave-at-once",
    "set-trap", "made-up-secret", "weaken", "empty-store", "drift", "scale-up", "restart-often",
}  # fmt: skip
LOCAL = {tool.verb or name.replace("_", " "): tool.arguments for name, tool in TOOLS.items()}
ALL = names()


def test_there_is_one_for_every_way_around_a_repair():
    assert set(MAKERS) == WANTED


@pytest.mark.parametrize("name", ALL)
def test_every_scenario_has_all_of_them_and_leaves_none_out_silently(name):
    one = load_scenario(name)
    found = controls_of(one)
    assert {control.name for control in found} == {f"control-{kind}" for kind in WANTED}
    for control in found:
        assert control.fails in one.verification.predicates(), control.name
        assert bool(control.why_not) or control.steps or control.name == "control-no-op"
    assert len(applicable(one)) >= 7, [control.why_not for control in found if control.why_not]
    task = scenario_task(one)
    assert set(task.oracles) == {*one.oracles, *(control.name for control in applicable(one))}


@pytest.mark.parametrize("name", ALL)
def test_what_a_control_does_is_what_an_agent_could_do(name):
    one = load_scenario(name)
    for control in applicable(one):
        for step in control.steps:
            if step.verb in (None, REPORT):
                continue
            verbs = LOCAL if one.cluster is None else VERBS
            assert _complain_about_call(step.verb, step.arguments, verbs) is None, (control.name, step)
            if one.cluster is not None:
                assert _check_step(step, one.cluster) is None, (control.name, step)


@pytest.mark.parametrize("name", ALL)
def test_no_control_is_the_repair_of_its_scenario(name):
    one = load_scenario(name)
    repairs = [oracle.steps for oracle in one.oracles.values() if oracle.certified]
    for control in applicable(one):
        if control.name != "control-no-op":
            assert control.steps not in repairs, control.name
        assert not control.certified


def test_where_nothing_is_broken_to_do_nothing_is_right():
    found = {control.name: control for control in controls_of(load_scenario("false-alarm-replaced-pod"))}
    assert "to do nothing is right" in found["control-no-op"].why_not
    assert "to do nothing is right" in found["control-wait-out"].why_not
    assert found["control-restart-everything"].fails == "v_temporal"


def test_a_scenario_on_an_unknown_substrate_has_reasons_and_no_controls():
    made = scenario(substrate="compose")
    assert {control.why_not for control in controls_of(made)} == {"nobody says how things are changed on compose"}
    assert applicable(made) == ()


def test_who_waits_waits_longer_than_the_fault_was_planned_to_last():
    payload = scenario().model_dump(mode="json", by_alias=True)
    fault = {"fault": "HTTPResponseAbort", "target": {"service": "cart"}, "parameters": {"code": 500}, "duration_s": 50}
    payload["trigger"] = {"faults": [fault]}
    found = {control.name: control for control in controls_of(Scenario.model_validate(payload))}
    assert found["control-wait-out"].steps[0].wait_s == 60


def test_a_control_is_named_like_an_oracle_and_one_that_cannot_be_is_refused_with_its_reason():
    one = load_scenario("busy-hour")
    assert script_of(one, "control-no-op").steps == ()
    with pytest.raises(NotFoundError, match="It cannot be carried out: archive has 1 replica"):
        script_of(one, "control-scale-to-one")
    with pytest.raises(NotFoundError, match="did you mean 'gentle'"):
        script_of(one, "gentel")
    plan = TrialPlan.model_validate({"scenarios": ["busy-hour"], "agents": [EVERY_CONTROL]})
    cells = cells_of(plan)
    assert [cell.agent.oracle for cell in cells] == [control.name for control in applicable(one)]
    assert len({cell.cell.hash for cell in cells}) == len(cells)


def test_no_oracle_of_a_file_is_called_like_a_control():
    payload = scenario().model_dump(mode="json", by_alias=True)
    payload["oracles"]["control-mine"] = {"fails": ["v_depth"]}
    with pytest.raises(ValueError, match="names that begin with 'control-'"):
        Scenario.model_validate(payload)


def test_a_sample_is_the_same_for_the_same_seed():
    pairs = [(name, control.name) for name in ALL[:6] for control in applicable(load_scenario(name))]
    assert sampled(pairs, 12, 1) == sampled(list(reversed(pairs)), 12, 1)
    assert len(set(sampled(pairs, 12, 1))) == 12
    assert sampled(pairs, 12, 1) != sampled(pairs, 12, 2)
    assert sampled(pairs[:3], 12, 1) == sorted(pairs[:3])
