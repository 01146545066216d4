"""Question templates, worded in `questions.yaml`."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from opsassay.core.schema.files import packaged_yaml
from opsassay.evals.cost.focus.schema import RESOURCE_DAYS
from opsassay.evals.cost.insight.question import Billed, Field, KeyRow, OwnReading, QuestionTemplate, Tables, Terms
from opsassay.evals.cost.insight.reading import sql_literals, sql_rows
from opsassay.evals.runner.draws import Draws

_TEXTS = packaged_yaml(__package__, "questions.yaml")
_DAILY = (
    ", daily AS (SELECT application, day, sum(pico) AS pico, count(*) AS counted FROM chosen "
    "WHERE application IS NOT NULL GROUP BY ALL)"
)


def template(
    name: str, terms: Callable[[Draws, Billed], Terms], frame: Callable[[Tables, Terms], list[KeyRow]]
) -> QuestionTemplate:
    """Return question *name* of questions.yaml; *terms* draws its parameters, *frame* computes its rows with polars."""
    row = _TEXTS["questions"][name]
    return QuestionTemplate(
        name=name,
        stratum=row["stratum"],
        kpi=row["kpi"],
        fields=tuple(map(_read_field, row["fields"])),
        terms=terms,
        prompt=lambda given: _fill_placeholders(row["prompt"], given),
        sql=lambda given: _fill_placeholders(row["sql"], given),
        frame=frame,
        mistakes=tuple(row["mistakes"]),
        ranked=row.get("ranked"),
        paper=row.get("paper"),
    )


def _read_field(row: dict[str, Any]) -> Field:
    """Return the answer field that a map of the YAML file describes."""
    return Field(**{**row, "tolerance": Fraction(row.get("tolerance", Field.tolerance))})


def _fill_placeholders(text: str, terms: Terms) -> str:
    """Return *text* with the names in braces replaced by values of *terms* or by shared phrases."""
    days, rows = (terms.last - terms.first).days + 1, sql_rows(terms).rstrip()
    window = f"from {terms.first} to {terms.last}, both days included"
    return text.format(
        terms=terms,
        days=days,
        days_squared=days * days,
        hours=24 * days,
        between=f"{window} (by ChargePeriodStart; days are those of {terms.zone})",
        window=f"{window} (by Day of the table {RESOURCE_DAYS})",
        ties=f"Give exactly {terms.top} rows, the highest first; of equal ones at the cut any may be given.",
        chosen=" and ".join(terms.chosen),
        chosen_sql=sql_literals(terms.chosen),
        rows=rows,
        daily=rows + _DAILY,
        **_shared_phrases(terms.own),
    )


def _shared_phrases(own_reading: OwnReading | None) -> dict[str, str]:
    """Return placeholder to phrase for phrases of several questions; for a team's own costs if *own_reading* is set."""
    words: dict[str, str] = _TEXTS["words"]
    if own_reading is None:
        return words
    return words | {
        name: text.format(currency=own_reading.currency, tag=own_reading.tag)
        for name, text in _TEXTS["own_words"].items()
    }
