"""Text from outside is shown on a terminal and on a page, never sent to it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import opsassay
from opsassay.cli.output import echo, print_table, say
from opsassay.evals.runner.tables import ResultTable, markdown

CLASS = "9 terminal controls"

CONTROLS = {
    "clear": "\x1b[2J", "title": "\x1b]0;owned\x07", "link": "\x1b]8;;http://x\x07y\x1b]8;;\x07", "clipboard": "\x1b]52;c;YQ==\x07",
    "c1": "\x9b2J", "return": "good\rbad", "back": "bad\x08\x08\x08good", "bell": "\x07", "null": "\x00", "right to left": "\u202egnp.exe",
    "isolate": "\u2066x\u2069", "mark": "\u200f", "joiner": "a\u200db", "tag": "\U000e0041", "separator": "a\u2028b", "delete": "\x7f",
    "shift": "\x0e", "bom": "\ufeff", "surrogate": "\udc9b", "answer": "\x1b[6n",
}  # fmt: skip


@pytest.mark.parametrize("what", CONTROLS)
@pytest.mark.parametrize("door", ["echo", "say", "table", "page"])
def test_a_control_is_shown_and_not_sent(capsys, what: str, door: str) -> None:
    text = f"<{CONTROLS[what]}>"
    if door == "page":
        written = markdown("T", [], [ResultTable("t", ("a",), ((text,),))])
    else:
        {"echo": echo, "say": say, "table": lambda one: print_table(one, (one,), ((one,),))}[door](text)
        out, err = capsys.readouterr()
        written = out + err
    assert not any(sign in CONTROLS[what] and not sign.isprintable() for sign in written if sign != "\n")
    assert "\\" in written
    echo("plain \u00e9 \u6f22")
    assert "plain \u00e9 \u6f22" in capsys.readouterr().out  # the control


@pytest.mark.parametrize("text", ["[red]x[/red]", "[link=http://x]y[/link]", "[/]", "[bold", ":warning:"])
def test_markup_is_text(capsys, text: str) -> None:
    print_table("t", ("a",), ((text,),))
    assert text in capsys.readouterr().out


def test_no_command_prints_past_the_one_place() -> None:
    folder = Path(opsassay.__file__).parent / "cli"
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            allowed = path.name == "output.py" and called == "click.echo"
            assert allowed or called not in {"click.echo", "click.secho", "print", "sys.stdout.write"}, (
                f"{path}: {called}"
            )
