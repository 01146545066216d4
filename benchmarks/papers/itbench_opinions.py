"""What of ITBench's metrics asks for an opinion, by a model as judge: reasoning, partial reasoning, and a check list.

Sources: itbench_evaluations of github.com/itbench-hub/ITBench-SRE-Agent (`root_cause_reasoning`, the condition of each
root that was found, and `root_cause_reasoning_partial`), and the judge of github.com/SREGym/SREGym (its dimensions, with a
threshold). The model compares two texts; all else is computed. Prompts and check list are the files next to this one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from opsassay.core.errors import OpsAssayError
from opsassay.core.untrusted import read_plain
from opsassay.scoring.itbench import MOST_BYTES, ItbenchAnswer, ItbenchTruth
from opsassay.solvers.agents.models.base import Message, Model

from .itbench_entities import hops_between
from .itbench_first_failure import Components
from .running import part_of

HERE = Path(__file__).parent
CHECKLIST: Mapping[str, Any] = yaml.safe_load((HERE / "itbench_checklist.yaml").read_text(encoding="utf-8"))
QUESTIONS: Mapping[str, str] = {
    name: question for dimension in CHECKLIST["dimensions"].values() for name, question in dimension.items()
}
SCORES = (0, 0.5, 1)
LONGEST = 4_000
"""Characters of an answer's text that the judge sees."""
WORDS = ("reasoning", "condition", "description", "explanation", "evidence", "effect")
"""Keys of an entity or a propagation under which agents write what is wrong with it."""


@dataclass(frozen=True)
class Opinions:
    """What the judge made of one answer, in [0, 1]; *reasoning* and *partial* are None where the truth says no condition.

    *answers* are those to the questions of the check list by name, *failed* why the judge did not say.
    """

    reasoning: float | None = None
    partial: float | None = None
    answers: Mapping[str, bool] | None = None
    failed: str = ""

    @property
    def checklist(self) -> float | None:
        """The mean over the dimensions of their share of yes."""
        if self.answers is None:
            return None
        return fmean(fmean(self.answers[name] for name in dimension) for dimension in CHECKLIST["dimensions"].values())

    @property
    def passed(self) -> bool | None:
        """Whether the check list reaches its threshold."""
        return None if self.checklist is None else self.checklist >= CHECKLIST["threshold"]


def opinions_of(judge: Model, truth: ItbenchTruth, answer: ItbenchAnswer, file: Path) -> Opinions:
    """Return what *judge* makes of *answer*, read from *file*; a call that fails leaves its reason and no figure."""
    said = said_of(file)
    try:
        reasoning, partial = _reasoning(judge, truth, answer, said)
        return Opinions(reasoning, partial, _check(judge, truth, said))
    except (OpsAssayError, ValueError, TypeError, KeyError, RecursionError) as error:
        return Opinions(failed=f"the judge of {file} did not say: {error}")


def said_of(file: Path) -> Mapping[str, str]:
    """Return what the answer in *file* says in words, by the entity that it says it of; a propagation's is its source's."""
    given = json.loads(read_plain(file, MOST_BYTES))
    found: dict[str, list[str]] = {}
    for one in [*(given.get("entities") or []), *(given.get("propagations") or [])]:
        name = one.get("name", one.get("id", one.get("source"))) if isinstance(one, dict) else None
        if isinstance(name, str):
            found.setdefault(name, []).extend(str(one[key]) for key in WORDS if one.get(key))
    return {name: "; ".join(dict.fromkeys(texts))[:LONGEST] for name, texts in found.items()}


def _reasoning(
    judge: Model, truth: ItbenchTruth, answer: ItbenchAnswer, said: Mapping[str, str]
) -> tuple[float | None, float | None]:
    """Return the mean score of the found roots' conditions, and the best score of any claim with credit for symptoms.

    A symptom h steps from the nearest true root earns 1 / (1 + h) of the score of what was said of it.
    """
    components = Components(truth)
    conditions = _conditions(components, "condition", lambda edge: edge.source)
    effects = _conditions(components, "effect", lambda edge: edge.target)
    if not any(conditions.get(root) for root in components.roots):
        return None, None
    steps = [(components.of_group[edge.source], components.of_group[edge.target]) for edge in components.edges]
    hops = hops_between(steps, components.roots)
    texts: dict[str, list[str]] = {}
    for name in answer.roots:
        texts.setdefault(components.of(name), []).append(said.get(name, ""))
    found, credit = [], [0.0]
    for component, words in texts.items():
        is_root = component in components.roots
        true = (conditions if is_root else effects).get(component, "")
        if component not in hops or not true:
            continue
        score = _score(judge, component, true, "; ".join(filter(None, words)))
        found += [score] if is_root else []
        credit.append(score if is_root else score / (1 + hops[component]))
    return (fmean(found) if found else 0.0), max(credit)


def _conditions(components: Components, key: str, end: Callable[[Any], str]) -> dict[str, str]:
    """Return what the truth says under *key* of each component that stands at *end* of a propagation."""
    found: dict[str, list[str]] = {}
    for edge in components.edges:
        found.setdefault(components.of_group[end(edge)], []).append(str(edge.evidence.get(key) or ""))
    return {component: "; ".join(dict.fromkeys(filter(None, texts))) for component, texts in found.items()}


def _score(judge: Model, entity: str, true: str, said: str) -> float:
    if not said:
        return 0.0
    reply = _ask(judge, "itbench_judge.txt", entity=entity, true=true, said=said)
    if isinstance(reply["score"], bool) or reply["score"] not in SCORES:
        raise ValueError(f"its score is {reply['score']!r}, not one of {', '.join(map(str, SCORES))}")
    return float(reply["score"])


def _check(judge: Model, truth: ItbenchTruth, said: Mapping[str, str]) -> Mapping[str, bool]:
    edges = truth.truth.annotation.graph.edges
    lines = [f"root cause: {', '.join(truth.truth.roots)}"]
    lines += [f"{e.source} -> {e.target}: {e.evidence.get('condition')}; {e.evidence.get('effect')}" for e in edges]
    words = "\n".join(f"{name}: {text}" for name, text in said.items())[:LONGEST]
    asked = "\n".join(f"- {name}: {question}" for name, question in QUESTIONS.items())
    reply = _ask(judge, "itbench_checklist.txt", truth="\n".join(lines), said=words, questions=asked)
    if missing := [name for name in QUESTIONS if not isinstance(reply.get(name), bool)]:
        raise ValueError(f"it does not answer {', '.join(missing)} with true or false")
    return {name: reply[name] for name in QUESTIONS}


def _ask(judge: Model, prompt: str, **material: str) -> dict[str, Any]:
    """Return the JSON object that *judge* answers to the file *prompt*; raises TypeError for another answer."""
    question = (HERE / prompt).read_text(encoding="utf-8").format(**material)
    text = judge.complete([Message(role="user", content=question)], temperature=0.0).text
    reply = json.loads(text.strip().removeprefix("```json").removeprefix("```").removesuffix("```"))
    if not isinstance(reply, dict):
        raise TypeError(f"its answer is no JSON object: {text[:80]!r}")
    return reply


if __name__ == "__main__":
    part_of("itbench_answers")
