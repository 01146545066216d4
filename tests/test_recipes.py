"""The recipes: agents made with frameworks of others sit the exam, by the very commands of the page."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from opsassay.cli import run
from opsassay.core.schema.files import load_yaml
from opsassay.solvers.agents.ready import ReadyFile, ready_files
from test_docs import ROOT, blocks_in
from test_tutorials import RECORDED

PAGE = ROOT / "docs" / "recipes.md"
ENVIRONMENTS = Path.home() / ".cache" / "opsassay-bench" / "recipes"
"""Where the environments of the recipes are kept, in place of /opt."""


def commands_of(section):
    """Return the commands of a *section* of the page."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [line[2:] for block in blocks_in(text, "console") for line in block.splitlines()]


def install(words, section):
    """Run a command that makes an environment, in ours instead of /opt, or skip the test."""
    made = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"{section} cannot be installed: {(made.stdout + made.stderr).strip().splitlines()[-1]}")


def words_of(line):
    return shlex.split(line.replace("/opt/", f"{ENVIRONMENTS}/"))


def typed(section, folder, capsys):
    """Type the commands of a *section* in *folder*, which has the examples and an incident, and return the runs."""
    shutil.copytree(ROOT / "examples" / "agents", folder / "examples" / "agents")
    shutil.copytree(RECORDED, folder / "incidents")
    for file in (folder / "examples" / "agents").rglob("*.yaml"):
        file.write_text(file.read_text().replace("/opt/", f"{ENVIRONMENTS}/"))
    for line in commands_of(section):
        words = words_of(line)
        if words[0] != "opsassay":
            install(words, section)
            continue
        code = run([*words[1:], "--json"])
        out, err = capsys.readouterr()
        assert code == 0, f"{line}\n{out}\n{err}"
    return json.loads(out)["items"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("section", ["OpenAI Agents SDK", "LangGraph"])
def test_the_real_framework_diagnoses_sealed_by_the_commands_of_the_page(section, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (item,) = typed(section, tmp_path, capsys)
    assert (item["status"], item["isolation"], item["spent"]["model_calls"]) == ("done", "sealed", 3)
    steps = [json.loads(one) for one in Path(item["run"], "trace.jsonl").read_text().splitlines()]
    assert len(steps) == 3  # as the proxy has recorded the conversation


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tools_of_a_server_join_the_exam_of_a_real_framework(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for line in commands_of("OpenAI Agents SDK")[:2]:
        install(words_of(line), "OpenAI Agents SDK")
    (item,) = typed("An MCP server whose tools join the exam", tmp_path, capsys)
    assert (item["status"], item["isolation"], item["solver"]) == (
        "done", "sealed", "openai-agents + runbooks (scripted:asks_runbooks.yaml)",
    )  # fmt: skip
    calls = [
        call
        for step in Path(item["run"], "trace.jsonl").read_text().splitlines()
        for call in json.loads(step)["tool_logs"]
    ]
    assert [call["tool"] for call in calls] == ["runbooks_read", "submit"]
    assert calls[0]["output"].startswith("Find the service whose callers wait")


def test_the_plan_on_the_page_is_the_example():
    (shown,) = blocks_in(PAGE.read_text().partition("## An MCP server")[2].partition("\n## ")[0], "yaml")
    assert (ROOT / "examples" / "agents" / "with_runbooks.yaml").read_text().partition("\n")[2] == shown


@pytest.mark.parametrize(("section", "name"), [("Claude Code", "claude-code"), ("Codex", "codex")])
def test_an_agent_by_name_is_taken_up_to_its_program_by_the_commands_of_the_page(
    section, name, tmp_path, monkeypatch, capsys
):
    """`tests/solvers/agents/test_ready.py` runs the real programs where they are on PATH."""
    install_line, variables, *commands = commands_of(section)
    file = load_yaml(ready_files()[name], ReadyFile)
    assert install_line == file.install
    for variable in shlex.split(variables)[1:]:
        monkeypatch.setenv(*variable.split("=", 1))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RECORDED, "incidents")
    for line in commands:
        assert run(shlex.split(line)[1:]) == 2
        assert f"{name} needs the program {file.program}, which is not on PATH" in capsys.readouterr().err
    assert not (tmp_path / "incidents" / "runs").exists()
