"""The recipes: agents made with frameworks of others sit the exam, by the very commands of the page."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from opsassay.cli import run
from test_docs import ROOT, blocks_in
from test_tutorials import RECORDED

PAGE = ROOT / "docs" / "recipes.md"
ENVIRONMENTS = Path.home() / ".cache" / "opsassay-bench" / "recipes"
"""Where the environments of the recipes are kept, in place of /opt."""


def commands_of(section):
    """Return the commands of a *section* of the page."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [line[2:] for block in blocks_in(text, "console") for line in block.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("section", "name"), [("OpenAI Agents SDK", "openai_agents"), ("LangGraph", "langgraph")], ids=lambda one: one
)
def test_the_real_framework_diagnoses_sealed_by_the_commands_of_the_page(section, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples" / "agents", "examples/agents")
    shutil.copytree(RECORDED, "incidents")
    description = Path("examples/agents", name, "agent.yaml")
    description.write_text(description.read_text().replace("/opt/", f"{ENVIRONMENTS}/"))
    for line in commands_of(section):
        words = shlex.split(line.replace("/opt/", f"{ENVIRONMENTS}/"))
        if words[0] != "opsassay":
            made = subprocess.run(words, capture_output=True, text=True, check=False)
            if made.returncode:
                pytest.skip(f"{section} cannot be installed: {(made.stdout + made.stderr).strip().splitlines()[-1]}")
            continue
        code = run([*words[1:], "--json"])
        out, err = capsys.readouterr()
        assert code == 0, f"{line}\n{out}\n{err}"
    (item,) = json.loads(out)["items"]
    assert (item["status"], item["isolation"], item["spent"]["model_calls"]) == ("done", "sealed", 3)
    steps = [json.loads(one) for one in Path(item["run"], "trace.jsonl").read_text().splitlines()]
    assert len(steps) == 3  # as the proxy has recorded the conversation
