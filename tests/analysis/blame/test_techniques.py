"""The five techniques with scripted models: what they show, how often they ask, what counts as no answer."""

from __future__ import annotations

import json
import math

import pytest
from benchmarks.papers.blame.bench import Bench, bench

from opsassay.analysis.blame.attribute import attribute
from opsassay.analysis.blame.definition import DEFINITION
from opsassay.analysis.blame.settings import BlameSettings
from opsassay.analysis.blame.techniques.dynamic_agentic import Experiment, StepCandidate, decide
from opsassay.core.errors import NotFoundError, OperationError, UserError
from opsassay.core.schema.trajectory import Attribution, LabelledTrace, Trace, TraceStep
from opsassay.solvers.agents.models.base import Reply, ToolRequest
from opsassay.solvers.agents.models.scripted import ScriptedModel


def trace_of(n):
    steps = [
        TraceStep(
            step_id=i, agent_id=str(i % 3), agent_name=f"A{i % 3}", input_context=f"in{i}.", output_content=f"out{i}."
        )
        for i in range(1, n + 1)
    ]
    about = {"task_instruction": "the task", "system_name": "the system", "reference_answer": "the answer"}
    return Trace(task_id="t", steps=tuple(steps), agent_configuration={"A0": "the prompt"}, outcome="failed", **about)


class Recording:
    """A scripted model that keeps what it was asked."""

    def __init__(self, respond):
        self.asked = []
        self._respond = respond

    def __call__(self, messages, tools):
        self.asked.append("\n".join(m.content for m in messages))
        return self._respond(messages, tools)


def say(**value):
    return Reply(text=f"I think: {json.dumps(value)} is it.")


def run(technique, n, respond, **settings):
    recording = Recording(respond)
    blamed = attribute(trace_of(n), technique, model=ScriptedModel(recording), settings=BlameSettings(**settings))
    assert blamed.cost.calls == len(recording.asked)
    return blamed, recording.asked


def test_all_at_once_asks_once_and_shows_everything():
    blamed, asked = run("all-at-once", 9, lambda *_: say(agent="A1", step=4, reason="because"))
    assert (blamed.attribution.agent_name, blamed.attribution.step_id, blamed.attribution.reason) == (
        "A1",
        4,
        "because",
    )
    assert (blamed.cost.calls, blamed.cost.input_tokens > 100, blamed.cost.output_tokens > 0) == (1, True, True)
    for shown in (DEFINITION, "the task", "the answer", "the prompt", *(f"in{i}." for i in range(1, 10)), "out9."):
        assert shown in asked[0]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 33, 100])
@pytest.mark.parametrize("place", ["first", "last"])
def test_binary_search_finds_the_step_in_log2_calls(n, place):
    wanted = 1 if place == "first" else n

    def respond(messages, tools):
        middle = int(messages[-1].content.rpartition("first half, steps ")[2].split(" to ")[1].split(",")[0])
        return say(half="first" if wanted <= middle else "second")

    blamed, _ = run("binary-search", n, respond)
    assert blamed.attribution.step_id == wanted
    assert blamed.attribution.agent_name == f"A{wanted % 3}"
    assert blamed.cost.calls <= math.ceil(math.log2(n)) + 1
    assert blamed.cost.calls in {math.floor(math.log2(n)), math.ceil(math.log2(n))}


def test_binary_search_shows_the_range_and_nothing_else():
    _, asked = run("binary-search", 8, lambda *_: say(half="second"))
    assert "out1." in asked[0]
    assert "out4." not in asked[1]
    assert "out5." in asked[1]


def test_step_by_step_stops_at_its_answer_and_never_shows_what_comes_after():
    blamed, asked = run("step-by-step", 9, lambda m, _: say(decisive="Is step 4 the" in m[-1].content))
    assert (blamed.attribution.step_id, blamed.attribution.agent_name, len(asked)) == (4, "A1", 4)
    assert "out5." not in asked[-1]
    blamed, asked = run("step-by-step", 5, lambda *_: say(decisive=False))
    assert (blamed.attribution.step_id, len(asked)) == (None, 5)


def walker(submit):
    """Return a script that looks at the outputs, inspects step 2, and submits."""

    def respond(messages, tools):
        turn = sum(m.role == "assistant" for m in messages)
        plan = [("outputs", {}), ("inspect", {"step": 2}), ("inspect", {"step": 99}), ("dance", {}), submit]
        return Reply(tool_requests=(ToolRequest(id=str(turn), tool=plan[turn][0], arguments=plan[turn][1]),))

    return respond


def test_the_static_agent_looks_around_by_its_tools_and_submits():
    blamed, asked = run("static", 5, walker(("submit", {"agent": "A2", "step": 2, "reason": "r"})))
    assert (blamed.attribution.agent_name, blamed.attribution.step_id, blamed.cost.calls) == ("A2", 2, 5)
    assert "out5." in asked[1]
    assert "in2." not in asked[1]  # outputs only
    assert "in2." in asked[2]
    assert "There is no step 99" in asked[3]
    assert "There is no tool 'dance'" in asked[4]


