"""Grades answers to questions: all rows and fields, in order; the reason names the first error, partial credit apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.evals.cost.insight.keys import MISTAKES, Question
from opsassay.evals.cost.insight.question import Key, KeyRow, QuestionTemplate, number

Row = Mapping[str, Any]
SLACK = Fraction(1, 10**9)
"""Accepted relative error of a floating-point number, in addition to the tolerance of its field."""


def grade_rows(question: Question, rows: Sequence[Row]) -> dict[str, Metric]:
    """Return the metrics ``passed`` (0 or 1) and ``cells_right`` (F1) of an answer's *rows* to *question*."""
    problem = difference(question.template, question.key, rows)
    return {
        "passed": pass_metric(problem is None, "" if problem is None else _find_misreading(question, rows) or problem),
        "cells_right": Metric(value=cells_right(question.template, question.key, rows), status=MetricStatus.SCORED),
    }


def pass_metric(passed: bool, reason: str = "") -> Metric:
    """Return a metric of value 1 if *passed*, else 0 with the *reason*."""
    return Metric(value=float(passed), status=MetricStatus.SCORED, reason=reason)


def _find_misreading(question: Question, rows: Sequence[Row]) -> str | None:
    """Return the description of the known misreading whose answer equals *rows*, None without one."""
    for name in question.template.mistakes:
        if difference(question.template, question.misread(name), rows) is None:
            return MISTAKES[name][0]
    return None


def difference(template: QuestionTemplate, key: Key, rows: Sequence[Row]) -> str | None:
    """Return the first difference of *rows* from *key*, the right answer to *template*, as a sentence; or None."""
    known = {_name_of_row(template, row): row for row in (*key.required, *key.tied)}
    given = {_name_of_row(template, row): row for row in rows}
    if missing := next((name for row in key.required if (name := _name_of_row(template, row)) not in given), None):
        return f"{', '.join(missing)} is missing"
    if stray := next((name for name in given if name not in known), None):
        return f"{', '.join(stray)} does not belong into the answer"
    if len(rows) != len(key.required) + key.open:
        return f"there are {len(rows)} rows instead of {len(key.required) + key.open}"
    for name, row in given.items():
        if wrong := next(
            (one.name for one in template.fields if not _is_right(row, known[name], one.name, template)), None
        ):
            return f"{wrong} of {', '.join(name)} is {row[wrong]}, which is not right"
    if template.ranked is not None:
        tolerance = next(one.tolerance for one in template.fields if one.name == template.ranked)
        order = [number(known[_name_of_row(template, row)], template.ranked) for row in rows]
        if any(later > earlier + tolerance for earlier, later in pairwise(order)):
            return "the rows are not ordered, the highest first"
    return None


def cells_right(template: QuestionTemplate, key: Key, rows: Sequence[Row]) -> float:
    """Return the F1 score over cells, 2 * right / (given + expected), of *rows* against the right answer *key*."""
    known = {_name_of_row(template, row): row for row in (*key.required, *key.tied)}
    fields = [one.name for one in template.fields if one.kind != "name"]
    right = sum(
        _is_right(row, known[name], field, template)
        for row in rows if (name := _name_of_row(template, row)) in known
        for field in fields
    )  # fmt: skip
    given, asked = len(rows) * len(fields), (len(key.required) + key.open) * len(fields)
    return 2 * right / (given + asked) if given + asked else 1.0


def _name_of_row(template: QuestionTemplate, row: Row | KeyRow) -> tuple[str, ...]:
    """Return the values of the fields that identify *row*, as texts."""
    return tuple(str(row[name]) for name in template.names)


def _is_right(row: Row, expected: KeyRow, name: str, template: QuestionTemplate) -> bool:
    """Return whether field *name* of *row* is *expected*: a number within tolerance, one of several texts, or equal."""
    value, right = row[name], expected[name]
    if isinstance(right, Fraction):
        tolerance = next(one.tolerance for one in template.fields if one.name == name)
        return abs(Fraction(value) - right) <= tolerance + SLACK * abs(right)
    return value in right if isinstance(right, frozenset) else value == right


def answer_of(template: QuestionTemplate, key: Key) -> dict[str, Any]:
    """Return the right answer *key* in the form of a submitted answer: floats, highest ranked row first."""
    chosen = [*key.required, *key.tied[: key.open]]
    if template.ranked is not None:
        chosen.sort(key=lambda row: number(row, template.ranked or ""), reverse=True)
    rows = [{one.name: _as_plain_value(row[one.name]) for one in template.fields} for row in chosen]
    return {"rows": rows}


def _as_plain_value(value: str | Fraction | frozenset[str]) -> str | float:
    """Return a value of the right answer as JSON has it; of several right texts the first in order."""
    if isinstance(value, Fraction):
        return float(value)
    return min(value) if isinstance(value, frozenset) else value
