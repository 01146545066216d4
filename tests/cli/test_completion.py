"""Values that a shell completes, asked for as the script of a shell asks: by the real program and its variables."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def completed(line):
    """Return what bash would offer for the last word of *line*: (type, value) pairs."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_OPSASSAY_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "opsassay"], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return [tuple(line.split(",", 1)) for line in done.stdout.splitlines()]


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("opsassay agent check cod", ["codex"]),
        ("opsassay run suite -a self", ["self-time"]),
        ("opsassay run diagnose suite -m bar", ["baro"]),
        ("opsassay demo --fault NetworkDel", ["NetworkDelay"]),
        ("opsassay agent check rca --task wrong-up", ["wrong-upstream-port"]),
        ("opsassay system up sho", ["shop"]),
        ("opsassay task show wrong-up", ["wrong-upstream-port"]),
    ],
)
def test_names_are_completed(line, offered):
    assert completed(line) == [("plain", one) for one in offered]


@pytest.mark.slow
def test_what_is_no_name_is_a_file():
    assert completed("opsassay agent check ./my") == [("file", "./my")]


def test_a_folder_of_systems_that_cannot_be_read_offers_files(monkeypatch, tmp_path):
    (tmp_path / "state").write_text("")
    monkeypatch.setenv("OPSASSAY_STATE", str(tmp_path / "state"))
    assert completed("opsassay system down ") == [("file", "")]
