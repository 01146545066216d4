"""A scripted model that finds faults in traces: it reads as a hurried person does, and knows no label.

Steps with alarming words come first, then steps with numbers that are neither in their input nor the result of a right
sum, then steps that vouch for those. It speaks the protocols of all five techniques of ``opsassay trace blame``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from opsassay.core.schema.tool_session import ToolSpec
from opsassay.solvers.agents.models.base import Message, Reply, ToolRequest

_STEP = re.compile(r"^=== Step (\d+) by (.+)$", re.MULTILINE)
_EQUATION = re.compile(r"((?:\d+(?: \w+)? [x+] )+\d+) = (\d+)")
_ALARM = re.compile(r"\b(?:Error|unsure|retry)\b")
_ASKED = re.compile(
    r"\n\n(?:This is the run up to|The run failed|Do the observed steps|---)"
)  # the question behind a last step
_VOUCH = re.compile(r"\bI checked\b")


@dataclass(frozen=True)
class Seen:
    """A step as it stands in a prompt."""

    number: int
    agent: str
    given: str
    said: str


def respond(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
    """Return the answer to whatever is asked."""
    asked = messages[-1].content
    names = {tool.name for tool in tools}
    if names:
        return _walk(messages, names)
    if "In the re-run with the edited input" in asked:
        return Reply(text=json.dumps(_judged(asked)))
    ranked = suspects(seen_in(asked))
    top = ranked[0] if ranked else None
    if (half := re.search(r"first half, steps (\d+) to (\d+)", asked)) is not None:
        first = top is None or top.number <= int(half[2])
        return Reply(text=json.dumps({"half": "first" if first else "second"}))
    if (step := re.search(r"Is step (\d+) the decisive step", asked)) is not None:
        return Reply(text=json.dumps({"decisive": top is not None and top.number == int(step[1])}))
    steps = seen_in(asked)
    blamed = top or steps[0]
    return Reply(text=json.dumps({"agent": blamed.agent, "step": blamed.number, "reason": "it stands out"}))


def seen_in(text: str) -> list[Seen]:
    """Return the steps in a prompt."""
    heads = list(_STEP.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [_seen(head, text[head.end() : end]) for head, end in zip(heads, ends, strict=True)]


def suspects(steps: Sequence[Seen]) -> list[Seen]:
    """Return suspicious steps, most suspect first: alarming, then unfounded, then vouching for an unfounded one."""
    unfounded = [step for step in steps if _unfounded(step)]
    alarming = [step for step in steps if _ALARM.search(step.said)]
    vouching = [step for step in steps if _VOUCH.search(step.said) and _shown(step, unfounded)]
    return list(dict.fromkeys([*alarming[:1], *unfounded, *vouching]))


def _walk(messages: Sequence[Message], names: set[str]) -> Reply:
    results = [message.content for message in messages if message.role == "tool"]
    if not results:
        return Reply(tool_requests=(ToolRequest(id="outputs", tool="outputs"),))
    count = len(_STEP.findall(results[0]))
    if len(results) == 1:
        calls = (ToolRequest(id=f"i{n}", tool="inspect", arguments={"step": n}) for n in range(1, count + 1))
        return Reply(tool_requests=tuple(calls))
    steps = [seen for result in results[1:] for seen in seen_in(result)]
    ranked = suspects(steps) or steps[:1]
    if "submit" in names:
        top = {"agent": ranked[0].agent, "step": ranked[0].number, "reason": "it stands out"}
        return Reply(tool_requests=(ToolRequest(id="s", tool="submit", arguments=top),))
    candidates = [_candidate(step, steps) for step in _varied(ranked)]
    return Reply(tool_requests=(ToolRequest(id="s", tool="submit_candidates", arguments={"candidates": candidates}),))


def _varied(ranked: list[Seen]) -> list[Seen]:
    """Return three: the first two suspects and the one that vouches, or the third."""
    vouching = [step for step in ranked if _VOUCH.search(step.said)]
    return list(dict.fromkeys([*ranked[: 3 - len(vouching[:1])], *vouching[:1]]))


def _candidate(step: Seen, steps: Sequence[Seen]) -> dict[str, object]:
    unfounded = [other for other in steps if _unfounded(other)]
    duty = _shown(step, unfounded) if _VOUCH.search(step.said) else []
    return {
        "agent": step.agent,
        "step": step.number,
        "reason": "it vouches for a wrong number" if duty else "its numbers have no ground",
        "oracle": "the step says something else once it takes care",
        "guidance": "Take care here: an earlier run went wrong at this point. Work it out again.",
        "duty": duty,
    }


def _judged(asked: str) -> dict[str, object]:
    before, _, after = asked.partition("--- In the re-run with the edited input:")
    failed, rerun = seen_in(before.partition("--- In the failed run:")[2]), seen_in(after)
    changed = bool(failed and rerun) and _plain(failed[0]) != _plain(rerun[0])
    return {"confirmed": changed, "reason": "the step says something else" if changed else "nothing changed"}


def _plain(step: Seen) -> str:
    return step.said.strip()


def _seen(head: re.Match[str], body: str) -> Seen:
    given, _, said = body.rpartition("Output:\n")
    return Seen(int(head[1]), head[2], given, _ASKED.split(said)[0])


def _unfounded(step: Seen) -> bool:
    """Return whether the step says a number that it was not given and did not rightly work out."""
    if not step.given:
        return False
    said = step.said.partition("\nTool ")[0] + _arguments(step.said)
    known = set(re.findall(r"\d+", step.given))
    known |= {result for left, result in _EQUATION.findall(said) if _value(left) == int(result)}
    payload = _ALARM.split(said)[-1] if _ALARM.search(said) else said
    return any(number not in known for number in re.findall(r"\d+", payload) if number != "404")


def _arguments(said: str) -> str:
    found = re.search(r"\nTool \w+ (\{.*?\})", said)
    return found[1] if found else ""


def _value(left: str) -> int:
    numbers = [int(n) for n in re.findall(r"\d+", left)]
    if "x" in left:
        product = 1
        for number in numbers:
            product *= number
        return product
    return sum(numbers)


def _shown(step: Seen, unfounded: Sequence[Seen]) -> list[int]:
    """Return the unfounded steps whose numbers the step was given."""
    earlier = [other for other in unfounded if other.number < step.number]
    return [
        other.number
        for other in earlier
        if set(re.findall(r"\d{2,}", _plain(other))) & set(re.findall(r"\d{2,}", step.given))
    ]