def test_an_agent_that_talks_is_reminded_and_one_that_never_submits_gives_no_answer():
    blamed, asked = run("static", 5, lambda *_: Reply(text="hm"), max_turns=4)
    assert (blamed.attribution.step_id, blamed.cost.calls) == (None, 4)
    assert "submit ends the work" in asked[1]


@pytest.mark.parametrize(
    "text",
    ["", "no idea", "{", '{"agent": "A1"}', '{"agent": "A1", "step": 0}', '{"step": 10}', "[1]", '{"step": true}'],
)
def test_an_answer_that_cannot_be_read_is_no_answer(text):
    blamed, _ = run("all-at-once", 9, lambda *_: Reply(text=text))
    assert (blamed.attribution.agent_name, blamed.attribution.step_id) == (None, None)
    assert blamed.attribution.reason


def test_a_model_that_fails_gives_no_answer_with_its_reason_and_an_unknown_technique_is_refused():
    def fail(messages, tools):
        raise OperationError("HTTP 500")

    blamed = attribute(trace_of(3), "all-at-once", model=ScriptedModel(fail))
    assert (blamed.attribution.step_id, blamed.attribution.reason) == (None, "the model gave no answer: HTTP 500")
    with pytest.raises(NotFoundError, match="did you mean 'binary-search'"):
        attribute(trace_of(3), "binary-serch")
    with pytest.raises(UserError, match="name one with --model"):
        attribute(trace_of(3), "static")
    with pytest.raises(UserError, match="--rerun"):
        attribute(trace_of(3), "dynamic", model=ScriptedModel(lambda *_: Reply()))


@pytest.mark.parametrize(
    ("hidden", "words"),
    [
        ("reference", ["the answer"]),
        ("metadata", ["the task", "the system", "the prompt", "Outcome"]),
        ("inputs", ["in1.", "in9."]),
    ],
)
@pytest.mark.parametrize("technique", ["all-at-once", "binary-search", "step-by-step", "static"])
def test_what_is_hidden_is_shown_to_no_technique(technique, hidden, words):
    def respond(messages, tools):
        if tools:
            turn = sum(m.role == "assistant" for m in messages)
            calls = [("outputs", {}), *(("inspect", {"step": i}) for i in range(1, 10)), ("submit", {"step": 1})]
            return Reply(tool_requests=(ToolRequest(id="x", tool=calls[turn][0], arguments=calls[turn][1]),))
        return say(half="first", decisive=False, step=1)

    _, shown = run(technique, 9, respond)
    _, asked = run(technique, 9, respond, **{hidden: False})
    assert all(any(word in text for text in shown) for word in words)
    assert not any(word in text for text in asked for word in words)


def confirmed(step, *duty):
    return Experiment(candidate=StepCandidate(step=step, reason="r", duty=duty), confirmed=True, reason="why")


def rejected(step, *duty):
    return confirmed(step, *duty).model_copy(update={"confirmed": False})


def test_the_earliest_confirmed_candidate_is_decisive_unless_a_later_one_had_to_catch_it():
    trace = trace_of(9)
    assert decide(trace, [confirmed(7), confirmed(3)]).step_id == 3
    assert decide(trace, [confirmed(7, 3), confirmed(3)]).step_id == 7
    assert decide(trace, [rejected(7, 3), confirmed(3)]).step_id == 3
    assert decide(trace, [confirmed(9, 7), confirmed(7, 3), confirmed(3)]).step_id == 9
    nothing = decide(trace, [rejected(5), rejected(3)])
    assert (nothing.step_id, "no candidate was confirmed" in nothing.reason) == (5, True)


def test_bench_has_the_rules_always_and_means_over_runs_with_their_cost():
    cases = [
        LabelledTrace(id=str(i), subset="ab"[i % 2], trace=trace_of(9), label=Attribution(agent_name="A1", step_id=4))
        for i in range(4)
    ]
    answers = iter([4, 4, 5, 5] * 3)
    model = ScriptedModel(lambda *_: say(agent="A1", step=next(answers)))
    rows = {(row.subset, row.technique): row for row in bench(cases, ["all-at-once"], Bench(model=model)).rows}
    assert {technique for _, technique in rows} >= {"before-tool-error", "last-step", "chance", "all-at-once"}
    row = rows["all", "all-at-once"]
    assert (row.runs, row.summary.n, row.summary.step.value, row.summary.agent.value, row.calls) == (
        3,
        4,
        pytest.approx(0.5),
        1.0,
        1,
    )
    assert row.summary.step_within.value == 1.0
    assert row.tokens > 0
    assert rows["a", "last-step"].by_third["middle"].n == 2
