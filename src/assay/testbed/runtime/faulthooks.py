"""Faults inside a service process: at its HTTP server boundary and at its database calls.

The supervisor replaces the list of active hooks as a whole. What a hook introduces is returned to the caller, which enters
it into the ledger. Messages say what an application would say; nothing in them names the injector.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any


class InjectedError(Exception):
    """What a hooked call raises; *name* is the class name that the application reports."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(f"{name}: {message}")


@dataclass
class Hooks:
    """The hooks that are active in this process: fault type and parameters."""

    active: list[dict[str, Any]] = field(default_factory=list)

    def matching(self, fault_type: str, operation: str) -> dict[str, Any] | None:
        """Return the parameters of an active *fault_type* that applies to *operation*, or None."""
        for hook in self.active:
            if hook["type"] == fault_type and hook["parameters"].get("operation") in (None, operation):
                parameters: dict[str, Any] = hook["parameters"]
                return parameters
        return None

    async def response_delay_ns(self, operation: str) -> int:
        """Hold the response of *operation* back if so ordered; return the nanoseconds added."""
        delay = self.matching("HTTPResponseDelay", operation)
        if delay is None:
            return 0
        await asyncio.sleep(delay["delay_ms"] / 1e3)
        return int(delay["delay_ms"] * 1e6)

    def response_code(self, operation: str) -> int | None:
        """Return the status that replaces the response of *operation*, None to leave it."""
        abort = self.matching("HTTPResponseAbort", operation)
        return None if abort is None else int(abort["code"])

    def check_statement(self, operation: str, statement: str) -> None:
        """Raise what a failing database driver raises, if so ordered."""
        fault = self.matching("JVMMySQLException", operation)
        if fault is not None:
            raise InjectedError(fault["exception"], f"could not execute statement [{statement}]")
