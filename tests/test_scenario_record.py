"""The record of runs of scenarios: each run once, and a scenario that was changed begins anew."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opsassay.testbed.scenarios import load_scenario

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from scenario_record import RULES_SINCE, SeenRun, add, read, summary

NAME = "bad-release"


@pytest.fixture
def runs():
    scenario = load_scenario(NAME)
    repair = next(name for name, oracle in scenario.oracles.items() if oracle.certified)
    times = [f"2026-11-25T0{hour}:00:00Z" for hour in range(3)]
    return [SeenRun(at, NAME, scenario.digest()[:12], repair, "on", "yes", "") for at in times]


def row(runs):
    return next(
        line for line in summary(runs) if (line["scenarios"], line["script"]) == ("shipped, local", "right oracle")
    )


def test_a_run_is_kept_once_however_often_its_store_is_read(tmp_path, runs):
    assert add(tmp_path / "runs.csv", runs[1:]) == 2
    assert add(tmp_path / "runs.csv", runs) == 1
    assert read(tmp_path / "runs.csv") == runs


@pytest.mark.slow
def test_the_last_three_runs_make_a_pair_whole_and_one_that_was_not_as_expected_is_counted(runs):
    assert (row(runs)["last 3"], row(runs)["runs"], row(runs[:2])["last 3"]) == (1, 3, 0)
    failed = replace(runs[0], expected="no", failed="v_depth")
    spoiled = [failed, *runs[1:]]
    assert (row(spoiled)["last 3"], row(spoiled)["as expected"], row(spoiled)["runs"]) == (0, 2, 3)
    mended = [failed, *runs]
    assert (row(mended)["last 3"], row(mended)["as expected"], row(mended)["runs"]) == (1, 3, 4)


def test_runs_of_a_former_form_of_a_scenario_count_no_more(runs):
    assert row([replace(run, digest="0" * 12) for run in runs])["run at all"] == 0


def test_runs_of_before_an_alert_had_its_rule_count_no_more():
    name = "gen0-high-cpu-1"
    scenario = load_scenario(name)
    times = ["2026-11-26T09:00:00Z", RULES_SINCE["saturation"]]
    seen = [SeenRun(at, name, scenario.digest()[:12], "gentle", "on", "yes", "") for at in times]
    lines = {(line["scenarios"], line["script"]): line["runs"] for line in summary(seen)}
    assert lines["generated, local", "right oracle"] == 1
