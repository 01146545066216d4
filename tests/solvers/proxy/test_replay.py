"""Replay and intervention, through the proxy, with the official SDKs as clients and a scripted model as upstream."""

from __future__ import annotations

import json
import shutil
from functools import cache

import openai
import pytest

from opsassay.core.errors import OperationError
from opsassay.solvers.agents.models.base import Message, Reply, ToolRequest
from opsassay.solvers.agents.models.replayed import ReplayedModel
from opsassay.solvers.agents.models.server import running_server
from opsassay.solvers.proxy.exchanges import read_session
from opsassay.solvers.proxy.policies import Intervene, Replay, StepIntervention
from opsassay.solvers.proxy.running import running_proxy
from opsassay.solvers.proxy.server import ProxySettings
from opsassay.solvers.proxy.tokens import issue_token
from opsassay.solvers.proxy.trace import trace_of
from solvers.proxy.upstreams import receive, send

TOOL = ToolRequest(id="call_1", tool="search", arguments={"q": "weather in Pécs"})


def respond(messages, tools):
    last = messages[-1].content
    if "two plus two" in last:
        return Reply(text="Solver: 5" if "careful" not in last else "Solver: 4")
    if "tool" in last:
        return Reply(text="Let me look.", tool_requests=(TOOL,))
    return Reply(text=f"Echo: {last}")


@pytest.fixture(scope="module")
def model():
    with running_server(respond) as base:
        yield base


@cache
def first_clients():
    """Return SDK clients once: each loads the certificates of the machine."""
    import anthropic

    return openai.OpenAI(api_key="x"), anthropic.Anthropic(api_key="x")


def clients(url, token, retries=0):
    """Return both SDKs against *url*."""
    own, other = first_clients()
    options = {"api_key": token, "max_retries": retries}
    return own.with_options(base_url=f"{url}/v1", **options), other.with_options(base_url=url, **options)


def said(client, text, **more):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model="m", messages=messages, **more).choices[0].message.content


ASKED = {"model": "m", "messages": [{"role": "user", "content": "use a tool"}]}
INPUT = {"model": "m", "input": "use a tool", "instructions": "be brief"}


def streamed_message(client):
    with client.messages.stream(max_tokens=9, **ASKED) as stream:
        return stream.get_final_message()


CALLS = {
    "chat": lambda ours, _: ours.chat.completions.create(**ASKED).model_dump(),
    "chat streamed": lambda ours, _: [c.model_dump() for c in ours.chat.completions.create(stream=True, **ASKED)],
    "responses": lambda ours, _: ours.responses.create(**INPUT).model_dump(),
    "responses streamed": lambda ours, _: [e.model_dump() for e in ours.responses.create(stream=True, **INPUT)],
    "messages": lambda _, theirs: theirs.messages.create(max_tokens=9, **ASKED).model_dump(),
    "messages streamed": lambda _, theirs: streamed_message(theirs).model_dump(),
}


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_the_official_sdks_see_through_the_proxy_what_they_see_without_it(model, tmp_path, call):
    token = issue_token(tmp_path, "run")
    with running_proxy(ProxySettings(model, tmp_path)) as url:
        through, direct = CALLS[call](*clients(url, token)), CALLS[call](*clients(model, token))
    assert without_own_state(through) == without_own_state(direct)
    (exchange,) = read_session(tmp_path / "sessions" / "run")
    answer = exchange.answer()
    assert (answer.text, [(u.tool, u.arguments) for u in answer.tool_uses]) == (
        "Let me look.",
        [(TOOL.tool, TOOL.arguments)],
    )
    assert answer.usage["output_tokens"] > 0
    assert exchange.is_stream == ("streamed" in call)


