"""What leaves the machine is free of what should not leave it, and the report says what was taken out."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from assay.model.trajectory import ToolCall, Trace, TraceStep
from assay.proxy.redaction import RedactionRules, hashed, redact_trace

SECRETS = {
    "email": ["ada.l@example.org", "x+y@mail.example.co.uk"],
    "path": ["/home/ada/notes.txt", "~/work/x", "C:\\Users\\ada\\x.txt", "/Users/ada/Library"],
    "key": ["sk-proj-abcdefghij0123456789", "ghp_0123456789abcdefghij", "AKIA0123456789ABCDEF"],
    "address": ["10.1.2.3"],
    "phone": ["+36 30 123 4567"],
}  # fmt: skip
HARMLESS = [
    "version 1.2.3",
    "GET /v1/models",
    "https://example.org/path/x",
    "a@b",
    "3/4 of them",
    "and/or",
    "10:30",
    "token count 12",
]


def trace_with(text):
    call = ToolCall(tool="sh", arguments={"cmd": ["cat", text]}, output=text)
    step = TraceStep(
        step_id=1, agent_id="0", agent_name="A", input_context=text, output_content=f"({text})", tool_logs=(call,)
    )
    return Trace(
        task_id="t", task_instruction=text, system_name="s", agent_configuration={"A": {"p": text}}, steps=(step,)
    )


@pytest.mark.parametrize(("kind", "secret"), [(kind, text) for kind, texts in SECRETS.items() for text in texts])
def test_a_secret_is_nowhere_in_the_trace_or_the_report(kind, secret):
    clean, report = redact_trace(trace_with(secret), RedactionRules())
    assert secret not in clean.pretty_json() + json.dumps([row.model_dump() for row in report])
    assert json.dumps(secret)[1:-1] not in clean.pretty_json()
    (row,) = report
    assert (row.kind, row.count, row.distinct, row.steps) == (kind, 6, 1, (1,))


@pytest.mark.parametrize("text", HARMLESS)
def test_what_tells_nothing_stays(text):
    assert redact_trace(trace_with(text), RedactionRules()) == (trace_with(text), [])


def test_own_words_and_patterns_come_first_and_marks_can_be_numbered():
    rules = RedactionRules(
        kinds=("email",), words=("Ada", "Ada Lovelace"), patterns={"ticket": r"T-\d+"}, keep_distinct=True
    )
    clean, report = redact_trace(trace_with("Ada Lovelace T-1 T-2 T-1 a@x.org"), rules)
    assert clean.steps[0].input_context == "[word:1] [ticket:1] [ticket:2] [ticket:1] [email:1]"
    assert [(row.kind, row.distinct) for row in report] == [("ticket", 2), ("email", 1), ("word", 1)]


def test_a_hashed_variant_tells_who_acted_and_nothing_that_was_said():
    clean = hashed(trace_with("the secret plan"))
    assert "secret plan" not in clean.pretty_json()
    assert clean.steps[0].agent_name == "A"
    assert clean.steps[0].input_context == clean.steps[0].tool_logs[0].output  # equal texts stay equal
    assert (
        clean.steps[0].input_context != hashed(trace_with("the secret plan")).steps[0].input_context
    )  # no dictionary helps


def test_rules_that_cannot_work_are_refused():
    with pytest.raises(ValidationError, match="no pattern 'emails'"):
        RedactionRules(kinds=("emails",))
    with pytest.raises(ValidationError, match="no regular expression"):
        RedactionRules(patterns={"x": "("})
