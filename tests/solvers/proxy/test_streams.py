"""Streams of the four APIs, whole and cut at every byte: no lost call, no wrong join, counts by the table."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from opsassay.core.schema.trajectory import TraceStep
from opsassay.solvers.proxy.trace import trace_of
from solvers.proxy.streams import COUNTED, FINISHED, PATHS, Said, answers, exchange, stream


def step_of(api: str, body: bytes) -> TraceStep:
    """Return the step that the answer *body* becomes."""
    return trace_of([exchange(api, body)], "run").steps[0]


@pytest.mark.parametrize("api", PATHS)
@settings(max_examples=20, deadline=None)
@given(said=answers)
def test_a_whole_stream_is_what_was_said(api: str, said: Said) -> None:
    step, kind = step_of(api, stream(api, said)), api.split(maxsplit=1)[0]
    assert step.output_content == said.text
    assert [(call.tool, call.arguments) for call in step.tool_logs] == [(tool, given) for _, tool, given in said.calls]
    assert (step.usage, step.finish_reason, step.error) == (COUNTED[kind], FINISHED[kind], None)


CALLS = (("call_0", "ls", {"p": 'é"}{'}), ("call_1", "ls", {"p": "x"}), ("call_2", "cat", {}))


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("numbering", ["numbered", "all 0", "none", "named again", "ids again"])
def test_a_stream_cut_at_any_byte_loses_no_call_and_joins_none(api: str, numbering: str) -> None:
    said = Said("Let me é see", CALLS, 5, numbering)
    body, before = stream(api, said), 0
    for end in range(len(body)):
        step = step_of(api, body[:end])
        assert said.text.startswith(step.output_content)
        for call, (_, tool, arguments) in zip(step.tool_logs, said.calls, strict=False):
            raw = call.arguments.get("raw")
            assert call.tool == tool
            assert call.arguments in ({}, arguments) if raw is None else json.dumps(arguments).startswith(raw)
        assert before <= len(step.tool_logs) <= len(said.calls)
        assert step.finish_reason is not None or step.error is not None
        before = len(step.tool_logs)
    assert before == len(CALLS)


ODD: tuple[Any, ...] = ([], {}, [[]], None, 3, -1, 2.5, True, "x", {"a": []})


def with_odd_fields(events: list[Any]) -> Iterator[list[Any]]:
    """Yield *events* with one value of one of them, at any depth, replaced by one of another type."""

    def replaced(value: Any) -> Iterator[Any]:
        yield from ODD
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            for other in replaced(inner):
                changed = copy.copy(value)
                changed[key] = other
                yield changed

    for place, event in enumerate(events):
        for other in replaced(event):
            yield [*events[:place], other, *events[place + 1 :]]


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("ends", [True, False], ids=["whole", "without its end"])
def test_a_field_of_another_type_than_its_own_breaks_no_reading(api: str, ends: bool) -> None:
    """The proxy assembles while it relays: what it cannot read must not end the call."""
    body = stream(api, Said("hm", CALLS[:2], 2, "numbered")).decode()
    lines = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: {")]
    events = [json.loads(line) for line in lines] if lines else json.loads(body)
    for changed in with_odd_fields(events if ends else events[:-1]):
        parts = [json.dumps(event) for event in changed]
        odd = "".join(f"data: {part}\n\n" for part in parts) if lines else f"[{','.join(parts)}]"
        assert isinstance(step_of(api, odd.encode()), TraceStep)
