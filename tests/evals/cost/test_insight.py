"""Questions: two keys that agree, ties, tolerances and zones, and answers that are almost right or made to pass."""

from __future__ import annotations

from datetime import date, timedelta
from fractions import Fraction

import polars as pl
import pytest

from opsassay.evals.cost.answers.contract import MAX_ROWS, read_rows
from opsassay.evals.cost.focus.generate import cost_data
from opsassay.evals.cost.focus.world import CLOSED, REFUNDED
from opsassay.evals.cost.insight.grading import answer_of, cells_right, difference, grade_rows
from opsassay.evals.cost.insight.keys import MISTAKES, TEMPLATES, Question, statement_rows
from opsassay.evals.cost.insight.question import Key, Terms, cut
from opsassay.evals.cost.insight.reading import frame_rows, sql_rows
from opsassay.evals.runner.json_answers import read_object
from opsassay.solvers.agents.contract import AnswerError

SEEDS = [pytest.param(seed, marks=[pytest.mark.slow] if seed > 2 else []) for seed in range(1, 21)]
TOP, CATEGORY = TEMPLATES["top-applications"], TEMPLATES["category-cost"]
TERMS = Terms("BilledCost", date(2024, 9, 1), date(2024, 9, 30), top=2)


def row(name, cost):
    return {"application": name, "cost_usd": Fraction(cost)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_both_implementations_agree_exactly(seed):
    for template in TEMPLATES.values():
        key = Question(template, seed).key  # raises when they do not
        assert key.required or key.tied, template.name


def test_keys_that_differ_are_an_error(monkeypatch):
    question = Question(CATEGORY, 1)
    monkeypatch.setattr(Question, "by_frame", lambda _: [{"category": "Compute", "cost_usd": Fraction(1)}])
    with pytest.raises(Exception, match="differ"):
        _ = question.key


@pytest.mark.sampled
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_right_answer_passes_and_every_wrong_reading_is_named(name):
    question = Question(TEMPLATES[name], 1)
    right = answer_of(question.template, question.key)["rows"]
    grades = grade_rows(question, right)
    assert (grades["passed"].value, grades["cells_right"].value) == (1.0, 1.0)
    for mistake in question.template.mistakes:
        wrong = grade_rows(question, answer_of(question.template, question.misread(mistake))["rows"])
        assert wrong["passed"].value == 0.0, mistake
        assert wrong["passed"].reason == MISTAKES[mistake][0]
        assert wrong["cells_right"].value < 1.0


def test_ties_at_the_cut_are_free_and_those_above_are_not():
    key = cut([row("a", 9), row("b", 5), row("c", 5), row("d", 1)], TOP, TERMS)
    assert (len(key.required), len(key.tied), key.open) == (1, 2, 1)
    for tied in ("b", "c"):
        assert difference(TOP, key, [row("a", 9), row(tied, 5)]) is None
    assert "a is missing" in difference(TOP, key, [row("b", 5), row("c", 5)])
    assert "3 rows instead of 2" in difference(TOP, key, [row("a", 9), row("b", 5), row("c", 5)])
    assert "d does not belong" in difference(TOP, key, [row("a", 9), row("d", 1)])


def test_values_that_rounding_cannot_tell_apart_are_tied():
    key = cut([row("a", 9), row("b", "5.004"), row("c", 5)], TOP, TERMS)
    assert difference(TOP, key, [row("a", 9), row("c", 5)]) is None


def test_rows_stand_the_highest_first():
    key = cut([row("a", 9), row("b", 5)], TOP, TERMS)
    assert "not ordered" in difference(TOP, key, [row("b", 5), row("a", 9)])


@pytest.mark.parametrize(
    ("given", "right"), [(100.0, True), (100.01, True), (99.99, True), (100.02, False), (-100.0, False), (10000, False)]
)
def test_a_number_is_right_within_one_unit_of_its_last_decimal(given, right):
    key = Key(({"category": "Compute", "cost_usd": Fraction(100)},))
    assert (difference(CATEGORY, key, [{"category": "Compute", "cost_usd": given}]) is None) is right


def test_a_number_that_a_float_cannot_hold_exactly_is_right():
    exact = Fraction(123456789012345678, 10**6)
    key = Key(({"category": "Compute", "cost_usd": exact},))
    assert difference(CATEGORY, key, [{"category": "Compute", "cost_usd": float(exact)}]) is None


def test_no_rows_are_right_only_where_there_are_none():
    assert difference(CATEGORY, Key(()), []) is None
    assert "Compute is missing" in difference(CATEGORY, Key(({"category": "Compute", "cost_usd": Fraction(1)},)), [])


def test_names_alone_earn_no_partial_credit():
    key = Key((row("a", 9), row("b", 5)))
    assert cells_right(TOP, key, [row("a", 0), row("b", 0)]) == 0.0
    assert cells_right(TOP, key, [row("a", 9)]) == pytest.approx(2 / 3)
    assert cells_right(TOP, key, [row("a", 9), *(row(f"x{n}", 1) for n in range(97))]) < 0.03


@pytest.mark.slow
def test_undefined_shares_are_no_rows():
    questions = [
        Question(TEMPLATES[name], seed) for name in ("budget-variance", "credit-coverage") for seed in (1, 2, 3)
    ]
    for question in questions:
        budgets = {sub for sub, _, budget, _ in question.data.tables["budgets"].rows() if budget == 0}
        assert budgets or question.template.name == "credit-coverage"
        assert all(name["sub_account"] for name in question.by_sql(question.terms))  # a division by 0 would have raised


def test_days_of_another_zone_move_the_window():
    question = next(
        one for seed in range(1, 9) for one in [Question(TEMPLATES["tag-policy"], seed)] if one.terms.zone != "UTC"
    )
    assert question.by_sql(question.terms) != question.by_sql(MISTAKES["other_zone"][1](question.terms))


def test_the_day_on_which_clocks_change_has_23_or_25_hours_in_both_implementations():
    data = cost_data(1)
    world, name = data.world, data.world.resources[0].name
    first, last = world.start.date() + timedelta(days=1), world.end.date() - timedelta(days=2)
    terms = Terms("BilledCost", first, last, "Europe/Berlin")
    of = frame_rows(data.tables, terms).filter((pl.col("ResourceName") == name) & (pl.col("ChargeCategory") == "Usage"))
    by_frame = {str(day): count for day, count in of.group_by("day").len().rows()}
    counted = "SELECT day::VARCHAR AS day, count(*) AS hours FROM chosen WHERE ChargeCategory = 'Usage' "
    rows = statement_rows(data, sql_rows(terms) + counted + f"AND ResourceName = '{name}' GROUP BY ALL")
    assert {row["day"]: row["hours"] for row in rows} == by_frame
    assert sorted(set(by_frame.values())) in ([23, 24], [24, 25])
    assert sum(hours != 24 for hours in by_frame.values()) == 1


def test_accounts_whose_total_is_not_above_zero_are_in_no_answer_about_a_share_of_it():
    question = Question(TEMPLATES["credit-coverage"], 1)
    traps = {one.sub_id for one in question.data.world.accounts if one.sub_name in (REFUNDED, CLOSED)}
    assert len(traps) == 2
    assert not traps & {row["sub_account"] for row in question.by_sql(question.terms)}


def test_every_kpi_of_e_1_1_is_a_template():
    words = "; ".join(template.kpi.lower() for template in TEMPLATES.values())
    for kpi in (
        "resource utilization", "unpredicted variance", "auto-scaling efficiency", "accuracy rate (usage)",
        "accuracy rate (spend)", "covered by commitment", "discount waste", "unused resources", "unallocated shared",
        "budgeted vs. forecasted", "effective savings", "tagging policy", "frequent access tier", "carbon associated",
    ):  # fmt: skip
        assert kpi in words, kpi


FIELDS = CATEGORY.fields
BROKEN = {
    '{"rows": [{"category": "Compute", "cost_usd": "1.234,56"}]}': "is text",
    '{"rows": [{"category": "Compute", "cost_usd": "$12"}]}': "is text",
    '{"rows": [{"category": "Compute", "cost_usd": "1234.5"}]}': "is text",
    '{"rows": [{"category": "Compute", "cost_usd": [1, 2, 3]}]}': "is a list",
    '{"rows": [{"category": "Compute", "cost_usd": {"low": 1, "high": 2}}]}': "give one JSON number",
    '{"rows": [{"category": "Compute", "cost_usd": true}]}': "give one JSON number",
    '{"rows": [{"category": "Compute", "cost_usd": null}]}': "give one JSON number",
    '{"rows": [{"category": "Compute", "cost_usd": NaN}]}': "NaN is no number",
    '{"rows": [{"category": "Compute", "cost_usd": -Infinity}]}': "-Infinity is no number",
    '{"rows": [{"category": "Compute", "cost_usd": 1e999}]}': "too large",
    '{"rows": [{"category": "Compute", "cost_usd": 1' + "0" * 400 + "}]}": "too large",
    '{"rows": [{"category": "Compute", "cost_usd": 1, "cost_usd": 2}]}': "stands twice in one object",
    '{"rows": [{"category": "Compute", "cost_usd": 1}, {"category": "Compute", "cost_usd": 2}]}': "stands in two rows",
    '{"rows": [{"category": "Compute", "cost_usd": 1, "note": "or 2"}]}': "each row has exactly category, cost_usd",
    '{"rows": [{"category": "Compute"}]}': "each row has exactly category, cost_usd",
    '{"rows": [{"category": 7, "cost_usd": 1}]}': "is no text",
    '{"rows": {"category": "Compute"}}': "is no list of objects",
    '{"rows": [1]}': "is no list of objects",
    '{"rows": [], "tolerance": 1000000}': "it has 'rows' alone",
    '{"answer": []}': "it has 'rows' alone",
    "[]": "no JSON object",
    "": "is empty",
    "The answer is 12.": "no JSON",
    "[" * 100_000: "nested too deeply",
    '{"rows": [' + "{}," * MAX_ROWS + "{}]}": f"more than {MAX_ROWS}",
}


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:60])
def test_an_answer_that_breaks_the_contract_is_refused_in_one_sentence(text):
    with pytest.raises(AnswerError) as caught:
        read_rows(read_object(text), FIELDS)
    assert BROKEN[text] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_dates_are_iso_dates():
    fields = TEMPLATES["peak-ratio"].fields
    good = {"application": "a", "peak_usd": 1, "average_usd": 1, "ratio": 1, "peak_date": "2024-09-01"}
    assert read_rows({"rows": [good]}, fields)
    for text in ("01.09.2024", "20240901", "2024-09-31", "2024-9-1"):
        with pytest.raises(AnswerError, match="YYYY-MM-DD"):
            read_rows({"rows": [{**good, "peak_date": text}]}, fields)


def test_any_of_several_dearest_days_is_right():
    template = TEMPLATES["category-cost"]
    key = Key(({"category": "Compute", "cost_usd": frozenset({"2024-09-01", "2024-09-02"})},))
    assert difference(template, key, [{"category": "Compute", "cost_usd": "2024-09-02"}]) is None
