"""opsassay score itbench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import json_option, print_json, print_table, say

if TYPE_CHECKING:
    from opsassay.scoring.itbench_answers import ScenarioScores

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("itbench")
@click.argument("truths", type=_FOLDER)
@click.argument("answers", type=_FOLDER)
@json_option
@click.pass_context
def command(context: click.Context, truths: Path, answers: Path, *, as_json: bool) -> None:
    """Match ANSWERS of agents in ITBench's form with ITBench's ground truth in TRUTHS: root causes and chains by NTAM.

    TRUTHS holds a folder per scenario with groundtruth_v1.yaml, ANSWERS a folder per scenario with a numbered folder per
    trial; scenarios are matched by the numbers at the end of their names.
    """
    from opsassay.core.errors import UserError
    from opsassay.scoring.itbench_answers import ItbenchTruth, scenario_number, score_trials
    from opsassay.telemetry.importers.itbench import V1

    known = {scenario_number(one.name): one for one in sorted(truths.iterdir()) if (one / V1).exists()}
    found, problems = [], []
    for folder in sorted(one for one in answers.iterdir() if one.is_dir()):
        try:
            if scenario_number(folder.name) not in known:
                raise UserError(f"{folder} has no ground truth in {truths}.")
            scores = score_trials(ItbenchTruth.read(known[scenario_number(folder.name)]), folder)
        except UserError as error:
            problems.append(str(error))
            continue
        problems += scores.bad.values()
        found += [scores] if scores.trials else []
    if not found:
        why = "; ".join(problems) or "it has no folder of a scenario."
        raise UserError(f"{answers} holds no answer that can be matched; give TRUTHS first, then ANSWERS: {why}")
    for problem in problems:
        say(f"opsassay: {problem}")
    if as_json:
        print_json("score itbench", [_item(one, trial) for one in found for trial in one.scores], problems=problems)
    else:
        columns = ("scenario", "trials", "answered", "root found", "FL (NTAM)", "FPC (NTAM)")
        print_table("Answers against ITBench's ground truth", columns, [_row(one) for one in found])
    context.exit(1 if problems else 0)


def _row(one: ScenarioScores) -> tuple[Any, ...]:
    scores = one.scores.values()
    figures = ([float(s.found) for s in scores], [s.fl for s in scores], [s.fpc for s in scores])
    return (one.scenario, one.trials, len(one.scores), *(_text(*one.mean(values)) for values in figures))


def _text(mean: float, error: float | None) -> str:
    return f"{mean:.2f}" if error is None else f"{mean:.2f} ± {error:.2f}"


def _item(one: ScenarioScores, trial: str) -> dict[str, Any]:
    score = one.scores[trial]
    return {
        "scenario": one.scenario, "trial": int(trial), "root_found": score.found, "root_precision": score.precision,
        "ntam_fl": score.fl, "ntam_fpc": score.fpc, "unknown": list(score.unknown),
    }  # fmt: skip
