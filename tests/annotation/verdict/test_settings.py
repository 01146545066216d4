"""Gates, constants and rules can be set: what a setting switches off no longer decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.papers.ablation import ablate
from pydantic import BaseModel

from annotation import systems
from annotation.cascade import Effect, fault, make_pack
from opsassay.annotation.verdict.annotate import annotate
from opsassay.annotation.verdict.settings import AnnotateSettings, load_settings
from opsassay.core.schema.incident import Label, Truth

SLOW = Effect(own_ms={"payment": 300})
DELAYED = Effect(directed_ms={("*", "payment"): 200})
STARVED = Effect(own_ms={"payment": 80}, cpu={"payment": 0.9})


def settled(tmp_path, text):
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    return load_settings(file)


def test_without_two_gates_a_neighbour_is_believed(tmp_path):
    """Weather is slow as well, and innocent: with all gates only payment is the root of what orders suffer."""
    pack = make_pack(tmp_path / "pack", systems.deep(), SLOW)
    wrong = [fault("HTTPResponseDelay", "bank", SLOW)]
    assert annotate(pack, wrong).label is not Label.ATTRIBUTED
    open_gates = AnnotateSettings(gates_off=frozenset({"signature", "carried", "deviation"}))
    assert annotate(pack, wrong, settings=open_gates).label is Label.ATTRIBUTED


@pytest.mark.slow
def test_each_gate_is_told_what_it_is_worth(tmp_path):
    pack = make_pack(tmp_path / "pack", systems.deep(), SLOW)
    truth = Truth(id="0" * 16, system="deep", faults=(fault("HTTPResponseDelay", "payment", SLOW),))
    found = {one.without: one for one in ablate(pack, truth, AnnotateSettings())}
    assert list(found) == [None, "signature", "deviation", "temporal", "carried"]
    assert found[None].true == (1, 1)
    assert found[None].wrong == (0, 5)
    assert found[None].sham[0] == 0


@pytest.mark.slow
def test_constants_of_the_detectors(tmp_path):
    pack = make_pack(tmp_path / "pack", systems.deep(), SLOW)
    faults = [fault("HTTPResponseDelay", "payment", SLOW)]
    for text in (
        "thresholds: {signature: {added_ms: 5000}}",
        "thresholds: {signature: {z: 1000}}",
        "thresholds: {signature: {ratio: 1000}}",
        "minimum_confidence: 0.9",
        "confidence: {S-01: 0.1, H-01: 0.1}\nminimum_confidence: 0.5",
        "carried: {edge_share: 1.0, node_share: 1.0, sufficient_rise: 1000}",
    ):
        assert annotate(pack, faults, settings=settled(tmp_path, text)).label is not Label.ATTRIBUTED, text


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("type_", "effect", "text"),
    [
        ("NetworkDelay", DELAYED, "thresholds: {links: {tells: 1000}}"),
        ("NetworkDelay", DELAYED, "thresholds: {links: {chance: 1.0e-300}}"),
        ("NetworkDelay", DELAYED, "thresholds: {links: {suspicious: 1.0e-300}}"),
        ("NetworkDelay", DELAYED, "carried: {least_added_ms: 5000}"),
        ("CPUStress", STARVED, "thresholds: {resources: {cpu_cores: 10}}"),
        ("CPUStress", STARVED, "thresholds: {resources: {cpu_ratio: 1000}}"),
        ("CPUStress", STARVED, "thresholds: {resources: {z_levels: [1, 2, 1.0e9]}}"),
        (
            "NetworkDelay",
            DELAYED,
            "thresholds: {drift: 1.0e-9, z_critical: 0.001, minimum_added_ms: 0, minimum_ratio: 1}",
        ),
    ],
)
def test_constants_of_links_resources_and_drift(tmp_path, type_, effect, text):
    pack = make_pack(tmp_path / "pack", systems.deep(), effect)
    faults = [fault(type_, "payment", effect)]
    assert annotate(pack, faults).label is Label.ATTRIBUTED
    assert annotate(pack, faults, settings=settled(tmp_path, text)).label is not Label.ATTRIBUTED


def fields(model, above=()):
    """Yield the names that lead to every field of *model* and the models in it."""
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from fields(inner, (*above, name))
        else:
            yield (*above, name)


def test_every_setting_is_documented():
    text = (Path(__file__).parents[3] / "docs" / "causes.md").read_text(encoding="utf-8")
    settings = text[text.index("## Settings") : text.index("## Published graphs")]
    missing = [path for path in fields(AnnotateSettings) if f"{path[-1]}:" not in settings]
    assert missing == []


def test_the_settings_in_the_documentation_are_the_defaults(tmp_path):
    text = (Path(__file__).parents[3] / "docs" / "causes.md").read_text(encoding="utf-8")
    block = text[text.index("## Settings") :].split("```")[1].removeprefix("text\n")
    assert settled(tmp_path, block) == AnnotateSettings()


def test_the_profile_of_the_paper(tmp_path):
    paper = settled(tmp_path, "profile: paper\nlimits: {hops: 6}\n")
    assert paper.gates_off == {"signature", "carried"}
    assert {rule.id[:2] for rule in paper.rules()}.isdisjoint({"A-"})
    assert (paper.limits.hops, paper.limits.visits, paper.thresholds.minimum_ratio) == (6, 2, 1.0)
    assert (paper.thresholds.error_counts, paper.thresholds.resources.z_levels[2]) == ("percentile", 1.5)
    assert paper.digest() != settled(tmp_path, "profile: paper\n").digest()
    assert settled(tmp_path, "gates_off: [carried]").extensions
