"""Gates, constants and rules can be set: what a setting switches off no longer decides."""

from __future__ import annotations

from causes import systems
from causes.cascade import Effect, fault, make_pack
from opsassay.causes.verdict.ablate import ablate
from opsassay.causes.verdict.annotate import annotate
from opsassay.causes.verdict.settings import AnnotateSettings, load_settings
from opsassay.model.incident import Label, Truth

SLOW = Effect(own_ms={"payment": 300})


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


def test_each_gate_is_told_what_it_is_worth(tmp_path):
    pack = make_pack(tmp_path / "pack", systems.deep(), SLOW)
    truth = Truth(id="0" * 16, system="deep", faults=(fault("HTTPResponseDelay", "payment", SLOW),))
    found = {one.without: one for one in ablate(pack, truth, AnnotateSettings())}
    assert list(found) == [None, "signature", "deviation", "temporal", "carried"]
    assert found[None].true == (1, 1)
    assert found[None].wrong == (0, 5)
    assert found[None].sham[0] == 0


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


def test_the_profile_of_the_paper(tmp_path):
    paper = settled(tmp_path, "profile: paper\nlimits: {hops: 6}\n")
    assert paper.gates_off == {"signature", "carried"}
    assert {rule.id[:2] for rule in paper.rules()}.isdisjoint({"A-"})
    assert (paper.limits.hops, paper.limits.visits, paper.thresholds.minimum_ratio) == (6, 2, 1.0)
    assert paper.digest() != settled(tmp_path, "profile: paper\n").digest()
    assert settled(tmp_path, "gates_off: [carried]").extensions
