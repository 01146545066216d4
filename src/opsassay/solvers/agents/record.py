"""The record of an agent's run, written as it happens: trace.jsonl (model calls) and actions.jsonl (tool calls)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from opsassay.core.schema.trajectory import ToolCall, TraceStep
from opsassay.solvers.agents.models.base import Message, Reply
from opsassay.solvers.agents.models.replayed import text_of
from opsassay.solvers.proxy.steps import AgentIds, render_messages

TRACE, ACTIONS = "trace.jsonl", "actions.jsonl"


class AgentRecorder:
    """Writes the steps of one run into *folder*; every line is handed to the operating system at once."""

    def __init__(self, folder: Path) -> None:
        self._trace, self._actions = folder / TRACE, folder / ACTIONS
        self._ids = AgentIds()
        self._lock = threading.Lock()
        self.steps = 0

    def step(
        self,
        agent: str,
        messages: Sequence[Message],
        reply: Reply | None,
        *,
        model: str | None,
        started_ns: int,
        ended_ns: int,
        calls: Iterable[ToolCall] = (),
        error: str | None = None,
    ) -> None:
        """Append one model call of *agent* to trace.jsonl: messages, reply (None if it failed), tool calls, *error*."""
        logs = tuple(calls)
        usage = reply.usage if reply else {}
        with self._lock:
            self.steps += 1
            step = TraceStep(
                step_id=self.steps,
                agent_id=self._ids.id_of(agent),
                agent_name=agent,
                input_context=render_messages([(message.role, text_of(message)) for message in messages]),
                output_content=reply.text if reply else "",
                tool_logs=logs,
                started_at=started_ns,
                ended_at=ended_ns,
                usage=usage,
                model=model,
                kind="tool" if logs else "plain",
                error=error,
            )
            _append_line(self._trace, step.model_dump(mode="json"))

    def action(self, call: ToolCall, started_ns: int) -> None:
        """Append one tool *call* to actions.jsonl, begun at *started_ns* (UTC) and ended now."""
        line = {
            "started_ns": started_ns,
            "ended_ns": time.time_ns(),
            "tool": call.tool,
            "arguments": call.arguments,
            "status": call.status,
            "output_characters": len(call.output),
            "output": call.output[:2000],
        }
        with self._lock:
            _append_line(self._actions, line)


def _append_line(path: Path, value: dict[str, Any]) -> None:
    """Append *value* as a line of JSON to the file *path*."""
    with path.open("ab") as stream:
        stream.write(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
