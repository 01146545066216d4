"""`opsassay trace proxy`: every run has a session of its own, and nothing is appended to the record of another."""

from __future__ import annotations

import sys

import pytest

from opsassay.cli import run
from opsassay.solvers.proxy.record import RECORD, new_session

ASK = """
import json, os, urllib.request as http
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "go"}]}).encode()
head = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
http.urlopen(http.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, head)).read()
"""


@pytest.fixture
def proxied(tmp_path, capsys):
    """Return a function that runs a program under the proxy and gives (exit code, what was said)."""
    (tmp_path / "answers.yaml").write_text("rules: [{reply: done}]\n")

    def proxied(program, *options):
        words = ["--upstream", f"scripted:{tmp_path / 'answers.yaml'}", "-o", str(tmp_path / "out"), *options]
        code = run(["trace", "proxy", *words, "--", sys.executable, "-c", program])
        return code, capsys.readouterr().err

    return proxied


def test_each_run_has_a_session_of_its_own_and_a_name_that_is_taken_is_refused(proxied, tmp_path):
    sessions = tmp_path / "out" / "sessions"
    assert "sessions/run; next: `opsassay trace blame view" in proxied(ASK)[1]
    first = (sessions / "run" / RECORD).read_bytes()
    assert "sessions/run-2; next:" in proxied(ASK)[1]
    code, said = proxied(ASK, "--session", "run")
    assert code == 2
    assert "has a record of the session run; give another --session" in said
    assert (sessions / "run" / RECORD).read_bytes() == first
    assert sorted(one.name for one in sessions.iterdir()) == ["run", "run-2"]
    assert new_session(tmp_path / "out", None) == "run-3"


def test_a_program_that_asks_no_model_is_told_so(proxied, tmp_path):
    code, said = proxied("raise SystemExit(3)")
    assert code == 3
    assert "asked no model at OPENAI_BASE_URL" in said
    assert new_session(tmp_path / "out", None) == "run"
