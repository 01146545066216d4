"""Every variant of a network fault, recorded on both isolation levels: the annotation names the direction it had."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from live import run_opsassay, state_folder
from opsassay.annotation.job import annotate_case
from opsassay.core.schema.incident import Label
from opsassay.telemetry.tree import resolve
from testbed import CORNER, TINY

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(900)]

VARIANTS = {
    "both": [{"direction": "from"}, {"direction": "to"}, {"direction": "both"}],
    "inbound": [{"direction": "inbound"}],
    "outbound": [{"direction": "outbound"}],
    "peer:rate": [{"direction": "both", "peer": "rate"}],
    "protocol:call": [{"direction": "both", "protocol": "http"}],
    "protocol:sql": [{"direction": "both", "protocol": "postgresql"}],
}
"""What is seen in the telemetry, and the parameters that cause it: packets of either way make all calls wait."""


def plan(level: str) -> str:
    delay = {"fault": "NetworkDelay", "targets": ["stock"]}
    given = [parameters for each in VARIANTS.values() for parameters in each]
    corner = [{**delay, "parameters": {"delay_ms": 150, **parameters}} for parameters in given]
    tiny = [{"fault": "NetworkDelay", "targets": ["back"], "parameters": {"delay_ms": 150, "direction": "inbound"}}]
    systems = [(CORNER, corner), (TINY, tiny)]
    return yaml.safe_dump(
        {
            "campaign": "directions",
            "isolation": level,
            "warmup_s": 4,
            "normal_s": 25,
            "abnormal_s": 20,
            "systems": [{"system": system, "faults": faults} for system, faults in systems],
        }
    )


@pytest.fixture(scope="module", params=["plain", "namespaced"])
def recorded(tmp_path_factory, request):
    """Return the cases of one campaign with every variant."""
    folder = tmp_path_factory.mktemp("directions")
    (folder / "plan.yaml").write_text(plan(request.param))
    with state_folder():
        done = run_opsassay(
            "incident", "campaign", str(folder / "plan.yaml"), "-o", str(folder / "out"), "-j", "2", timeout=600
        )
    assert done.returncode == 0, done.stderr
    return list(resolve(folder / "out", lambda where, error: pytest.fail(f"{where}: {error}")))


def named(case) -> str:
    """Return the direction that the record of *case* says shows in the telemetry."""
    given = case.truth.faults[0].parameters
    plain = {name: given[name] for name in ("direction", "peer", "protocol") if given.get(name)}
    return next(direction for direction, variants in VARIANTS.items() if plain in variants)


def test_the_annotation_names_the_direction(recorded):
    found = {}
    for case in recorded:
        if case.datapack.incident.system == "corner":
            (verdict,) = annotate_case(case).faults
            assert verdict.direction == named(case), (case.truth.faults[0].parameters, verdict)
            found.setdefault(verdict.direction, []).append(verdict.label)
    assert set(found) == set(VARIANTS)
    assert [label for labels in found.values() for label in labels] == [Label.ATTRIBUTED] * 8


def test_one_link_is_ambiguous_without_the_record(recorded):
    (case,) = (case for case in recorded if case.datapack.incident.system != "corner")
    (told,) = annotate_case(case).faults
    assert (told.label, told.direction) == (Label.ATTRIBUTED, "inbound")
    (fault,) = case.truth.faults
    unsaid = case.truth.model_copy(update={"faults": (fault.model_copy(update={"parameters": {}}),)})
    (untold,) = annotate_case(replace(case, truth=unsaid)).faults
    assert not untold.shown
    assert "either could be the cause" in untold.reason
