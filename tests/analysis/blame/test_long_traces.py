"""Traces that are longer than the context: each policy, on every technique, with a model that refuses what is too long."""

from __future__ import annotations

import json
import re

import pytest

from opsassay.analysis.blame.attribute import attribute
from opsassay.analysis.blame.long_traces import middle_cut, tokens_of, windows_of
from opsassay.analysis.blame.rendering import metadata_text, steps_text
from opsassay.analysis.blame.rules import RULES
from opsassay.analysis.blame.settings import BlameSettings, cut_middle
from opsassay.core.errors import ConfigError, UserError
from opsassay.core.schema.files import parse_yaml
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.solvers.agents.models.base import ModelError, Reply, ToolRequest
from opsassay.solvers.agents.models.scripted import ScriptedModel

CONTEXT = 8_000  # tokens; the trace below has about 60,000
SIGN = "the total is 99 instead of 12"


def long_trace(n=30, wrong=17, size=6_000):
    filler = " ".join(f"row {i} was read;" for i in range(size // 16))
    steps = [
        TraceStep(
            step_id=i,
            agent_id=str(i % 3),
            agent_name=f"A{i % 3}",
            input_context=f"[user]\nbegin {i} {filler} end {i}",
            output_content=f"I say: {SIGN}" if i == wrong else f"step {i} is done",
        )
        for i in range(1, n + 1)
    ]
    return Trace(task_id="t", task_instruction="sum it up", system_name="s", steps=tuple(steps))


class SmallModel:
    """Answers as a careful reader does, and fails as an endpoint does when more than the context is asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, messages, tools):
        whole = "\n".join(m.content for m in messages)
        if len(whole) / 4 > CONTEXT:
            raise ModelError("maximum context length is 8000 tokens", 400)
        self.asked.append(messages[-1].content)
        return self.turn(messages) if tools else Reply(text=json.dumps(self.said(messages[-1].content)))

    def said(self, text):
        if text.startswith("Sum this up"):
            return {"summary": "rows were read"}
        found = self.sign(text)
        if "in the first half" in text:
            last = int(re.search(r"first half, steps \d+ to (\d+)", text)[1])
            return {"half": "first" if found and found <= last else "second", "reason": "r"}
        if "Is step" in text:
            return {"decisive": found == int(re.search(r"Is step (\d+) the", text)[1]), "reason": "r"}
        steps = re.findall(r"=== Step (\d+)", text)
        return {"step": found or int(steps[0]), "reason": "it stands there" if found else "a guess"}

    def turn(self, messages):
        if len(messages) == 2:
            return Reply(tool_requests=(ToolRequest(id="1", tool="outputs"),))
        said = self.said(messages[-1].content)
        return Reply(tool_requests=(ToolRequest(id="2", tool="submit", arguments={"agent": "", **said}),))

    @staticmethod
    def sign(text):
        parts = (part for part in text.split("=== Step ")[1:] if SIGN in part)
        return next((int(part.split(" ", 1)[0]) for part in parts), None)


def blamed_by(technique, trace=None, **settings):
    model = SmallModel()
    chosen = BlameSettings(context=CONTEXT, **settings) if settings else BlameSettings()
    return attribute(trace or long_trace(), technique, model=ScriptedModel(model), settings=chosen), model


@pytest.mark.parametrize("technique", ["all-at-once", "binary-search", "step-by-step", "static"])
@pytest.mark.parametrize("policy", ["middle-cut", "windows", "summary"])
def test_every_policy_finds_the_step_in_a_trace_that_does_not_fit(technique, policy):
    trace = long_trace()
    assert tokens_of(steps_text(trace.steps)) > 5 * CONTEXT
    blamed, model = blamed_by(technique, long=policy)
    assert blamed.failed is None
    assert (blamed.attribution.step_id, blamed.attribution.agent_name) == (17, "A2")
    assert blamed.cost.calls == len(model.asked)
    assert any("[a summary]" in text for text in model.asked) == (policy == "summary" and technique != "static")
    if technique != "static":  # which looks at outputs alone here
        assert any("characters cut" in text for text in model.asked[:1]) == (policy == "middle-cut")


def test_without_a_policy_nothing_is_asked_and_without_a_context_the_endpoint_says_it():
    refused, model = blamed_by("all-at-once", long="refuse")
    assert (refused.attribution.step_id, refused.cost.calls, model.asked) == (None, 0, [])
    assert "choose what to do with long: middle-cut, windows or summary" in refused.failed
    blind, model = blamed_by("all-at-once")
    assert "maximum context length" in blind.failed
    assert model.asked == []


def test_a_trace_that_fits_is_left_as_it_is():
    short = long_trace(n=4, wrong=2, size=100)
    plain, model = blamed_by("all-at-once", short)
    for policy in ("middle-cut", "windows", "summary", "refuse"):
        again, other = blamed_by("all-at-once", short, long=policy)
        assert (again.attribution, other.asked) == (plain.attribution, model.asked)


def test_windows_cover_every_step_once_in_order_and_fit():
    trace, room = long_trace(), 6_000
    windows = windows_of(trace, room)
    assert [step.step_id for window in windows for step in window.steps] == list(range(1, 31))
    assert len(windows) > 5
    assert all(tokens_of(metadata_text(w)) + tokens_of(steps_text(w.steps)) <= room for w in windows)
    giant = long_trace(n=3, wrong=2, size=60_000)
    assert [len(window.steps) for window in windows_of(giant, room)] == [1, 1, 1]  # each cut by itself


def test_the_last_question_of_windows_is_among_the_steps_that_they_named():
    blamed, model = blamed_by("all-at-once", long="windows")
    firsts = [int(re.search(r"=== Step (\d+)", text)[1]) for text in model.asked[:-1]]
    shown = [int(number) for number in re.findall(r"=== Step (\d+)", model.asked[-1])]
    assert blamed.attribution.reason == "it stands there"
    assert set(shown) - {17} <= set(firsts)
    assert 17 in shown


@pytest.mark.slow
def test_cutting_keeps_the_ends_and_cuts_outputs_only_where_inputs_are_not_enough():
    trace = long_trace()
    cut = middle_cut(trace, 6_000)
    assert tokens_of(metadata_text(cut)) + tokens_of(steps_text(cut.steps)) <= 6_000
    assert tokens_of(steps_text(cut.steps)) > 5_000  # no more than needed
    for step, before in zip(cut.steps, trace.steps, strict=True):
        assert step.output_content == before.output_content
        assert step.input_context.startswith(f"[user]\nbegin {step.step_id} ")
        assert step.input_context.endswith(f"end {step.step_id}")
    loud = tuple(
        step.model_copy(
            update={
                "output_content": "x" * 9_000,
                "tool_logs": (ToolCall(tool="t", arguments={"a": "y" * 9_000}, output="z" * 9_000),),
            }
        )
        for step in trace.steps
    )
    cut = middle_cut(trace.model_copy(update={"steps": loud, "system_architecture": "w" * 90_000}), 6_000)
    assert tokens_of(metadata_text(cut)) + tokens_of(steps_text(cut.steps)) <= 6_000
    blamed, _ = blamed_by("all-at-once", trace.model_copy(update={"steps": loud * 40}), long="middle-cut")
    assert "do not fit" in blamed.failed


def test_the_public_static_mode_cuts_inputs_above_3000_characters_alone():
    trace = long_trace(n=3, wrong=2)
    model = SmallModel()
    settings = BlameSettings(truncate_middle=True)
    attribute(trace, "all-at-once", model=ScriptedModel(model), settings=settings)
    (asked,) = model.asked
    step = trace.steps[0].input_context
    assert step[:1500] in asked
    assert step[-1500:] in asked
    assert step[1400:1600] not in asked
    assert f"[... {len(step) - 3000:,} characters cut ...]" in asked
    assert SIGN in asked
    assert cut_middle("x" * 3000, 3000) == "x" * 3000
    assert RULES["last-step"](trace).step_id == 3


def test_a_policy_needs_the_context_that_it_is_for():
    with pytest.raises(UserError, match="long: windows needs `context`"):
        attribute(long_trace(), "all-at-once", settings=BlameSettings(long="windows"))
    with pytest.raises(ConfigError, match="at least 2000"):
        parse_yaml("context: 100", BlameSettings, "x.yaml")
