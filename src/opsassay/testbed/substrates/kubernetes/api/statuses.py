"""What an API server answers when it does not do what was asked: its Status objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Outcome = tuple[int, Any]
"""An HTTP status and what is answered with it: an object, a list of events for a watch, bytes for plain text."""

_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    500: "InternalError",
}
NO_RESOURCE = "the server could not find the requested resource"
"""What a real server says of a path that leads nowhere; kubectl knows the sentence."""


def failure(code: int, message: str, reason: str = "", details: Mapping[str, Any] | None = None) -> Outcome:
    """Return (*code*, Status object) of a failure with *message* and *details*; *reason* defaults to that of *code*."""
    said = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return code, {**said, "reason": reason or _REASONS.get(code, ""), "details": dict(details or {}), "code": code}


class StatusError(Exception):
    """A request that is answered with the *outcome* of a failure: how a server's own code leaves off answering it."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        super().__init__(outcome[1]["message"])


def success(details: Mapping[str, Any]) -> Outcome:
    """Return (200, Status object) of a successful deletion with *details*."""
    return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": dict(details)}
