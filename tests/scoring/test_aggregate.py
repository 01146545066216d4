"""Means and intervals, against values worked out apart from the code."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest
from scipy import stats

from opsassay.core.schema.run import Metric, MetricStatus, RunStatus, Verdict
from opsassay.scoring.aggregate import GROUNDED_SHARE, SUMMARY_SCHEMA, summarise
from opsassay.scoring.verdict import grade

from .cases import finished_run, truth

_COUNTER = iter(range(10**6))


def verdict(item: str, system: str = "a", solver: str = "s", **values: float | str) -> Verdict:
    """A number is scored, "na" and "failed" are not."""

    def metric(value: float | str) -> Metric:
        if isinstance(value, str):
            status = MetricStatus.NOT_APPLICABLE if value == "na" else MetricStatus.FAILED
            return Metric(status=status, reason="because")
        return Metric(value=value, status=MetricStatus.SCORED)

    return Verdict(
        run=f"{next(_COUNTER):06}/1", item=item, system=system, solver=solver, profile="default",
        metrics={name: metric(value) for name, value in values.items()},
    )  # fmt: skip


def row(summary: pl.DataFrame, metric: str, scope: str = "all", group: str = "", solver: str = "s") -> dict[str, Any]:
    found = summary.filter(
        pl.col("metric") == metric, pl.col("scope") == scope, pl.col("group") == group, pl.col("solver") == solver
    )
    return found.row(0, named=True)


def test_seven_of_ten_has_the_wilson_interval_of_the_textbook() -> None:
    got = row(summarise([verdict(f"i{n}", any_service=float(n < 7)) for n in range(10)]), "any_service")
    assert (got["mean"], got["interval"], got["cases"]) == (0.7, "wilson", 10)
    # (p + z2/2n +- z sqrt(p q / n + z2/4n2)) / (1 + z2/n) with z = 1.959964
    assert got["low"] == pytest.approx(0.39678, abs=1e-5)
    assert got["high"] == pytest.approx(0.89221, abs=1e-5)


def test_the_mean_of_fractions_has_wilsons_interval_which_the_bootstraps_lies_within() -> None:
    from statsmodels.stats.proportion import proportion_confint

    values = [0.1, 0.5, 0.2, 0.9, 0.4, 0.4, 0.7, 0.0, 1.0, 0.3]
    got = row(summarise([verdict(f"i{n}", f1=v) for n, v in enumerate(values)]), "f1")
    assert (got["mean"], got["interval"]) == (pytest.approx(0.45), "wilson")
    assert [got["low"], got["high"]] == pytest.approx(proportion_confint(4.5, 10, method="wilson"))
    peer = stats.bootstrap((values,), lambda x, axis: x.mean(axis), n_resamples=5_000).confidence_interval
    assert got["low"] < peer.low < peer.high < got["high"]


def test_metrics_in_another_unit_have_the_percentile_bootstrap() -> None:
    values = [1.0, 5.0, 2.0, 9.0, 4.0, 4.0, 7.0, 0.0, 10.0, 3.0]
    got = row(summarise([verdict(f"i{n}", tool_calls=v) for n, v in enumerate(values)]), "tool_calls")
    assert got["mean"] == pytest.approx(4.5)
    assert got["interval"] == "bootstrap"
    peer = stats.bootstrap(
        (values,), lambda x, axis: x.mean(axis), n_resamples=20_000, method="percentile"
    ).confidence_interval
    assert got["low"] == pytest.approx(peer.low, abs=0.2)
    assert got["high"] == pytest.approx(peer.high, abs=0.2)


def test_what_could_not_be_scored_stands_beside_the_mean() -> None:
    given = [verdict("i0", f1=1.0), verdict("i1", f1="na"), verdict("i2", f1="failed"), verdict("i3", f1=0.0)]
    got = row(summarise(given), "f1")
    assert (got["mean"], got["scored"], got["not_applicable"], got["failed"]) == (0.5, 2, 1, 1)


def test_nothing_scored_is_no_mean_rather_than_zero() -> None:
    got = row(summarise([verdict("i0", f1="failed", any_service="na")]), "f1")
    assert (got["mean"], got["low"], got["cases"], got["failed"]) == (None, None, 0, 1)


def test_a_run_without_an_answer_counts_as_0_where_more_is_better() -> None:
    run = finished_run(status=RunStatus.FAILED, error="it fell over")
    gone = grade(run, None, truth(("CPUStress", "cart")), None, None)
    given = [
        verdict("i1", any_service=1.0, acc_at_1=1.0, ungrounded=1.0),
        gone.model_copy(update={"solver": "s", "system": "a"}),
    ]
    summary = summarise(given)
    assert (row(summary, "any_service")["mean"], row(summary, "any_service")["cases"]) == (0.5, 2)
    assert row(summary, "ungrounded")["mean"] == 1.0  # less is better: it would be a reward


@pytest.mark.parametrize("values", [[7.0], [7.0, 7.0, 7.0]])
def test_what_does_not_vary_has_no_bootstrap_interval(values) -> None:
    got = row(summarise([verdict(f"i{n}", tool_calls=v) for n, v in enumerate(values)]), "tool_calls")
    assert (got["mean"], got["low"], got["high"], got["interval"]) == (7.0, None, None, None)


@pytest.mark.parametrize("metric", ["any_service", "f1", GROUNDED_SHARE])
@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("scope", ["all", "macro"])
def test_no_interval_of_a_share_shrinks_to_a_point(metric, value, n, scope) -> None:
    named = 1.0 if metric == GROUNDED_SHARE else value
    given = [verdict(f"i{k}", "ab"[k % 2], any_service=named, path_reachability=value, f1=value) for k in range(n)]
    got = row(summarise(given), metric, scope)
    assert got["mean"] == value
    assert got["high"] - got["low"] > 0.3


def test_figures_of_some_metrics_are_those_of_all() -> None:
    run = finished_run(status=RunStatus.FAILED, error="it fell over")
    gone = grade(run, None, truth(("CPUStress", "cart")), None, None).model_copy(update={"solver": "s", "system": "a"})
    given = [verdict("i1", any_service=1.0), gone]
    some = summarise(given, names=("any_service",))
    assert row(some, "any_service") == row(summarise(given), "any_service")
    assert set(some.get_column("metric")) == {"any_service"}


def test_macro_weights_systems_and_all_weights_cases() -> None:
    from statsmodels.stats.proportion import proportion_confint

    given = [verdict(f"a{n}", "a", f1=1.0) for n in range(3)] + [verdict("b0", "b", f1=0.0)]
    summary = summarise(given)
    assert row(summary, "f1")["mean"] == 0.75
    assert row(summary, "f1", "macro")["mean"] == 0.5
    assert row(summary, "f1", "system", "b")["mean"] == 0.0
    effective = 2**2 / (1 / 3 + 1 / 1)  # of systems of 3 and 1 cases (Kish 1965)
    peer = proportion_confint(effective / 2, effective, method="wilson")
    assert [row(summary, "f1", "macro")[name] for name in ("low", "high")] == pytest.approx(peer)


def test_kinds_are_grouped_when_they_are_told() -> None:
    given = [verdict("i0", f1=1.0), verdict("i1", f1=0.0), verdict("i2", f1=0.5)]
    summary = summarise(given, {"kind": {"i0": "cpu_stress", "i1": "cpu_stress"}})
    assert row(summary, "f1", "kind", "cpu_stress")["mean"] == 0.5
    assert summary.filter(pl.col("scope") == "kind").get_column("group").unique().to_list() == ["cpu_stress"]


def test_repeats_of_a_case_are_one_case() -> None:
    repeated = [verdict("i0", exact_match=1.0) for _ in range(9)] + [verdict("i1", exact_match=0.0)]
    got = row(summarise(repeated), "exact_match")
    assert (got["mean"], got["cases"], got["scored"]) == (0.5, 2, 10)


def test_the_ratio_is_of_grounded_among_correctly_localised() -> None:
    pairs = [(1.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0)]
    given = [verdict(f"i{n}", any_service=a, path_reachability=p) for n, (a, p) in enumerate(pairs)]
    given.append(verdict("i9", any_service=1.0, path_reachability="na"))
    got = row(summarise(given), GROUNDED_SHARE)
    assert (got["mean"], got["cases"]) == (pytest.approx(2 / 3), 4)
    assert 0 <= got["low"] < 2 / 3 < got["high"] <= 1


def test_the_ratio_of_a_solver_that_localises_nothing_is_undefined() -> None:
    given = [verdict(f"i{n}", any_service=0.0, path_reachability=0.0) for n in range(3)]
    assert row(summarise(given), GROUNDED_SHARE)["mean"] is None


def test_solvers_are_apart_and_order_does_not_matter() -> None:
    rng = random.Random(1)
    given = [
        verdict(
            f"i{n}", rng.choice("ab"), rng.choice(["s", "t"]), f1=rng.random(), any_service=float(rng.random() < 0.5)
        )
        for n in range(40)
    ]
    summary = summarise(given)
    assert summary.schema == SUMMARY_SCHEMA
    assert set(summary.get_column("solver")) == {"s", "t"}
    assert summarise(rng.sample(given, len(given))).equals(summary)


def test_no_verdicts_is_an_empty_table() -> None:
    assert summarise([]).schema == SUMMARY_SCHEMA
    assert summarise([]).height == 0
