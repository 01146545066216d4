"""Tables in a terminal: no word is broken, at 80 columns included, by any command that prints one."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from opsassay.cli import COMMANDS, run, tables
from telemetry.packs import make_tree

ROOT = Path(__file__).parents[2]
CLI = ROOT / "src" / "opsassay" / "cli"
EXAMPLES, GOLDEN = ROOT / "examples", ROOT / "tests" / "evals" / "golden"
SEEN = re.compile(r"[^\s│┃]+")

words = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z", "M"], exclude_characters="│┃"), min_size=1, max_size=30
)
sentences = st.lists(words, max_size=5).map(" ".join)


def laid_out(width, columns, rows, title="A title of several words"):
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        tables.print_rows(console, title, columns, rows)
    return captured.get()


def broken(shown, columns, rows):
    """Return the words of a table that are not in what was *shown*, or not as often."""
    expected = Counter(
        word for cell in (*columns, *(c for row in rows for c in row)) for word in SEEN.findall(str(cell))
    )
    return expected.keys() - Counter(SEEN.findall(shown)).keys()


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(20, 200), st.lists(st.tuples(sentences, sentences, sentences), min_size=1, max_size=3))
def test_no_word_is_broken_at_any_width(width, rows):
    columns = ("case", "what was seen", "reason")
    shown = laid_out(width, columns, rows)
    assert not broken(shown, columns, rows)
    longest = max(map(cell_len, SEEN.findall(shown)))
    assert all(
        cell_len(line.rstrip()) <= width or longest + len("what was seen") + 4 > width for line in shown.splitlines()
    )


def test_what_fits_is_a_grid_what_nearly_fits_is_close_and_the_rest_is_row_by_row():
    columns, rows = ("id", "state"), [("a" * 20, "as it was"), ("b" * 20, "other")]
    assert "┃" in laid_out(40, columns, rows)
    assert "┃" not in (close := laid_out(28, columns, rows))
    assert "─" in close
    assert laid_out(24, columns, rows).splitlines()[1:3] == [f"  id     {'a' * 20}", "  state  as it was"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a graded store, a store of trials, traces and score tables."""
    folder = tmp_path_factory.mktemp("made")
    store = make_tree(folder / "store", count=2).root
    for name in ("sre_store", "diagnosis_store"):
        shutil.copytree(GOLDEN / name, folder / name)
    session = folder / "recorded" / "sessions" / "run"
    for words in (
        ["incident", "annotate", store],
        ["run", "diagnose", store, "-m", "max-z", "-m", "alert-count", "-m", "chance"],
        ["score", "run", store],
        ["incident", "export", store, "-o", folder / "public"],
        ["trace", "proxy", "--upstream", f"scripted:{EXAMPLES / 'multi_agent' / 'answers.yaml'}", "-o", folder / "recorded",
         "--", "python3", EXAMPLES / "multi_agent" / "ask.py"],
        ["trace", "convert", session, "-o", folder / "traces" / "one.json"],
    ):  # fmt: skip
        (folder / "traces").mkdir(exist_ok=True)
        assert run([*map(str, words)]) == 0
    systems = ("alpha", "beta", "gamma")
    lines = [
        f"f,{s},c{c},{m},{(c * 7 + len(s) + i) % 3 > 0:d}"
        for s in systems
        for c in range(30)
        for i, m in enumerate("ab")
    ]
    (folder / "scores.csv").write_text("family,system,case,method,score\n" + "\n".join(lines) + "\n")
    (folder / "answers").mkdir()
    (folder / "answers" / f"{next((store / 'incidents').iterdir()).name}.json").write_text(
        json.dumps({"root_causes": [{"service": "store", "fault_kind": "http_aborted"}], "propagation": []})
    )
    (folder / "labels").mkdir()
    (folder / "labels" / "one.json").write_text(json.dumps({"agent_name": "Solver", "step_id": 1}))
    (folder / "judged").mkdir()
    return folder


