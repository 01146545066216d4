"""The tables against the paper: Table 9 is the data, Tables 8, 11 and 12 and their p-values must come out of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.papers.hidden_failures import per_class, probe_contrast
from benchmarks.papers.significance import fisher_exact, sign_test
from scipy import stats

from opsassay.evals.remediation.tables import TrialRow, per_agent, per_cell, per_run, per_run_summary, tables

TABLE_9 = """
S-1 sonnet base on D1 0 3 0 3 0
S-1 sonnet cons on D1 0 3 0 3 0
S-1 haiku base on D1 0 3 0 3 0
S-1 haiku cons on D1 0 3 0 3 0
S-1 gpt-5-mini base on D1 1 3 1 3 1
S-2 sonnet base on D1 3 3 3 3 3
S-2 haiku base on D1 3 3 3 3 3
S-2 gpt-5-mini base on D1 3 3 3 3 3
S-3 sonnet base on D1 3 3 3 3 3
S-3 haiku base on D1 3 3 3 3 3
S-3 gpt-5-mini base on D1 3 3 3 3 3
S-4 sonnet base on D3 3 3 0 3 0
S-4 sonnet cons on D3 3 3 3 3 3
S-4 sonnet base off D3 3 3 0 3 0
S-4 haiku base on D3 3 3 0 3 0
S-4 haiku cons on D3 3 3 1 3 1
S-4 haiku base off D3 3 3 0 3 0
S-4 gpt-5-mini base on D3 3 3 0 3 0
S-4 gpt-5-mini base off D3 3 3 0 3 0
S-5 sonnet base on D4 2 3 3 0 0
S-5 sonnet base off D4 2 3 2 3 2
S-5 haiku base on D4 1 2 2 1 0
S-5 haiku base off D4 1 1 2 3 1
S-5 gpt-5-mini base on D4 2 3 2 0 0
S-5 gpt-5-mini base off D4 1 3 1 3 1
S-6 sonnet base on D1 0 3 0 3 0
S-6 haiku base on D1 0 3 0 3 0
S-6 gpt-5-mini base on D1 3 3 3 3 3
"""
"""Scenario, model, variant, probes, depth; how many of three runs pass each predicate, and the conjunction."""


def paper_rows():
    """Return three runs per cell with these counts; which of the three passes is not told, and no table needs it."""
    rows = []
    for line in TABLE_9.strip().splitlines():
        name, model, variant, probes, depth, *counts = line.split()
        outcome, temporal, held, probed, conjunction = map(int, counts)
        rows += [
            TrialRow(
                scenario=name, depth=depth, agent=model, arm={"base": "baseline", "cons": "constrained"}[variant],
                probes=probes == "on", seed=run, outcome=run < outcome, temporal=run < temporal,
                depth_holds=run < held, probe=run < probed, conjunction=run < conjunction,
            )
            for run in range(3)
        ]  # fmt: skip
    return rows


def test_table_8_with_its_p_value():
    found = per_class(paper_rows())
    assert [row[2:6] for row in found.rows] == [
        (36, "22/36", "22/36", "0/22"),
        (18, "14/18", "0/18", "14/14"),
        (54, "36/54", "22/54", "14/36"),
    ]
    assert float(f"{found.statistics['fisher_exact_p']:.1e}") == 2.6e-10
    assert found.statistics["sign_test_p"] == pytest.approx(2 * 0.5**14)


def test_table_9_gives_back_its_own_rows():
    found = per_cell(paper_rows())
    assert len(found.rows) == 28
    assert ("S-5", "haiku", "baseline", "on", "D4", "1/3", "2/3", "2/3", "1/3", "0/3") in found.rows


def test_table_10_names_the_runs_that_pass_and_what_fails_in_each_cell_apart():
    rows = [row for row in paper_rows() if (row.scenario, row.agent) == ("S-4", "haiku")]
    lasting = [replace(row, duration_s=100.0 + row.seed) for row in rows]
    placed = [replace(row, failed=("v_depth",) if not row.depth_holds else ()) for row in lasting]
    found = per_run_summary(placed)
    assert [(*row[2:5], row[-4], row[-1]) for row in found.rows] == [
        ("baseline", "off", "–", "101.0 s", "v_depth 3x"),
        ("baseline", "on", "–", "101.0 s", "v_depth 3x"),
        ("constrained", "on", "0", "101.0 s", "v_depth 2x"),
    ]


def test_a_run_that_fails_beyond_the_papers_four_says_where():
    crowded = replace(paper_rows()[15], conjunction=False, failed=("v_placement",))
    (row,) = per_run([crowded]).rows
    assert (row[-1], row[5:10]) == ("v_placement", ("✓", "✓", "✓", "✓", "×"))


def test_table_11():
    found = {row[0]: row[1:7] for row in per_agent(paper_rows()).rows}
    assert found == {
        "sonnet": (18, "11/18", "18/18", "9/18", "15/18", "6/18"),
        "haiku": (18, "10/18", "17/18", "8/18", "16/18", "6/18"),
        "gpt-5-mini": (18, "15/18", "18/18", "12/18", "15/18", "10/18"),
        "All": (54, "36/54", "53/54", "29/54", "46/54", "22/54"),
    }
    assert per_agent(paper_rows()).statistics == {"agents_with_hidden_failures": 3, "agents": 3}


def test_time_to_repair_is_a_mean_over_successes_with_their_number():
    rows = paper_rows()
    cleared = [replace(row, alerts=True, repair_s=t) for row, t in zip(rows, (30.0, None, 50.0), strict=False)]
    told = {row[0]: row[-2] for row in per_agent([*cleared, *rows[3:]]).rows}
    assert told["All"] == "40 ± 10 s (2/3)"
    assert per_agent(rows).rows[-1][-2] is None
    assert per_agent([replace(rows[0], alerts=True)]).rows[-1][-2] == "(0/1)"


def test_table_12_with_its_p_values():
    found = probe_contrast([row for row in paper_rows() if row.scenario == "S-5"])
    assert found.rows == (
        ("S-5", "gpt-5-mini", "0/3", "3/3", "0/3", "1/3"),
        ("S-5", "haiku", "1/3", "3/3", "0/3", "1/3"),
        ("S-5", "sonnet", "0/3", "3/3", "0/3", "2/3"),
        ("aggregate", "", "1/9", "9/9", "0/9", "4/9"),
    )
    assert float(f"{found.statistics['v_probe_fisher_exact_p']:.1e}") == 4.1e-4
    assert round(found.statistics["conjunction_fisher_exact_p"], 3) == 0.082
    assert found.statistics["conjunction_sign_test_p"] == 0.25  # three families, one direction


def test_the_tests_are_what_they_say_and_empty_ones_are_none():
    assert fisher_exact(14, 14, 0, 22) == pytest.approx(stats.hypergeom.pmf(14, 36, 14, 14))
    assert fisher_exact(0, 0, 3, 4) is None
    assert sign_test([(1, 1), (0, 0)]) is None


def test_all_tables_come_out_of_one_call_and_of_nothing():
    rows = paper_rows()
    found = tables(rows)
    assert [table.number for table in found] == [9, 10, 11, 13]
    assert all(len(row) == len(table.columns) for table in found for row in table.rows)
    assert len(per_run(rows).rows) == 84
    assert [table.number for table in tables([])] == [9, 10, 11, 13]
