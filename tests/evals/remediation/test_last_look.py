"""The end of a record: a last look that is not as the one before is followed until all is steady again."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from opsassay.core.schema.run_folder import OUTCOMES, TIMELINE
from opsassay.evals.remediation import environment
from opsassay.evals.remediation.environment import TrialEnvironment
from opsassay.evals.remediation.score import read_outcomes
from opsassay.evals.remediation.trial.contract import mark_phase
from opsassay.testbed.recording.observer import read_timeline, recorded_by
from scoring.verifiers.made import scenario

TESTS = Path(__file__).parents[2]
OBSERVER = """
import asyncio, sys
from pathlib import Path
from opsassay.testbed.core.probes import ProbeAnswer
from opsassay.testbed.recording.observer import observe
from opsassay.testbed.substrates.local.probes import LocalProbes
from testbed.recording.test_observer_ticks import WHOLE, Answering

class Marked(LocalProbes):
    answered = {}

    async def request(self, service):
        failing = Path(sys.argv[2]).exists()
        if failing and Path(sys.argv[2]).read_text() == "flapping":
            failing = self.answered.get(service, False)
            self.answered[service] = not failing
        return ProbeAnswer(502 if failing else 200, 0.001)

asyncio.run(observe(Marked(Answering(WHOLE)), Path(sys.argv[1]), 0.1, 0.1))
"""
"""A real observer of a made system. Requests fail while a file is there, every second one when it says "flapping"."""


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """Return a function that ends the record of a trial: which probes answered, how often was looked, what was noted."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]))
    down, out = tmp_path / "down", tmp_path / TIMELINE
    alerts = {"triggering": [{"service": "front", "signal": "error_rate"}], "hold_s": 0}
    monkeypatch.setattr(environment, "ALERTS_TIMEOUT_S", 0.5)
    monkeypatch.setattr(environment, "SETTLE_EVERY_S", 0.2)

    def ended(
        *, before: bool = False, at_the_end: bool = False, then=lambda _down: None, fires=lambda _looks: False, hold_s=1
    ):
        committed = scenario(committed_depth="D3", settling={"hold_s": hold_s, "limit_s": 8}, alerts=alerts)
        for phase in ("agent_started", "agent_ended"):
            mark_phase(tmp_path, phase)
        set_to(down, before)
        looked = threading.Event()
        with recorded_by([sys.executable, "-c", OBSERVER, str(out), str(down)], out) as watcher:
            trial, looks = TrialEnvironment(None, committed, tmp_path, probes=True), []

            def look_last():
                if not looks:
                    set_to(down, at_the_end)
                looks.append(time.monotonic())
                watcher.observe_once()
                looked.set()

            look = SimpleNamespace(observe_once=look_last, go_on=watcher.go_on)
            trial._observer, trial._session = (
                look,
                SimpleNamespace(
                    watch=SimpleNamespace(
                        quiet_s=lambda _rules: 0.0 if fires(looks) else 99.0, failure=None, late_s=2.0
                    )
                ),
            )
            time.sleep(1.0)
            changing = threading.Thread(target=lambda: looked.wait(30) and then(down))
            changing.start()
            trial._read_last(cleared=True)
            changing.join()
        ticks = read_timeline(out).ticks
        noted = [one.outcome for one in read_outcomes(tmp_path)] if (tmp_path / OUTCOMES).exists() else []
        return [probe.reachable for tick in ticks for probe in tick.probes], len(looks), noted

    return ended


def set_to(down, state):
    if state:
        down.touch()
    else:
        down.unlink(missing_ok=True)


def test_the_last_look_is_taken_while_the_fault_holds_and_the_observer_goes_on(tmp_path, monkeypatch):
    for name in ("_record_until_settled", "require_alive"):
        monkeypatch.setattr(environment, name, lambda *_: None)
    monkeypatch.setattr(environment, "_record_aftermath", lambda *_: True)
    done = []
    system = SimpleNamespace(settle=lambda: done.append("fault is undone"))
    trial = TrialEnvironment(system, scenario(committed_depth="D3"), tmp_path, probes=True)
    trial._session = SimpleNamespace(watch=None)
    trial._observed.callback(done.append, "observer ends")
    monkeypatch.setattr(trial, "note_settings", lambda: None)
    monkeypatch.setattr(trial, "_read_last", lambda *, cleared: done.append(("last look", cleared)))
    trial.settle()
    assert done == [("last look", True), "observer ends", "fault is undone"]


def test_one_request_that_fails_at_the_end_is_not_how_a_trial_ends(ended):
    reachable, looks, noted = ended(before=False, at_the_end=True, then=lambda down: down.unlink())
    assert (looks, noted) == (2, [])
    assert False in reachable
    assert reachable[-5:] == [True] * 5


@pytest.mark.slow
def test_what_stays_broken_from_the_last_look_on_is_how_it_ends(ended):
    reachable, looks, noted = ended(before=False, at_the_end=True)
    assert (looks, noted) == (2, [])
    assert reachable[0]
    assert reachable[-5:] == [False] * 5


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_what_is_as_it_was_needs_no_other_look(ended, broken):
    reachable, looks, noted = ended(before=broken, at_the_end=broken)
    assert (set(reachable), looks, noted) == ({not broken}, 1, [])


@pytest.mark.slow
def test_an_alert_that_fires_with_the_last_look_is_given_its_time_once_more(ended):
    _, looks, noted = ended(fires=lambda looks: len(looks) == 1 and time.monotonic() < looks[0] + 3)
    assert (looks, noted) == (2, [])


@pytest.mark.slow
def test_an_alert_that_stays_is_how_it_ends(ended):
    _, looks, noted = ended(fires=lambda looks: len(looks) > 0)
    assert (looks, noted) == (2, [])


@pytest.mark.slow
def test_what_goes_on_changing_has_not_settled(ended):
    def flap(down):
        down.write_text("flapping")

    # An observer on a busy machine may miss a second, in which nothing changes.
    _, looks, noted = ended(before=False, at_the_end=True, then=flap, hold_s=4)
    assert (looks, noted) == (1, ["not_settled"])
