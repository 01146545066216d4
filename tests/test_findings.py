"""Each script of findings says what it is about, can be started, and is on the page; none is run here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FINDINGS = Path(__file__).parents[1] / "findings"
SCRIPTS = sorted(FINDINGS.glob("*.sh"))


def listed(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FINDINGS / "list.py"), "--folder", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FINDINGS, tmp_path / "findings", ignore=shutil.ignore_patterns("__pycache__")))


def test_the_page_has_every_script_with_all_fields():
    assert len(SCRIPTS) >= 5
    checked = listed(FINDINGS, "--check")
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_can_be_started_and_cleans_up(script: Path):
    text = script.read_text(encoding="utf-8")
    assert os.access(script, os.X_OK)
    assert "\nset -euo pipefail\n" in text
    assert "mktemp -d" in text
    assert "\ntrap " in text
    assert "opsassay" not in text.lower()
    assert subprocess.run(["bash", "-n", str(script)], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# Guessed: ", "# Thought: ", "the field Thought is unknown"),
        ("# Version: ", "# Versions ", "neither"),
        ("# Date: 2026", "# Date: 20-26", "the date"),
        ("# Happens: ", "# Happens: Now, ", "is stale"),
    ],
)
def test_a_changed_header_is_noticed(copy: Path, old: str, new: str, said: str):
    script = copy / SCRIPTS[0].name
    script.write_text(script.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    checked = listed(copy, "--check")
    assert checked.returncode == 1
    assert said in checked.stderr


def test_a_missing_field_is_named(copy: Path):
    script = copy / SCRIPTS[0].name
    lines = script.read_text(encoding="utf-8").splitlines(keepends=True)
    script.write_text("".join(line for line in lines if not line.startswith("# Version:")), encoding="utf-8")
    assert "no Version in the header" in listed(copy, "--check").stderr


def test_a_new_script_makes_the_page_stale_until_it_is_written_again(copy: Path):
    shutil.copy(copy / SCRIPTS[0].name, copy / "another.sh")
    assert listed(copy, "--check").returncode == 1
    assert listed(copy).returncode == 0
    assert listed(copy, "--check").returncode == 0
    assert "another.sh" in (copy / "README.md").read_text(encoding="utf-8")
