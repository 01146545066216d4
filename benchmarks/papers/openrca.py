"""OpenRCA's own partial credit: of what a question asks (times, components, reasons), the share that an answer names.

Run: ``python -m benchmarks.papers.openrca PREDICTIONS... [--queries query.csv]...``.

A root cause of an answer is held against a true one as a whole: of all ways to pair them, the best counts. A time is right
within a minute. Source: the README and the published question files of github.com/microsoft/OpenRCA.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import Any

import click

from opsassay.analysis.answers.openrca import COMPONENT, REASON, TIME, read_prediction
from opsassay.cli.output import FILE, json_option, print_json, print_tables, say
from opsassay.core.errors import DatapackError, UserError
from opsassay.evals.runner.tables import ResultTable
from opsassay.telemetry.content import whole_file
from opsassay.telemetry.importers.cases import read_csv

from .running import run

_PATH = click.Path(path_type=Path)
_POINT = re.compile(
    r"The (?:\d+-th|only) (?:predicted )?root cause (component|reason|occurrence time) is (?:within .* of )?([^\n]+)"
)
_ELEMENTS = {"component": COMPONENT, "reason": REASON, "occurrence time": TIME}
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
MOST_CAUSES = 7
"""Root causes that are paired in all ways; a question asks for three at most."""

Points = Mapping[str, Sequence[str]]
"""What is asked, by element: the values of the true root causes in order."""


@dataclass(frozen=True)
class Scored:
    """A question of a *system* with its *score* in [0, 1]; *printed* is the score that the file itself gives, if any."""

    system: str
    case: str
    task: str
    score: float
    printed: float | None


def read_points(text: str) -> dict[str, list[str]]:
    """Return what the ``scoring_points`` of a question ask."""
    found: dict[str, list[str]] = {}
    for element, value in _POINT.findall(text):
        found.setdefault(_ELEMENTS[element], []).append(value.strip())
    return found


def partial_credit(causes: Sequence[Mapping[str, str]], points: Points) -> float:
    """Return the share of *points* that *causes* name, at the best pairing of predicted and true root causes.

    An answer with another number of root causes than there are true ones is worth 0, as every such row of the archive is.
    """
    asked, true = sum(map(len, points.values())), max(map(len, points.values()), default=0)
    if not asked or len(causes) != true or true > MOST_CAUSES:
        return 0.0
    return max(_hits(chosen, points) for chosen in permutations(causes)) / asked


def _hits(chosen: Sequence[Mapping[str, str]], points: Points) -> int:
    return sum(
        _is_right(element, chosen[place].get(element, ""), value)
        for element, values in points.items()
        for place, value in enumerate(values)
    )


def _is_right(element: str, said: str, true: str) -> bool:
    if element != TIME:
        return said == true
    try:
        apart = datetime.fromisoformat(said) - datetime.fromisoformat(true)
    except (ValueError, TypeError):
        return False
    return abs(apart.total_seconds()) <= 60


def _archived_points(row: Mapping[str, str]) -> dict[str, list[str]] | None:
    """Return what the question of an archived row asks, from what it says was passed and failed; None where it is not said.

    Also None where several of one element are asked beside another: the archive does not say which belong together.
    """
    values = [one.strip() for key in ("passed", "failed") for one in (row.get(key) or "").splitlines() if one.strip()]
    truth = row.get("groundtruth") or ""
    found: dict[str, list[str]] = {}
    for value in values:
        named = re.search(rf"^(component|reason): {re.escape(value)}$", truth, re.MULTILINE)
        known = _ELEMENTS[named[1]] if named else REASON if " " in value else COMPONENT
        found.setdefault(TIME if _STAMP.fullmatch(value) else known, []).append(value)
    several = any(len(one) > 1 for one in found.values()) and len(found) > 1
    return None if several or not found else found


def score_file(path: Path, queries: Mapping[str, str], problems: list[str]) -> Iterator[Scored]:
    """Yield the score of every prediction in *path*; *queries* has the scoring points by the text of the question."""
    system = re.sub(r"^[^-]*-", "", path.stem)
    for number, given in enumerate(read_csv(path).rows(named=True), 1):
        row = {str(key).strip().lower(): str(value or "") for key, value in given.items()}
        if "prediction" not in row:
            raise DatapackError(f"{path} has no column prediction; give a file of predictions.")
        asked = queries.get(" ".join(row.get("instruction", "").split()))
        points = read_points(asked) if asked is not None else None if queries else _archived_points(row)
        if points is None:
            why = (
                "its question is in no file of --queries"
                if queries
                else "it does not say what is asked; give --queries"
            )
            problems.append(f"{path.name} row {number}: {why}")
            continue
        causes, _ = read_prediction(row["prediction"])
        printed = float(row["score"]) if re.fullmatch(r"\d+(\.\d+)?", row.get("score", "")) else None
        yield Scored(system, f"{system}-{number}", row.get("task_index", ""), partial_credit(causes, points), printed)


def _queries(paths: Sequence[Path]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in paths:
        table = read_csv(path)
        lacking = {"instruction", "scoring_points"} - set(table.columns)
        if lacking:
            raise DatapackError(f"{path} lacks {', '.join(sorted(lacking))}; give the query.csv of a system.")
        found |= {" ".join(row["instruction"].split()): row["scoring_points"] for row in table.rows(named=True)}
    return found


@click.command("openrca")
@click.argument("predictions", nargs=-1, required=True, type=_PATH)
@click.option("--queries", multiple=True, type=_PATH, help="query.csv of a system; without it, what an archive says.")
@click.option("--scores", type=FILE, help="CSV file to write the score table to, for `opsassay audit`.")
@json_option
@click.pass_context
def command(
    context: click.Context, predictions: tuple[Path, ...], queries: tuple[Path, ...], scores: Path | None, *,
    as_json: bool,
) -> None:  # fmt: skip
    """Score PREDICTIONS, CSV files of answers to OpenRCA, by its own partial credit: per system and kind of question."""
    known, problems, rows = _queries(queries), list[str](), list[Scored]()
    for path in predictions:
        rows += score_file(path, known, problems)
    for problem in problems:
        say(f"opsassay: left out: {problem}")
    if not rows:
        raise UserError(f"None of the predictions can be scored: {'; '.join(problems[:3]) or 'the files are empty'}.")
    if scores is not None:
        _write_scores(scores, predictions[0].stem.partition("-")[0], rows)
    tables = [_table("OpenRCA, partial credit", "system", rows), _table("By kind of question", "task", rows)]
    if as_json:
        print_json("openrca", [table.as_item() for table in tables], problems=problems)
    else:
        print_tables(tables)
    context.exit(1 if problems else 0)


def _table(title: str, by: str, rows: Sequence[Scored]) -> ResultTable:
    names = sorted({getattr(row, by) for row in rows})
    groups = [(name, [row for row in rows if getattr(row, by) == name]) for name in names]
    cells = tuple((name, len(of), *_figures(of)) for name, of in [*groups, ("all", rows)])
    note = (
        "right: all that is asked. differ: scores that the file itself gives, to two digits, and that are others here."
    )
    return ResultTable(title, (by, "n", "score", "right", "differ"), cells, note)


def _figures(rows: Sequence[Scored]) -> tuple[Any, ...]:
    printed = [row for row in rows if row.printed is not None]
    differ = sum(abs(row.score - (row.printed or 0)) > 0.005 + 1e-9 for row in printed)
    return (f"{100 * fmean(r.score for r in rows):.2f}", f"{100 * fmean(r.score == 1 for r in rows):.2f}",
            f"{differ} of {len(printed)}" if printed else "")  # fmt: skip


def _write_scores(path: Path, method: str, rows: Sequence[Scored]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["family", "system", "case", "method", "score"])
    writer.writerows(["OpenRCA", row.system, row.case, method, f"{row.score:.6g}"] for row in rows)
    with whole_file(path) as partial:
        partial.write_text(out.getvalue(), encoding="utf-8")
    say(f"opsassay: score table: {path}")


if __name__ == "__main__":
    sys.exit(run(command))
