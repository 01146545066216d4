"""Planted failures in three systems that really run: who is to blame is known, and re-runs find it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from benchmarks.papers.blame.__main__ import cli
from click.testing import CliRunner

from opsassay.analysis.blame.attribute import attribute
from opsassay.analysis.blame.rerun import ProxyRerun, command
from opsassay.analysis.blame.settings import BlameSettings
from opsassay.core.errors import UserError
from opsassay.solvers.agents.models.scripted import ScriptedModel
from opsassay.solvers.agents.models.server import running_server
from opsassay.solvers.proxy.policies import StepIntervention

EXAMPLES = Path(__file__).parents[3] / "examples" / "multi_agent"
sys.path.insert(0, str(EXAMPLES))
import analyst  # noqa: E402
import failures  # noqa: E402
from team import total_of  # noqa: E402

MODEL = ScriptedModel(analyst.respond)


@pytest.fixture(scope="module")
def answers():
    """Attribute every planted failure, statically and by re-runs, and return the rows."""
    rows = []
    for failure in failures.failures():
        with running_server(failure.model()) as upstream:
            trace, exchanges = failures.record(failure, upstream)
            again = ProxyRerun(failure.start, exchanges, upstream)
            static, dynamic = (attribute(trace, name, model=MODEL, rerun=again) for name in ("static", "dynamic"))
        rows.append((failure, trace, static, dynamic))
    return rows


@pytest.mark.slow
def test_there_are_sixty_that_fail_and_a_third_could_have_been_caught(answers):
    assert len(answers) >= 60
    assert sum(failure.recoverable for failure, *_ in answers) >= 20
    assert len({failure.system for failure, *_ in answers}) == 3
    for failure, trace, *_ in answers:
        assert str(total_of(failure.order)) not in trace.steps[-1].output_content
        assert trace.steps[failure.step - 1].agent_name == failure.agent


@pytest.mark.slow
def test_re_runs_find_at_least_nine_of_ten_and_far_more_than_reading_alone(answers):
    def hits(at):
        return sum(
            (r[at].attribution.agent_name, r[at].attribution.step_id) == (r[0].agent, r[0].step) for r in answers
        )

    assert hits(3) / len(answers) >= 0.9
    assert hits(2) < hits(3) / 2


@pytest.mark.slow
def test_what_a_verifier_should_have_caught_is_the_verifiers_fault(answers):
    wrong = [
        failure.name
        for failure, _, _, dynamic in answers
        if failure.recoverable and dynamic.attribution.agent_name not in {"Verifier", "Checker", "Reviewer"}
    ]
    assert wrong == []


def test_a_mistake_that_the_verifier_catches_is_no_failure():
    failure = next(f for f in failures.failures() if f.recoverable and f.system == "planner-workers")
    with running_server(failures.Team(failure.planted[:1])) as upstream:
        trace, _ = failures.record(failure, upstream)
    assert str(total_of(failure.order)) in trace.steps[-1].output_content
    assert [s.agent_name for s in trace.steps].count("Worker") == 4  # one was asked again


def test_the_window_bounds_what_is_observed():
    failure = next(f for f in failures.failures() if f.system == "orchestrator")
    with running_server(failure.model()) as upstream:
        trace, exchanges = failures.record(failure, upstream)
        for window in (1, 3):
            steps = (
                ProxyRerun(failure.start, exchanges, upstream)
                .observe(StepIntervention(step=3, add="Take care here.", observe=window))
                .steps
            )
            assert [s.step_id for s in steps if s.error is None] == list(range(1, 3 + window + 1))
            assert "observed" in steps[-1].error
        assert len(trace.steps) > 8


@pytest.mark.slow
def test_a_benchmark_runs_again_what_can_be_and_says_how_many(tmp_path, monkeypatch):
    chosen = [
        f for f in failures.failures() if f.name in {"planner-workers-0-1", "single-agent-1-10", "orchestrator-2-7"}
    ]
    monkeypatch.setattr(failures, "failures", lambda: iter(chosen))
    failures.main(tmp_path)
    arguments = ["bench", str(tmp_path), "--technique", "dynamic", "--model", f"scripted:{EXAMPLES / 'analyst.py'}"]
    arguments += ["-c", "runs=1", "--json"]
    refused = CliRunner().invoke(cli, arguments)
    assert "none of the 3 traces can be: say how with --reruns" in str(refused.exception)
    plan = tmp_path / "reruns.yaml"
    done = CliRunner().invoke(cli, [*arguments, "--reruns", str(plan)])
    rows = {(r["subset"], r["technique"]): r for r in json.loads(done.stdout)["items"]}
    assert (rows["all", "dynamic"]["n"], rows["all", "dynamic"]["step_accuracy"]) == (3, 1.0)
    assert rows["all", "dynamic"]["calls"] > 3
    known = yaml.safe_load(plan.read_text())
    del known["traces"]["single-agent-1-10"]
    plan.write_text(yaml.safe_dump(known))
    done = CliRunner().invoke(cli, [*arguments, "--reruns", str(plan)])
    rows = {(r["subset"], r["technique"]): r for r in json.loads(done.stdout)["items"]}
    assert (rows["all", "dynamic"]["n"], rows["all", "last-step"]["n"]) == (2, 3)
    assert ("single-agent", "dynamic") not in rows  # no row, rather than a zero
    assert "dynamic, 1 of 3 cannot be run again and are left out" in done.stderr


@pytest.mark.slow
def test_a_system_is_re_run_by_its_command_line():
    failure = next(f for f in failures.failures() if f.name == "planner-workers-0-1")
    with running_server(failure.model()) as upstream:
        trace, exchanges = failures.record(failure, upstream)
        start = command([sys.executable, str(EXAMPLES / "planner_workers.py"), "0"])
        dynamic = attribute(
            trace, "dynamic", model=MODEL, rerun=ProxyRerun(start, exchanges, upstream), settings=BlameSettings()
        )
        assert (dynamic.attribution.agent_name, dynamic.attribution.step_id) == ("Verifier", 5)
        with pytest.raises(UserError, match="cannot be started"):
            ProxyRerun(command(["/no/such/program"]), exchanges, upstream).observe(StepIntervention(step=1, add="x"))
