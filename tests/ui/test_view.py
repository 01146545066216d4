"""What the page says, before a browser draws it."""

from __future__ import annotations

import json

import pytest

from opsassay.core.schema.diagnosis import Diagnosis, Evidence, PropagationClaim, RootCauseClaim
from opsassay.core.schema.incident import Fault, Label, Window
from opsassay.core.schema.metric_words import METRICS
from opsassay.core.schema.run import EvidenceResult
from opsassay.ui.glossary import LABELS, format_value
from opsassay.ui.plain import plain
from opsassay.ui.tables import answer_view
from opsassay.ui.view import axis_seconds, case_view, headline

from . import cases
from .cases import BOUNDARY, S


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    return case_view(cases.full_case(tmp_path_factory.mktemp("pack")))


def row_of(view, solver):
    row = next(r for r in view["grades"]["rows"] if r["solver"] == solver)
    columns = [c["name"] for c in view["grades"]["columns"]]
    return row, dict(zip(columns, row["cells"], strict=True))


def test_the_headline_says_what_was_broken_where_how_and_when(view):
    assert view["headline"] == (
        "In system shop, JVMLatency was injected into pricing (delay_ms = 300, operation = quote)"
        " at 2026-09-21 14:13:26 UTC for 78 s."
    )
    facts = dict(view["facts"])
    assert facts["Observable as"] == "jvm_method_latency"
    assert facts["Label"] == "attributed: the cascade was verified from the root to the alarms"
    assert facts["Effect check"].startswith("passed: p50 latency of pricing, ms went from 15.1 to 316")


def test_a_no_fault_case_and_an_unknown_fault_say_so(tmp_path):
    assert "no-fault case" in headline(cases.no_fault_case(tmp_path / "a"))
    bare = cases.bare_case(tmp_path / "b")
    assert "not part of this report" in headline(bare)
    assert case_view(bare)["layers"] == []


def test_answers_are_ordered_by_their_grades_and_ungraded_ones_come_last(view):
    ordered = [r["solver"] for r in view["grades"]["rows"]]
    assert ordered == ["trace-walk", "random-walk", "correlation", "constant", "loudest", "chat-agent"]
    assert [a["solver"] for a in view["answers"]] == ordered
    assert [layer["name"] for layer in view["layers"]] == ["Truth", *ordered]
    assert view["solved"] == "2 of 3, 2 baselines or unranked apart"  # nor does an agent count that was never scored


def test_scored_not_applicable_failed_and_absent_are_four_things(view):
    row, cells = row_of(view, "correlation")
    assert (cells["f1"]["text"], cells["f1"]["sort"]) == ("0.0%", 0)
    assert (cells["sql_exec"]["text"], cells["sql_exec"]["reason"]) == ("n/a", "the answer carries no SQL")
    assert (cells["edge_f1"]["text"], cells["edge_f1"]["sort"]) == ("failed", None)
    assert view["grades"]["notes"][cells["edge_f1"]["note"] - 1].startswith("the edge grader stopped")
    row, cells = row_of(view, "chat-agent")
    assert row["problem"] == "timeout: no answer within 600 s"
    assert {c["status"] for c in cells.values()} == {"absent"}


def test_a_statement_is_shown_with_what_it_says_about_each_claim():
    sql = Evidence(kind="trace", sql="SELECT 1", claim="c")
    said = Diagnosis(
        root_causes=(RootCauseClaim(service="cart", evidence=(sql,)),),
        propagation=(PropagationClaim(source="cart", target="frontend", evidence=(sql,)),),
    )
    results = [
        EvidenceResult(sql="SELECT 1", claim="c", status="ok", about=about, relevant=relevant, vacuous=False)
        for about, relevant in (("cart", True), ("cart -> frontend", False))
    ]
    view = answer_view(cases.answer("mine", said, {}, evidence=results))
    assert view["claims"][0]["evidence"][0]["judged"] == "relevant"
    assert view["edges"][0]["evidence"][0]["judged"] == "not relevant"


def test_baselines_are_marked(view):
    assert {r["solver"] for r in view["grades"]["rows"] if r["baseline"]} == {"constant", "loudest"}


def test_onsets_count_from_the_fault(view):
    truth = next(layer for layer in view["layers"] if layer["answer"] is None)
    onset = {view["services"][n["service"]]["name"]: n["onset"] for n in truth["nodes"]}
    assert onset["pricing"] == "+0.4 s"
    assert onset["checkout"] == "+2.9 s"


