"""Faults inside a service process: at its HTTP server boundary, in its methods, at its database calls.

The supervisor replaces the list of active hooks as a whole. What a hook introduces is returned to the caller, which enters
it into the ledger. Messages say what an application would say; nothing in them names the injector.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Any

from opsassay.testbed.workload.runtime.clients import expected_answer


class ApplicationError(Exception):
    """What a hooked call raises; *name* is the class name that the application reports."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(f"{name}: {message}")


@dataclass(frozen=True)
class Returned:
    """The value that a method returns in the place of its own."""

    value: str | int


@dataclass
class Hooks:
    """The hooks that are active in this process: their names, which the fault catalogue gives, and parameters."""

    active: list[dict[str, Any]] = field(default_factory=list)

    def matching(self, name: str, operation: str) -> dict[str, Any] | None:
        """Return the parameters of the first active fault of type *name* for *operation*, None without one."""
        for hook in self.active:
            if hook["type"] == name and hook["parameters"].get("operation") in (None, operation):
                parameters: dict[str, Any] = hook["parameters"]
                return parameters
        return None

    async def delay_ns(self, name: str, operation: str) -> int:
        """Sleep for the delay of an active fault of type *name* for *operation*; return it in ns, 0 without one."""
        delay = self.matching(name, operation)
        if delay is None:
            return 0
        await asyncio.sleep(delay["delay_ms"] / 1e3)
        return int(delay["delay_ms"] * 1e6)

    def code(self, hook_names: tuple[str, ...], operation: str) -> int | None:
        """Return the HTTP status that an active fault of a type in *hook_names* sets for *operation*, else None."""
        for name in hook_names:
            if (hook := self.matching(name, operation)) is not None:
                return int(hook["code"])
        return None

    def rewritten(self, method: str, path: str) -> tuple[str, str] | None:
        """Return the changed (method, path) of a request if an active fault rewrites it, else None."""
        if (hook := self.matching("replace_path", f"{method} {path}")) is not None:
            return method, hook["new_path"]
        if (hook := self.matching("replace_method", f"{method} {path}")) is not None:
            return hook["method"], path
        return None

    def body(self, operation: str, body: bytes) -> bytes | None:
        """Return the changed response *body* of *operation* if an active fault changes it, else None."""
        if (hook := self.matching("replace_body", operation)) is not None:
            return b"" if hook["body_type"] == "empty" else random.randbytes(len(body))  # noqa: S311
        if (hook := self.matching("patch_body", operation)) is not None:
            return json.dumps({**json.loads(body), **json.loads(hook["patch"])}).encode()
        return None

    def method_result(self, operation: str) -> Returned | None:
        """Return the result by which an active fault replaces that of *operation*'s method, else None.

        Raises ApplicationError if the fault makes the method fail.
        """
        if (hook := self.matching("raise_in_method", operation)) is not None:
            raise ApplicationError(hook["exception"], "request could not be handled")
        if (hook := self.matching("replace_result", operation)) is not None:
            return Returned(int(hook["value"]) if hook["value_type"] == "int" else hook["value"])
        return None

    def check_statement(self, operation: str, statement: str) -> None:
        """Raise ApplicationError, as of a database driver, if an active fault makes *statement* of *operation* fail."""
        hook = self.matching("fail_statement", operation)
        if hook is not None:
            raise ApplicationError(hook["exception"], f"could not execute statement [{statement}]")


def answer_body(service: str, operation: str, status: int, returned: Returned | None) -> bytes:
    """Return the JSON body of a response to *operation* with *status*: as expected, or a fault's value *returned*."""
    if returned is not None:
        return json.dumps(returned.value).encode()
    return json.dumps({**expected_answer(service, operation), "ok": status < 400}).encode()
