"""Figures over repeats, and what a trace says about a search."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from opsassay.core.errors import UserError
from opsassay.core.schema.diagnosis import RankedService
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.scoring.outcome import ranking_metrics
from opsassay.scoring.profiles import PROFILES
from opsassay.scoring.repeats import complexity, mean_pass_at_k, mean_time, pass_at_k
from opsassay.scoring.trajectory import tool_failures, trajectory_metrics, visited_services
from opsassay.scoring.verdict import grade
from opsassay.solvers.agents.tools import TelemetryToolbox
from opsassay.telemetry.sql import LockedSql
from telemetry.packs import make_pack

from .cases import answer, finished_run, no_fault, truth


@pytest.mark.parametrize(("runs", "successes", "k"), [(5, 2, 1), (5, 2, 3), (4, 0, 2), (4, 4, 2), (6, 5, 3)])
def test_pass_at_k_is_the_share_of_draws_with_a_success(runs: int, successes: int, k: int) -> None:
    draws = list(itertools.combinations([True] * successes + [False] * (runs - successes), k))
    assert pass_at_k(runs, successes, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_needs_k_runs() -> None:
    with pytest.raises(UserError, match="at least 3 runs"):
        pass_at_k(2, 1, 3)
    assert mean_pass_at_k({"a": [True, False], "b": [False, False]}, 1) == 0.25


def test_a_mean_time_is_over_successes_and_says_of_how_many() -> None:
    found = mean_time([10.0, None, 20.0])
    assert (found.seconds, found.successes, found.attempts) == (15.0, 2, 3)
    assert mean_time([None]).seconds is None


def test_complexity_is_a_geometric_mean() -> None:
    assert complexity(3, 2, 2) == pytest.approx(12 ** (1 / 3))
    with pytest.raises(UserError):
        complexity(0, 1, 1)


def call(tool: str, output: str = "ok", status: str = "ok", **arguments: object) -> ToolCall:
    return ToolCall.model_validate({"tool": tool, "arguments": arguments, "output": output, "status": status})


def trace(*calls: ToolCall) -> Trace:
    step = TraceStep(step_id=1, agent_id="a", agent_name="a", input_context="", output_content="", tool_logs=calls)
    return Trace(task_id="t", task_instruction="", system_name="s", steps=(step,))


QUERY = "SELECT avg(duration) AS store FROM abnormal_traces WHERE service_name = 'cart' AND message LIKE '%pay%'"
CALLS = (
    call("sql", sql=QUERY),
    call("sql", sql=QUERY),
    call("logs", service="ts-payment"),
    call("sql", "Parser Error: syntax error at end of input", "error", sql="SELEC"),
    call("plan", "unknown tool plan", "error"),
    call("sql", "the statement ran for more than 30 s", "error", sql="SELECT 1"),
)


def test_visited_is_what_a_call_names_or_a_filter_restricts_to() -> None:
    services = ["cart", "store", "ts-payment", "frontend"]
    # store is only the name of a column in the query
    assert visited_services(CALLS, services, PROFILES["default"]) == {"cart", "payment"}


def test_tool_failures_by_type() -> None:
    assert tool_failures(CALLS) == {"repeated": 1, "syntax": 1, "invalid": 1, "other": 1}


def test_what_the_tools_of_agents_really_say_is_told_apart(tmp_path: Path) -> None:
    with LockedSql(make_pack(tmp_path / "p")) as sql:
        tools = TelemetryToolbox(sql)
        syntax = [tools.call("query_sql", {"sql": text}) for text in ("SELEC 1", "SELECT nothing FROM abnormal_traces")]
        invalid = [tools.call("query_sql", {}), tools.call("no_such_tool", {}), tools.call("think", {"thought": 7})]
        other = [tools.call("query_sql", {"sql": "COPY abnormal_traces TO 'x'"})]
    assert tool_failures(syntax) == {"syntax": 2}, [call.output for call in syntax]
    assert tool_failures(invalid) == {"invalid": 3}, [call.output for call in invalid]
    assert tool_failures(other) == {"other": 1}, other[0].output


def test_trajectory_metrics() -> None:
    found = trajectory_metrics(trace(*CALLS), ["cart", "store", "payment"], ["cart", "store"], PROFILES["default"])
    assert {name: metric.value for name, metric in found.items()} == {
        "tool_calls": 6.0, "tool_errors": 3.0, "tool_invalid": 1.0, "tool_syntax": 1.0, "tool_repeats": 1.0,
        "detoured_services": 1.0, "covered_services": 0.5,
    }  # fmt: skip
    assert {m.status.value for m in trajectory_metrics(None, [], [], PROFILES["default"]).values()} == {
        "not_applicable"
    }


def test_time_to_diagnosis_is_a_right_answers() -> None:
    run = finished_run(started_ns=0, ended_ns=12_500_000_000)
    right, wrong = (
        grade(run, answer((service, "cpu_stress")), truth(("CPUStress", "cart")), None, None)  # type: ignore[arg-type]
        for service in ("cart", "store")
    )
    assert right.metrics["time_to_diagnosis_s"].value == 12.5
    assert wrong.metrics["time_to_diagnosis_s"].status.value == "not_applicable"


def test_the_ranking_is_graded_whether_claimed_or_not() -> None:
    rows = tuple(RankedService(service=s, score=x) for s, x in (("store", 3.0), ("ts-cart", 2.0), ("web", 1.0)))

    def of(case: object) -> list[float | None]:
        return [m.value for m in ranking_metrics(rows, case, PROFILES["default"]).values()]  # type: ignore[arg-type]

    assert of(truth(("CPUStress", "cart"))) == [0.0, 1.0]
    assert of(truth(("CPUStress", "store"), ("CPUStress", "cart"))) == [1.0, 1.0]
    assert of(no_fault()) == [None, None]
