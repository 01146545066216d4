"""The live table of runs: what it shows while they run, and what is printed where there is no terminal."""

from __future__ import annotations

from rich.console import Console

from opsassay.cli.live_table import RunTable, run_table


def shown(table):
    console = Console(width=100, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_it_shows_what_runs_and_what_has_ended_with_the_sum(capsys):
    table = RunTable(3)
    table.started("1/3 one: rca")
    table.started("2/3 two: rca")
    spent = {"input_tokens": 1200, "output_tokens": 34, "money_usd": 0.5}
    table.finished("1/3 one: rca", "failed: no idea", spent)
    text = shown(table)
    assert "Runs 1/3 (1 failed, 1,234 tokens, USD 0.50)" in text
    assert "failed: no idea" in text
    assert "running, 0 s" in text
    assert text.count("one") == text.count("two") == 1
    assert "opsassay: 1/3 one: rca: failed: no idea" in capsys.readouterr().err


def test_without_a_terminal_every_end_is_a_line(capsys):
    with run_table(1) as table:
        table.started("1/1 one: rca")
        table.advanced("1/1 one: rca", "aborted: it hung")
        table.finished("1/1 one: rca", "done (limits hit: tool_calls) [canary]")
    assert capsys.readouterr().err.splitlines() == [
        "opsassay: 1/1 one: rca: aborted: it hung",
        "opsassay: 1/1 one: rca: done (limits hit: tool_calls) [canary]",
    ]
    assert "(1 done, 0 tokens)" in shown(table)
