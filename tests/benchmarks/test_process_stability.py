"""Stability of rankings: Kendall's W by hand and against its identity with tau, and one that is planted."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from benchmarks.papers.process_stability import command, concordance
from benchmarks.papers.running import run
from scipy.stats import friedmanchisquare

SYSTEMS, METHODS = ("s", "t", "u", "v"), ("a", "b", "c", "d")


def test_w_is_that_of_the_friedman_test_with_ties_and_of_its_ends():
    dice = np.random.default_rng(1)
    for _ in range(50):
        means = np.round(dice.uniform(0, 1, (5, 4)), 1)
        chi = friedmanchisquare(*means.T).statistic
        assert concordance(means[None])[0] == pytest.approx(chi / (5 * 3), abs=1e-9)
    same = np.tile(np.array([0.1, 0.2, 0.3]), (3, 1))
    assert concordance(same[None])[0] == pytest.approx(1)
    assert np.isnan(concordance(np.full((1, 3, 3), 0.5))[0])
    turned = np.array([[0.1, 0.2], [0.2, 0.1]])
    assert concordance(np.stack([turned, turned[:1].repeat(2, axis=0)])).tolist() == [0.0, 1.0]


def scores(path, skills, cases=60, seed=0):
    dice = np.random.default_rng(seed)
    rows = [
        ("f", system, f"{case}", method, float(dice.uniform() < skill))
        for system in SYSTEMS
        for case in range(cases)
        for method, skill in zip(METHODS, skills(system), strict=True)
    ]
    pl.DataFrame(rows, schema=["family", "system", "case", "method", "score"], orient="row").write_csv(path)


def test_a_planted_stable_process_is_found_and_the_same_twice_is_not(tmp_path, capsys):
    ladder = np.array([0.1, 0.35, 0.6, 0.85])
    scores(tmp_path / "path.csv", lambda _: ladder)
    scores(tmp_path / "exact.csv", lambda system: np.roll(ladder, SYSTEMS.index(system)), seed=1)
    words = [
        f"exact_match={tmp_path / 'exact.csv'}",
        f"path_reachability={tmp_path / 'path.csv'}",
        "--resamples",
        "300",
        "--json",
    ]
    assert run(command, words) == 0
    whole, compared = json.loads(capsys.readouterr().out)["items"]
    by_metric = {row["metric"]: row for row in whole["rows"]}
    assert float(by_metric["path_reachability"]["W"]) > 0.9
    assert float(by_metric["exact_match"]["W"]) < 0.2
    assert by_metric["path_reachability"]["pairs that change places"] == "0/6"
    assert by_metric["exact_match"]["pairs that change places"] != "0/6"
    (row,) = compared["rows"]
    assert row["process is more stable"] == "yes"
    scores(tmp_path / "exact.csv", lambda _: ladder, seed=2)
    assert run(command, words) == 0
    assert json.loads(capsys.readouterr().out)["items"][1]["rows"][0]["process is more stable"] == "not shown"


def test_what_ranks_nothing_is_named_and_the_rest_goes_on(tmp_path, capsys):
    scores(tmp_path / "a.csv", lambda _: (0.1, 0.4, 0.6, 0.9))
    pl.read_csv(tmp_path / "a.csv").filter(system="s").write_csv(tmp_path / "one.csv")
    assert (
        run(command, [f"f1={tmp_path / 'a.csv'}", f"edge_f1={tmp_path / 'one.csv'}", "--resamples", "100", "--json"])
        == 0
    )
    out, err = capsys.readouterr()
    assert [row["metric"] for row in json.loads(out)["items"][0]["rows"]] == ["f1"]
    assert "left out: edge_f1: edge_f1: one system ranks nothing" in err
    assert run(command, [f"f1={tmp_path / 'one.csv'}"]) == 2
    assert run(command, ["nowhere"]) == 2
    assert "is no folder of graded runs" in capsys.readouterr().err
