"""Every script about a paper, run by itself: it prints its tables, or one sentence about what it needs."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

PAPERS = Path(__file__).parents[2] / "benchmarks" / "papers"
SCRIPTS = [f"benchmarks.papers.{path.stem}" for path in sorted(PAPERS.glob("[!_]*.py")) if path.stem != "running"]
PARTS = [f"benchmarks.papers.{name}" for name in ("blame.labels", "blame.score_table", "blame.scores", "blame.tables")]
SCRIPTS += [*PARTS, *(f"benchmarks.papers.itbench_compliance{end}" for end in ("", ".table"))]
ALONE = {"itbench": "Table 22.", "itbench_tasks": "Table 22.", "side_effects": "Table 1."}
"""Scripts that have tables without anything given, with how what they print begins."""


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_alone_prints_tables_or_says_in_a_sentence_what_it_needs(script, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [script])
    try:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
    printed = capsys.readouterr()
    if begins := ALONE.get(script.rsplit(".", 1)[1]):
        assert (code, printed.out.startswith(begins)) == (0, True)
        return
    (sentence,) = printed.err.splitlines()
    assert (code, printed.out) == (2, "")
    assert sentence.startswith("Error: ")
    assert sentence.endswith(".")