def test_the_view_is_json_even_with_odd_numbers(tmp_path):
    text = json.dumps(case_view(cases.hostile_case(tmp_path)), allow_nan=False)
    assert "1790000000123456789" in text  # as text: JavaScript would round it
    assert "\\u202e" not in text


def test_series_cover_both_windows_and_the_fault_is_on_their_axis(view):
    charts = view["charts"]
    assert charts["x"][0] == -90
    assert charts["x"][-1] == 88
    assert charts["faults"] == [(6, 84)]
    assert {len(s[key]) for s in charts["series"] for key in ("rate", "errors", "p50", "p99")} == {len(charts["x"])}


@pytest.mark.parametrize(
    ("normal", "at_s", "expected"),
    [((-90, 0), -30, -30), ((-90, 0), 30, 30), ((-990, -900), -930, -30), ((-990, -900), -400, 0), ((200, 290), 260, -30),
     ((200, 290), 30, 30), ((200, 290), -5, -5)],
)  # fmt: skip
def test_the_axis_puts_the_normal_window_before_zero_wherever_it_was_recorded(normal, at_s, expected):
    window = Window(start_ns=BOUNDARY + normal[0] * S, end_ns=BOUNDARY + normal[1] * S)
    incident = cases.incident().model_copy(update={"normal": window})
    assert axis_seconds(incident, BOUNDARY + at_s * S) == expected


def test_a_fault_type_outside_the_catalogue_is_named_as_it_stands(tmp_path):
    case = cases.full_case(tmp_path)
    odd = Fault(type="Gremlins", service="cart", start_ns=BOUNDARY, end_ns=BOUNDARY + S)
    case = case.model_copy(update={"truth": case.truth.model_copy(update={"faults": (odd,)})})
    assert "Gremlins was injected into cart" in case_view(case)["headline"]


@pytest.mark.parametrize(
    ("value", "text"),
    [("a\u202eb", "a⟨U+202E⟩b"), ("a\x00\x1b[31m", "a⟨U+0000⟩⟨U+001B⟩[31m"), ("a\nb\tc", "a\nb\tc"), (None, "null"),
     (1790000000123456789, "1790000000123456789"), (0.1, "0.1"), (True, "true"), ({"k": [1]}, '{"k": [1]}'),
     (b"\xff", "b'\\xff'"), ("\ud800", "⟨U+D800⟩")],
)  # fmt: skip
def test_text_shows_what_it_is(value, text):
    assert plain(value) == text


def test_long_text_is_cut_and_the_rest_counted():
    assert plain("y" * 5000, 100) == "y" * 100 + " … (4,900 more characters)"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.667, "share", "66.7%"), (12.0, "s", "12 s"), (0.18342, "s", "0.1834 s"), (1234567, "", "1,234,567")],
)
def test_values_are_written_with_their_units(value, unit, text):
    assert format_value(value, unit) == text


def test_every_label_has_words_and_every_metric_a_title():
    assert all(LABELS.values())
    assert len({m.title for m in METRICS.values()}) == len(METRICS)


def test_a_case_without_a_verified_cascade_says_so_on_its_truth(tmp_path):
    case = cases.full_case(tmp_path)
    bare_graph = case.annotation.graph.model_copy(update={"nodes": (), "edges": (), "alarm_nodes": ()})
    note = case.annotation.model_copy(update={"label": Label.UNEXPLAINED, "graph": bare_graph})
    truth = case_view(case.model_copy(update={"annotation": note}))["layers"][0]
    assert truth["summary"] == "1 root, 0 other affected services, 0 edges; labelled unexplained: no verified cascade"


def test_a_true_root_without_a_fault_record_is_a_case_in_which_something_was_broken(tmp_path):
    made = cases.no_fault_case(tmp_path / "a")
    roots = cases.truth().roots
    imported = made.model_copy(update={"truth": made.truth.model_copy(update={"faults": (), "roots": roots})})
    shown = case_view(imported)
    assert shown["headline"] == "In system shop, something was broken at pricing; the fault itself is not on record."
    assert shown["fault"] == "not on record, at pricing"
    assert dict(shown["facts"])["Root cause"] == "pricing"
    silent = case_view(imported.model_copy(update={"truth": imported.truth.model_copy(update={"roots": ()})}))
    assert silent["headline"] == "An incident of system shop; what was broken is not on record."
    assert silent["fault"] == "not on record"
