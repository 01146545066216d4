"""A task of OpsAssay as an environment of OpenEnv: ``uvicorn opsassay_openenv:app``; the task is in two variables.

``OPSASSAY_DOMAIN`` is the domain and ``OPSASSAY_PART`` the JSON of the part that names one task.
"""

from __future__ import annotations

import json
import os
from typing import Any
from uuid import uuid4

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

from opsassay.gym import TaskEnv, action_of


class ToolAction(Action):
    """One call of a tool."""

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ToolObservation(Observation):
    """The text that came back, and after a reset the tools."""

    text: str
    tools: list[dict[str, Any]] = Field(default_factory=list)


class OpsAssayEnvironment(Environment[ToolAction, ToolObservation, State]):
    """The one task of the two variables; each session has a run of its own."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        part = json.loads(os.environ.get("OPSASSAY_PART", '{"scenarios": ["wrong-upstream-port"]}'))
        self._env, self._state = TaskEnv(os.environ.get("OPSASSAY_DOMAIN", "sre"), **part), State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> ToolObservation:
        """Begin the run anew."""
        text, info = self._env.reset(seed=seed)
        self._state = State(episode_id=episode_id or uuid4().hex, step_count=0)
        return ToolObservation(text=text, tools=info["tools"], done=False, reward=0.0)

    def step(self, action: ToolAction, timeout_s: float | None = None, **_: Any) -> ToolObservation:
        """Carry out one call."""
        del timeout_s
        text, reward, terminated, truncated, info = self._env.step(action_of(action.tool, action.arguments))
        self._state.step_count += 1
        return ToolObservation(text=text, done=terminated or truncated, reward=reward, metadata=info)

    @property
    def state(self) -> State:
        """The number of the episode and of its steps."""
        return self._state

    def close(self) -> None:
        """End the run."""
        self._env.close()


app = create_fastapi_app(OpsAssayEnvironment, ToolAction, ToolObservation)
