"""Published prompts as techniques: the words of a paper, from a file of the user's, asked and read as its code does.

The file names up to three ways to ask, each with what the model is told first (`system`) and the question (`user`)::

    all-at-once: {system: ..., user: "... $problem ... $conversation ..."}
    step-by-step: {system: ..., user: "... $conversation ... $step ... $agent ..."}
    binary-search: {system: ..., user: "... $segment ... $upper ... $lower ..."}

$problem is the task, $answer the reference answer: lines with it are left out where it is hidden. Source of how answers are
read: the code of Who&When (github.com/ag2ai/Agents_Failure_Attribution): steps are counted from 0; "Agent Name:" and "Step
Number:" at once; yes or no step by step, the last step where all are no; "upper half" or "lower half".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from string import Template

from pydantic import Field

from opsassay.analysis.answers.predictions import read_block
from opsassay.analysis.blame.asking import BlameAsker
from opsassay.analysis.blame.attribute import Technique
from opsassay.analysis.blame.rerun import Rerun
from opsassay.analysis.blame.settings import BlameSettings
from opsassay.core.errors import ConfigError
from opsassay.core.schema.base import Written
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.trajectory import Attribution, Trace, TraceStep

PREFIX = "prompts:"
"""Before the name of a technique whose words are from a file, as in prompts:all-at-once."""


class Prompt(Written):
    """What a model is told and asked."""

    system: str = ""
    user: str = Field(min_length=1)

    def ask(self, asker: BlameAsker, trace: Trace, **about: object) -> str:
        """Return the answer to the question about *trace*; raises ConfigError for a word that stands for nothing."""
        user = self.user
        if not trace.reference_answer:
            user = "\n".join(line for line in user.split("\n") if not re.search(r"\$\{?answer\b", line))
        words = {"problem": trace.task_instruction, "answer": trace.reference_answer or "", **about}
        try:
            return asker.question(self.system, Template(user).substitute(words))
        except (KeyError, ValueError) as error:
            known = ", ".join(f"${name}" for name in words)
            raise ConfigError(
                f"A prompt cannot be filled in ({error}); it may name {known}, and $$ is a dollar."
            ) from error


class Prompts(Written):
    """The whole file."""

    all_at_once: Prompt | None = Field(default=None, alias="all-at-once")
    step_by_step: Prompt | None = Field(default=None, alias="step-by-step")
    binary_search: Prompt | None = Field(default=None, alias="binary-search")


def read_prompts(path: Path) -> dict[str, tuple[Technique, str]]:
    """Return the techniques of the file *path* by name, each with what its questions depend on; raises ConfigError."""
    given = load_yaml(path, Prompts)
    asked = {
        "all-at-once": (given.all_at_once, _all_at_once),
        "step-by-step": (given.step_by_step, _step_by_step),
        "binary-search": (given.binary_search, _binary_search),
    }
    found = {
        f"{PREFIX}{name}": (_technique(ask, prompt), prompt.digest())
        for name, (prompt, ask) in asked.items()
        if prompt is not None
    }
    if not found:
        raise ConfigError(f"{path} has no prompt; name all-at-once, step-by-step or binary-search.")
    return found


def _technique(ask: Callable[[Prompt, Trace, BlameAsker], Attribution], prompt: Prompt) -> Technique:
    def asked(trace: Trace, asker: BlameAsker, settings: BlameSettings, rerun: Rerun | None) -> Attribution:
        del settings, rerun
        return ask(prompt, trace, asker)

    return asked


def _lines(steps: Sequence[TraceStep], *, numbers: bool = False) -> str:
    return "\n".join(
        (f"Step {step.step_id - 1} - " if numbers else "") + f"{step.agent_name}: {step.output_content}"
        for step in steps
    )


def _all_at_once(prompt: Prompt, trace: Trace, asker: BlameAsker) -> Attribution:
    said = read_block(prompt.ask(asker, trace, conversation=_lines(trace.steps)))
    digits = re.search(r"\d+", said.get("predicted_step", ""))
    step = trace.step(int(digits[0]) + 1) if digits else None
    return Attribution(
        agent_name=said.get("predicted_agent"), step_id=step.step_id if step else None, reason=said.get("reason", "")
    )


def _step_by_step(prompt: Prompt, trace: Trace, asker: BlameAsker) -> Attribution:
    for place, step in enumerate(trace.steps):
        so_far = _lines(trace.steps[: place + 1], numbers=True)
        said = prompt.ask(asker, trace, conversation=so_far, step=place, agent=step.agent_name)
        if re.match(r"\W*(1\.)?\W*yes\b", said, re.IGNORECASE):
            return Attribution(agent_name=step.agent_name, step_id=step.step_id, reason=said)
    return _blamed(trace.steps[-1:], "every step was called right; the last stands in")


def _binary_search(prompt: Prompt, trace: Trace, asker: BlameAsker) -> Attribution:
    steps, said = trace.steps, ""
    while len(steps) > 1:
        middle = (len(steps) + 1) // 2
        halves = {"upper": steps[:middle], "lower": steps[middle:]}
        ends = {name: f"{half[0].step_id - 1} to {half[-1].step_id - 1}" for name, half in halves.items()}
        said = prompt.ask(asker, trace, segment=_lines(steps), **ends)
        named = [name for name in halves if f"{name} half" in said.lower()]
        if not named:
            return Attribution(reason=f"no half was named: {said[:200]}")
        steps = halves[named[0]]
    return _blamed(steps, said)


def _blamed(steps: Sequence[TraceStep], reason: str) -> Attribution:
    return Attribution(
        agent_name=steps[0].agent_name if steps else None, step_id=steps[0].step_id if steps else None, reason=reason
    )
