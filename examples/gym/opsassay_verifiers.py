"""Tasks of OpsAssay as an environment of `verifiers`: ``vf.load_environment("opsassay_verifiers", domain="finops", ...)``.

Every rollout is a run of its own, with a seed of its own; the reward is what its certificate or its grade says.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import verifiers as vf
from datasets import Dataset

from opsassay.gym import TaskEnv, action_of


class OpsAssayEnv(vf.MultiTurnEnv):
    """The one task that *part* names, as `TaskEnv` takes it, once per seed of the data set."""

    def __init__(self, domain: str, part: dict[str, Any], **settings: Any) -> None:
        self._domain, self._part = domain, part
        super().__init__(**settings)

    async def setup_state(self, state: vf.State) -> vf.State:
        """Begin the run of this rollout, and show its prompt and its tools."""
        env = state["opsassay"] = TaskEnv(self._domain, **self._part)
        state["outcome"] = {}
        try:
            prompt, info = await asyncio.to_thread(env.reset, seed=int(state["info"]["seed"]))
        except Exception as error:
            raise vf.InfraError(str(error)) from error
        state["prompt"] = [{"role": "user", "content": prompt}]
        state["tool_defs"] = [
            vf.Tool(name=one["name"], description=one["description"], parameters=one["parameters"])
            for one in info["tools"]
        ]
        return state

    async def env_response(self, messages: vf.Messages, state: vf.State, **_: Any) -> vf.Messages:
        """Carry out the calls of the last message; one that calls nothing is taken as an action itself."""
        last, answers = messages[-1], []
        calls = getattr(last, "tool_calls", None) or []
        if not calls:
            said = await self._stepped(state, str(last.content or ""))
            answers.append({"role": "user", "content": said})
        for call in calls:
            try:
                action = action_of(call.name, json.loads(call.arguments or "{}"))
            except (ValueError, TypeError):
                action = call.arguments
            said = await self._stepped(state, action) if not state["outcome"] else "The run has ended."
            answers.append({"role": "tool", "content": said, "tool_call_id": call.id})
        if state["outcome"]:
            state["final_env_response"] = answers
        return answers

    async def _stepped(self, state: vf.State, action: str) -> str:
        said, reward, terminated, truncated, info = await asyncio.to_thread(state["opsassay"].step, action)
        if info.get("no_result"):
            raise vf.InfraError(info["no_result"])  # it teaches nothing
        if terminated or truncated:
            state["outcome"] = {"reward": reward, **info}
        return said

    @vf.cleanup
    async def end_run(self, state: vf.State) -> None:
        """End the run: an agent that did not finish it is graded by what it left."""
        env = state.get("opsassay")
        if env is None:
            return
        if not state["outcome"] and state.get("error") is None:
            _, reward, _, _, info = await asyncio.to_thread(env.step, action_of("finish", {}))
            state["outcome"] = {"reward": reward, **info}
        await asyncio.to_thread(env.close)
        del state["opsassay"]


async def certified(state: vf.State) -> float:
    """Return the reward of the run."""
    return float(state["outcome"].get("reward", 0.0))


def load_environment(
    domain: str = "sre", seeds: int = 8, max_turns: int = 60, part: dict[str, Any] | None = None
) -> vf.Environment:
    """Return the environment over the one task that *part* names, with the seeds from 0 to *seeds* less one."""
    rows = [{"prompt": [{"role": "user", "content": domain}], "info": {"seed": seed}} for seed in range(seeds)]
    given = part if part is not None else {"scenarios": ["wrong-upstream-port"]}
    return OpsAssayEnv(
        domain, given, dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[certified]), max_turns=max_turns
    )
