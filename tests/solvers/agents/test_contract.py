"""Whatever an agent writes is an answer or a reason."""

from __future__ import annotations

import json

import pytest

from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.faults import FaultKind
from opsassay.solvers.agents.contract import MAX_EDGES, AnswerError, answer_schema, contract, read_answer

SERVICES = ["front", "ts-cart-service", "store"]
EVIDENCE = [{"kind": "trace", "sql": "SELECT 1", "claim": "it is so"}]


def written(roots=("store",), edges=(), kind="cpu_stress", **further):
    return {
        "root_causes": [{"service": name, "fault_kind": kind, "evidence": EVIDENCE} for name in roots],
        "propagation": [{"from": a, "to": b, "evidence": EVIDENCE} for a, b in edges],
        **further,
    }


def read(value):
    return read_answer(value if isinstance(value, str | bytes) else json.dumps(value), SERVICES)


def test_the_contract_names_every_kind_and_field_that_the_code_knows():
    text = contract()
    assert [kind for kind in FaultKind if f"- {kind.value}: " not in text] == []
    for name in ("root_causes", "propagation", "service", "fault_kind", "evidence", "sql", "claim", "from", "to"):
        assert f'"{name}"' in text
    assert '"up | down | gone"' in text


def test_the_schema_accepts_what_the_reader_accepts():
    jsonschema = pytest.importorskip("jsonschema")
    schema = answer_schema()
    jsonschema.validate(written(edges=[("store", "front")]), schema)
    jsonschema.validate(written(roots=()), schema)
    for wrong in ({}, {"root_causes": []}, written(kind="gremlins"), written(edges=[("a", "b")] * (MAX_EDGES + 1))):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
        with pytest.raises(AnswerError):
            read(wrong)


def test_an_answer_by_the_contract_is_the_diagnosis():
    found = read(written(edges=[("store", "front")]))
    assert found.complaints == ()
    assert found.diagnosis == Diagnosis.model_validate(written(edges=[("store", "front")]))


def test_nothing_is_wrong_is_an_answer():
    assert read({"root_causes": [], "propagation": []}).diagnosis.root_causes == ()


@pytest.mark.parametrize(
    "text",
    [
        "The store is to blame.\n```json\n{}\n```\nI hope this helps {really}.",
        "Here you are: {} Done.",
        "\ufeff```{}```",
    ],
)
def test_prose_around_the_json_is_passed_over_with_a_note(text):
    found = read(text.replace("{}", json.dumps(written())))
    assert found.diagnosis.root_causes[0].service == "store"
    assert any("prose" in note for note in found.diagnosis.notes)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        (b"\xff\xfe\x00", "no JSON"),
        ("It was the store.", "no JSON"),
        ('{"root_causes": [', "no JSON"),
        ('{"root_causes": [{"service": "store"', "no JSON"),
        (f"{json.dumps(written())} or {json.dumps(written())}", "2 answers"),
        ("[" * 100_000, "no JSON"),
        ('{"root_causes": ' + "[" * 50_000 + "]" * 50_000 + ', "propagation": []}', "nested too deeply"),
        ("[]", "a list instead of a JSON object"),
        ("null", "null instead"),
        ("{}", "root_causes is missing"),
        ('{"root_causes": [], "propagation": null}', "propagation is null"),
        ('{"root_causes": {"service": "store"}, "propagation": []}', "root_causes is an object"),
        ('{"root_causes": ["store"], "propagation": []}', "root_causes.0 is a text"),
        ('{"root_causes": NaN, "propagation": []}', "NaN"),
        (written(kind="gremlins"), "'gremlins' is no fault kind; known: "),
        (written(kind="cpu-stress"), "did you mean 'cpu_stress'?"),
        (written(kind=None), "None is no fault kind"),
        (written(kind=["cpu_stress"]), "is no fault kind"),
        ({"root_causes": [{"service": "store", "fault_kind": "cpu_stress"}], "propagation": []}, "evidence is missing"),
        (
            {"root_causes": [{"service": "s", "fault_kind": "cpu_stress", "evidence": [{"sql": " "}]}], "propagation": []},
            "evidence.0.sql is missing",
        ),
        (
            {
                "root_causes": [{"service": 7, "fault_kind": "cpu_stress", "evidence": EVIDENCE}],
                "propagation": [],
            },
            "root_causes.0.service",
        ),
        (written(edges=[(f"s{i}", f"s{i + 1}") for i in range(10_000)]), "propagation has 10000 entries; at most 500"),
        (written(roots=["store"] * 51), "root_causes has 51 entries"),
        (" " * (5 * 2**20), "larger than"),
    ],
)  # fmt: skip
def test_what_breaks_the_contract_is_refused_with_the_reason(text, reason):
    with pytest.raises(AnswerError, match=r"^[^\n]*$") as refused:
        read(text)
    assert reason in str(refused.value)


def test_unknown_services_are_told_and_graded_all_the_same():
    found = read(written(roots=["stor", "TS_Cart-Service"], edges=[("stor", "the moon")]))
    assert found.complaints == (
        "there is no service 'stor' in the data; did you mean 'store'?",
        "there is no service 'the moon' in the data",
    )
    assert set(found.complaints) <= set(found.diagnosis.notes)
    assert [claim.service for claim in found.diagnosis.root_causes] == ["stor", "TS_Cart-Service"]


def test_a_propagation_in_a_circle_is_noted():
    found = read(written(edges=[("store", "front"), ("front", "ts-cart-service"), ("ts-cart-service", "store")]))
    assert any("in a circle" in note for note in found.diagnosis.notes)
    assert len(found.diagnosis.propagation) == 3
    assert read(written(edges=[("store", "front"), ("store", "ts-cart-service")])).diagnosis.notes == ()
