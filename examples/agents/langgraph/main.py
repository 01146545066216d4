"""An agent of LangGraph with the tools of the exam: it submits its answer by the tool of that name."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


async def main(prompt: str, mcp: str) -> None:
    """Work on the task in the file *prompt* with the server that the file *mcp* names."""
    server = json.loads(Path(mcp).read_text(encoding="utf-8"))["mcpServers"]["opsassay"]
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
        task = ("user", Path(prompt).read_text(encoding="utf-8"))
        state = await graph.compile().ainvoke({"messages": [task]}, {"recursion_limit": 100})
    print(state["messages"][-1].content, file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
