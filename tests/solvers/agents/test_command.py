"""The description of an external agent: what it may say, and what is wrong with it in one sentence."""

from __future__ import annotations

import pytest

from opsassay.core.errors import ConfigError, UserError
from opsassay.solvers.agents.command import CommandAgent


def described(folder, text):
    (folder / "agent.yaml").write_text(text)
    return CommandAgent(folder / "agent.yaml")


def test_places_are_filled_in_and_braces_kept(tmp_path):
    agent = described(tmp_path, 'agent: a\ncommand: ["{python}", "--in={prompt}", "{{}}", "{mcp}"]\n')
    assert agent.words({"python": "/usr/bin/python3", "prompt": "/work/prompt.md"}) == [
        "/usr/bin/python3",
        "--in=/work/prompt.md",
        "{}",
        "",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("agent: a\n", "command: this key is required"),
        ("agent: a\ncommand: []\n", "command"),
        ('agent: a\ncommand: ["{promt}"]\n', "{promt} means nothing; known: python, agent, prompt"),
        ('agent: a\ncommand: ["{"]\n', "write {{ for a brace"),
        ('agent: a\ncommand: ["{python:>99999999999}"]\n', "alone, without ':' or '!'"),
        ('agent: a\ncommand: ["{python:{work}}"]\n', "alone, without ':' or '!'"),
        ('agent: a\ncommand: ["{python!a}"]\n', "alone, without ':' or '!'"),
        ("agent: a\ncommand: [x]\nneed: [mcp]\n", "did you mean 'needs'?"),
        ("agent: a\ncommand: [x]\nneeds: [truth]\n", "needs.0"),
        ("agent: a\ncommand: [x]\nlimits: {seconds: -1}\n", "limits.seconds"),
        ("agent: a\ncommand: [x]\nfiles: [main.py]\n", "there is no main.py beside it"),
        ("agent: a\ncommand: [x]\nfiles: [../secret]\n", "there is no ../secret beside it"),
        ("agent: [\n", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_field(tmp_path, text, sentence):
    (tmp_path.parent / "secret").write_text("x")
    with pytest.raises(ConfigError) as refused:
        described(tmp_path, text)
    assert sentence in str(refused.value)
    assert "agent.yaml" in str(refused.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UserError, match="Cannot read"):
        CommandAgent(tmp_path / "none.yaml")


def test_its_hash_is_that_of_description_and_files(tmp_path):
    text = "agent: a\ncommand: [x]\nfiles: [lib]\n"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "main.py").write_text("1")
    first = described(tmp_path, text).source_hash
    (tmp_path / "lib" / "__pycache__").mkdir()
    (tmp_path / "lib" / "__pycache__" / "main.pyc").write_text("x")
    assert described(tmp_path, text).source_hash == first
    (tmp_path / "lib" / "main.py").write_text("2")
    assert described(tmp_path, text).source_hash != first
    assert described(tmp_path, text + "environment: {A: b}\n").source_hash != first
