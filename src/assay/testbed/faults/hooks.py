"""Faults inside the service process: its HTTP boundary, its methods, its database calls, its clock, its resources."""

from __future__ import annotations

import json

from assay.errors import RefusedError
from assay.testbed.faults.injection import Injection, push, watch


class RuntimeHook:
    """Switches one hook of the runtime on and off; a restarted process gets it again."""

    def __init__(self, injection: Injection) -> None:
        self._injection = injection

    async def apply(self) -> None:
        """Switch the hook on."""
        plan, replica = self._injection.plan, self._injection.replica
        if (reason := self.objection()) is not None:
            raise RefusedError(f"{plan.fault}: {reason}")
        replica.hooks = [{"type": plan.fault, "parameters": plan.parameters}]
        await push(self._injection, replica)

    def objection(self) -> str | None:
        """Return what is wrong with the parameters beyond what the catalogue knows, None when nothing is."""
        parameters = self._injection.plan.parameters
        if "patch" in parameters and not _is_json_object(parameters["patch"]):
            return f"patch must be a JSON object such as '{{\"ok\": false}}', not {parameters['patch']!r}."
        if "new_path" in parameters and not parameters["new_path"].startswith("/"):
            return f"new_path must begin with '/', not {parameters['new_path']!r}."
        if parameters.get("value_type") == "int" and not parameters["value"].lstrip("-").isdigit():
            return f"value must be a whole number for value_type int, not {parameters['value']!r}."
        if parameters.get("memory_type") == "stack":
            return (
                "the frames of this runtime live on its heap, a growing stack would be pretence; use memory_type heap."
            )
        return None

    async def undo(self) -> None:
        """Switch the hook off."""
        self._injection.replica.hooks = []
        await push(self._injection, self._injection.replica)


class ProcessStrain(RuntimeHook):
    """A hook that makes the whole process slow: its callers keep account of what they wait for."""

    async def apply(self) -> None:
        """Switch the hook on."""
        await super().apply()
        await watch(self._injection, on=True)

    async def undo(self) -> None:
        """Switch the hook off."""
        await super().undo()
        await watch(self._injection, on=False)


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except json.JSONDecodeError:
        return False
