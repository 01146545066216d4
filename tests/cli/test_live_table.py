"""The live table of runs: what it shows while they run, and what is printed where there is no terminal."""

from __future__ import annotations

from types import SimpleNamespace

from rich.console import Console

from opsassay.cli.live_table import RunTable, run_table, summary_of


def job(case, label="rca"):
    return SimpleNamespace(case=SimpleNamespace(name=case), label=label)


def made(of, status="done", error=None, limits=(), flags=(), **spent):
    run = SimpleNamespace(
        status=SimpleNamespace(value=status), error=error, limits_hit=limits, flags=flags, spent=spent
    )
    return SimpleNamespace(job=of, run=run, error=None)


def shown(table):
    console = Console(width=100, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_it_shows_what_runs_and_what_has_ended_with_the_sum(capsys):
    table, first, second = RunTable(3), job("one"), job("two")
    table.began(first)
    table.began(second)
    table.ended(made(first, "failed", "no idea", input_tokens=1200, output_tokens=34, money_usd=0.5))
    text = shown(table)
    assert "Runs 1/3 (1 failed, 1,234 tokens, USD 0.50)" in text
    assert "failed: no idea" in text
    assert "running, 0 s" in text
    assert text.count("one") == text.count("two") == 1
    assert "opsassay: 1/3 one: rca: failed: no idea" in capsys.readouterr().err


def test_without_a_terminal_every_end_is_a_line(capsys):
    with run_table(1) as table:
        of = job("one")
        table.began(of)
        table.ended(made(of, limits=("tool_calls",), flags=("canary",)))
    assert capsys.readouterr().err == "opsassay: 1/1 one: rca: done (limits hit: tool_calls) [canary]\n"


def test_what_could_not_be_run_says_why():
    never = SimpleNamespace(job=job("one"), run=None, error="the disk is full")
    assert summary_of(never) == ("not run", "the disk is full")
