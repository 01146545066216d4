"""The built-in agent against models of every temper; tools and SQL are real, the model is a script."""

from __future__ import annotations

import itertools
import json

import pytest

from opsassay.solvers.agents.asking import LimitError
from opsassay.solvers.agents.contract import AnswerError
from opsassay.solvers.agents.limits import Price
from opsassay.solvers.agents.models import ModelError, Reply, ToolRequest
from opsassay.solvers.agents.rca import RcaAgent
from opsassay.solvers.proxy.formats.finding import read_one
from solvers.agents.exams import GOOD, calls, exam, is_synthesis, says, steps
from telemetry.packs import make_pack


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return make_pack(tmp_path_factory.mktemp("pack") / "p", error_in="cart")


def moves(*replies, answer=GOOD):
    """Return a model that plays *replies* one after the other in the investigation, then stops, then answers."""
    waiting = iter(replies)

    def respond(messages, _tools):
        return says(answer) if is_synthesis(messages) else next(waiting, says("I am done."))

    return respond


def test_it_investigates_and_then_answers_and_all_of_it_is_written_down(pack, tmp_path):
    look = "SELECT service_name, count(*) FROM abnormal_traces GROUP BY ALL ORDER BY ALL"
    model = moves(
        calls("list_tables"),
        calls("get_schema", table="abnormal_traces"),
        calls("query_sql", sql=look),
        calls("think", thought="hm"),
    )
    with exam(pack, tmp_path, model) as given:
        found = RcaAgent().solve(given)
    assert found.diagnosis.root_causes[0].service == "cart"
    written = steps(tmp_path)
    assert [step.agent_name for step in written] == ["investigator"] * 5 + ["synthesiser"]
    assert [call.tool for step in written for call in step.tool_logs] == [
        "list_tables",
        "get_schema",
        "query_sql",
        "think",
    ]
    assert "abnormal_traces: 240 rows" in written[0].tool_logs[0].output
    assert '["cart", 60]' in written[2].tool_logs[0].output
    assert all(step.usage["input_tokens"] > 0 and step.started_at <= step.ended_at for step in written)
    actions = [json.loads(line) for line in (tmp_path / "actions.jsonl").read_text().splitlines()]
    assert [action["tool"] for action in actions] == ["list_tables", "get_schema", "query_sql", "think"]
    assert len(read_one(tmp_path / "trace.jsonl").steps) == 6
    assert given.meter.spent()["tool_calls"] == 4


def test_the_prompts_tell_no_topology_and_no_answer_form_before_the_synthesis(pack, tmp_path):
    seen = []

    def respond(messages, tools):
        seen.append((messages, [tool.name for tool in tools]))
        return says(GOOD if is_synthesis(messages) else "done")

    with exam(pack, tmp_path, respond) as given:
        RcaAgent().solve(given)
    (first, tools), (second, none) = seen
    assert tools == ["list_tables", "get_schema", "query_sql", "think"]
    assert none == []
    told = "\n".join(message.content for message in first)
    assert "half of the requests fail" in told
    assert "http_response_status_modified" not in told
    assert not any(name in told for name in ("cart", "store"))  # only the alert's own service is named
    assert "http_response_status_modified" in second[0].content


