"""The groups of commands: what the help lists, the names of before, what a misspelt name gets, and what is imported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from opsassay.cli import cli, run
from opsassay.cli.groups import load, next_command
from opsassay.cli.tree import COMMANDS, GROUPS, RENAMED, STAGES, children, command_in

STORE = Path(__file__).parents[1] / "evals" / "golden" / "diagnosis_store"
SANDBOX = (
    "opsassay.testbed.kernel", "opsassay.testbed.substrates.local", "opsassay.solvers.sandbox.groups",
    "opsassay.solvers.sandbox.seccomp", "opsassay.solvers.sandbox.init", "opsassay.solvers.sandbox.supervisor",
)  # fmt: skip
"""What isolates systems and agents: a listing has no use for it."""


def reached(words):
    """Return the command that *words* reach through the groups, and the words that are left to it."""
    group, context = cli, click.Context(cli)
    rest = words.split()
    while isinstance(group, click.Group) and rest:
        _, group, rest = group.resolve_command(context, rest)
    return group, rest


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_reached_by_its_name_and_says_what_it_does(name):
    command, rest = reached(name)
    assert command is load(name)
    assert not isinstance(command, click.Group)
    assert rest == []
    assert command.help
    assert command_in([*name.split(), "x"]) == name


@pytest.mark.parametrize("old", RENAMED)
def test_a_name_of_before_reaches_the_same_command_and_says_so_once_on_standard_error(old, capsys):
    new = RENAMED[old]
    assert new in COMMANDS
    assert reached(old)[0].callback is reached(new)[0].callback
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"`opsassay {old}` is now `opsassay {new}`.\n")
    assert run([*old.split(), "--help"]) == 0
    helped, err = capsys.readouterr()
    assert err.count("is now") == 1
    assert run([*new.split(), "--help"]) == 0
    assert capsys.readouterr() == (helped, "")


def test_a_command_is_never_called_by_a_name_of_before_and_no_name_leads_to_another():
    assert set(RENAMED) & set(COMMANDS) == set()
    assert set(RENAMED.values()) & set(RENAMED) == set()


@pytest.mark.parametrize("old", ["methods", "agents list", "schema"])
def test_standard_output_is_that_of_before_with_the_name_that_scripts_know(old, capsys):
    assert run([*old.split(), "--json"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert run([*RENAMED[old].split(), "--json"]) == 0
    now = json.loads(capsys.readouterr().out)
    assert before == {**now, "command": old.split()[0]}
    assert now["command"] == RENAMED[old]


WRONG = [
    "audit scores nowhere.csv -o out",
    "blame nowhere",
    "board nowhere",
    "trials grade nowhere",
    "export otel nowhere",
]


@pytest.mark.parametrize("typed", WRONG)
def test_wrong_input_is_said_as_by_the_new_name_with_the_same_exit_code(typed, capsys):
    old = max((name for name in RENAMED if typed.startswith(f"{name} ")), key=len)
    assert run(typed.split()) == 2
    before = capsys.readouterr()
    assert run([*RENAMED[old].split(), *typed.removeprefix(old).split()]) == 2
    now = capsys.readouterr()
    assert (before.out, now.out) == ("", "")
    assert before.err == f"`opsassay {old}` is now `opsassay {RENAMED[old]}`.\n{now.err}"


def test_help_lists_each_command_and_group_once_by_stages_and_no_name_of_before(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    listed = [name for names in STAGES.values() for name in names]
    assert [name for name in shown if name in {*listed, *RENAMED}] == listed
    assert [line.removesuffix(":") for line in lines if line.removesuffix(":") in STAGES] == list(STAGES)
    assert lines[-1] == "Next: opsassay demo"
    assert all(sum(line.startswith(f"  {name} ") for line in lines) == 1 for name in listed)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_each_of_its_commands_once(group, capsys):
    assert run([*group.split(), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    below = [name.split()[-1] for name in children(group)]
    assert [line.split()[0] for line in lines[lines.index("Commands:") + 1 :] if line[:3].strip()] == below


def test_every_command_and_group_is_listed_somewhere():
    listed, ahead = set(), [""]
    while ahead:
        below = children(ahead.pop())
        listed |= set(below)
        ahead += below
    assert listed == {*COMMANDS, *GROUPS}


def test_the_next_command_looks_at_the_latest_store_in_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert next_command() == "opsassay demo"
    for seconds, name in enumerate(("first", "second")):
        for kept in ("incidents", "truth"):
            (tmp_path / name / kept).mkdir(parents=True)
        os.utime(tmp_path / name, (seconds, seconds))
    assert next_command() == "opsassay view second"
    run_store = tmp_path / "opsassay-out" / "demo-1"
    run_store.mkdir(parents=True)
    (run_store / "attempts.jsonl").touch()
    assert next_command() == "opsassay view opsassay-out/demo-1"


def modules_after(*words, cwd=None):
    """Return the modules that a process has imported after `opsassay` with *words*, and its exit code."""
    code = (
        "import json, sys; from opsassay.cli import run; code = run(sys.argv[1:]); "
        "print(json.dumps([code, *sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, cwd=cwd)
    code, *modules = json.loads(done.stdout.splitlines()[-1])
    return code, modules


@pytest.mark.parametrize("words", ["--help", "run --help", "system --help", "score --help", "system up --help"])
def test_help_imports_no_command_that_is_not_asked_and_nothing_heavy(words):
    code, modules = modules_after(*words.split())
    assert code == 0
    asked = COMMANDS[name].place if (name := command_in(words.split())) else None
    places = {f"opsassay.cli.{entry.place.partition(':')[0]}" for entry in COMMANDS.values()}
    assert places & set(modules) <= {f"opsassay.cli.{asked}"}
    assert {"rich", "pydantic", "polars", "yaml", "numpy"} & {name.partition(".")[0] for name in modules} == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["task list", "task scenarios", "agent methods", "new schema", "score table store", "leaderboard store"]
)
def test_a_listing_loads_no_sandbox(words, tmp_path):
    shutil.copytree(STORE, tmp_path / "store")  # what scores a store writes its verdicts there
    code, modules = modules_after(*words.split(), cwd=tmp_path)
    assert code == 0
    assert [name for name in modules if name.startswith(SANDBOX)] == []


@pytest.mark.slow
def test_pages_of_stores_load_no_sandbox(tmp_path):
    shutil.copytree(STORE, tmp_path / "store")
    code, modules = modules_after("view", "store", "--export", "pages", cwd=tmp_path)
    assert code == 0
    assert [name for name in modules if name.startswith(SANDBOX)] == []


def test_an_unknown_command_is_one_sentence_and_exit_2(capsys):
    assert run(["compar"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "Error: There is no command 'compar'; did you mean 'compare'?"


def test_a_shell_completes_groups_commands_and_options():
    def completed(*words):
        typed = {"_OPSASSAY_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("opsassay", *words)), "COMP_CWORD": "2"}
        code = "from opsassay.cli import cli; cli.main(prog_name='opsassay')"
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **typed}, capture_output=True, text=True, check=False
        )
        return done.stdout.split()

    assert {"plain,run", "plain,what-if"} <= set(completed("score", ""))
    assert "plain,--repeats" in completed("run", "--")


def test_no_command_at_all_shows_the_groups_and_what_comes_next(capsys):
    assert run([]) == 0
    shown = capsys.readouterr()
    assert "Break a system:" in shown.out
    assert "Next: opsassay " in shown.out
    assert shown.err == ""
