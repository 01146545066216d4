"""Measured figures have one home: a row of benchmarks/results.csv. The page is made of it; README and docs state rows."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE_MAKER = runpy.run_path(str(DOCS / "measurements.py"))
ROWS = PAGE_MAKER["read_rows"]()

COLUMNS = ["what", "figure", "unit", "command", "date", "commit", "machine", "load", "bar"]
_UNITS = "ms|s|min|h|kB|MB|GB|MiB|GiB|%"
_FIGURE = re.compile(
    rf"(?<![\w.,])\d[\d,]* of \d[\d,]*\d|(?<![\w.,])\d[\d,]* of \d|(?<![\w.,])\d[\d,.]* ?(?:{_UNITS})(?![\w/])"
)
_MEASURED = re.compile(r"^#+ .*\b(measured|what was seen|speed|results|cost$)\b", re.IGNORECASE)

NOT_MEASURED = {"100 ms"}  # README: the fault of its example
MADE = {"measurements.md", "results-campaign.md"}  # pages that a script makes from data
NOT_YET_COVERED = {
    "audit.md": 2,
    "causes.md": 25,
    "discovery.md": 6,
    "kubernetes-scenarios.md": 2,
    "results.md": 8,
    "traces.md": 5,
    "trajectory.md": 10,
}
"""How many figures of a page's sections of measurements have no row: these numbers only fall."""


def figures(text: str) -> set[str]:
    """Return every figure with a unit in *text*, in one spelling."""
    return {re.sub(r"(?<=\d)(?=%|[a-zA-Z])", " ", found.replace(",", "")) for found in _FIGURE.findall(text)}


KNOWN = {found for row in ROWS for found in figures(f"{row['figure']} {row['unit']} ; {row['bar']} ; {row['machine']}")}


def measured_sections(page: str) -> str:
    """Return the text of *page* under headings that announce measurements."""
    kept, level = [], 0
    for line in page.splitlines():
        heading = re.match(r"(#+) ", line)
        if heading and (not level or len(heading[1]) <= level):
            level = len(heading[1]) if _MEASURED.match(line) else 0
        if level:
            kept.append(line)
    return "\n".join(kept)


def test_a_row_says_what_and_how():
    assert [list(row) for row in ROWS if list(row) != COLUMNS] == []
    assert [row for row in ROWS if not (row["figure"] and row["command"] and ": " in row["what"])] == []
    whats = [row["what"] for row in ROWS]
    assert sorted(whats) == sorted(set(whats)), "one row a figure: the newest"


def test_the_page_is_what_its_script_makes():
    assert PAGE_MAKER["PAGE"].read_text() == PAGE_MAKER["page_text"](ROWS), "run python docs/measurements.py"


def test_every_figure_of_the_readme_has_its_row():
    assert figures((ROOT / "README.md").read_text()) - KNOWN - NOT_MEASURED == set()


@pytest.mark.parametrize("page", sorted({path.name for path in DOCS.glob("*.md")} - MADE))
def test_every_figure_of_a_measured_section_has_its_row(page):
    missing = figures(measured_sections((DOCS / page).read_text())) - KNOWN
    most = NOT_YET_COVERED.get(page, 0)
    assert len(missing) <= most, f"add a row to benchmarks/results.csv for one of {sorted(missing)}"
    assert len(missing) == most, f"set {page} to {len(missing)} in NOT_YET_COVERED"


def test_figures_are_read_in_every_spelling():
    assert figures("1,486 MB, 4.5% and 28 of 28; 2 min 23 s, 126 of 126.") == {
        "1486 MB", "4.5 %", "28 of 28", "2 min", "23 s", "126 of 126",
    }  # fmt: skip


def test_limitations_stay_on_one_page():
    assert len((DOCS / "limitations.md").read_text().splitlines()) <= 80


def test_a_release_takes_at_most_one_page_of_the_changelog():
    releases = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    assert [release.splitlines()[0] for release in releases if len(release.splitlines()) > 60] == []
    parts = {part for release in releases for part in re.findall(r"^### (.+)$", release, re.MULTILINE)}
    assert parts == {"Added", "Changed", "Removed", "Fixed"}
