"""Measured inevitability: on outcomes drawn with known chances, and on planted failures of systems that really run."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
from benchmarks.inevitability import continued, measured
from click.testing import CliRunner

from opsassay.analysis.blame.attribute import CONTINUATION, attribute
from opsassay.analysis.blame.inevitability import (
    Continuing,
    fewest_to_confirm,
    judge_by_command,
    judge_by_reference,
    measure_inevitability,
)
from opsassay.analysis.blame.rerun import ProxyRerun, ReplayedRun
from opsassay.cli import cli
from opsassay.core.errors import UserError
from opsassay.core.schema.trajectory import Trace, TraceStep
from opsassay.solvers.agents.models.server import running_server

EXAMPLES = Path(__file__).parents[3] / "examples" / "multi_agent"
sys.path.insert(0, str(EXAMPLES))
import failures  # noqa: E402
from team import total_of  # noqa: E402
from team_model import Team  # noqa: E402

CHANCE = 0.4


def test_the_planted_step_is_named_in_nine_of_ten_and_intervals_cover():
    named, held, spent = measured(400)
    assert named >= 0.9
    assert len(held) > 800
    assert 0.93 <= sum(held) / len(held) <= 0.97
    assert max(spent) <= 200


def test_what_fails_often_is_not_inevitable_and_what_always_failed_was_so_before_any_step():
    often = measure_inevitability(8, continued([0.75] * 8 + [1.0], 1), runs=10, budget=500)
    assert often.step == 8
    assert "1, the recorded end" in often.reason
    always = measure_inevitability(8, continued([1.0] * 9, 1), runs=10, budget=500)
    assert always.step == 0
    assert always.attribution(Trace(system_name="x", task_id="x", task_instruction="", steps=())).step_id is None
    assert "whatever its steps are" in always.reason


@pytest.mark.parametrize("budget", [9, 25, 70])
def test_a_budget_that_ends_names_no_step(budget):
    chances = [0.1] * 11 + [1.0] * 10
    found = measure_inevitability(20, continued(chances, 3), runs=10, budget=budget)
    assert found.step is None
    assert found.spent <= budget
    assert f"the budget of {budget} runs ended" in found.reason


def test_the_fewest_that_confirm_pass_the_limit_and_one_less_does_not():
    confirming = fewest_to_confirm()
    with_one_less = measure_inevitability(1, lambda _: True, runs=confirming - 1, budget=10**6)
    assert with_one_less.step == 0
    assert (confirming, with_one_less.prefixes[0].runs) == (35, 35)


@pytest.mark.parametrize(
    ("said", "succeeded"),
    [("it costs 360.", True), ("it costs 360", True), ("it costs 3600", False), ("it costs 1360", False),
     ("it costs 360.5", False), ("it costs 0.360", False), ("(360)", True), ("", False)],
)  # fmt: skip
def test_the_reference_answer_is_a_word_of_the_last_output(said, succeeded):
    steps = (
        TraceStep(step_id=1, agent_name="a", agent_id="a", input_context="", output_content="360"),
        TraceStep(step_id=2, agent_name="a", agent_id="a", input_context="", output_content=said),
    )
    assert judge_by_reference("360")(Trace(system_name="x", task_id="x", task_instruction="", steps=steps)) is succeeded


@pytest.mark.parametrize(("program", "said"), [("exit(0)", True), ("exit(1)", False)])
def test_a_command_judges_by_its_status(program, said):
    read = f"import json, sys; assert json.load(sys.stdin)['steps'] == []; {program}"
    assert (
        judge_by_command([sys.executable, "-c", read])(
            Trace(system_name="x", task_id="x", task_instruction="", steps=())
        )
        is said
    )


@pytest.mark.parametrize(
    ("command", "why"),
    [([sys.executable, "-c", "import sys; sys.exit('no file')"], None), ([sys.executable, "-c", "exit(3)"], "status 3"),
     (["/no/such"], "does not run")],
)  # fmt: skip
def test_a_judge_that_does_not_judge_ends_the_technique(command, why):
    judge = judge_by_command(command)
    if why is None:
        assert judge(Trace(system_name="x", task_id="x", task_instruction="", steps=())) is False
        return
    with pytest.raises(UserError, match=why):
        judge(Trace(system_name="x", task_id="x", task_instruction="", steps=()))


class Lost:
    """A system that does not repeat its first steps."""

    def observe(self, intervention):
        raise AssertionError(intervention)

    def after(self, steps):
        return ReplayedRun(
            (
                TraceStep(
                    step_id=1,
                    agent_name="a",
                    agent_id="a",
                    input_context="",
                    output_content="",
                    error="request 1 is not in the record",
                ),
            )
            if steps
            else ()
        )


def test_a_system_that_does_not_repeat_its_steps_is_no_failed_run():
    steps = tuple(
        TraceStep(step_id=n, agent_name="a", agent_id="a", input_context="", output_content="") for n in (1, 2, 3)
    )
    trace = Trace(system_name="x", task_id="x", task_instruction="", steps=steps, reference_answer="12")
    blamed = attribute(trace, CONTINUATION, rerun=Lost())
    assert "do not repeat the steps before it" in blamed.failed
    assert blamed.attribution.step_id is None
    with pytest.raises(UserError, match="--judge answer:TEXT or --judge COMMAND"):
        attribute(trace.model_copy(update={"reference_answer": None}), CONTINUATION, rerun=Lost())


def continued_with_chance(failure):
    """Record the failure, then continue it with a model that makes each of its mistakes by chance."""
    with running_server(failure.model()) as upstream:
        trace, exchanges = failures.record(failure, upstream)
    with running_server(Team(failure.planted, failure.decoy, CHANCE, seed=failure.step)) as upstream:
        again = ProxyRerun(failure.start, exchanges, upstream)
        return attribute(trace, CONTINUATION, rerun=again, continuing=Continuing(runs=10, budget=200))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nine_of_ten_planted_failures_are_named_by_continuing_them():
    named = [
        blamed.cost.calls >= sum(one.runs for one in blamed.prefixes)
        and (blamed.attribution.agent_name, blamed.attribution.step_id) == (failure.agent, failure.step)
        for failure in list(failures.failures())[::7]
        for blamed in [continued_with_chance(failure)]
    ]
    assert sum(named) / len(named) >= 0.9


@pytest.mark.slow
def test_the_command_prints_the_runs_after_each_step(tmp_path, monkeypatch):
    failure = next(one for one in failures.failures() if one.name == "planner-workers-0-3")
    with running_server(failure.model()) as upstream:
        failures.record(failure, upstream, tmp_path / "session")
    again = failure.again()
    for key, value in (again["environment"] | {"CHANCE": "0.3"}).items():
        monkeypatch.setenv(key, value)
    arguments = ["trace", "blame", str(tmp_path / "session"), "--technique", "continuation", "-n", "3"]
    arguments += ["--rerun", again["command"], "--upstream", again["upstream"], "--json"]
    refused = CliRunner().invoke(cli, arguments)
    assert "--judge answer:TEXT or --judge COMMAND" in str(refused.exception)
    done = CliRunner().invoke(cli, [*arguments, "--judge", f"answer:{total_of(failure.order)}"])
    (item,) = json.loads(done.stdout)["items"]
    assert (item["agent"], item["step"]) == ("Writer", failure.step), item
    assert len(item["prefixes"]) > 2
    assert {one["runs"] for one in item["prefixes"]} <= {3, fewest_to_confirm()}
    assert all(one["low"] <= one["rate"] <= one["high"] for one in item["prefixes"])
    judge = shlex.join([sys.executable, "-c", "exit(3)"])
    wrong = CliRunner().invoke(cli, [*arguments, "--judge", judge])
    assert "neither 0 nor 1" in str(wrong.exception)


@pytest.mark.parametrize("technique", ["continuation", "dynamic"])
def test_only_a_recorded_session_is_run_again(technique):
    file = Path(__file__).parents[2] / "solvers" / "proxy" / "logs" / "mend.traj.json"
    arguments = [
        "trace",
        "blame",
        str(file),
        "--technique",
        technique,
        "--rerun",
        "true",
        "--upstream",
        "http://127.0.0.1:9",
    ]
    refused = CliRunner().invoke(cli, arguments)
    assert "that `opsassay trace proxy` recorded" in str(refused.exception)
