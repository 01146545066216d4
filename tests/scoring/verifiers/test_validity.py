"""Whether a trial can be judged: by readings made by hand."""

from __future__ import annotations

import pytest

from opsassay.core.schema.trajectory import Calibration, MachinePressure, Timeline, parse_timeline
from opsassay.scoring.verifiers import certify, gather, validity
from scoring.verifiers.made import probe, recording, scenario, timeline

BUSY = {"foreign": 0.9, "foreign_runnable": 9.0, "cpu": 0.95, "noop_s": 0.4}
QUIET = {"foreign": 0.01, "foreign_runnable": 0.0, "cpu": 0.3, "noop_s": 0.001}


def run(*, busy=(), readings=BUSY, count=40, since=5, calibration=None, probes=()):
    """Return a recording of *count* ticks that are all well, the fault at *since*; those in *busy* have *readings*."""
    made = timeline([1.0] * count, probes=probes)
    ticks = tuple(
        tick.model_copy(update={"pressure": MachinePressure(**(readings if tick.index in busy else QUIET))})
        for tick in made.ticks
    )
    made = made.model_copy(update={"ticks": ticks, "calibration": calibration})
    return recording(made, deployed=0, triggered=since, started=since + 5, ended=count - 10)


def judged(**given):
    return validity(gather(run(**given)))


def test_a_trial_on_a_machine_that_others_keep_busy_is_starved_by_tick_reading_and_limit():
    found = judged(busy=range(20, 30))
    assert found.status == "starved"
    assert [one.tick for one in found.starved] == list(range(20, 30))
    assert (found.starved[0].reading, found.starved[0].value, found.starved[0].limit) == ("cpu", 0.95, 0.5)
    verdict = certify(run(busy=range(20, 30)), scenario(probe_every_s=None))
    assert verdict.validity.status == "starved"
    assert verdict.metrics["certificate"].value is None
    assert "others kept the machine busy at 10 of 35 ticks" in verdict.metrics["certificate"].reason
    assert certify(run(), scenario(probe_every_s=None)).judgement("certificate").passed


@pytest.mark.parametrize(
    "readings",
    [
        {**BUSY, "foreign": 0.1},  # the system or its agent burns
        {**BUSY, "foreign_runnable": 1.0},  # others work, and nobody waits for them
        {"foreign": 0.9, "foreign_runnable": 9.0, "cpu": 0.2, "noop_s": 0.001},  # nothing of ours waits
    ],
)
def test_nobody_gains_by_burning(readings):
    assert judged(busy=range(10, 40), readings=readings).status == "valid"


def test_what_a_hypervisor_takes_is_nobodys_of_the_trial():
    taken = {"foreign": 0.0, "steal": 0.5, "late_s": 1.2}
    assert judged(busy=range(10, 20), readings=taken).starved[0].reading == "late_s"


def test_a_few_ticks_and_those_before_the_fault_starve_no_trial():
    assert judged(busy=(20, 21)).status == "valid"
    assert judged(busy=range(5)).status == "valid"
    assert len(judged(busy=(20, 21)).starved) == 2


def test_without_pressure_the_run_queue_stands_in():
    found = judged(busy=range(10, 20), readings={"foreign": 0.9, "foreign_runnable": 9.0, "runnable": 9.0})
    assert {one.reading for one in found.starved} == {"runnable"}


def test_old_timelines_are_readable_and_not_assessed():
    old = '{"boot_id":"b","cadence_s":1.0,"schema_version":2}\n{"index":0,"observations":[]}\n'
    assert parse_timeline(old) == Timeline.model_validate({**parse_timeline(old).model_dump(), "calibration": None})
    plain = recording(timeline([1.0] * 20), triggered=3, started=5, ended=15)
    assert validity(gather(plain)).status == "not_assessed"
    assert certify(plain, scenario(probe_every_s=None)).judgement("certificate").passed
    made = timeline([1.0] * 20)
    ticks = tuple(tick.model_copy(update={"pressure": MachinePressure(cpu=0.9)}) for tick in made.ticks)
    unknown = validity(gather(recording(made.model_copy(update={"ticks": ticks}), triggered=3, started=5, ended=15)))
    assert (unknown.status, unknown.reason[:24]) == ("not_assessed", "the recorder cannot tell")


def test_a_probe_may_take_longer_on_a_machine_that_was_slow_before_and_no_longer_than_three_times():
    late = [probe("p1", 12, took=6.0), probe("p2", 35)]
    slow = Calibration(spin_s=0.04, noop_s=0.001)
    for calibration, holds in ((None, False), (slow, True), (Calibration(spin_s=0.001, noop_s=0.001), False)):
        verdict = certify(run(probes=late, calibration=calibration), scenario(probe_every_s=20))
        assert verdict.judgement("v_probe").passed is holds
    assert certify(run(probes=late, calibration=slow), scenario(probe_every_s=20)).judgement("v_probe").limit == 10.0
