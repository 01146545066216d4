"""A few rounds of the benchmark that kills processes at random: nothing may be left, nothing acknowledged lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.live
KILLS = Path(__file__).parents[3] / "benchmarks" / "kills.py"


def test_nothing_is_left_after_kills_during_injections():
    done = subprocess.run([sys.executable, str(KILLS), "2", "7"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 findings" in done.stdout


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_a_trial_comes_to_one_result_whoever_of_it_is_killed():
    script = KILLS.parent / "kills_in_trials.py"
    done = subprocess.run([sys.executable, str(script), "3", "7"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 findings" in done.stdout
