"""The figures that leaderboard-audit prints, from its Table 4; tolerances are what rounding to three digits moves."""

from __future__ import annotations

import polars as pl
import pytest

from opsassay.analysis.audit.families import family_spread
from opsassay.analysis.audit.interaction import likelihood_ratio
from opsassay.analysis.audit.verify import check_ledger, check_list, ledger_figures, read_ledger
from opsassay.core.errors import NotFoundError, UserError

Z, ALERTS = "max_abs_z", "alert_count"


@pytest.fixture(scope="module")
def ledger(real_data):
    return read_ledger(pl.read_csv(real_data / "audit" / "table4.csv"), "table4.csv")


@pytest.fixture(scope="module")
def figures(ledger):
    return ledger_figures(ledger)


@pytest.mark.parametrize(
    ("figure", "second", "expected", "tolerance"),
    [
        # Recomputed by the paper's own definitions from its printed table: exact to the digits shown.
        ("i2", Z, 88.4, 0.05),
        ("prediction_low", Z, -38.3, 0.05),
        ("prediction_high", Z, 19.9, 0.05),
        ("i2", ALERTS, 85.4, 0.05),
        ("prediction_low", ALERTS, -27.4, 0.05),
        ("prediction_high", ALERTS, 35.7, 0.05),
        ("lrt", Z, 37.1, 0.05),
        ("lrt", ALERTS, 54.6, 0.05),
        ("mean_regret", Z, 1.145, 0.001),
        ("max_regret", Z, 7.7, 0.001),
        ("mean_regret", ALERTS, 3.10, 0.001),
        ("max_regret", ALERTS, 24.8, 0.001),
        ("mean_regret_weighted", ALERTS, 5.79, 0.005),
        ("max_regret_weighted", ALERTS, 29.6, 0.001),
        # Printed by the paper from unrounded scores: percentile intervals are not normal ones (I2, prediction interval),
        # means are rounded to 0.001 (the rest).
        ("i2", Z, 87.8, 0.7),
        ("prediction_low", Z, -38.1, 0.3),
        ("prediction_high", Z, 19.9, 0.1),
        ("i2", ALERTS, 85.1, 0.4),
        ("prediction_low", ALERTS, -27.4, 0.1),
        ("prediction_high", ALERTS, 35.4, 0.3),
        ("lrt", Z, 37.18, 0.1),
        ("lrt", ALERTS, 54.51, 0.15),
        ("between_family_share", Z, 31.6, 0.1),
        ("between_family_share", ALERTS, 16.8, 0.1),
        ("max_family_range", Z, 36.0, 0.05),
        ("max_family_range", ALERTS, 54.4, 0.05),
    ],
)
def test_pairs_with_baro(figures, figure, second, expected, tolerance):
    assert figures[figure, "baro", second, ""] == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(
    ("first", "second", "macro", "weighted", "families", "sign_changes"),
    [("baro", Z, 3, 3, 0, 3), ("baro", ALERTS, 4, 5, 0, 2), (Z, ALERTS, 1, 1, 0, 1)],
)
def test_counts_of_reversals(figures, first, second, macro, weighted, families, sign_changes):
    found = [
        figures[name, first, second, ""]
        for name in ("reversals", "reversals_weighted", "reversals_median", "reversals_trimmed", "family_reversals")
    ]
    assert found == [macro, weighted, macro, macro, families]
    assert figures["family_sign_changes", first, second, ""] == sign_changes


def test_the_third_pair(figures, ledger):
    assert figures["lrt", Z, ALERTS, ""] == pytest.approx(26.27, abs=0.1)
    assert figures["p", Z, ALERTS, ""] == pytest.approx(0.003, abs=0.0005)
    assert figures["mean_regret", Z, ALERTS, ""] == pytest.approx(0.04, abs=0.006)
    spread = family_spread(ledger.means[Z] - ledger.means[ALERTS], ledger.families)
    assert spread.between_share == pytest.approx(0.333, abs=0.001)
    assert spread.max_range == pytest.approx(0.337, abs=0.0015)


def test_p_values_and_degrees_of_freedom(ledger):
    import numpy as np

    means = np.column_stack([ledger.means["baro"], ledger.means[Z]])
    test = likelihood_ratio(means, ledger.sizes)
    assert test.df == 10
    assert test.p == pytest.approx(5.3e-5, rel=0.05)
    # The paper's 0.197 / 0.177 has statsmodels' constant for fractional scores in both likelihoods; ours is without.
    assert test.mcfadden == pytest.approx(0.191, abs=0.001)
    assert test.mcfadden_without == pytest.approx(0.171, abs=0.001)


def test_the_ledger_against_itself_lists_rounding_alone(ledger, figures):
    checked = check_ledger(ledger, figures, same=True)
    printed = [c for c in checked if c.printed is not None]
    assert len(printed) == 22
    assert all(abs(c.difference) <= 0.11 for c in printed)
    assert {c.figure for c in checked if c.printed is None} >= {"i2", "lrt", "reversals", "prediction_low"}


def test_printed_figures_in_either_orientation(figures):
    printed = pl.DataFrame(
        {
            "figure": ["i2", "prediction_low", "effect", "reversals"],
            "first": ["baro", Z, Z, Z],
            "second": [Z, "baro", "baro", "baro"],
            "system": ["", "", "Bank", ""],
            "printed": ["87.8", "-19.9", "-3.4", "3"],
        }
    )
    found = check_list(printed, figures, "printed.csv")
    assert [round(c.recomputed, 1) for c in found] == [88.4, -19.9, -3.3, 3]
    assert found[0].difference == pytest.approx(0.6, abs=0.05)
    with pytest.raises(NotFoundError, match="did you mean 'i2'"):
        check_list(printed.with_columns(figure=pl.lit("I22")), figures, "printed.csv")
    with pytest.raises(UserError, match=r"printed.csv, row 1: printed is not a number"):
        check_list(printed.with_columns(printed=pl.lit("many")), figures, "printed.csv")
