"""The phases of a live run reach its bundle when they happen; workers may be tasks of a ray cluster too."""

from __future__ import annotations

import pytest

from opsassay.bench.core.store import RunStore
from opsassay.bench.domains.sre.contract import mark_phase
from opsassay.server.artefacts import Artefacts
from opsassay.server.benchmarks import Platform, give_back, put_error, take
from opsassay.server.database import engine_of
from opsassay.server.events import Signer
from opsassay.server.phases import PhaseReader
from opsassay.server.schema import CELLS

from .conftest import Running, finished

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@pytest.fixture
def running(tmp_path):
    started = Running(tmp_path / "state", "--workers", "0")
    yield started
    started.end()


def asked(running, name="operator"):
    owner = running.user(f"owner of {name}")
    form = {"name": name, "kind": "built_in", "domains": ["finops"], "source": "chance"}
    return owner, owner.request(owner.ask("POST", "/api/agents", form)["id"], "bill")


def test_a_bundle_is_where_its_live_run_is_and_an_attempt_begun_anew_is_at_the_beginning(running):
    _, benchmark = asked(running)
    engine = engine_of(running.database())
    platform = Platform(running.state, engine, Signer.of(running.state), Artefacts(running.state / "artefacts"))

    def row():
        with engine.connect() as connection:
            of = CELLS.select().where(CELLS.c.benchmark_id == benchmark).order_by(CELLS.c.id)
            return connection.execute(of).mappings().first()

    cell, store = row(), RunStore(platform.store("bill"))
    attempts = store.runs_dir / cell["hash"]
    (attempts / "1").mkdir(parents=True)
    mark_phase(attempts / "1", "ended")  # another worker's attempt, which was aborted
    take(platform, cell["id"], "one")
    reader = PhaseReader(platform, store, cell["id"], cell["hash"], "one")
    seen = []

    def states():
        reader.look()
        seen.append((row()["bundle"], row()["agent"]))
        return seen[-1]

    assert states() == ("Provisioning", "Initializing")
    (attempts / "2").mkdir()
    for phase, state in (
        ("deployed", ("Provisioning", "Initializing")),
        ("baseline", ("Provisioned", "Initializing")),
        ("triggered", ("FaultInjecting", "Initializing")),
        ("agent_started", ("Ready", "Executing")),
        ("agent_ended", ("Evaluating", "Executing")),
        ("ended", ("Terminating", "Executing")),
    ):
        mark_phase(attempts / "2", phase)
        assert states() == state
    (attempts / "3").mkdir()
    assert states() == ("Provisioning", "Initializing")
    mark_phase(attempts / "3", "triggered")
    assert states() == ("FaultInjecting", "Initializing")
    mark_phase(attempts / "3", "ended")
    assert states()[0] == "Terminating"
    give_back(platform, cell["id"], "one")
    assert take(platform, cell["id"], "two")["bundle"] == "Terminating"  # and is begun anew
    assert (row()["bundle"], row()["agent"]) == ("Provisioning", "Initializing")
    mark_phase(attempts / "3", "ended")
    assert states()[0] == "Provisioning"  # which is none of the former worker's any more
    put_error(platform, cell["id"], "two", "no result")
    mark_phase(attempts / "3", "ended")
    assert states()[0] == "Error"
    engine.dispose()


@pytest.mark.slow
def test_workers_on_a_ray_cluster_take_what_is_there_and_end(running):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'opsassay[ray]'")
    owner, benchmark = asked(running, "fanned out")
    worker = running.worker("--ray", "local", "-j", "2")
    found = finished(owner, benchmark, 200)
    assert worker.wait(120) == 0
    assert [cell["bundle"] for cell in found["cells"]] == ["Terminated"] * 3
    assert "worker 2 of 2: there is nothing left to do" in (running.state / "further.log").read_text()
