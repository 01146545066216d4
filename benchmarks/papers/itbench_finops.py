"""Answers to ITBench-Lite's recorded cost anomalies, graded: which resource is behind the costs of an account.

Run: ``python -m benchmarks.papers.itbench_finops TRUTHS ANSWERS``. A scenario is a folder with ``anomaly.json`` (date and
account_id), ``data.csv`` and ``ground_truth.yaml``, whose ``resource`` lists what is responsible; an answer has a list
``resource`` of ``name`` and ``type``. The public grader gives 1 where all resources match, by name and type, and asks a
model; here the names decide. Read by documentation alone: the card of ibm-research/ITBench-Lite, and
github.com/itbench-hub/ITBench-Evaluations (finops_main.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import click
import yaml

from opsassay.cli.output import FOLDER, json_option, print_json, print_tables, say
from opsassay.core.errors import ConfigError, UserError
from opsassay.core.schema.files import require_small
from opsassay.core.text import first_line
from opsassay.core.untrusted import read_plain
from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.itbench import MOST_BYTES
from opsassay.scoring.metrics import harmonic_mean

from .itbench_answers import answer_file, scenario_number
from .running import run

TRUTH = "ground_truth.yaml"


@dataclass(frozen=True)
class Resource:
    """A resource by its name and type, both in small letters; "" for a type that is not said."""

    name: str
    type: str

    def is_same(self, other: Resource) -> bool:
        """Return whether the names are one, and the types where both say one."""
        return self.name == other.name and (not self.type or not other.type or self.type == other.type)


@dataclass(frozen=True)
class Graded:
    """One trial: *passed* where claimed and true resources are the same, *precision* and *recall* of the claimed ones."""

    scenario: str
    trial: int
    passed: bool
    precision: float
    recall: float


def read_resources(value: Any) -> list[Resource]:
    """Return the resources that *value* lists, those marked as no root cause left out; raises UserError for none."""
    listed = value.get("resource", value.get("resources")) if isinstance(value, dict) else None
    found = []
    for one in listed if isinstance(listed, list) else [listed]:
        of = one.get("resource", one) if isinstance(one, dict) else None  # the public files nest one in the other
        if isinstance(of, dict) and isinstance(of.get("name"), str | int) and of.get("root_cause") is not False:
            found.append(Resource(str(of["name"]).strip().lower(), str(of.get("type") or "").strip().lower()))
    if not found:
        raise UserError("it lists no resource with a name")
    return list(dict.fromkeys(found))


def grade(truth: Iterable[Resource], claimed: Iterable[Resource]) -> tuple[bool, float, float]:
    """Return whether *claimed* is *truth*, and precision and recall."""
    true, said = list(truth), list(claimed)
    hits = sum(any(one.is_same(other) for other in true) for one in said)
    found = sum(any(one.is_same(other) for other in said) for one in true)
    precision, recall = hits / len(said) if said else 0.0, found / len(true)
    return precision == recall == 1.0, precision, recall


def read_truth(folder: Path) -> list[Resource]:
    """Return the resources of the scenario in *folder*; raises UserError."""
    try:
        text = read_plain(folder / TRUTH, MOST_BYTES).decode("utf-8-sig")
        require_small(text, TRUTH)
        return read_resources(yaml.safe_load(text))
    except (ConfigError, UserError, yaml.YAMLError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise UserError(f"{folder / TRUTH} is no truth of a cost anomaly ({first_line(error)}).") from error


def _read_answer(trial: Path) -> list[Resource]:
    """Return the resources that the answer in the folder *trial* claims; raises UserError."""
    path = answer_file(trial)
    try:
        return read_resources(json.loads(read_plain(path, MOST_BYTES).decode("utf-8-sig")))
    except (UserError, ValueError, OSError, RecursionError) as error:
        raise UserError(f"{path} is no answer ({first_line(error)}); it counts as none.") from error


def grade_folder(scenario: str, truth: list[Resource], folder: Path, problems: list[str]) -> list[Graded]:
    """Return the trials in the numbered folders of *folder*, graded; what is no answer counts as 0 and is a problem."""
    found = []
    for trial in sorted(
        (one for one in folder.iterdir() if one.is_dir() and one.name.isdecimal()), key=lambda t: int(t.name)
    ):
        try:
            claimed = _read_answer(trial)
        except UserError as error:
            problems.append(str(error))
            claimed = []
        found.append(Graded(scenario, int(trial.name), *grade(truth, claimed)))
    return found


def table_of(graded: list[Graded]) -> ResultTable:
    """Return a row for each scenario and one for all: trials, pass@1 with its standard error, precision, recall, F1."""
    names = list(dict.fromkeys(one.scenario for one in graded))
    groups = {name: [one for one in graded if one.scenario == name] for name in names}
    rows = []
    for name, group in (*groups.items(), ("all", graded)):
        passed = [float(one.passed) for one in group]
        error = f" ± {stdev(passed) / len(passed) ** 0.5:.2f}" if len(passed) > 1 else ""
        precision, recall = fmean(one.precision for one in group), fmean(one.recall for one in group)
        f1 = fmean(harmonic_mean(one.precision, one.recall) for one in group)
        rows.append((name, len(group), f"{fmean(passed):.2f}{error}", f"{precision:.2f}", f"{recall:.2f}", f"{f1:.2f}"))
    columns = ("scenario", "trials", "pass@1", "precision", "recall", "F1")
    return ResultTable("Root causes of cost anomalies", columns, tuple(rows), "A trial without an answer counts as 0.")


@click.command("itbench_finops")
@click.argument("truths", type=FOLDER)
@click.argument("answers", type=FOLDER)
@json_option
@click.pass_context
def command(context: click.Context, truths: Path, answers: Path, *, as_json: bool) -> None:
    """Grade the ANSWERS of agents to the cost anomalies of ITBench-Lite in TRUTHS; both hold a folder per scenario."""
    known = {scenario_number(one.parent.name): one.parent for one in sorted(truths.rglob(TRUTH))}
    problems: list[str] = []
    graded: list[Graded] = []
    for folder in sorted(one for one in answers.iterdir() if one.is_dir()):
        try:
            if (truth := known.get(scenario_number(folder.name))) is None:
                raise UserError(f"{folder} has no {TRUTH} in {truths}.")
            graded += grade_folder(folder.name, read_truth(truth), folder, problems)
        except UserError as error:
            problems.append(str(error))
    if not graded:
        why = "; ".join(problems[:3]) or "it has no folder of a scenario."
        raise UserError(f"{answers} holds no answer that can be matched; give TRUTHS first, then ANSWERS: {why}")
    for problem in problems:
        say(f"opsassay: {problem}")
    if as_json:
        print_json("itbench_finops", [vars(one) for one in graded], problems=problems)
    else:
        print_tables([table_of(graded)])
    context.exit(1 if problems else 0)


if __name__ == "__main__":
    sys.exit(run(command))
