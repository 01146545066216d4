"""The LLM APIs as the recorder reads them: the contents of requests and of answers, streamed or not."""

from __future__ import annotations

from opsassay.solvers.proxy.apis.base import Asked, ModelAnswer, ModelApi, ToolResult, ToolUse
from opsassay.solvers.proxy.apis.chat import CHAT
from opsassay.solvers.proxy.apis.gemini import GEMINI
from opsassay.solvers.proxy.apis.messages import MESSAGES
from opsassay.solvers.proxy.apis.responses import RESPONSES

__all__ = ["APIS", "Asked", "ModelAnswer", "ModelApi", "ToolResult", "ToolUse", "api_of"]

APIS: tuple[ModelApi, ...] = (CHAT, RESPONSES, MESSAGES, GEMINI)


def api_of(method: str, path: str) -> ModelApi | None:
    """Return the LLM API that a request with *method* and *path* uses, None for another path."""
    if method != "POST":
        return None
    bare = path.partition("?")[0].rstrip("/")
    return next((api for api in APIS if bare.endswith(api.suffix)), None)
