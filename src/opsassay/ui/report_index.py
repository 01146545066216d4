"""``index.html`` of a report: every run of the store with what came of it, each row to the page that shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from opsassay.core.text import counted
from opsassay.ui.browsing.rows import Shown, View, run_row
from opsassay.ui.browsing.verdicts import StoredVerdicts
from opsassay.ui.browsing.watching import Watcher
from opsassay.ui.page import render, write_whole


def write_index(
    root: Path, output: Path, pages: Mapping[Path, str], title: str, written_to: Callable[[Path], None]
) -> None:
    """Write ``index.html`` into *output* over the store at *root*; *pages* are addresses there by the folders of runs."""
    view = index_view(root, pages)
    written_to(write_whole(output / "index.html", render("report_index.html", title, view=view)))


def index_view(root: Path, pages: Mapping[Path, str]) -> View:
    """Return what the index shows: the rows of the live view, the latest first."""
    shown = Shown(Watcher([root]).catalogue, StoredVerdicts(), live=False)
    to = {folder.resolve(): page for folder, page in pages.items()}
    rows = [run_row(shown, one) | {"page": to.get(one.folder.resolve())} for one in shown.catalogue.newest]
    outcomes = Counter(row["outcome"] for row in rows)
    said = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
    return {"answer": f"{counted(len(rows), 'run')}: {said}." if rows else "There are no runs.", "rows": rows}
