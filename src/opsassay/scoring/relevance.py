"""Relevance by execution: a statement is run again over tables without the rows that it is said to be about.

A statement depends on the rows whose removal changes its result. So it is run without any telemetry, with only the rows
of the claimed service, and without them; the wording of the statement cannot influence the outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsassay.scoring.budget import TimeBudget
from opsassay.scoring.statements import NAME_COLUMNS
from opsassay.telemetry.sql import LockedSql, QueryResult
from opsassay.telemetry.sql_worker import MAIN

COMPARED_ROWS = 500
"""Most rows of a result that are compared."""

Rows = tuple[str, ...]


@dataclass
class Executions:
    """Runs one statement, which reads telemetry tables *reads* times, over other tables; *first* is its usual result."""

    sql: LockedSql
    first: QueryResult
    parameters: Mapping[str, Any]
    reads: int
    budget: TimeBudget
    _known: dict[tuple[str, ...], QueryResult] = field(default_factory=dict)

    @property
    def is_steady(self) -> bool:
        """Whether the statement returns the same rows when it is run again."""
        return self._run_and_read_rows(self._schema_for_all_reads(MAIN)) in {None, _comparable_rows(self.first)}

    @property
    def says_nothing(self) -> bool:
        """Whether the statement returns the same rows on empty telemetry tables."""
        return self._run_and_read_rows(self._schema_for_all_reads("view_none")) == self._run_and_read_rows(
            self._schema_for_all_reads(MAIN)
        )

    def is_about(self, restricted: Iterable[int], feeding: frozenset[int]) -> bool:
        """Return whether the result depends on rows of the claimed services, as `LockedSql.about` was given them.

        Either the whole result is the same from those rows alone, and another one without them; or one read that is
        both *restricted* and *feeding* (numbers of reads) gives the same from those rows alone, and another non-empty
        result from half of them or from changed numbers in them.
        """
        whole = self._run_and_read_rows(self._schema_for_all_reads(MAIN))
        if whole is None:
            return False
        if self._run_and_read_rows(self._schema_for_all_reads("view_only")) == whole:
            return self._run_and_read_rows(self._schema_for_all_reads("view_without")) != whole
        return any(self._depends_on_read(read, whole) for read in sorted(set(restricted) & feeding))

    def _depends_on_read(self, read: int, whole: Rows) -> bool:
        """Return whether read *read* needs only rows of the claimed services for *whole*, and changes with them."""
        if self._run_and_read_rows(self._schema_of_read(read, "view_only")) != whole:
            return False
        others = (
            self._run_on_schemas(self._schema_of_read(read, view))
            for view in ("view_changed", "view_without_even", "view_without_odd")
        )
        return any(not is_nothing(other.rows) and _comparable_rows(other) not in {None, whole} for other in others)

    def _run_and_read_rows(self, schemas: tuple[str, ...]) -> Rows | None:
        """Run the statement on *schemas*, one per read; return its comparable rows, None when it failed."""
        return _comparable_rows(self._run_on_schemas(schemas))

    def _run_on_schemas(self, schemas: tuple[str, ...]) -> QueryResult:
        """Return the statement's result with each read on its own schema; each combination runs once."""
        if schemas not in self._known:
            self._known[schemas] = self.budget.query(
                self.sql, self.first.executed, self.parameters, schemas=schemas, max_rows=COMPARED_ROWS
            )
        return self._known[schemas]

    def _schema_for_all_reads(self, schema: str) -> tuple[str, ...]:
        """Return *schema* repeated once per read of a telemetry table in the statement."""
        return (schema,) * self.reads

    def _schema_of_read(self, read: int, schema: str) -> tuple[str, ...]:
        """Return a schema per read of a table: *schema* for number *read*, the full telemetry for all others."""
        return tuple(schema if number == read else MAIN for number in range(self.reads))


def is_nothing(rows: Sequence[Sequence[Any]]) -> bool:
    """Return whether all cells of *rows* are zero, empty, null or the name of a period (normal, abnormal)."""
    return all(value is None or value == 0 or value in {"", "normal", "abnormal"} for row in rows for value in row)


def names_in(sql: LockedSql) -> tuple[str, ...]:
    """Return the sorted distinct values of all name columns (service, pod, ...) in the tables of *sql*."""
    columns = [(table, column) for table in sql.tables() for column in sql.schema(table) if column in NAME_COLUMNS]
    each = " UNION ".join(f'SELECT DISTINCT "{column}" AS name FROM "{table}"' for table, column in columns)  # noqa: S608 - ours
    answer = sql.query(f"SELECT list(name) FROM ({each}) WHERE name IS NOT NULL")  # noqa: S608 - columns are ours
    return tuple(sorted(answer.rows[0][0] or ())) if answer.rows else ()


def _comparable_rows(answer: QueryResult) -> Rows | None:
    """Return the result's rows sorted and with rounded floats, None when the query failed."""
    if answer.status not in {"ok", "empty"}:
        return None
    return tuple(sorted(repr([_round_float(value) for value in row]) for row in answer.rows))


def _round_float(value: Any) -> Any:
    """Return a float rounded to nine significant digits, any other value unchanged."""
    return float(f"{value:.9g}") if isinstance(value, float) else value
