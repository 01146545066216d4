"""A model that replies by a script: equal messages get equal replies.

A script is a function of messages, or a YAML file of rules; the first rule that matches replies::

    rules:
      - when: "Which step"      # a regular expression, searched in the last message
        after: "Verifier"       # another, searched in the whole conversation (optional)
        reply: "Step 3"
      - when: ".*"
        tool: {tool: search, arguments: {q: x}}
"""

from __future__ import annotations

import re
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field, PrivateAttr, field_validator

from opsassay.core.errors import OperationError, UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.solvers.agents.models.base import Broken, Message, ModelError, Reply, ToolRequest

Respond = Callable[[Sequence[Message], Sequence[ToolSpec]], Reply]


class ScriptRule(Written):
    """One rule of a script."""

    when: str = Field(default="", description="regular expression, looked for in the last message")
    after: str | None = Field(default=None, description="regular expression, looked for in all messages")
    reply: str = Field(default="", description="the text of the answer")
    tool: ToolRequest | None = Field(default=None, description="a tool to call")
    status: int | None = Field(default=None, ge=400, le=599, description="fail with this HTTP status instead")
    broken: Broken | None = Field(default=None, description="no whole answer instead: garbage, half, or hang")
    times: int | None = Field(default=None, ge=1, description="answer so often, then let later rules have it")

    @field_validator("when", "after")
    @classmethod
    def _require_regular_expression(cls, pattern: str | None) -> str | None:
        """Raise ValueError unless *pattern* is a regular expression; None stays."""
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        return pattern

    def fits(self, messages: Sequence[Message]) -> bool:
        """Return whether *when* matches the last message and *after*, if set, the text of all *messages*."""
        last = messages[-1].content if messages else ""
        whole = "\n".join(message.content for message in messages)
        fits_last = re.search(self.when, last, re.DOTALL) is not None
        return fits_last and (self.after is None or re.search(self.after, whole, re.DOTALL) is not None)


class Script(Written):
    """The rules of a scripted model, first match first."""

    rules: tuple[ScriptRule, ...]
    _used: Counter[int] = PrivateAttr(default_factory=Counter)

    def respond(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        """Return the reply of the first rule that matches *messages*; raises OperationError without one."""
        del tools
        fitting = ((n, rule) for n, rule in enumerate(self.rules) if rule.fits(messages))
        number, rule = next(((n, r) for n, r in fitting if r.times is None or self._used[n] < r.times), (-1, None))
        self._used[number] += 1
        if rule is None:
            last = messages[-1].content[:80] if messages else ""
            raise OperationError(f'No rule of the script fits {last!r}; add one with `when: ""` at its end.')
        id_ = f"call_{len(messages)}"  # another one for every call of a conversation, as harnesses take them for keys
        requests = (rule.tool.model_copy(update={"id": rule.tool.id or id_}),) if rule.tool else ()
        return Reply(text=rule.reply, tool_requests=requests, error_status=rule.status, broken=rule.broken)


class ScriptedModel:
    """Replies by the function *respond*; estimates a token per four characters."""

    def __init__(self, respond: Respond, name: str = "scripted") -> None:
        self._respond, self.name = respond, name

    @classmethod
    def from_file(cls, path: Path) -> ScriptedModel:
        """Return the model of the script at *path* (YAML or Python); raises UserError, ConfigError."""
        return cls(respond_of(path), f"scripted:{path.name}")

    def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, temperature: float | None = None
    ) -> Reply:
        """Return the script's reply; raises OperationError when no rule fits, ModelError for a scripted failure."""
        del temperature
        reply = self._respond(messages, tools)
        if reply.error_status is not None:
            raise ModelError(f"The script plays HTTP {reply.error_status}.", reply.error_status)
        if reply.broken is not None:
            raise ModelError(f"The script plays an answer that is broken: {reply.broken}.")
        return count_tokens(reply, messages)


def count_tokens(reply: Reply, messages: Sequence[Message]) -> Reply:
    """Return *reply* with token counts estimated at four characters a token, unless it has counts."""
    if reply.input_tokens or reply.output_tokens:
        return reply
    asked = sum(len(message.content) for message in messages)
    said = len(reply.text) + sum(len(str(request.arguments)) for request in reply.tool_requests)
    return reply.model_copy(update={"input_tokens": asked // 4 + 1, "output_tokens": said // 4 + 1})


def respond_of(path: Path) -> Respond:
    """Return the reply function of a script: rules in YAML, or a Python file's ``respond(messages, tools)``.

    A Python file is run with the rights of the caller. Raises UserError, ConfigError.
    """
    if path.suffix != ".py":
        return load_yaml(path, Script).respond
    if not path.exists():
        raise UserError(f"There is no script {path}; check the path.")
    sys.path.insert(0, str(path.parent.absolute()))  # as for a script that is started: it may import its neighbours
    try:
        found = runpy.run_path(str(path)).get("respond")
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise UserError(f"{path} has no function respond(messages, tools); a script in Python needs one.")
    respond: Respond = found
    return respond


@contextmanager
def running_upstream(name: str) -> Iterator[str]:
    """Yield a base URL for *name*: of a scripted server run during the block for ``scripted:FILE``, else *name* itself."""
    kind, _, rest = name.partition(":")
    if kind != "scripted":
        yield name
        return
    from opsassay.solvers.agents.models.server import running_server

    with running_server(respond_of(Path(rest))) as url:
        yield url
