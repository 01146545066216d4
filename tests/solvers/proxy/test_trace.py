"""From requests and answers to steps: whose result is whose, also when ids come again and two agents speak at once."""

from __future__ import annotations

import json

from opsassay.solvers.proxy.exchanges import Exchange
from opsassay.solvers.proxy.trace import trace_of


def exchange(number, messages, *uses, text=""):
    """Return one recorded chat completion."""
    calls = [{"id": i, "function": {"name": name, "arguments": json.dumps(given)}} for i, name, given in uses]
    answer = {"choices": [{"message": {"role": "assistant", "content": text, "tool_calls": calls}}]}
    return Exchange(
        id=str(number), method="POST", path="/v1/chat/completions", request_headers=(),
        request_body=json.dumps({"messages": messages}).encode(), sent_body=None, status=200, reason="OK",
        headers=(("Content-Type", "application/json"),), chunks=((1, json.dumps(answer).encode()),), started_ns=number,
        ended_ns=number, outcome="complete", error=None,
    )  # fmt: skip


def user(text):
    return {"role": "user", "content": text}


def called(*uses):
    return {"role": "assistant", "tool_calls": [{"id": i, "function": {"name": n}} for i, n, _ in uses]}


def result(id_, text):
    return {"role": "tool", "tool_call_id": id_, "content": text}


def outputs(*exchanges):
    return [[(call.output, call.status) for call in step.tool_logs] for step in trace_of(exchanges, "run").steps]


def test_an_id_that_comes_again_means_the_next_result():
    use = ("call_1", "look", {})
    first = [user("go")]
    second = [*first, called(use), result("call_1", "one")]
    third = [*second, called(use), result("call_1", "two")]
    found = outputs(exchange(1, first, use), exchange(2, second, use), exchange(3, third))
    assert found == [[("one", "ok")], [("two", "ok")], []]


def test_one_answer_may_use_an_id_twice_and_a_result_may_never_come():
    twice = (("x", "look", {"n": 1}), ("x", "look", {"n": 2}))
    second = [user("go"), called(*twice), result("x", "one"), result("x", "two")]
    found = outputs(exchange(1, [user("go")], *twice), exchange(2, second, ("y", "look", {})))
    assert found == [[("one", "ok"), ("two", "ok")], [("", "unanswered")]]


def test_two_agents_at_once_with_equal_ids_keep_their_own_results():
    use = ("call_1", "look", {})
    ada, ben = [user("I am Ada")], [user("I am Ben")]
    found = outputs(
        exchange(1, ada, use),
        exchange(2, ben, use),
        exchange(3, [*ben, called(use), result("call_1", "of Ben")]),
        exchange(4, [*ada, called(use), result("call_1", "of Ada")]),
    )
    assert found[:2] == [[("of Ada", "ok")], [("of Ben", "ok")]]


def test_a_conversation_that_forgets_its_beginning_still_has_its_result():
    use = ("call_1", "look", {})
    long = [user("go"), called(use), result("call_1", "one")]
    short = [user("summary of what was"), called(use), result("call_1", "Error: two")]
    found = outputs(exchange(1, [user("go")], use), exchange(2, long, use), exchange(3, short))
    assert found[1] == [("Error: two", "error")]


def test_a_call_in_text_is_answered_by_the_message_after_it_whoever_speaks_between():
    said = "Action: search_web\nInput: x"
    found = outputs(
        exchange(1, [user("I am Ada")], text=said),
        exchange(2, [user("I am Ben")]),
        exchange(3, [user("I am Ada"), {"role": "assistant", "content": said}, user("nothing found")]),
    )
    assert found == [[("nothing found", "ok")], [], []]


def system(text):
    return {"role": "system", "content": text}


def agents(*prompts):
    calls = [exchange(n, [system(prompt), user("go")] if prompt else [user("go")]) for n, prompt in enumerate(prompts)]
    trace = trace_of(calls, "run")
    assert [*trace.agent_configuration] == list(dict.fromkeys(step.agent_name for step in trace.steps))
    return [step.agent_name for step in trace.steps]


def test_agents_that_nobody_names_are_told_apart_by_their_system_prompts():
    plan, write = "Break the task into steps.", "Write code for one step."
    assert agents(plan, write, plan) == ["agent 1", "agent 2", "agent 1"]
    assert agents(plan, "You are the Critic. Object.", write) == ["agent 1", "Critic", "agent 2"]
    assert agents(plan, plan, plan) == agents("", "", "") == ["agent"] * 3


def test_a_time_or_an_id_in_a_prompt_makes_no_other_agent():
    assert agents("It is 10:31. Request 9f3a41bc.", "It is 10:32. Request 77e0d9aa1.") == ["agent"] * 2
