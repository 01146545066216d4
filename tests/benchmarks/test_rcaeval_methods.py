"""RCD, epsilon-diagnosis and CIRCA on a skeleton by PC: by hand, against libraries, and on planted changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.papers.rcaeval_methods import (
    CircaPc,
    EpsilonDiagnosis,
    Rcd,
    chance_level,
    chi_squared_p,
    pc_parents,
    rcd_ranking,
    residuals,
    squared_correlations,
)
from scipy.stats import chi2_contingency

from opsassay.cli import run
from opsassay.solvers.methods.base import Method, method_named
from solvers.methods.test_readings import metrics_only
from telemetry.packs import make_tree

FILE = Path(__file__).parents[2] / "benchmarks" / "papers" / "rcaeval_methods.py"


def test_the_test_of_independence_is_pearsons_and_strata_add_up():
    dice = np.random.default_rng(0)
    one, other, given = (dice.integers(0, k, 200) for k in (4, 2, 3))

    def table(at):
        counts = np.zeros((4, 2))
        np.add.at(counts, (one[at], other[at]), 1)
        return chi2_contingency(counts, correction=False)

    everything = table(np.ones(200, dtype=bool))
    assert chi_squared_p(one, other, []) == pytest.approx(everything.pvalue)
    strata = [table(given == value) for value in range(3)]
    from scipy.stats import chi2

    whole = chi2.sf(sum(s.statistic for s in strata), sum(s.dof for s in strata))
    assert chi_squared_p(one, other, [given]) == pytest.approx(whole)
    assert chi_squared_p(np.zeros(5, dtype=np.int64), np.array([0, 1, 0, 1, 1]), []) == 1.0


def chain(rows=120, seed=0):
    """Return readings of x -> y -> z and twelve others in both periods; x is what changes."""
    dice = np.random.default_rng(seed)
    parts = []
    for shift in (0.0, 6.0):
        x = dice.normal(shift, 1, rows)
        y = 2 * x + dice.normal(0, 0.5, rows)
        z = y + dice.normal(0, 1, rows)
        parts.append(np.column_stack([z, *dice.normal(0, 1, (12, rows)), y, x]))
    return parts[0], parts[1]


def test_rcd_is_left_with_what_changed_and_not_with_what_did_not():
    order = rcd_ranking(*chain(), gamma=5, bins=5, draw=np.random.default_rng(0))
    assert order[0] in {0, 13, 14}  # z, y and x change, the other twelve do not
    assert set(order[:1]) <= {0, 13, 14}
    assert rcd_ranking(*chain(), gamma=5, bins=5, draw=np.random.default_rng(0)) == order
    constant = np.ones((20, 3))
    assert rcd_ranking(constant, constant, 5, 5, np.random.default_rng(0)) == []


def test_squared_correlations_are_numpys_and_never_above_one():
    dice = np.random.default_rng(3)
    one, other = dice.normal(size=(9, 4)), dice.normal(size=(9, 4))
    other[:, 1] = 3 * one[:, 1] - 1
    other[:, 2] = 7
    found = squared_correlations(one, other)
    assert found[0] == pytest.approx(np.corrcoef(one[:, 0], other[:, 0])[0, 1] ** 2)
    assert (found[1], found[2]) == (pytest.approx(1), 0)
    assert found.max() <= 1 + 1e-12


def test_the_level_of_chance_is_the_quantile_that_independent_columns_have():
    dice = np.random.default_rng(4)
    level = chance_level(dice.normal(size=(30, 12)), 0.05, 100, dice)
    fresh = [np.corrcoef(*dice.normal(size=(2, 30)))[0, 1] ** 2 for _ in range(4000)]
    assert np.mean(np.array(fresh) > level) == pytest.approx(0.05, abs=0.015)


def test_residuals_are_those_of_least_squares_on_the_parents():
    normal, abnormal = chain(40)
    both = np.vstack([normal, abnormal])
    found = residuals(both, 40, [[13] if column == 0 else [] for column in range(15)])
    slope, intercept = np.polyfit(normal[:, 13], normal[:, 0], 1)
    left = normal[:, 0] - slope * normal[:, 13] - intercept
    by_hand = (abnormal[:, 0] - slope * abnormal[:, 13] - intercept - left.mean()) / left.std()
    assert found[:, 0] == pytest.approx(by_hand)
    assert np.abs(found[:, 14]).max() > 5 > np.abs(found[:, 0]).max()  # z is explained by y, x by nothing


def test_the_graph_of_pc_has_the_collider_of_its_data():
    pytest.importorskip("causallearn")
    dice = np.random.default_rng(5)
    a, b = dice.normal(size=(2, 2000))
    collider = a + b + 0.3 * dice.normal(size=2000)
    parents = pc_parents(np.column_stack([a, b, collider, dice.normal(size=2000)]), 0.01)
    assert [sorted(one) for one in parents] == [[], [], [0, 1], []]
    assert pc_parents(a[:, None], 0.05) == [[]]


def gauges(tmp_path):
    """A recording of three services whose one gauge each follows the one before it; the first jumps."""
    dice = np.random.default_rng(6)
    normal = np.cumsum(dice.normal(0, 1, (3, 40)), axis=0) + dice.normal(0, 0.2, (3, 40))
    abnormal = normal[:, :20] + np.array([[9.0], [9.0], [9.0]]) + dice.normal(0, 0.2, (3, 20))
    names = [("cart", "load"), ("mail", "load"), ("web", "load")]
    return metrics_only(
        tmp_path / "pack",
        {key: values.tolist() for key, values in zip(names, normal, strict=True)},
        {key: values.tolist() for key, values in zip(names, abnormal, strict=True)},
    )


@pytest.mark.parametrize("made", [Rcd(), EpsilonDiagnosis(), CircaPc()], ids=lambda one: one.name)
def test_each_is_a_method_that_ranks_every_service_and_states_its_protocol(made, tmp_path):
    if made.name == "circa-pc":
        pytest.importorskip("causallearn")
    view = gauges(tmp_path)
    assert isinstance(made, Method)
    found = made.diagnose(view)
    assert {one.service for one in found.ranking} == {"cart", "mail", "web"}
    assert found.root_causes == ()
    assert found.protocol["claim_threshold"] == "it claims nothing"
    assert made.diagnose(view) == found


def test_the_command_line_runs_them_from_their_file(tmp_path, capsys):
    assert method_named(f"{FILE}:Rcd", {"gamma": 4}).configuration["gamma"] == 4
    tree = make_tree(tmp_path / "cases", count=1, traces=12)
    words = [
        "run",
        "diagnose",
        str(tree.root),
        "-o",
        str(tmp_path / "runs"),
        "-m",
        f"{FILE}:Rcd",
        "-m",
        f"{FILE}:EpsilonDiagnosis",
    ]
    assert run(words) == 0
