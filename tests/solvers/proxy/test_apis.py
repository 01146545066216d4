"""The APIs read whatever an agent or an upstream sends: no JSON value makes them fail."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opsassay.solvers.proxy import sse
from opsassay.solvers.proxy.apis import APIS
from opsassay.solvers.proxy.exchanges import Exchange
from opsassay.solvers.proxy.trace import trace_of

WORDS = [
    "model",
    "messages",
    "role",
    "content",
    "name",
    "system",
    "instructions",
    "input",
    "output",
    "text",
    "type",
    "tool_calls",
    "tool_call_id",
    "function",
    "arguments",
    "id",
    "index",
    "choices",
    "delta",
    "message",
    "usage",
    "prompt_tokens",
    "input_tokens",
    "error",
    "user",
    "metadata",
    "tools",
    "item",
    "response",
    "output_index",
    "content_block",
    "partial_json",
    "event",
    "call_id",
    "stream",
    "refusal",
    "contents",
    "parts",
    "candidates",
    "functionCall",
    "functionResponse",
    "args",
    "thought",
    "usageMetadata",
    "promptTokenCount",
    "candidatesTokenCount",
    "systemInstruction",
]
TYPES = [
    "text",
    "tool_use",
    "tool_result",
    "function_call",
    "function_call_output",
    "message",
    "message_start",
    "message_delta",
    "error",
    "user",
    "assistant",
    "content_block_start",
    "content_block_delta",
    "input_json_delta",
    "response.completed",
    "response.output_item.added",
    "response.output_text.delta",
    "tool",
    "system",
]
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.sampled_from(TYPES), st.text(max_size=4)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=25,
)
OBJECTS = st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=6)


@pytest.mark.sampled
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@settings(max_examples=40, deadline=None)
@example(asked={"messages": [{"role": []}]}, events=[])
@given(asked=OBJECTS, events=st.lists(OBJECTS, max_size=5))
def test_any_json_can_be_read_assembled_edited_and_made_a_step(api, asked, events):
    assembled = api.assemble(events)
    for answer in (assembled, *events):
        said = api.read_answer(answer)
        assert isinstance(said.text, str)
        assert all(isinstance(count, int) for count in said.usage.values())
    json.dumps(assembled)
    api.add_message(api.edit_text(asked, str.upper), "system", "more")
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    assert sse.events(stream) == events
    suffix = api.suffix if isinstance(api.suffix, str) else api.suffix[0]
    exchange = Exchange(
        id="1", method="POST", path=f"/v1{suffix}", request_headers=(), request_body=json.dumps(asked).encode(),
        sent_body=None, status=200, reason="", headers=(("Content-Type", "text/event-stream"),), chunks=((1, stream),),
        started_ns=1, ended_ns=2, outcome="complete", error=None,
    )  # fmt: skip
    (step,) = trace_of([exchange], "run").steps
    assert step.agent_name
