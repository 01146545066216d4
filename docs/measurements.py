"""Write docs/measurements.md from benchmarks/results.csv: one line a row, a table for each group.

Run it as `python docs/measurements.py` after a row has changed. A row's *what* is `GROUP: what was measured`.
"""

from __future__ import annotations

import csv
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.csv"
PAGE = ROOT / "docs" / "measurements.md"

_HEAD = """# Measurements

This page lists every measured figure that README and these pages state, and the others that were measured.
It is made from `benchmarks/results.csv` by `python docs/measurements.py`. Change the row, not the page.

A row holds the newest valid figure. An empty column means that it was not recorded.
The commit was recorded for {commits} of {rows} rows. *Load* is the load average, or what else ran.
All figures without a machine of their own are from one shared machine: {machine}.
"""
_COLUMNS = "| what | figure | bar | date | load | command |\n| --- | --- | --- | --- | --- | --- |\n"


def read_rows(path: Path = RESULTS) -> list[dict[str, str]]:
    """Return the rows of the results, as texts by column."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def page_text(rows: list[dict[str, str]]) -> str:
    """Return the page of *rows*, which are in the order of their groups."""
    machine = rows[0]["machine"]
    text = _HEAD.format(commits=sum(bool(row["commit"]) for row in rows), rows=len(rows), machine=machine)
    for group, members in groupby(rows, key=lambda row: row["what"].partition(": ")[0]):
        text += f"\n## {group}\n\n{_COLUMNS}"
        text += "".join(_row_line(row, machine) for row in members)
    return text


def _row_line(row: dict[str, str], machine: str) -> str:
    what = row["what"].partition(": ")[2]
    if row["machine"] != machine:
        what += f" (on {row['machine']})"
    if row["commit"]:
        what += f" (at {row['commit'][:10]})"
    figure = f"**{row['figure']}** {row['unit']}".strip()
    cells = (what, figure, row["bar"], row["date"], row["load"], f"`{row['command']}`")
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page_text(read_rows()), encoding="utf-8")
