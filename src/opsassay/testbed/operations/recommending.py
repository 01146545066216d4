"""The tools of an operator who recommends: queries, and `submit_plan`, which takes a plan of changes.

A submitted plan is checked at once against the tools of an acting operator; it is not carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from opsassay.core.errors import NotFoundError, RefusedError, UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.validation_errors import problem
from opsassay.testbed.operations.tool_session import Done, OperatorToolSession, Tool, specs_of

SUBMIT = "submit_plan"
STEPS_LIMIT = 200


class PlannedCall(Written):
    """One call of a plan: a tool of an operator who acts, and its arguments."""

    tool: str = Field(max_length=64)
    arguments: dict[str, Any] = Field(default_factory=dict)


class SubmitPlan(Written):
    """Hand in your plan: the calls that repair the system, in order. A later plan takes the place of an earlier one."""

    steps: list[PlannedCall] = Field(max_length=STEPS_LIMIT)


def looking_tools(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """Return the tools among *tools* that change nothing, and the tool `submit_plan`."""
    return {**{name: tool for name, tool in tools.items() if not tool.mutating}, SUBMIT: Tool(SubmitPlan)}


class RecommendToolSession(OperatorToolSession):
    """The queries of the session *acting*, and `submit_plan`; *plan* is the last submitted plan, or None."""

    def __init__(self, acting: OperatorToolSession) -> None:
        super().__init__(looking_tools(acting.tools), acting.record, acting.view)
        self._acting, self.watch = acting, acting.watch
        self.plan: tuple[PlannedCall, ...] | None = None

    def allow_undo(self) -> None:
        """Permit the tool that undoes the last change as a step of a plan."""
        self._acting.allow_undo()

    def changes(self, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Return False for every *tool*: calls that would change the system are refused."""
        del tool, arguments
        return False

    def own_specs(self, *, changing: bool = True) -> tuple[ToolSpec, ...]:
        """Return the descriptions of the tools; with *changing* also `submit_plan`, with all calls that a step may be."""
        looking = {name: tool for name, tool in self.tools.items() if name != SUBMIT}
        return (*specs_of(looking), *([self._describe_plan()] if changing else []))

    def close(self) -> None:
        """Refuse all further calls: the agent's time is over."""
        super().close()
        self._acting.close()

    def carry_out(self, tool: Tool, arguments: Written) -> Done:
        """Answer a query or store a submitted plan; raises RefusedError for a change, UserError for an invalid plan."""
        if isinstance(arguments, SubmitPlan):
            self._require_callable(arguments.steps)
            self.plan = tuple(arguments.steps)
            return Done(f"Taken: a plan of {len(self.plan)} steps.")
        if self._acting.changes(tool, arguments.model_dump()):
            raise RefusedError(f"this call would change the system, and here you only look; put it into {SUBMIT}.")
        return self._acting.carry_out(tool, arguments)

    def _require_callable(self, steps: list[PlannedCall]) -> None:
        """Raise UserError, with its number, for the first of *steps* with an unknown tool or invalid arguments."""
        for number, step in enumerate(steps, 1):
            if (tool := self._acting.tools.get(step.tool)) is None:
                raise UserError(f"step {number}: {NotFoundError('tool', step.tool, self._acting.tools)}")
            try:
                tool.arguments.model_validate(step.arguments, strict=True)
            except ValidationError as error:
                said = problem(error, "the arguments")[:200]
                raise UserError(f"step {number}: invalid arguments of {step.tool}: {said}.") from error

    def _describe_plan(self) -> ToolSpec:
        """Return the description of `submit_plan`, with every call that a step may be."""
        (spec,) = specs_of({SUBMIT: self.tools[SUBMIT]})
        calls = [
            {
                "type": "object",
                "description": one.description,
                "properties": {"tool": {"const": one.name}, "arguments": one.parameters},
                "required": ["tool", "arguments"],
            }
            for one in self._acting.specs()
        ]
        steps = {"type": "array", "maxItems": STEPS_LIMIT, "items": {"anyOf": calls}}
        parameters = {"type": "object", "properties": {"steps": steps}, "required": ["steps"]}
        return spec.model_copy(update={"parameters": parameters})
