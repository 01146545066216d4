"""A model that repeats the replies of a session that the proxy recorded."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from opsassay.core.errors import OperationError
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.solvers.agents.models.base import Message, Reply, reply_of
from opsassay.solvers.proxy.exchanges import Exchange, read_session


class ReplayedModel:
    """Replies to messages as recorded for equal messages, in the recorded order, each reply once."""

    def __init__(self, exchanges: Sequence[Exchange], name: str = "replayed") -> None:
        self.name = name
        self._waiting: dict[str, list[Reply]] = defaultdict(list)
        for exchange in reversed(exchanges):
            asked, answer = exchange.asked(), exchange.answer()
            if asked is None or answer is None or answer.error:
                continue
            self._waiting[json.dumps(asked.messages)].append(reply_of(answer))

    @classmethod
    def from_session(cls, folder: Path) -> ReplayedModel:
        """Return the model that gives the replies recorded in the session *folder*; raises UserError, DatapackError."""
        return cls(read_session(folder), f"replayed:{folder.name}")

    def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, temperature: float | None = None
    ) -> Reply:
        """Return the next recorded reply to equal *messages*; raises OperationError when none is left."""
        del tools, temperature
        waiting = self._waiting.get(json.dumps([(message.role, text_of(message)) for message in messages]))
        if not waiting:
            raise OperationError(
                "These messages are not in the recorded session, or were answered already; record them."
            )
        return waiting.pop()


def text_of(message: Message) -> str:
    """Return the text of *message*, then "[calls TOOL ARGUMENTS]" for each tool call, as recorded requests write them."""
    called = [f"[calls {request.tool} {request.arguments}]" for request in message.tool_requests]
    return "\n".join(filter(None, [message.content, *called]))
