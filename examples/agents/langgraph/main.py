"""An agent of LangGraph with the tools of the exam: it submits its answer by the tool of that name."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


async def main(task: str, server: dict[str, Any]) -> None:
    """Work on the *task* with the tools of the MCP *server*, its command and arguments."""
    client = MultiServerMCPClient({"opsassay": {"transport": "stdio", **server}})
    async with client.session("opsassay") as session:
        tools = await load_mcp_tools(session)
        model = ChatOpenAI(model=os.environ["OPENAI_MODEL"]).bind_tools(tools)  # OPENAI_BASE_URL and OPENAI_API_KEY

        async def think(state: MessagesState) -> dict[str, list]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("think", think)
        graph.add_node("tools", ToolNode(tools))
        graph.add_edge(START, "think")
        graph.add_conditional_edges("think", tools_condition)
        graph.add_edge("tools", "think")
        state = await graph.compile().ainvoke({"messages": [("user", task)]}, {"recursion_limit": 100})
    print(state["messages"][-1].content, file=sys.stderr)


if __name__ == "__main__":
    prompt, mcp = (Path(name).read_text(encoding="utf-8") for name in sys.argv[1:])
    asyncio.run(main(prompt, json.loads(mcp)["mcpServers"]["opsassay"]))