def test_thoughts_are_no_evidence_of_the_synthesis(pack, tmp_path):
    seen = []

    def respond(messages, _tools):
        seen.append(messages)
        if is_synthesis(messages):
            return says(GOOD)
        return calls("think", thought="SECRET THOUGHT") if len(messages) < 3 else says("done")

    with exam(pack, tmp_path, respond) as given:
        RcaAgent().solve(given)
    assert "SECRET THOUGHT" not in seen[-1][-1].content
    assert "SECRET THOUGHT" in steps(tmp_path)[0].tool_logs[0].arguments["thought"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("call", "observation"),
    [
        (calls("query_sql"), "Error: invalid arguments of query_sql: sql: this key is required."),
        (calls("query_sql", raw='{"sql": "SELECT'), "Error: invalid arguments of query_sql"),
        (calls("query_sql", sql=["SELECT 1"]), "Error: invalid arguments of query_sql: sql"),
        (calls("query_sql", sql="SELECT 1", file="x"), "Error: invalid arguments of query_sql: file"),
        (calls("query_sql", sql="SELEC 1"), "Error:"),
        (calls("query_sql", sql="SELECT * FROM read_text('/etc/passwd')"), "Error: refused"),
        (calls("query_sql", sql="DROP TABLE abnormal_traces"), "Error: refused"),
        (calls("get_schema", table="truth"), "Error: There is no table 'truth'"),
        (calls("shell", command="cat truth.json"), "Error: unknown tool 'shell'"),
        (calls("", sql="x"), "Error: unknown tool ''"),
    ],
)
def test_a_broken_tool_call_is_an_observation_and_the_loop_goes_on(pack, tmp_path, call, observation):
    with exam(pack, tmp_path, moves(call)) as given:
        assert RcaAgent().solve(given).diagnosis.root_causes
    first, second, _ = steps(tmp_path)
    assert first.tool_logs[0].status == "error"
    assert first.tool_logs[0].output.startswith(observation)
    assert observation in second.input_context


def test_several_tools_at_once_are_each_answered(pack, tmp_path):
    both = Reply(
        tool_requests=(
            ToolRequest(id="a", tool="list_tables"),
            ToolRequest(id="b", tool="query_sql", arguments={"sql": "SELECT 7"}),
        )
    )
    with exam(pack, tmp_path, moves(both)) as given:
        RcaAgent().solve(given)
    assert [call.status for call in steps(tmp_path)[0].tool_logs] == ["ok", "ok"]


def test_a_large_result_is_cut_and_says_so(pack, tmp_path):
    model = moves(calls("query_sql", sql="SELECT range, repeat('x', 1000) FROM range(5000)"))
    with exam(pack, tmp_path, model) as given:
        RcaAgent().solve(given)
    output = steps(tmp_path)[0].tool_logs[0].output
    assert len(output) < 25_000
    assert "more than 200; aggregate" in output


# Repair ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "bad", ["It was the cart.", "", '{"root_causes": [', json.dumps(GOOD).replace("http_aborted", "gremlins")]
)
def test_an_invalid_answer_is_asked_for_again_with_the_reason(pack, tmp_path, bad):
    answers = iter([bad, json.dumps(GOOD)])

    def respond(messages, _tools):
        return says(next(answers) if is_synthesis(messages) else "done")

    with exam(pack, tmp_path, respond) as given:
        assert RcaAgent().solve(given).diagnosis.root_causes[0].service == "cart"
    assert "That is not an answer by the contract" in steps(tmp_path)[-1].input_context
    assert given.meter.spent()["repairs"] == 1


def test_repairs_are_bounded_and_the_last_reason_is_told(pack, tmp_path):
    with (
        exam(pack, tmp_path, moves(answer="never"), limits={"repairs": 2}) as given,
        pytest.raises(AnswerError, match="no JSON"),
    ):
        RcaAgent().solve(given)
    assert sum(step.agent_name == "synthesiser" for step in steps(tmp_path)) == 3
    assert given.meter.hit == ["repairs"]


def test_an_unknown_service_is_asked_about_and_then_taken_with_a_note(pack, tmp_path):
    wrong = json.loads(json.dumps(GOOD).replace('"cart"', '"cardt"', 1))
    with exam(pack, tmp_path, moves(answer=wrong), limits={"repairs": 1}) as given:
        found = RcaAgent().solve(given)
    assert found.diagnosis.notes == ("there is no service 'cardt' in the data; did you mean 'cart'?",)
    assert "did you mean 'cart'?" in steps(tmp_path)[-1].input_context


def test_a_synthesiser_that_calls_tools_instead_has_answered_nothing(pack, tmp_path):
    def respond(messages, _tools):
        return calls("list_tables") if is_synthesis(messages) else says("done")

    with exam(pack, tmp_path, respond) as given, pytest.raises(AnswerError, match="empty"):
        RcaAgent().solve(given)


# Limits ---------------------------------------------------------------------------------------------------------------


