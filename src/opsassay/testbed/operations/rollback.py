"""`undo_last`: undoes an agent's own last change, by the journal of its actions, in the arm `rollback` only.

A setting gets its former value, a service its former replicas or release. A restart or a deleted rule cannot be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opsassay.core.errors import RefusedError
from opsassay.core.schema.base import Written
from opsassay.testbed.operations.tool_session import Tool

Operate = Callable[[str, Mapping[str, Any]], dict[str, Any]]
Change = tuple[str, dict[str, Any]]
"""A verb and its arguments."""


class UndoLast(Written):
    """Take back your last change: a setting, a number of replicas, a release. Processes keep settings until a restart."""


UNDO = {"undo_last": Tool(UndoLast, mutating=True)}


class RollbackJournal:
    """The changes of one agent on a system, carried out by *operate*, each with its inverse."""

    def __init__(self, operate: Operate) -> None:
        self._operate = operate
        self._made: list[tuple[str, Change | None]] = []

    def inverse(self, verb: str, arguments: Mapping[str, Any]) -> Change | None:
        """Return the (verb, arguments) that undo *verb* with *arguments* from the present state; None if nothing does."""
        if verb in ("config set", "config unset"):
            about = {"target": arguments["target"], "key": arguments["key"]}
            former = self._operate("config get", {"target": arguments["target"]})["settings"]
            known = arguments["key"] in former
            return ("config set", about | {"value": former[arguments["key"]]}) if known else ("config unset", about)
        if verb in ("scale", "release"):
            rows = self._operate("describe", {"target": arguments["service"]})["replicas"]
            releases = {row["release"] for row in rows}
            if verb == "scale":
                return verb, {"service": arguments["service"], "replicas": len(rows)}
            return (verb, {"service": arguments["service"], "version": releases.pop()}) if len(releases) == 1 else None
        return None

    def note(self, verb: str, inverse: Change | None) -> None:
        """Record that *verb* was carried out; *inverse* is the (verb, arguments) that undo it, None if nothing does."""
        self._made.append((verb, inverse))

    def undo(self) -> tuple[Change, dict[str, Any]]:
        """Undo the last recorded change; return ((verb, arguments) that did it, their result); raises RefusedError."""
        if not self._made:
            raise RefusedError("Nothing of yours is left that could be taken back.")
        verb, inverse = self._made[-1]
        if inverse is None:
            raise RefusedError(f"Your last change was {verb}, which nothing takes back.")
        result = self._operate(*inverse)
        self._made.pop()
        return inverse, result
