"""A model behind an endpoint of OpenAI chat completions, given by OPENAI_BASE_URL and OPENAI_API_KEY."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from opsassay.core.errors import UserError
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.solvers.agents.models.base import Message, ModelError, Reply, reply_of
from opsassay.solvers.agents.models.scripted import count_tokens
from opsassay.solvers.proxy.apis.chat import read_answer

DEFAULT_BASE_URL = "https://api.openai.com/v1"
"""The base URL without OPENAI_BASE_URL."""


def base_url_set() -> str:
    """Return the base URL in the environment variable OPENAI_BASE_URL, else OpenAI's public one."""
    return os.environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL


def parts_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of an endpoint's base *url*; raises UserError for an invalid one."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:  # a port that is no number
        parts, port = urlsplit(""), 0
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UserError(f"OPENAI_BASE_URL is {url!r}, which is no URL; write one as in http://127.0.0.1:8000/v1.")
    return parts.scheme, parts.hostname, port


class EndpointModel:
    """The model *name* at *base_url*; *retries* are repeated requests of the SDK, after growing pauses.

    *answer_tokens* is sent as ``max_tokens``, None sends none.
    """

    def __init__(
        self,
        name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = 120.0,
        retries: int = 2,
        answer_tokens: int | None = None,
    ) -> None:
        import openai

        key = api_key or os.environ.get("OPENAI_API_KEY")
        if not key:
            raise UserError(f"The model {name!r} needs a key: set OPENAI_API_KEY (any text for a local endpoint).")
        url = base_url or base_url_set()
        self.name, self._host, self._answer_tokens = name, parts_of(url)[1], answer_tokens
        # No connection waits between two questions: minutes may lie between them, and a stale one reads as a failed model.
        self._client = openai.OpenAI(
            api_key=key, base_url=url, timeout=timeout_s, max_retries=retries, default_headers={"Connection": "close"}
        )

    def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, temperature: float | None = None
    ) -> Reply:
        """Return the model's reply to *messages*, which may call *tools*; raises ModelError without a valid response."""
        import openai

        further: dict[str, Any] = {"temperature": temperature} if temperature is not None else {}
        if self._answer_tokens is not None:
            further["max_tokens"] = self._answer_tokens
        if tools:
            further["tools"] = [{"type": "function", "function": tool.model_dump()} for tool in tools]
        try:
            answer = self._client.chat.completions.create(
                model=self.name, messages=[_message_as_chat(message) for message in messages], **further
            )
            read = read_answer(answer.model_dump())
        except openai.OpenAIError as error:
            response = getattr(error, "response", None)
            pause_s = _retry_after(response.headers) if response is not None else None
            status = getattr(error, "status_code", None)
            message = f"The model {self.name} did not answer: {error}"[:1000].rstrip(".")
            where = "" if status is not None else f" ({self._host})"
            raise ModelError(f"{message}{where}.", status, pause_s) from error
        except (ValueError, TypeError, AttributeError, KeyError) as error:  # what came is no chat completion
            raise ModelError(f"The endpoint of {self.name} sent something that is no chat completion.") from error
        if not answer.choices:
            raise ModelError(f"The endpoint of {self.name} sent a chat completion without a choice.")
        # An endpoint that reports no tokens has them estimated, so that limits hold.
        return count_tokens(reply_of(read), messages)


def _retry_after(headers: Any) -> float | None:
    """Return the pause that the header Retry-After requests, in seconds, at most 60; None without one."""
    try:
        return min(max(float(headers.get("retry-after")), 0.0), 60.0)
    except (TypeError, ValueError):
        return None


def _message_as_chat(message: Message) -> Any:
    """Return *message* as a message of OpenAI's chat completions."""
    payload: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_call_id is not None:
        payload["tool_call_id"] = message.tool_call_id
    if message.tool_requests:
        payload["tool_calls"] = [
            {"id": r.id, "type": "function", "function": {"name": r.tool, "arguments": json.dumps(r.arguments)}}
            for r in message.tool_requests
        ]
    return payload
