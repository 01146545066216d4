"""The tables of options in the docs are made from the code, and every option says what it means."""

from __future__ import annotations

import runpy
from pathlib import Path

import click
import pytest

from opsassay.cli.groups import load
from opsassay.cli.tree import COMMANDS

DOCS = Path(__file__).parents[1] / "docs"
OPTIONS = runpy.run_path(str(DOCS / "options.py"))
PAGES = sorted((DOCS / "commands").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_of_commands_has_the_options_of_the_code(page):
    text = page.read_text()
    assert OPTIONS["page_text"](text) == text, "run `python docs/options.py`"


def test_every_command_with_options_has_its_table():
    text = "\n".join(page.read_text() for page in PAGES)
    assert [name for name in COMMANDS if OPTIONS["option_table"](name) not in text] == []


def test_every_option_says_what_it_means():
    options = [(name, one) for name in COMMANDS for one in load(name).params if isinstance(one, click.Option)]
    assert [f"{name} {one.opts[0]}" for name, one in options if not one.help] == []


def test_a_table_that_is_missing_or_old_is_written(tmp_path):
    made = OPTIONS["page_text"]("# opsassay score\n\n## opsassay audit\n\nText.\n\n## Notes\n")
    table = OPTIONS["option_table"]("audit")
    assert made == f"# opsassay score\n\n## opsassay audit\n\nText.\n\n## Notes\n\n{table}"
    assert "| `-o`, `--output` | directory | required | Folder of the report. |" in table
    old = made.replace("Folder of the report.", "Another folder.")
    assert OPTIONS["page_text"](old) == made
