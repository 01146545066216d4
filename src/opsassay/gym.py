"""Any task of any domain as an environment of Gymnasium: reset, step, close.

    env = TaskEnv("sre", scenarios=["wrong-upstream-port"])
    prompt, info = env.reset(seed=1)
    text, reward, terminated, truncated, info = env.step(env.tools["describe"](target="proxy"))

The run is the one that `opsassay run` makes of the same plan, in a store; the reward is what its certificate or its grade
says, when the agent ends. Nothing of a run is left after `close`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from opsassay.core.errors import UserError
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.evals.runner.domain import domain_named
from opsassay.evals.runner.stepping import Graded, RunOverError, SteppedRun

FINISH = ToolSpec(name="finish", description="End the work; the run settles and is graded.")
SUBMIT = "submit"
LONGEST = 2**20
ERROR = "Error: an action is a JSON object with `tool` and `arguments`, such as what a function of `tools` returns."
_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


class AnyText(gymnasium.Space[str]):
    """Texts of up to LONGEST characters, whatever they are made of."""

    def __init__(self) -> None:
        super().__init__((), np.str_)

    def contains(self, x: Any) -> bool:
        """Return whether *x* is a text of at most LONGEST characters."""
        return isinstance(x, str) and len(x) <= LONGEST

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a random action that changes nothing: the call of a tool that no task has, as JSON."""
        del mask, probability
        return action_of(f"tool-{self.np_random.integers(1000)}", {})

    def __eq__(self, other: object) -> bool:
        """Return whether *other* is one of these spaces: all are alike."""
        return isinstance(other, AnyText)

    __hash__ = gymnasium.Space.__hash__