FAST = ("-c", "resamples=200", "-c", "permutations=100", "-c", "simulations=100")
CALLS = {
    "new schema": [[]],
    "agent list": [[]],
    "agent check": [["{examples}/agents/by_mcp/agent.yaml"]],
    "agent methods": [[]],
    "incident annotate": [["{made}/store"]],
    "incident curate": [["{made}/store", "-o", "{tmp}/suite", "--dry-run"]],
    "incident import": [["rcabench", "{made}/public", "-o", "{tmp}/imported"]],
    "audit": [["{made}/scores.csv", "-o", "{tmp}/audit", *FAST],
              ["verify", "{tmp}/audit/tables/ledger.csv", "{made}/scores.csv", "--tolerance", "1e-9", *FAST]],
    "trace blame": [["{made}/traces/one.json"],
                    ["agree", *(f"{{examples}}/multi_agent/annotations/{name}.json" for name in ("ada", "ben", "eve"))]],
    "trace convert": [["{made}/traces/one.json"]],
    "trace redact": [["{made}/traces/one.json", "-o", "{tmp}/clean.json"]],
    "leaderboard": [["{made}/store"]],
    "compare": [["{made}/scores.csv", "{made}/scores.csv"]],
    "run": [["{made}/store", "-a", "constant", "-o", "{tmp}/runs", "--repeats", "2"]],
    "run diagnose": [["{made}/store", "-m", "max-z", "-o", "{tmp}/diagnosed"]],
    "task calibrate": [["wrong-upstream-port", "-o", "{tmp}/calibrated", "--dry-run"]],
    "run trials": [["{examples}/trials/plan.yaml", "-o", "{tmp}/trials", "--dry-run"]],
    "run explain": [["{made}/sre_store/runs/064b1ebafa1721c1/1"]],
    "score run": [["{made}/store"]],
    "score import": [["{made}/answers", "--cases", "{made}/store", "-o", "{tmp}/imported"]],
    "score what-if": [["{made}/store", "--profile", "lenient"]],
    "score table": [["{made}/sre_store"]],
    "score trials": [["{made}/sre_store"]],
    "score timeline": [["unreachable-service", "--records", "{examples}/foreign/records.jsonl", "--profile", "paper"]],
    "system faults": [[], ["--system", "till"]],
    "system status": [[]],
    "task list": [["{made}/store"]],
    "task scenarios": [[]],
    "task generate": [["--cost", "{examples}/cost/export.csv", "-o", "{tmp}/costs"]],
}  # fmt: skip
"""Every command that prints a table, with calls that do; what is made by a live system is in `MADE_LIVE`."""

MADE_LIVE = {
    "incident audit-labels",
    "server benchmark",
    "incident campaign",
    "demo",
    "system check",
    "system attach",
    "task discover",
}
"""Their tables need a live system or two people; what they print goes through the same `print_table`."""


def test_every_command_that_prints_a_table_is_called_here():
    modules = {name: entry.place.partition(":")[0] for name, entry in COMMANDS.items()}
    printing = {
        module
        for module in modules.values()
        if any(
            isinstance(node, ast.Name) and node.id in ("print_table", "print_tables")
            for node in ast.walk(ast.parse((CLI / f"{module.replace('.', '/')}.py").read_text()))
        )
    }
    assert printing == {modules[name] for name in (*CALLS, *MADE_LIVE)}


def test_tables_are_laid_out_in_one_place():
    users = {path.name for path in (ROOT / "src" / "opsassay").rglob("*.py") if "rich.table" in path.read_text()}
    assert users == {"tables.py", "live_table.py"}


@pytest.mark.slow
@pytest.mark.parametrize("command", CALLS)
def test_a_real_table_of_80_columns_has_every_word_whole(command, made, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    printed = []
    print_rows = tables.print_rows
    monkeypatch.setattr(
        tables, "print_rows", lambda console, *table: (printed.append(table), print_rows(console, *table))
    )
    for call in CALLS[command]:
        words = [word.format(made=made, examples=EXAMPLES, tmp=tmp_path) for word in call]
        printed.clear()
        assert run([*command.split(), *words]) in (0, 1)
        out = capsys.readouterr().out
        assert printed, f"{words} printed no table"
        for title, columns, rows in printed:
            assert title in out
            assert not broken(out, columns, [["-" if cell is None else cell for cell in row] for row in rows])


def test_what_is_left_of_a_plan_is_estimated_before_anything_runs(tmp_path, capsys):
    assert run(["run", "trials", str(EXAMPLES / "trials" / "plan.yaml"), "-o", str(tmp_path / "out"), "--dry-run"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "opsassay: left: " in line]
    count, of, longest = re.search(r"left: (\d+) of (\d+) trials, at most ([\d:]+),", line).groups()
    assert count == of
    hours, minutes, _ = map(int, longest.split(":"))
    assert 60 * hours + minutes >= int(count)  # each of them warms up, waits and gives an agent its time
    assert not (tmp_path / "out").exists()
