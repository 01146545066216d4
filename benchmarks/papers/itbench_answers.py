"""Answers in ITBench's own form, matched with ITBench's own ground truth: NTAM of root causes and chain, entity metrics.

Run: ``python -m benchmarks.papers.itbench_answers TRUTHS ANSWERS``; with ``--judge MODEL`` a model reads conditions too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import click
import numpy as np

from opsassay.annotation.suites.agreement import cohens_kappa
from opsassay.cli.output import echo, json_option, print_json, print_table, say
from opsassay.core.errors import UserError
from opsassay.scoring.figures import percent
from opsassay.scoring.itbench import ItbenchScore, ItbenchTruth, read_itbench_answer
from opsassay.solvers.agents.models.base import Model
from opsassay.solvers.agents.models.named import model_named, require_endpoint
from opsassay.telemetry.importers.itbench import V1, V2

from .itbench_entities import MOST, Entities, entities_of
from .itbench_first_failure import Components
from .itbench_opinions import CHECKLIST, Opinions, opinions_of
from .running import run

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
OUTPUTS = ("agent_output.json", "agent_response.json")
CALLS_AT_ONCE = 8


@dataclass(frozen=True)
class ScenarioScores:
    """The trials of one scenario, graded by the file *truth*; *bad* say which left no answer: these count as 0.

    *first* says which paths hold the component that fails first, None where the truth tells none. *opinions* are a judge's.
    """

    scenario: str
    truth: str
    scores: Mapping[str, ItbenchScore]
    bad: Mapping[str, str]
    entities: Mapping[str, Entities]
    first: Mapping[str, bool | None]
    opinions: Mapping[str, Opinions] = field(default_factory=dict)

    @property
    def trials(self) -> int:
        """How many trials there are, those without an answer included."""
        return len(self.scores) + len(self.bad)

    def mean(self, values: Sequence[float]) -> tuple[float, float | None]:
        """Return mean and standard error, sd (ddof 1) / sqrt(n), of *values* over all n trials; None for the error of one.

        Trials that left no answer count as 0.
        """
        every = [*values, *([0.0] * len(self.bad))]
        return fmean(every), stdev(every) / len(every) ** 0.5 if len(every) > 1 else None


def score_trials(truth: ItbenchTruth, folder: Path, judge: Model | None = None) -> ScenarioScores:
    """Score every trial in *folder*: a numbered folder with agent_output.json in it or in its ``outputs``."""
    scores, bad, entities, first, answers = {}, {}, {}, {}, {}
    components = Components(truth)
    trials = [one for one in folder.iterdir() if one.is_dir() and one.name.isascii() and one.name.isdigit()]
    for trial in sorted(trials, key=lambda one: int(one.name)):
        try:
            found = answer_file(trial)
            answer = read_itbench_answer(found)
            scores[trial.name], entities[trial.name] = truth.score(answer), entities_of(truth, answer)
            failing = components.first_failing
            first[trial.name] = None if failing is None else failing in components.on_path(answer)
            answers[trial.name] = answer, found
        except UserError as error:
            bad[trial.name] = str(error)
    opinions: dict[str, Opinions] = {}
    if judge is not None:
        with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
            made = pool.map(lambda one: opinions_of(judge, truth, *one), answers.values())
            opinions = dict(zip(answers, made, strict=True))
    return ScenarioScores(truth.name, truth.file, scores, bad, entities, first, opinions)


def answer_file(trial: Path) -> Path:
    """Return the file of the answer in the folder *trial* or in its ``outputs``; raises UserError where there is none."""
    places = [place / name for place in (trial / "outputs", trial) for name in OUTPUTS]
    if (found := next((place for place in places if place.exists()), None)) is None:
        raise UserError(f"{trial} has no {OUTPUTS[0]}.")
    return found


def truth_folders(truths: Path, files: Sequence[str] = (V1, V2)) -> dict[str, Path]:
    """Return the folders in *truths* that hold one of *files*, by the number of their scenario."""
    return {
        scenario_number(one.name): one
        for one in sorted(truths.iterdir())
        if any((one / name).exists() for name in files)
    }


def scenario_number(name: str) -> str:
    """Return what two folders of one scenario have in common: the number at the end of their names, else the name."""
    found = re.search(r"(\d+)$", name)
    return found.group(1).lstrip("0") or "0" if found else name


@click.command("itbench_answers")
@click.argument("truths", type=_FOLDER)
@click.argument("answers", type=_FOLDER)
@click.option(
    "--truth",
    type=click.Choice(["v1", "v2"]),
    help="The form of the truth to grade by; v1 where it names a root, else v2.",
)
@click.option("--judge", help="Model that compares conditions and answers the check list; named as in `opsassay run`.")
@json_option
@click.pass_context
def command(
    context: click.Context, truths: Path, answers: Path, truth: str | None, judge: str | None, *, as_json: bool
) -> None:
    """Match ANSWERS of agents in ITBench's form with ITBench's ground truth in TRUTHS: root causes and chains by NTAM.

    TRUTHS holds a folder per scenario with groundtruth_v1.yaml (v1) or groundtruth.yaml (v2), ANSWERS a folder per
    scenario with a numbered folder per trial; scenarios are matched by the numbers at the end of their names.
    """
    files = {"v1": (V1,), "v2": (V2,)}.get(truth or "", (V1, V2))
    known = truth_folders(truths, files)
    model = None if judge is None else model_named(judge)
    if judge is not None:
        require_endpoint(judge)
    found, problems = [], []
    for folder in sorted(one for one in answers.iterdir() if one.is_dir()):
        try:
            if scenario_number(folder.name) not in known:
                raise UserError(f"{folder} has no ground truth in {truths}.")
            scores = score_trials(ItbenchTruth.read(known[scenario_number(folder.name)], files), folder, model)
        except UserError as error:
            problems.append(str(error))
            continue
        problems += [*scores.bad.values(), *(one.failed for one in scores.opinions.values() if one.failed)]
        found += [scores] if scores.trials else []
    if not found:
        why = "; ".join(problems) or "it has no folder of a scenario."
        raise UserError(f"{answers} holds no answer that can be matched; give TRUTHS first, then ANSWERS: {why}")
    for problem in problems:
        say(f"opsassay: {problem}")
    if as_json:
        print_json("itbench_answers", [_item(one, trial) for one in found for trial in one.scores], problems=problems)
    else:
        columns = ("scenario", "truth", "trials", "answered", "root found", "FL (NTAM)", "FPC (NTAM)")
        print_table("Answers against ITBench's ground truth", columns, [_row(one) for one in found])
        of_entities = (
            "scenario",
            "precision",
            "recall",
            "F1",
            "recall@1",
            f"recall@{MOST}",
            "proximity precision",
            "recall, near",
            "F1, near",
            "first failing component",
        )
        print_table("Root cause entities", of_entities, [_entity_row(one) for one in found])
        if judge is not None:
            _print_opinions(judge, found)
    context.exit(1 if problems else 0)


def _row(one: ScenarioScores) -> tuple[Any, ...]:
    scores = one.scores.values()
    figures = ([float(s.found) for s in scores], [s.fl for s in scores], [s.fpc for s in scores])
    return (one.scenario, one.truth, one.trials, len(one.scores), *(_text(*one.mean(values)) for values in figures))


def _entity_row(one: ScenarioScores) -> tuple[str, ...]:
    of = one.entities.values()
    figures = (
        [e.precision for e in of], [e.recall for e in of], [e.f1 for e in of], [e.first[1] for e in of],
        [e.first[MOST] for e in of], [e.near_precision for e in of], [e.near_recall for e in of], [e.near_f1 for e in of],
    )  # fmt: skip
    first = [float(hit) for hit in one.first.values() if hit is not None]
    return (one.scenario, *(_text(*one.mean(values)) for values in figures), _text(*one.mean(first)) if first else "-")


def _print_opinions(judge: str, found: Sequence[ScenarioScores]) -> None:
    """Print what *judge* made of the answers, and how far its check list agrees with exact grading."""
    columns = (
        "scenario",
        "judged",
        "reasoning",
        "partial reasoning",
        "check list",
        f"at least {CHECKLIST['threshold']}",
    )
    print_table(f"In the opinion of {judge}", columns, [_opinion_row(one) for one in found])
    both = [
        (o.passed, one.scores[name].found) for one in found for name, o in one.opinions.items() if o.passed is not None
    ]
    if both:
        table = np.array([[both.count((a, b)) for b in (True, False)] for a in (True, False)])
        kappa = cohens_kappa(table)
        said = "undefined: one of them gives one answer throughout" if kappa is None else f"{kappa:.2f}"
        agreed = percent(int(table.trace()) / len(both))
        echo(
            f"Check list and exact grading (root found) agree on {agreed} of {len(both)} answers; Cohen's kappa {said}."
        )


def _opinion_row(one: ScenarioScores) -> tuple[str, ...]:
    of = [opinions for opinions in one.opinions.values() if not opinions.failed]
    columns = (
        [o.reasoning for o in of], [o.partial for o in of], [o.checklist for o in of],
        [None if o.passed is None else float(o.passed) for o in of],
    )  # fmt: skip
    figures = ([value for value in values if value is not None] for values in columns)
    return (one.scenario, str(len(of)), *(_text(*one.mean(values)) if values else "-" for values in figures))


def _text(mean: float, error: float | None) -> str:
    return f"{mean:.2f}" if error is None else f"{mean:.2f} ± {error:.2f}"


def _item(one: ScenarioScores, trial: str) -> dict[str, Any]:
    score, entities = one.scores[trial], one.entities[trial]
    return {
        "scenario": one.scenario, "trial": int(trial), "root_found": score.found, "root_precision": score.precision,
        "ntam_fl": score.fl, "ntam_fpc": score.fpc, "unknown": list(score.unknown), "truth": score.truth,
        "entity_precision": entities.precision, "entity_recall": entities.recall, "entity_f1": entities.f1,
        "entity_recall_at": {str(k): value for k, value in entities.first.items()},
        "proximity_precision": entities.near_precision, "proximity_recall": entities.near_recall,
        "proximity_f1": entities.near_f1, "first_failing_component": one.first[trial],
        **({} if (opinions := one.opinions.get(trial)) is None else {"opinions": _opinion_item(opinions)}),
    }  # fmt: skip


def _opinion_item(opinions: Opinions) -> dict[str, Any]:
    return {
        "reasoning": opinions.reasoning, "partial_reasoning": opinions.partial, "checklist": opinions.checklist,
        "checklist_passed": opinions.passed, "answers": opinions.answers, "failed": opinions.failed or None,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(run(command))
