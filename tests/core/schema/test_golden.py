"""Artefacts of every schema version can still be read: a golden file per noun, written when its version was current."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from opsassay.core.schema.base import Artefact
from opsassay.core.schema.causal_graph import Annotation, CausalGraph
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.incident import FaultPlan, Incident, Truth
from opsassay.core.schema.run import Run, Suite, Verdict
from opsassay.core.schema.trajectory import Attribution, Timeline, Trace
from opsassay.scoring.verifiers import TrajectoryVerdict

GOLDEN = Path(__file__).with_name("golden")
ARTEFACTS: dict[str, type[Artefact]] = {
    "incident": Incident, "truth": Truth, "causal_graph": CausalGraph, "annotation": Annotation, "diagnosis": Diagnosis,
    "run": Run, "verdict": Verdict, "suite": Suite, "timeline": Timeline, "trace": Trace,
    "attribution": Attribution, "trajectory_verdict": TrajectoryVerdict,
}  # fmt: skip


def golden(name: str, version: int) -> str:
    return (GOLDEN / f"v{version}" / f"{name}.json").read_text()


def test_every_artefact_has_a_golden_file_of_its_present_version_and_of_all_before():
    for name, kind in ARTEFACTS.items():
        for version in range(1, kind.SCHEMA_VERSION + 1):
            assert json.loads(golden(name, version))["schema_version"] == version
    found = {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*.json")}
    versions = {f"v{v}/{name}.json" for name, kind in ARTEFACTS.items() for v in range(1, kind.SCHEMA_VERSION + 1)}
    assert found == versions


@pytest.mark.parametrize("name", ARTEFACTS)
def test_a_golden_file_is_read_and_written_again_to_the_byte(name):
    text = golden(name, ARTEFACTS[name].SCHEMA_VERSION)
    assert ARTEFACTS[name].model_validate_json(text).pretty_json() == text


@pytest.mark.parametrize("name", [name for name, kind in ARTEFACTS.items() if kind.SCHEMA_VERSION > 1])
def test_an_older_version_is_read_as_the_present_one(name):
    present = golden(name, ARTEFACTS[name].SCHEMA_VERSION)
    for version in range(1, ARTEFACTS[name].SCHEMA_VERSION):
        assert ARTEFACTS[name].model_validate_json(golden(name, version)).pretty_json() == present


@pytest.mark.parametrize("name", ARTEFACTS)
def test_an_unknown_key_of_a_later_version_is_tolerated_and_the_value_is_frozen(name):
    payload = json.loads(golden(name, ARTEFACTS[name].SCHEMA_VERSION))
    noun = ARTEFACTS[name].model_validate({**payload, "later": True})
    assert noun == ARTEFACTS[name].model_validate(payload)
    with pytest.raises(ValidationError):
        noun.schema_version = 9
    assert noun.digest() == ARTEFACTS[name].model_validate(payload).digest()


def test_an_unknown_key_in_a_written_file_is_an_error():
    with pytest.raises(ValidationError):
        FaultPlan.model_validate({"fault": "PodKill", "target": {"service": "a"}, "later": True})
