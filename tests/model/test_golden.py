"""Artefacts of every schema version can still be read: a golden file per noun, written when its version was current."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from assay.model.base import Artefact
from assay.model.causal_graph import Annotation, CausalGraph
from assay.model.diagnosis import Diagnosis
from assay.model.incident import FaultPlan, Incident, Truth
from assay.model.run import Run, Suite, Verdict
from assay.model.trajectory import Attribution, Timeline, Trace

GOLDEN = Path(__file__).with_name("golden")
ARTEFACTS: dict[str, type[Artefact]] = {
    "incident": Incident, "truth": Truth, "causal_graph": CausalGraph, "annotation": Annotation, "diagnosis": Diagnosis,
    "run": Run, "verdict": Verdict, "suite": Suite, "timeline": Timeline, "trace": Trace,
    "attribution": Attribution,
}  # fmt: skip


def test_every_artefact_has_a_golden_file_of_its_present_version():
    assert {path.stem for path in (GOLDEN / "v1").glob("*.json")} == set(ARTEFACTS)
    assert {kind.SCHEMA_VERSION for kind in ARTEFACTS.values()} == {1}


@pytest.mark.parametrize("name", ARTEFACTS)
def test_a_golden_file_is_read_and_written_again_to_the_byte(name):
    text = (GOLDEN / "v1" / f"{name}.json").read_text()
    assert ARTEFACTS[name].model_validate_json(text).pretty_json() == text


@pytest.mark.parametrize("name", ARTEFACTS)
def test_an_unknown_key_of_a_later_version_is_tolerated_and_the_value_is_frozen(name):
    payload = json.loads((GOLDEN / "v1" / f"{name}.json").read_text())
    noun = ARTEFACTS[name].model_validate({**payload, "later": True})
    assert noun == ARTEFACTS[name].model_validate(payload)
    with pytest.raises(ValidationError):
        noun.schema_version = 2
    assert noun.digest() == ARTEFACTS[name].model_validate(payload).digest()


def test_an_unknown_key_in_a_written_file_is_an_error():
    with pytest.raises(ValidationError):
        FaultPlan.model_validate({"fault": "PodKill", "target": {"service": "a"}, "later": True})
