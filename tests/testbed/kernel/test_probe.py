"""The probe: what it says can be had can be had."""

from __future__ import annotations

import json

import pytest

from opsassay.testbed.kernel import probe
from opsassay.testbed.kernel.cgroups import search
from testbed.kernel.laboratory import Laboratory, run_apart


@pytest.fixture(scope="module")
def machine():
    return probe.probe_machine()


def test_every_ability_is_named_with_how_or_why_not(machine):
    told = json.loads(json.dumps(machine.as_dict()))
    assert set(told["abilities"]) == set(probe.ABILITIES)
    for ability in told["abilities"].values():
        assert bool(ability["how"]) == ability["available"]
        assert bool(ability["reason"]) != ability["available"]


def test_the_probe_tells_the_truth(machine):
    groups, _ = search()
    versions = groups.versions if groups else {}
    assert machine.abilities[probe.CPU].available == ("cpu" in versions)
    assert machine.abilities[probe.MEMORY].available == ("memory" in versions)
    if not machine.abilities[probe.NAMESPACES].available:
        with pytest.raises(pytest.skip.Exception):
            run_apart(Laboratory)
        return

    def work():
        lab = Laboratory()
        stream = lab.stream(lab.b, lab.a, leaving=True)
        if machine.abilities[probe.QUEUE].available:
            with lab.fault({"kind": "loss", "share": 1.0}, [stream]):
                assert lab.one_way(lab.b, lab.a, 5, 0.1) == []
        if machine.abilities[probe.NETEM].available:
            with lab.fault({"kind": "delay", "delay_s": 0.1, "jitter_s": 0.0}, [stream], "kernel"):
                assert 100 <= min(lab.one_way(lab.b, lab.a, 20)) < 102
            with lab.fault({"kind": "loss", "share": 1.0}, [stream], "kernel"):
                assert lab.one_way(lab.b, lab.a, 5, 0.1) == []

    run_apart(work)


def test_what_is_missing_says_what_to_do(machine):
    for name, ability in machine.abilities.items():
        if not ability.available:
            assert ";" in ability.reason or "not tried" in ability.reason, name


def test_a_machine_without_a_queue_has_no_namespaced_level():
    have, lack = probe.Ability(available=True, how="x"), probe.Ability(available=False, reason="why")
    all_there = dict.fromkeys(probe.ABILITIES, have)
    assert probe.Machine(0, "6.0", all_there | {probe.QUEUE: lack}).namespaced.available  # netem does it
    assert probe.Machine(0, "6.0", all_there | {probe.NETEM: lack}).namespaced.available
    assert not probe.Machine(0, "6.0", all_there | {probe.NETEM: lack, probe.QUEUE: lack}).namespaced.available
    assert not probe.Machine(0, "6.0", all_there | {probe.DROP: lack}).namespaced.available
