"""Requests to a model within limits: a failed request is repeated after growing pauses; each try is recorded as a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from opsassay.core.errors import OperationError, OpsAssayError
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.trajectory import ToolCall
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.models.base import Message, Model, ModelError, Reply
from opsassay.solvers.agents.record import AgentRecorder

MAX_PAUSE_S = 60.0


class LimitError(OpsAssayError):
    """A limit of the run is reached, so that no further request to the model may be sent."""


class Asker:
    """Sends requests to *model*, counts them in *meter*, records them with *recorder*; *sleep* waits before a retry."""

    def __init__(
        self,
        model: Model,
        meter: Meter,
        recorder: AgentRecorder,
        *,
        temperature: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.model, self.meter, self.recorder = model, meter, recorder
        self._temperature, self._sleep = temperature, sleep

    def ask(
        self,
        agent: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        act: Callable[[Reply], Iterable[ToolCall]] = lambda _: (),
    ) -> Reply:
        """Return the model's reply to *messages* after *act* ran its tool calls; record both as a step of *agent*.

        Raises LimitError when a limit is reached, ModelError or OperationError when every try of `limits.retries` failed.
        """
        limits = self.meter.limits
        for tried in range(limits.retries + 1):
            if limit := self.meter.exhausted():
                raise LimitError(f"the limit of {limit} was reached")
            self.meter.model_calls += 1
            began = time.time_ns()
            try:
                reply = self.model.complete(messages, tools, temperature=self._temperature)
            except OperationError as error:
                self.recorder.step(
                    agent, messages, None, model=self.model.name, started_ns=began, ended_ns=time.time_ns(),
                    error=str(error),
                )  # fmt: skip
                if not isinstance(error, ModelError) or not error.passing or tried == limits.retries:
                    raise
                self.meter.retries += 1
                pause_s = limits.pause_s * 2**tried if error.pause_s is None else error.pause_s
                self._sleep(min(pause_s, MAX_PAUSE_S, max(0.0, limits.seconds - self.meter.seconds)))
                continue
            self.meter.count(reply.usage)
            calls = tuple(act(reply))
            self.recorder.step(
                agent, messages, reply, model=self.model.name, started_ns=began, ended_ns=time.time_ns(), calls=calls
            )
            return reply
        raise AssertionError("the last try returns or raises")
