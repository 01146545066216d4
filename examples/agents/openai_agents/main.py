"""An agent of the OpenAI Agents SDK with the tools of the exam: it submits its answer by the tool of that name."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, Runner
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI


async def main(task: str, server: dict[str, Any]) -> None:
    """Work on the *task* with the tools of the MCP *server*, its command and arguments."""
    model = OpenAIChatCompletionsModel(os.environ["OPENAI_MODEL"], AsyncOpenAI())  # OPENAI_BASE_URL and OPENAI_API_KEY
    async with MCPServerStdio({"command": server["command"], "args": server["args"]}) as tools:
        agent = Agent("investigator", "Find out what broke. Submit the answer.", model=model, mcp_servers=[tools])
        result = await Runner.run(agent, task, max_turns=50)
    print(result.final_output, file=sys.stderr)


if __name__ == "__main__":
    prompt, mcp = (Path(name).read_text(encoding="utf-8") for name in sys.argv[1:])
    asyncio.run(main(prompt, json.loads(mcp)["mcpServers"]["opsassay"]))
