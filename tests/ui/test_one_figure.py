"""One figure of a solver is one text, whoever shows it: commands, boards, pages that are served and pages in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opsassay.cli import run as command_line
from opsassay.core.schema.metric_words import METRICS
from opsassay.evals.diagnosis.solve import run_method
from opsassay.evals.runner.store import RunStore
from opsassay.telemetry.tree import resolve
from telemetry.packs import make_tree
from ui.figures import column, in_page, in_report

SOLVER = "self-time"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A store of three incidents; one solver is right on all of them, one on none, and one crashes."""
    tree = make_tree(tmp_path_factory.mktemp("figures") / "t", count=3)
    for case in resolve(tree.root):
        for method in (SOLVER, "constant", "evals.solvers:Raises"):
            run_method(RunStore(tree.root), case.datapack, method)
    return tree.root


@pytest.fixture
def said(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")

    def said(*arguments):
        assert command_line([*map(str, arguments)]) == 0
        return capsys.readouterr().out

    return said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "text"),
    [(SOLVER, "100.0% [43.9, 100.0]"), ("constant", "0.0% [0.0, 56.1]"), ("Raises", "0.0% [0.0, 56.1]")],
)
def test_one_figure_is_one_text_in_commands_boards_and_pages(made, said, tmp_path, solver, text):
    title = METRICS["any_service"].title
    shown = {
        "grade": column(said("score", "run", made), title, solver, "Grades"),
        "solvers": column(said("score", "run", made), title, solver, "Solvers"),
        "table": column(said("score", "table", made), title, solver, "All injected cases"),
        "board": column(said("leaderboard", made, "--html", tmp_path / "board.html"), title, solver),
    }
    page = (tmp_path / "board.html").read_text()
    shown["board page"] = in_page(page, title, solver)
    said("view", made, "--export", tmp_path / "pages")
    shown["view"] = in_page((tmp_path / "pages" / "boards" / "diagnosis.html").read_text(), title, solver)
    said("report", made, "-o", tmp_path / "report")
    shown["report"] = in_report((tmp_path / "report" / "report.html").read_text(), title, solver)
    assert set(shown.values()) == {text}, shown


@pytest.mark.slow
def test_json_has_the_same_figure_as_a_fraction(made, said):
    summary = {one["solver"]: one for one in json.loads(said("score", "run", made, "--json"))["summary"]}
    rows = {one["solver"]: one for one in json.loads(said("leaderboard", made, "--json"))["items"]}
    for solver in (SOLVER, "constant", "Raises"):
        figure = rows[solver]["metrics"]["any_service"]
        assert figure["value"] == summary[solver]["any_service"]
        assert [figure["low"], figure["high"]] == summary[solver]["intervals"]["any_service"]
        assert figure["tasks"] == summary[solver]["graded"]["any_service"] == 3
