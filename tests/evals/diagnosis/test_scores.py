"""Score tables that the audit reads, what-if grades, and the check for a solver that always says the same."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from opsassay.analysis.audit.settings import Columns
from opsassay.analysis.audit.table import long_scores, read_table
from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim
from opsassay.core.schema.run import Metric, MetricStatus, Verdict
from opsassay.evals.diagnosis.report import changed_grades, changed_profile, defined_metric, modal_answers
from opsassay.evals.diagnosis.score import grade_all
from opsassay.evals.diagnosis.solve import run_method
from opsassay.evals.runner.scores import CaseLabels, ScoredAnswer, score_of, score_table, write_scores
from opsassay.evals.runner.store import RunStore, read_verdicts
from opsassay.scoring.profiles import PROFILES
from opsassay.telemetry.tree import resolve
from telemetry.packs import make_tree


def verdict(case: str, solver: str, value: float | None, status: MetricStatus = MetricStatus.SCORED) -> Verdict:
    metrics = {"f1": Metric(value=value, status=status), "tool_calls": Metric(value=7, status=MetricStatus.SCORED)}
    return Verdict(
        run=f"{case}{solver}{value}", item=case, system="s", solver=solver, profile="default", metrics=metrics
    )


def test_a_score_table_has_a_row_per_case_and_method_and_the_audit_reads_it(tmp_path: Path) -> None:
    verdicts = [
        verdict("a", "m", 1.0), verdict("a", "m", 0.5), verdict("a", "n", None, MetricStatus.FAILED),
        verdict("b", "m", 0.25), verdict("b", "n", None, MetricStatus.NOT_APPLICABLE),
    ]  # fmt: skip
    answers = [ScoredAnswer(one.solver, one) for one in verdicts]
    table = score_table(answers, "f1", {"b": CaseLabels("petshop")})
    assert table.columns == ["family", "system", "case", "method", "protocol", "predicted", "expected", "score"]
    assert table.select("family", "system", "case", "method", "score").rows() == [
        ("opsassay", "s", "a", "m", 0.75),
        ("opsassay", "s", "a", "n", None),
        ("petshop", "s", "b", "m", 0.25),
    ]
    path = write_scores(table, tmp_path / "scores.csv")
    assert long_scores(read_table(path), Columns(), str(path)).height == 3
    with pytest.raises(NotFoundError, match="f1"):
        score_table(answers, "f2", {})
    with pytest.raises(UserError, match="no share"):
        score_table(answers, "tool_calls", {})


def test_a_solver_that_always_says_the_same_has_collapsed() -> None:
    def said(*services: str) -> list[tuple[str, str, Diagnosis]]:
        claims = [(RootCauseClaim(service=s),) if s else () for s in services]
        return [("m", "shop", Diagnosis(root_causes=c)) for c in claims]

    (always,) = modal_answers(said(*["cart"] * 19, "store"))
    assert (always.solver, always.service, always.share, always.cases, always.collapsed) == (
        "m on shop",
        "cart",
        0.95,
        20,
        True,
    )
    assert not modal_answers(said("cart", "store"))[0].collapsed
    assert modal_answers(said("", ""))[0].service == ""
    assert not modal_answers(said("cart"))[0].collapsed  # one case says nothing


@pytest.mark.slow
def test_a_what_if_moves_grades_and_keeps_the_old_ones(tmp_path: Path) -> None:
    cases = resolve(make_tree(tmp_path / "t", count=1).root)
    store = RunStore(tmp_path / "s")
    run_dir = run_method(store, cases[0].datapack, "loudest")
    before = grade_all(store, cases)
    changed = changed_profile(PROFILES["default"], ["load_generators=[frontend]"])
    assert changed.name.startswith("what-if-")
    assert changed.load_generators == ("frontend",)
    items = changed_grades(before, grade_all(store, cases, changed))
    assert {item["metric"] for item in items} >= {"path_reachability"}
    assert {v.profile for v in read_verdicts(run_dir)} == {"default", changed.name}
    assert changed_grades(before, before) == []


def test_a_wrong_change_is_one_sentence() -> None:
    assert changed_profile(PROFILES["compat"], []) == PROFILES["compat"]
    for change, said in (
        ("undirect=true", "did you mean 'undirected'"),
        ("undirected", "KEY=VALUE"),
        ("undirected=x", "undirected"),
    ):
        with pytest.raises(UserError, match=said):
            changed_profile(PROFILES["default"], [change])


def test_scores_without_a_value_are_missing_cells(tmp_path: Path) -> None:
    failed = verdict("a", "m", None, MetricStatus.FAILED)
    table = score_table([ScoredAnswer("m", failed)], "f1", {})
    assert table.get_column("score").null_count() == 1
    assert table.schema["score"] == pl.Float64
    assert write_scores(table, tmp_path / "x.csv").read_text().endswith('opsassay,s,a,m,"",,,\n')


def outcome(any_service: float | None, exact: float | None) -> Verdict:
    def grade(value: float | None) -> Metric:
        return Metric(value=value, status=MetricStatus.NOT_APPLICABLE if value is None else MetricStatus.SCORED)

    metrics = {"any_service": grade(any_service), "exact_match": grade(exact)}
    return Verdict(run="r", item="a", system="s", solver="m", profile="default", metrics=metrics)


def test_correct_is_defined_where_something_was_broken_and_where_nothing_was() -> None:
    broken, unknown_kind, calm, silent = outcome(1, 0), outcome(1, None), outcome(None, 1), outcome(None, None)
    told = [score_of(one, "correct") for one in (broken, unknown_kind, calm, silent)]
    assert [metric.value if metric else None for metric in told] == [1, 1, 1, None]
    assert defined_metric([broken, calm]) == ("exact_match", "")
    metric, why = defined_metric([broken, unknown_kind])
    assert metric == "correct"
    assert "not defined on 1 of 2" in why


def test_an_answer_that_names_any_true_root_has_the_expected_label() -> None:
    two = CaseLabels(roots=(frozenset({"store"}), frozenset({"cart", "ts-order"})))
    assert two.expected == "cart"
    assert [two.label(said) for said in ("cart", "store", "order", "Store", "front")] == ["cart"] * 4 + ["front"]
    assert CaseLabels(roots=()).expected == "nothing is wrong"
    assert CaseLabels().expected is None
