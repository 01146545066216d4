"""Parts of the audit report: sections, tables, and the format of numbers in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opsassay.analysis.audit.audit import AuditReport
from opsassay.analysis.audit.interaction import Test
from opsassay.analysis.audit.selection import Regret
from opsassay.core.schema.files import packaged_yaml
from opsassay.ui.audit_figures import points
from opsassay.ui.audit_svg import Figure

ROWS_SHOWN = 60
_TEXTS = packaged_yaml(__package__, "audit_words.yaml")
WORDS: Mapping[str, str] = _TEXTS["words"]
"""Sentences of the report, with places for numbers."""
DASH = "–"


@dataclass(frozen=True)
class AuditTable:
    """A table of texts; *numeric* are the indices of right-aligned columns; *note* is printed below."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A section of the report: paragraphs (*words*), figures with captions, tables, notes."""

    id: str
    title: str
    words: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    captions: tuple[str, ...] = ()
    tables: tuple[AuditTable, ...] = ()
    notes: tuple[str, ...] = ()


def table(name: str, rows: Sequence[Sequence[str]], note: str = "") -> AuditTable:
    """Return the table *name* of `audit_words.yaml` with *rows*; a long one is cut and names the file with all rows."""
    about = _TEXTS["tables"][name]
    titles = tuple(title.strip() for title in about["columns"].split("|"))
    if len(rows) > ROWS_SHOWN:
        note = f"{note} The first {ROWS_SHOWN} of {len(rows)} rows; all are in tables/{about['file']}.csv.".strip()
    kept = tuple(tuple(row) for row in rows[:ROWS_SHOWN])
    return AuditTable(about["caption"], titles, kept, frozenset(range(about["text_columns"], len(titles))), note)


def percent(value: float | None) -> str:
    """Return the fraction *value* in percent, a dash for None."""
    return DASH if value is None or not np.isfinite(value) else f"{100 * value:.1f}"


def interval(low: float, high: float) -> str:
    """Return "[low, high]" of two fractions in percentage points."""
    return f"[{points(low)}, {points(high)}]" if np.isfinite(low) and np.isfinite(high) else DASH


def span(low: float | None, high: float | None) -> str:
    """Return "low … high" of two fractions in percent."""
    return f"{percent(low)} … {percent(high)}"


def p_value(p: float | None) -> str:
    """Return *p* as text with three digits, a small one as a power of ten, a dash for None."""
    if p is None:
        return DASH
    return f"{p:.3f}" if p >= 0.001 else ("< 1e-16" if p < 1e-16 else f"{p:.1e}")


def decimals(value: float | None, digits: int = 2) -> str:
    """Return *value* with *digits* decimals, a dash for None."""
    return DASH if value is None or not np.isfinite(value) else f"{value:.{digits}f}"


def count_of(count: int | None, whole: int) -> str:
    """Return "count/whole", a dash when *count* is None."""
    return DASH if count is None else f"{count}/{whole}"


def yes_no(*, value: bool | None) -> str:
    """Return "yes" or "no" for *value*, a dash for None."""
    return DASH if value is None else ("yes" if value else "no")


def test_cells(test: Test) -> tuple[str, str, str]:
    """Return the table cells (statistic, degrees of freedom, p-value) of *test*."""
    return decimals(test.statistic), str(test.df), p_value(test.p)


def regret_cells(regret: Regret, whole: int) -> tuple[str, str, str]:
    """Return the table cells (reversals of *whole* systems, mean regret, maximum regret)."""
    return count_of(regret.reversals, whole), percent(regret.mean_regret), percent(regret.max_regret)


def families_of(audit: AuditReport) -> list[str]:
    """Return the families of systems in the audit, in table order."""
    return list(dict.fromkeys(audit.matched.families))
