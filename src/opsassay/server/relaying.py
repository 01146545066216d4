"""Passes MCP messages between a self-hosted agent and the tools of its run, in memory.

The agent posts a message and waits for the response; the relay of the run asks for the next message. After a restart of
the server both sides ask again, so no result is lost.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import Any

ANSWER_S = 120.0
MOST_WAITING = 100


@dataclass
class _Line:
    """The pending messages of one entry."""

    messages: asyncio.Queue[tuple[str, Any]] = field(default_factory=lambda: asyncio.Queue(MOST_WAITING))
    answers: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    status: str = ""


class Switchboard:
    """The pending messages of all open entries."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def _line_of_entry(self, entry: str) -> _Line:
        """Return the message queue of *entry*, made at the first use."""
        return self._lines.setdefault(entry, _Line())

    async def ask(self, entry: str, message: Any) -> Any:
        """Send the agent's *message* on *entry* to its tools; return their response; raises TimeoutError, QueueFull."""
        line, key = self._line_of_entry(entry), secrets.token_hex(8)
        answer = line.answers[key] = asyncio.get_running_loop().create_future()
        try:
            line.messages.put_nowait((key, message))
            return await asyncio.wait_for(answer, ANSWER_S)
        finally:
            del line.answers[key]

    async def next(self, entry: str, wait_s: float) -> dict[str, Any]:
        """Return the next message for the relay of *entry*, that its agent has ended, or {} after *wait_s* seconds."""
        line = self._line_of_entry(entry)
        getting, ending = asyncio.ensure_future(line.messages.get()), asyncio.ensure_future(line.ended.wait())
        done, pending = await asyncio.wait({getting, ending}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        for one in pending:
            one.cancel()
        if getting in done:
            key, message = getting.result()
            return {"id": key, "message": message}
        return {"finished": True, "status": line.status} if line.ended.is_set() else {}

    def deliver_answer(self, entry: str, key: str, message: Any) -> None:
        """Pass the response *message* to the call of `ask` on *entry* with the id *key*."""
        waiting = self._line_of_entry(entry).answers.get(key)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def end(self, entry: str, status: str) -> None:
        """Record for the relay of *entry* that its agent has ended with *status*."""
        line = self._line_of_entry(entry)
        line.status = status
        line.ended.set()

    def open(self, entry: str) -> None:
        """Drop all messages of *entry* that a former run left."""
        self._lines[entry] = _Line()
