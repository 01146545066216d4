"""The timeline observer on a real system: four depths, probes of its own, and what a fault looks like at each."""

from __future__ import annotations

import sys
import time
from itertools import groupby

import psutil
import pytest

from live import state_folder
from opsassay.core.errors import LostError, StartError
from opsassay.core.logs import parsed
from opsassay.core.schema.incident import FaultPlan
from opsassay.testbed.apps import load_system
from opsassay.testbed.recording.observer import observing, read_timeline, recorded_by
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from testbed import TINY

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


def values(timeline, depth):
    return [o.value for tick in timeline.ticks for o in tick.observations if o.depth == depth and o.value is not None]


def test_a_killed_entry_shows_at_every_depth_but_the_control_plane(tmp_path):
    with state_folder() as folder:
        running = LocalSubstrate().deploy(load_system(TINY), "watch", owned=True)
        with observing("watch", tmp_path / "timeline.jsonl", cadence_s=0.25, probe_every_s=0.5):
            time.sleep(2)
            plan = FaultPlan.model_validate({"fault": "PodKill", "target": {"service": "front"}, "duration_s": 4})
            assert list(running.inject(plan))[-1]["recovered"]
            time.sleep(1)
        logged = LocalSubstrate().logs("watch")["observer"]
        LocalSubstrate().remove("watch")
        assert not list((folder / "observers").iterdir()), "the link goes with the system"
    assert [parsed(line)["event"] for line in logged.splitlines() if "tick missed" not in line] == ["ready", "stopped"]
    assert (tmp_path / "timeline.log").read_text() == logged, "the log stays beside the timeline"
    timeline = read_timeline(tmp_path / "timeline.jsonl")
    assert [tick.index for tick in timeline.ticks] == list(range(len(timeline.ticks)))
    assert min(values(timeline, "D1")) == pytest.approx(2 / 3)
    assert min(values(timeline, "D2")) == 0.0
    assert min(values(timeline, "D3")) == 0.0
    assert set(values(timeline, "D4")) == {1.0}
    for depth in ("D1", "D2", "D3"):
        assert values(timeline, depth)[0] == values(timeline, depth)[-1] == 1.0
    probes = [probe for tick in timeline.ticks for probe in tick.probes]
    assert len({probe.id for probe in probes}) == len(probes) >= 8
    assert {probe.target for probe in probes} == {"front"}
    assert all(probe.ended_ns > probe.started_ns for probe in probes)
    assert {200} <= {probe.status for probe in probes if probe.reachable}
    for tick in timeline.ticks:
        for observation in tick.observations:
            assert observation.started_ns <= observation.ended_ns
    first = timeline.ticks[0]
    assert [entity.service for entity in first.entities] == ["front", "middle", "back"]
    assert all(entity.ready and entity.host and entity.version for entity in first.entities)
    flips = [entity.ready for tick in timeline.ticks[1:] for entity in tick.entities if entity.service == "front"]
    # A reading between its start and its being ready is one of another incarnation that is not ready either.
    assert [ready for ready, _ in groupby(flips)][:2] == [False, True]
    counts = [tick.load["front GET /"] for tick in timeline.ticks if tick.load]
    assert counts[-1][0] > counts[0][0]
    assert counts[-1][1] > counts[0][1] == 0


def test_a_lost_system_is_observed_as_lost_and_not_as_healthy(tmp_path):
    with state_folder():
        running = LocalSubstrate().deploy(load_system(TINY), "lost", owned=True)
        with observing("lost", tmp_path / "timeline.jsonl", cadence_s=0.25, probe_every_s=None):
            time.sleep(1)
            LocalSubstrate().remove(running.state.name)
            time.sleep(1)
    timeline = read_timeline(tmp_path / "timeline.jsonl")
    last = {observation.depth: observation for observation in timeline.ticks[-1].observations}
    assert last["D1"].value is None
    assert "supervisor" in last["D4"].failing
    assert last["D3"].value == 0.0
    with (tmp_path / "timeline.jsonl").open("a") as file:
        file.write('{"index": 99')
    assert len(read_timeline(tmp_path / "timeline.jsonl").ticks) == len(timeline.ticks)


def test_nothing_to_observe_is_one_sentence(tmp_path):
    missing = "There is no running system 'nobody'"
    with state_folder(), pytest.raises(StartError, match=missing), observing("nobody", tmp_path / "timeline.jsonl"):
        pass
    entry = parsed((tmp_path / "timeline.log").read_text())
    assert (entry["event"], entry["process"]) == ("failed", "observer")
    assert missing in entry["reason"]


def test_an_observer_that_does_not_end_is_ended_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr("opsassay.testbed.recording.observer.END_TIMEOUT_S", 0.5)
    out = tmp_path / "timeline.jsonl"
    stubborn = f"import time; open({str(out)!r}, 'w').close(); time.sleep(60)"
    with (
        pytest.raises(LostError, match="did not end in time"),
        recorded_by([sys.executable, "-c", stubborn], out) as watcher,
    ):
        pass
    assert not psutil.pid_exists(watcher.process.pid)
