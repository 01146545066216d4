"""Whose turn it is on this machine: who needs its processors has it alone, nobody who waits is overtaken."""

from __future__ import annotations

import tempfile
import threading
import time

import pytest
import yaml

from evals.remediation.test_trials import MADE, TESTS, write_scenario
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.solve import machine_shared, run_trials, wants_machine
from opsassay.evals.runner.run import never
from opsassay.evals.runner.store import RunStore
from opsassay.testbed.scenarios import load_scenario


@pytest.fixture(autouse=True)
def _paths(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("PERFORMED", str(tmp_path / "performed"))
    with tempfile.TemporaryDirectory(prefix="oa") as state:  # the state's path has to be a short one
        monkeypatch.setenv("OPSASSAY_STATE", state)
        yield


class Trial(threading.Thread):
    """A trial that goes on until it is told to end; ``there`` once it has its turn."""

    def __init__(self, *, alone, given_up=never):
        super().__init__(daemon=True)
        self.alone, self.given_up = alone, given_up
        self.there, self.ending = threading.Event(), threading.Event()
        self.start()

    def run(self):
        with machine_shared(self.given_up, alone=self.alone):
            self.there.set()
            self.ending.wait(60)

    def end(self):
        self.ending.set()
        self.join(60)


def test_one_that_wants_the_machine_waits_for_all_and_who_comes_later_waits_for_it():
    first, second = Trial(alone=False), Trial(alone=False)
    assert first.there.wait(20)
    assert second.there.wait(20), "others share it"
    alone = Trial(alone=True)
    assert not alone.there.wait(0.6)
    later = Trial(alone=False)
    first.end()
    assert not later.there.wait(0.6), "it came later"
    assert not alone.there.is_set()
    second.end()
    assert alone.there.wait(20)
    assert not later.there.wait(0.6)
    alone.end()
    assert later.there.wait(20)
    later.end()


def test_who_has_given_up_does_not_wait():
    alone, over = Trial(alone=True), threading.Event()
    assert alone.there.wait(20)
    waiting = Trial(alone=False, given_up=over.is_set)
    assert not waiting.there.wait(0.6)
    over.set()
    assert waiting.there.wait(20)
    waiting.end()
    alone.end()


def test_it_is_who_uses_up_a_limit_on_this_machine():
    wanting = {
        name: wants_machine(load_scenario(name)) for name in ("gen0-high-cpu-1", "gen0-high-cpu-3", "bad-release")
    }
    assert wanting == {"gen0-high-cpu-1": True, "gen0-high-cpu-3": False, "bad-release": False}


@pytest.mark.slow
def test_its_trials_wait_for_their_turn(tmp_path):
    path = write_scenario(tmp_path / "made.yaml", committed_depth="D3")
    payload = yaml.safe_load(path.read_text())
    payload["verification"]["alerts"] = {"triggering": [{"service": "web", "signal": "saturation"}]}
    path.write_text(yaml.safe_dump(payload))
    cells = cells_of(TrialPlan.model_validate({"scenarios": ["made.yaml"], "agents": ["oracle:gentle"]}), tmp_path)
    other = Trial(alone=False)
    assert other.there.wait(20)
    running = threading.Thread(
        target=run_trials, args=(RunStore(tmp_path / "store"), cells), kwargs={"performer": MADE + "quick"}
    )
    running.start()
    time.sleep(3)
    assert not (tmp_path / "performed").exists()
    other.end()
    running.join(60)
    assert (tmp_path / "performed").read_text().splitlines() == ["oracle:gentle baseline True 0"]