def action_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the action, a JSON text, that calls *tool* with *arguments*."""
    return json.dumps({"tool": tool, "arguments": dict(arguments)})


def typed_function(spec: ToolSpec) -> Callable[..., str]:
    """Return a function with name, description and keyword arguments of the tool *spec*; it returns an action (JSON)."""

    def call(**arguments: Any) -> str:
        """Return the action that calls the tool with *arguments*; raises TypeError when they do not fit it."""
        bound = signature.bind(**arguments)
        return action_of(spec.name, bound.arguments)

    required = set(spec.parameters.get("required", ()))
    signature = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=_TYPES.get(str(about.get("type")), Any),
                              default=inspect.Parameter.empty if name in required else about.get("default"))
            for name, about in spec.parameters.get("properties", {}).items()
        ],
        return_annotation=str,
    )  # fmt: skip
    call.__name__ = call.__qualname__ = spec.name
    call.__doc__ = spec.description
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__annotations__ = {name: one.annotation for name, one in signature.parameters.items()} | {"return": str}
    return call


class TaskEnv(gymnasium.Env[str, str]):
    """The one task that *part* names, the keys of a part of a plan of *domain*; files are looked for in *folder*.

    Observations are the prompt and what tools say, actions are calls of tools as JSON. The reward comes with the last step:
    1 when the run succeeded, else 0. That step is of `finish`, or of a `submit` that was taken. When the agent's time is
    over, or the run came to no result, the episode is truncated; ``info["no_result"]`` says why, and it teaches nothing.
    ``info["metrics"]`` are the grades by name. With *ahead* the system of the next episode is deployed and warmed up while
    this one is worked on, so that `reset` with the same seed has only to break it. Raises UserError for a part that names
    no single run, and for *ahead* with a *store*.
    """

    def __init__(
        self,
        domain: str,
        *,
        folder: Path | str = Path(),
        store: Path | str | None = None,
        ahead: bool = False,
        **part: Any,
    ) -> None:
        domain_named(domain)
        if ahead and store is not None:
            raise UserError("A store keeps a run once, and `ahead` prepares the same run again; leave out one of them.")
        self._domain, self._part, self._folder = domain, part, Path(folder)
        self._store = None if store is None else Path(store)
        self.observation_space, self.action_space = AnyText(), AnyText()
        self.tools: dict[str, Callable[..., str]] = {}
        """What an agent can do, by name, once there was a reset; each returns an action."""
        self._run: SteppedRun | None = None
        self._ahead = ahead
        self._next: tuple[dict[str, Any], SteppedRun] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start a new run; return (its prompt, {"task", "tools"}); *seed* replaces that of the plan part; OpsAssayError."""
        super().reset(seed=seed)
        del options
        self._end_run()
        part = self._part if seed is None else self._seeded(seed)
        self._run = (self._take_prepared(part) or self._make_stepped_run(part)).__enter__()
        if self._ahead:
            self._next = part, self._make_stepped_run(part).prepare()
        specs = (*self._run.specs, FINISH)
        self.tools = {spec.name: typed_function(spec) for spec in specs}
        return self._run.prompt, {"task": self._run.job.task_name, "tools": [spec.model_dump() for spec in specs]}

    def _seeded(self, seed: int) -> dict[str, Any]:
        """Return the plan part with *seed*, which diagnosis has among its settings and other domains at the top."""
        if self._domain == "diagnosis":
            return {**self._part, "settings": {**self._part.get("settings", {}), "seed": seed}}
        return {**self._part, "seed": seed}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Call the tool in *action* (JSON); return (output, reward, terminated, truncated, info); else RuntimeError."""
        if self._run is None:
            raise RuntimeError("There is no episode; call reset first.")
        try:
            asked = json.loads(action)
            tool, arguments = asked["tool"], dict(asked.get("arguments") or {})
        except (ValueError, TypeError, KeyError, RecursionError):
            return ERROR, 0.0, False, False, {"status": "error"}
        if tool == FINISH.name:
            return self._end_episode("The run has ended.")
        try:
            said, well = self._run.call(str(tool), arguments)
        except RunOverError as error:
            said, reward, _, _, info = self._end_episode(str(error))
            return said, reward, False, True, info
        if tool == SUBMIT and well:
            return self._end_episode(said)
        return said[:LONGEST], 0.0, False, False, {"status": "ok" if well else "error"}

    def _end_episode(self, said: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Grade and close the run; return (output *said*, reward 1 or 0, terminated, truncated, info)."""
        assert self._run is not None
        graded = self._run.finish()
        self._end_run()
        reward = 1.0 if graded.succeeded else 0.0
        return said[:LONGEST], reward, not graded.no_result, bool(graded.no_result), info_of(graded)

    def _make_stepped_run(self, part: Mapping[str, Any]) -> SteppedRun:
        """Return a run, not yet started, of the plan *part*."""
        return SteppedRun(self._domain, part, self._folder, self._store)

    def _take_prepared(self, part: Mapping[str, Any]) -> SteppedRun | None:
        """Return the prepared run if it is of the plan *part* and usable, else close it and return None."""
        prepared, self._next = self._next, None
        if prepared is None or (prepared[0] == part and prepared[1].goes_on):
            return prepared and prepared[1]
        prepared[1].close()
        return None

    def _end_run(self) -> None:
        """Close the run and its system, when one is open."""
        if self._run is not None:
            run, self._run = self._run, None
            run.close()

    def close(self) -> None:
        """End and remove the running and the prepared run with their systems, if there are any."""
        self._end_run()
        if self._next is not None:
            (_, prepared), self._next = self._next, None
            prepared.close()


def info_of(graded: Graded) -> dict[str, Any]:
    """Return the grades of a run as plain values: metrics by name, why some have none, and why there is no result."""
    metrics = graded.metrics
    return {
        "succeeded": graded.succeeded,
        "metrics": {name: metric.value for name, metric in metrics.items() if metric.value is not None},
        "reasons": {name: metric.reason for name, metric in metrics.items() if metric.value is None},
        "no_result": graded.no_result,
    }