def test_the_hard_cap_ends_the_investigation_and_is_recorded(pack, tmp_path):
    def respond(messages, _tools):
        return says(GOOD) if is_synthesis(messages) else calls("think", thought="more")

    with exam(pack, tmp_path, respond, limits={"tool_calls": 5}) as given:
        assert RcaAgent().solve(given).diagnosis.root_causes
    assert given.meter.hit == ["tool_calls"]
    assert given.meter.spent()["tool_calls"] == 5
    refused = [call for step in steps(tmp_path) for call in step.tool_logs if call.status == "error"]
    assert [call.output for call in refused] == ["Error: the hard cap of 5 tool calls is reached."]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "price", "hit"),
    [
        ({"tokens": 10_000}, Price(), "tokens"),
        ({"money_usd": 0.01}, Price(input=1.0), "money_usd"),
        ({"model_calls": 4}, Price(), "model_calls"),
    ],
)
def test_a_spent_budget_leads_to_the_answer_with_what_is_left(pack, tmp_path, limits, price, hit):
    def respond(messages, _tools):
        return says(GOOD) if is_synthesis(messages) else calls("list_tables")

    with exam(pack, tmp_path, respond, limits=limits, price=price) as given:
        assert RcaAgent().solve(given).diagnosis.root_causes
    assert given.meter.hit == [hit]


def test_time_that_is_nearly_over_leads_to_the_answer(pack, tmp_path):
    clock = itertools.count(0, 20).__next__

    def respond(messages, _tools):
        return says(GOOD) if is_synthesis(messages) else calls("think", thought="slow")

    with exam(pack, tmp_path, respond, limits={"seconds": 1000}, clock=lambda: float(clock())) as given:
        assert RcaAgent().solve(given).diagnosis.root_causes
    assert "seconds" in given.meter.hit


def test_a_budget_that_is_spent_before_the_answer_is_a_reason(pack, tmp_path):
    with (
        exam(pack, tmp_path, moves(answer="never"), limits={"tokens": 1}) as given,
        pytest.raises(AnswerError, match="the limit of tokens was reached before there was an answer"),
    ):
        RcaAgent().solve(given)
    assert given.meter.hit == ["tokens"]


# Failures of the model ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_waited_out_with_growing_pauses(pack, tmp_path, status):
    waiting, pauses = [status] * 3, []

    def respond(messages, _tools):
        if waiting:
            return Reply(error_status=waiting.pop())
        return says(GOOD if is_synthesis(messages) else "done")

    with exam(pack, tmp_path, respond, sleep=pauses.append, limits={"pause_s": 1.0}) as given:
        assert RcaAgent().solve(given).diagnosis.root_causes
    assert pauses == [1.0, 2.0, 4.0]
    assert [f"HTTP {status}" in (step.error or "") for step in steps(tmp_path)] == [True] * 3 + [False] * 2
    assert given.meter.spent()["retries"] == 3


def test_after_all_tries_the_failure_is_the_endpoints(pack, tmp_path):
    with (
        exam(pack, tmp_path, lambda *_: Reply(error_status=500), limits={"retries": 2}) as given,
        pytest.raises(ModelError) as failed,
    ):
        RcaAgent().solve(given)
    assert failed.value.passing
    assert len(steps(tmp_path)) == 3


def test_a_request_that_is_refused_is_not_repeated(pack, tmp_path):
    with exam(pack, tmp_path, lambda *_: Reply(error_status=401)) as given, pytest.raises(ModelError) as failed:
        RcaAgent().solve(given)
    assert not failed.value.passing
    assert len(steps(tmp_path)) == 1


def test_a_conversation_that_is_refused_later_still_gets_its_answer(pack, tmp_path):
    def respond(messages, _tools):
        if is_synthesis(messages):
            return says(GOOD)
        return calls("list_tables") if len(messages) < 6 else Reply(error_status=400)

    with exam(pack, tmp_path, respond) as given:
        assert RcaAgent().solve(given).diagnosis.root_causes
    assert given.meter.hit == ["context"]


def test_a_limit_error_is_told_as_such(pack, tmp_path):
    with exam(pack, tmp_path, lambda *_: says("x"), limits={"model_calls": 1}) as given:
        given.asker.ask("a", [])
        with pytest.raises(LimitError, match="model_calls"):
            given.asker.ask("a", [])