def without_own_state(value):
    """Return plain data of an SDK's answer without what it says about its own connection."""
    if isinstance(value, dict):
        return {k: without_own_state(v) for k, v in value.items() if not k.startswith("_")}
    return [without_own_state(v) for v in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def session(model, tmp_path_factory):
    """A recorded session: the same question twice, then two others."""
    folder = tmp_path_factory.mktemp("recorded")
    token = issue_token(folder, "run")
    with running_proxy(ProxySettings(model, folder)) as url:
        client, _ = clients(url, token)
        for text in ("one", "one", "what is two plus two", "three"):
            said(client, text)
    return folder / "sessions" / "run"


def replaying(tmp_path, policy, upstream="http://127.0.0.1:9"):
    return running_proxy(ProxySettings(upstream, tmp_path, policy=policy)), issue_token(tmp_path, "again")


def test_a_replay_by_hash_answers_in_any_order_and_invents_nothing(session, tmp_path):
    recorded = read_session(session)
    running, token = replaying(tmp_path, lambda: Replay(recorded))
    with running as url:
        client, _ = clients(url, token)
        assert [said(client, text) for text in ("three", "one", "one")] == ["Echo: three", "Echo: one", "Echo: one"]
        with pytest.raises(openai.UnprocessableEntityError, match="more often than it was recorded"):
            said(client, "one")
        with pytest.raises(openai.UnprocessableEntityError, match="nothing is invented"):
            said(client, "four")
    assert [e.outcome for e in read_session(tmp_path / "sessions" / "again")] == ["complete"] * 3 + ["refused"] * 2


def test_a_replayed_answer_is_the_recorded_one_to_the_byte_whatever_the_spacing_of_the_request(session, tmp_path):
    recorded = read_session(session)
    body = b'{"model": "m",\n "messages": [{"content": "one", "role": "user"}]}'
    running, token = replaying(tmp_path, lambda: Replay(recorded))
    with running as url:
        answer = receive(send(url, token, body), b"}}")
    assert answer.split(b"\r\n\r\n", 1)[1] == recorded[0].answer_body
    assert f"Date: {dict(recorded[0].headers)['Date']}".encode() in answer


def test_a_request_with_a_key_in_its_query_is_found_again(model, tmp_path):
    token = issue_token(tmp_path, "run")
    body = b'{"model": "m", "messages": [{"content": "one", "role": "user"}]}'
    path = f"/v1/chat/completions?api_key={token}"
    with running_proxy(ProxySettings(model, tmp_path)) as url:
        receive(send(url, token, body, path), b"}}")
    recorded = read_session(tmp_path / "sessions" / "run")
    running, other = replaying(tmp_path / "again", lambda: Replay(recorded))
    with running as url:
        answer = receive(send(url, other, body, path.replace(token, other)), b"}}")
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_replay_by_position_answers_whatever_is_asked(session, tmp_path):
    running, token = replaying(tmp_path, lambda: Replay(read_session(session), by="position"))
    with running as url:
        client, _ = clients(url, token)
        assert [said(client, "anything") for _ in range(4)] == ["Echo: one", "Echo: one", "Solver: 5", "Echo: three"]
        with pytest.raises(openai.UnprocessableEntityError, match="4 answers"):
            said(client, "anything")


def test_an_intervention_edits_one_step_and_goes_on_live(session, model, tmp_path):
    edit = StepIntervention(step=3, add="be careful: what is two plus two", observe=1)
    running, token = replaying(tmp_path, lambda: Intervene(read_session(session), edit), model)
    with running as url:
        client, _ = clients(url, token)
        answers = [said(client, text) for text in ("one", "one", "what is two plus two", "something new")]
        assert answers == ["Echo: one", "Echo: one", "Solver: 4", "Echo: something new"]
        with pytest.raises(openai.APIStatusError, match="observed"):
            said(client, "three")
    third = read_session(tmp_path / "sessions" / "again")[2]
    assert b"careful" not in third.request_body  # what the agent said
    assert b"careful" in third.sent_body  # what the model was asked
    assert "careful" in trace_of([third], "x").steps[0].input_context


def test_an_intervention_goes_on_replayed_and_refuses_an_agent_that_took_another_way(session, model, tmp_path):
    edit = StepIntervention(step=3, replace={"two plus two": "careful two plus two"}, then="replay")
    running, token = replaying(tmp_path, lambda: Intervene(read_session(session), edit), model)
    with running as url:
        client, _ = clients(url, token)
        assert [said(client, t) for t in ("one", "one", "what is two plus two", "three")][2:] == [
            "Solver: 4",
            "Echo: three",
        ]
    shutil.rmtree(tmp_path / "sessions")
    running, token = replaying(tmp_path, lambda: Intervene(read_session(session), edit), model)
    with running as url, pytest.raises(openai.UnprocessableEntityError, match="not in the record"):
        said(clients(url, token)[0], "another beginning")


def test_an_intervention_that_would_change_nothing_says_so(session, model, tmp_path):
    with pytest.raises(ValueError, match="change nothing"):
        StepIntervention(step=1)
    edit = StepIntervention(step=1, replace={"not there": "x"})
    running, token = replaying(tmp_path, lambda: Intervene(read_session(session), edit), model)
    with running as url, pytest.raises(openai.UnprocessableEntityError, match="none of its texts"):
        said(clients(url, token)[0], "one")


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/chat/completions"])
def test_all_three_apis_can_be_edited(path):
    body = {
        "model": "m",
        "system": "be two",
        "instructions": "be two",
        "input": "two",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "two"}]}],
    }
    edit = StepIntervention(step=1, replace={"two": "three"}, add="and more", role="system")
    decision = Intervene([], edit).decide("POST", path, json.dumps(body).encode())
    edited = json.loads(decision.body)
    key = "input" if path.endswith("responses") else "messages"
    assert "three" in json.dumps(edited[key])
    assert "two" not in json.dumps(edited[key])
    assert edited[key][-1]["content"] == "and more"
    assert edited[key][-1]["role"] == ("user" if path.endswith("/messages") else "system")


def test_a_replayed_model_needs_no_proxy(session):
    model = ReplayedModel.from_session(session)
    assert model.complete([Message(role="user", content="three")]).text == "Echo: three"
    with pytest.raises(OperationError, match="not in the recorded session"):
        model.complete([Message(role="user", content="three")])


def test_an_sdk_that_retries_is_recorded_try_by_try(tmp_path):
    tries = iter([429, 500, None])
    with running_server(lambda *_: Reply(text="at last", error_status=next(tries))) as base:
        token = issue_token(tmp_path, "run")
        with running_proxy(ProxySettings(base, tmp_path)) as url:
            client, _ = clients(url, token, retries=3)
            assert said(client, "x") == "at last"
    steps = trace_of(read_session(tmp_path / "sessions" / "run"), "run").steps
    assert [s.error for s in steps] == ["HTTP 429: played by the script", "HTTP 500: played by the script", None]
