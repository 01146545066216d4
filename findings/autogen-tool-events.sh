#!/usr/bin/env bash
# Package: autogen-core, autogen-agentchat, autogen-ext
# Version: 0.7.5
# Date: 2026-11-29
# Happens: Two calls of one tool in one answer run at the same time. The log of events has a ToolCall for each, in the order in
#   which they ended, with the name and the arguments, and without the id of the call.
# Guessed: That an event names its call by the id that the answer and the ToolCallExecutionEvent of the same run have, or
#   at least that events keep the order of the calls.
# Matters: Who pairs events and calls of a trace by order gives each call the result of the other one. Two calls with equal
#   arguments cannot be told apart at all.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$dir/venv"
timeout 500 "$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check \
  autogen-core==0.7.5 autogen-agentchat==0.7.5 autogen-ext==0.7.5

cat >"$dir/see.py" <<'PY'
import asyncio
import json
import logging
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_core import EVENT_LOGGER_NAME, FunctionCall
from autogen_core.models import CreateResult, ModelFamily, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

events = []


class Kept(logging.Handler):
    def emit(self, record):
        events.append(json.loads(str(record.msg)))


logging.getLogger(EVENT_LOGGER_NAME).setLevel(logging.INFO)
logging.getLogger(EVENT_LOGGER_NAME).addHandler(Kept())


async def wait(tenths: int) -> str:
    """Wait."""
    await asyncio.sleep(tenths / 10)
    return f"waited {tenths}"


calls = [FunctionCall(id=f"call-{n}", name="wait", arguments=json.dumps({"tenths": n})) for n in (8, 1)]
answer = CreateResult(
    finish_reason="function_calls", content=calls, usage=RequestUsage(prompt_tokens=1, completion_tokens=1), cached=False
)
about = {"vision": False, "function_calling": True, "json_output": False, "family": ModelFamily.UNKNOWN,
         "structured_output": False}
model = ReplayChatCompletionClient([answer], model_info=about)
run = asyncio.run(AssistantAgent("waiter", model, tools=[wait]).run(task="wait twice"))

executed = next(one for one in run.messages if one.type == "ToolCallExecutionEvent").content
logged = [event for event in events if event["type"] == "ToolCall"]
print("calls of the answer:   ", [(call.id, call.arguments) for call in calls])
print("results of the run:    ", [(one.call_id, one.content) for one in executed])
print("events of the log:     ", [(one["arguments"], one["result"]) for one in logged])
print("fields of an event:    ", sorted(logged[0]))

as_seen = (
    [one.call_id for one in executed] == ["call-8", "call-1"]
    and [one["result"] for one in logged] == ["waited 1", "waited 8"]
    and not any("call-8" in json.dumps(one) for one in logged)
)
sys.exit(0 if as_seen else "The events of autogen-core have changed.")
PY
timeout 120 "$dir/venv/bin/python" "$dir/see.py"
echo "As described."
