"""The examples for `verifiers` and OpenEnv, by the loaders of these packages, in an interpreter that has them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples" / "gym"
PYTHON = os.environ.get("OPSASSAY_GYM_PYTHON", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON, reason="set OPSASSAY_GYM_PYTHON to a Python with verifiers, openenv-core and this package installed"
    ),
]

VERIFIERS = """
import asyncio, json
import verifiers as vf
from verifiers.types import Response, ResponseMessage, ToolCall

env = vf.load_environment("opsassay_verifiers", domain="finops", seeds=1, part={"tasks": ["category-cost"]})
asked = []

async def get_model_response(state, prompt, **_):
    asked.append([tool.name for tool in state["tool_defs"]])
    name, arguments = [("list_tables", {}), ("finish", {})][len(asked) - 1]
    message = ResponseMessage(role="assistant", content="", finish_reason="tool_calls", is_truncated=False,
                              tool_calls=[ToolCall(id="1", name=name, arguments=json.dumps(arguments))])
    return Response(id="1", created=0, model="scripted", usage=None, message=message)

env.get_model_response = get_model_response
row = env.get_dataset()[0]
client = vf.ClientConfig(api_base_url="http://127.0.0.1:1", api_key_var="HOME")  # never asked
state = asyncio.run(env.rollout(dict(row), client=client, model="scripted"))
asyncio.run(env.rubric.score_rollout(state))
print(json.dumps({"reward": state["reward"], "stop": state["stop_condition"], "error": str(state["error"]),
                  "turns": len(asked), "tools": asked[0], "succeeded": state["outcome"].get("succeeded")}))
"""

OPENENV = """
import json
from fastapi.testclient import TestClient
import opsassay_openenv as ours

with TestClient(ours.app) as client, client.websocket_connect("/ws") as session:
    def ask(kind, data):
        session.send_json({"type": kind, "data": data})
        return session.receive_json()["data"]
    opened = ask("reset", {"seed": 3})
    looked = ask("step", {"tool": "list_tables", "arguments": {}})
    ended = ask("step", {"tool": "finish", "arguments": {}})
print(json.dumps({"tools": [one["name"] for one in opened["observation"]["tools"]], "looked": looked["done"],
                  "done": ended["done"], "reward": ended["reward"]}))
"""


def said(code, **variables):
    done = subprocess.run(
        [PYTHON, "-c", code], cwd=EXAMPLES, capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, **variables, "PYTHONPATH": str(EXAMPLES)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_verifiers_loads_it_and_a_rollout_is_graded():
    found = said(VERIFIERS)
    assert (found["reward"], found["turns"], found["error"]) == (0.0, 2, "None")
    assert found["tools"][-2:] == ["submit", "finish"]
    assert found["succeeded"] is False


def test_openenv_serves_it():
    found = said(OPENENV, OPSASSAY_DOMAIN="finops", OPSASSAY_PART='{"tasks": ["category-cost"]}')
    assert found["tools"][-1] == "finish"
    assert (found["looked"], found["done"], found["reward"]) == (False, True, 0.0)
