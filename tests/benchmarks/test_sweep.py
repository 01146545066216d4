"""The sweep of thresholds: each setting moves the run that lies between, and Tables 14 and 15 come out of it."""

from __future__ import annotations

import pytest
from benchmarks.papers.significance import fisher_exact
from benchmarks.papers.sweep import SETTINGS, Setting, sweep, sweep_tables

from scoring.verifiers.made import probe, recording, scenario, timeline


def trial(depth, d1, slow=0.01, reachable=True, d4=None):
    probes = [probe("p", 12, took=slow), probe("last", 28, reachable=reachable)]
    made = timeline(d1, probes=probes, d4=d4)
    return scenario(committed_depth=depth), recording(made, deployed=0, triggered=4, started=10, ended=20)


RUNS = [
    ("clean", *trial("D1", [1.0] * 30)),
    ("dip to 0.82", *trial("D1", [1.0] * 15 + [0.82] + [1.0] * 14)),
    ("blocked", *trial("D3", [1.0] * 30, reachable=False)),
    ("slow probe", *trial("D4", [1.0] * 30, slow=4.0)),
    ("near a probe", *trial("D4", [1.0] * 30, d4={25: ("db",)})),
]


def test_each_threshold_moves_exactly_the_run_that_lies_between():
    def hidden(**setting):
        (row,) = sweep(RUNS, [Setting(**setting)])
        assert (row.runs, row.outcome) == (5, 5)
        return row.hidden

    assert hidden() == 2  # as committed: the dip and the blocked one
    assert hidden(floor_availability=0.80) == 1
    assert hidden(probe_latency_limit_s=3.0) == 3
    assert hidden(probe_attribution_s=20.0) == 3  # the part fails 13 s after the probe
    assert hidden(cadence_factor=2.0) == 1  # the dip lasts one tick, and that tick is not read
    (row,) = sweep(RUNS, [Setting()])
    assert (row.d1_hidden, row.d1_outcome, row.deeper_hidden, row.deeper_outcome) == (1, 2, 1, 3)
    assert row.p_value == pytest.approx(fisher_exact(1, 3, 1, 2))


def test_the_papers_144_settings_each_once_and_the_committed_one_agrees_with_the_verdict():
    assert len(SETTINGS) == len(set(SETTINGS)) == 144
    by_setting = {row.setting: row.hidden for row in sweep(RUNS)}
    assert by_setting[Setting(0.85, 5.0, 10.0, 1.0)] == sweep(RUNS, [Setting()])[0].hidden == 2


def test_tables_14_and_15_come_out_of_the_runs_and_of_nothing():
    found = sweep_tables(RUNS)
    assert [table.number for table in found] == [14, 15]
    assert all(len(row) == len(table.columns) for table in found for row in table.rows)
    assert [row[0] for row in found[0].rows] == [3.0, 5.0, 10.0, 15.0]
    assert [row[3] for row in found[0].rows] == ["3/5", "2/5", "2/5", "2/5"]
    assert [table.number for table in sweep_tables([])] == [14, 15]
