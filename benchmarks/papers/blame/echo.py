"""Blame by the vote of six analysts who read the trace in levels of detail.

Source: ECHO (arXiv 2510.04886), by its abstract and public reviews, since no code of it is published: context in four
levels by distance (1 step whole, 2 and 3 the main parts, 4 to 6 in short, the rest as milestones), six analysts
(conservative, liberal, detail, pattern, sceptical, general), and a vote weighted by confidence. Distances are from the
last step, where a failed run shows that it failed; that, the words of the questions, how levels are cut (by characters),
and that no vote is asked again where analysts differ, are our choices.
"""

from __future__ import annotations

from collections import defaultdict

from opsassay.analysis.blame.asking import BlameAsker, attribution_in, json_in
from opsassay.analysis.blame.definition import DEFINITION
from opsassay.analysis.blame.rendering import metadata_text, step_text
from opsassay.analysis.blame.rerun import Rerun
from opsassay.analysis.blame.settings import BlameSettings, cut_middle
from opsassay.core.schema.trajectory import Attribution, Trace

ECHO = "echo"
ANALYSTS = {
    "conservative": "Name a step only on clear evidence in it, and be slow to be confident.",
    "liberal": "Consider indirect causes and unlikely ones, too.",
    "detail": "Compare what every step was given with what it made of it, figure by figure.",
    "pattern": "Look for what recurs, and for where it came up first.",
    "sceptical": "Distrust the step that looks guilty at once; look for what else explains the failure.",
    "general": "Weigh everything evenly.",
}
_LEVELS = ((1, None), (3, 2_000), (6, 500))
"""Greatest distance of a level, and how many characters of a step it shows; None is all of it, input included."""
_MILESTONE = 120
_QUESTION = (
    'Answer with one JSON object and nothing else: {"agent": "<name>", "step": <number>, "confidence": <0 to 1>, '
    '"reason": "<one sentence>"}.'
)


def echo(trace: Trace, asker: BlameAsker, settings: BlameSettings, rerun: Rerun | None = None) -> Attribution:
    """Return the agent with most confidence behind it, and of the votes for it the step with most: six calls."""
    del settings, rerun
    shown = f"{metadata_text(trace)}\n\n{in_levels(trace)}\n\nThe run failed. {_QUESTION}"
    votes: list[tuple[float, Attribution]] = []
    for name, stance in ANALYSTS.items():
        role = f"You are the {name} analyst of why a multi-agent system failed. {stance} {DEFINITION}"
        answer = json_in(asker.question(role, shown))
        votes.append((_confidence(answer), attribution_in(answer, trace)))
    return elected(votes)


def elected(votes: list[tuple[float, Attribution]]) -> Attribution:
    """Return the answer that *votes* (confidence, answer) give; of equal sums the earlier step's."""
    given = [(confidence, one) for confidence, one in votes if one.step_id is not None]
    if not given:
        return Attribution(reason="no analyst named a step of the trace")
    agents: dict[str | None, float] = defaultdict(float)
    for confidence, one in given:
        agents[one.agent_name] += confidence
    first = {one.agent_name: one.step_id or 0 for _, one in sorted(given, key=lambda vote: -(vote[1].step_id or 0))}
    agent = max(agents, key=lambda name: (agents[name], -first[name]))
    steps: dict[int, float] = defaultdict(float)
    for confidence, one in given:
        if one.agent_name == agent:
            steps[one.step_id or 0] += confidence
    step = max(steps, key=lambda number: (steps[number], -number))
    reason = next(one.reason for _, one in given if (one.agent_name, one.step_id) == (agent, step))
    told = f"{steps[step]:.2f} of {sum(agents.values()):.2f} confidence: {reason}"
    return Attribution(agent_name=agent, step_id=step, reason=told)


def in_levels(trace: Trace) -> str:
    """Return the steps of *trace* as text, in less detail the further they are from the last one."""
    last, shown = len(trace.steps), []
    for place, step in enumerate(trace.steps, 1):
        limit = next((most for distance, most in _LEVELS if last - place <= distance), _MILESTONE)
        shown.append(step_text(step) if limit is None else cut_middle(step_text(step, inputs=False), limit))
    return "\n\n".join(shown)


def _confidence(answer: dict[str, object] | None) -> float:
    said = (answer or {}).get("confidence")
    return min(max(float(said), 0.0), 1.0) if isinstance(said, int | float) and not isinstance(said, bool) else 0.0
