"""The systems that ship: their shape as counted from their YAML, and that each of them runs."""

from __future__ import annotations

import json
import time

import pytest

from assay.testbed.apps import load_system, names
from assay.testbed.ledger import LOAD_RECORD
from assay.testbed.local.substrate import LocalSubstrate
from live import Recording, state_folder
from testbed import topology

APPS = names()


@pytest.fixture(params=APPS)
def app(request):
    return load_system(request.param)


def test_nothing_is_dead_and_everything_ends(app):
    assert topology.services_reached_by_load(app) == set(app.services)
    assert topology.dead_places(app) == set()
    assert topology.terminates(app)


def test_every_message_has_a_consumer_and_every_consumer_a_publisher(app):
    published = {step.publish for service in app.services.values() for step in service.steps() if step.publish}
    consumed = {subject for service in app.services.values() for subject in service.consumes}
    assert published == consumed


def test_the_pools_fit_the_databases(app):
    for store, spec in app.stores.items():
        assert any(used == store for _, used in app.uses())
        if spec.engine == "postgresql":
            assert topology.connections(app, store) <= topology.POSTGRESQL_CONNECTIONS


def test_benign_distractors_and_all_protections_are_there(app):
    services = app.services.values()
    steps = [step for service in services for step in service.steps()]
    calls = [step for step in steps if step.call]
    assert any(service.periodic for service in services)
    assert any(step.wait_ms and step.wait_ms >= 50 for step in steps), "a slow but healthy place"
    assert any(step.tail >= 0.5 for step in steps), "a heavy tail"
    assert any(step.retries for step in calls)
    assert any(step.breaker_failures for step in calls)
    assert any(step.optional for step in calls)
    assert any(step.log and step.level == "WARN" for step in steps), "a warning that means nothing"
    assert len({step.timeout_s for step in calls}) > 1
    assert len({service.pool for service in services}) > 1


def test_user_requests_differ_in_depth_and_give_up_after_their_parts(app):
    depths = {topology.depth_of(app, kind.request) for kind in app.load.mix}
    assert len(depths) >= 2
    for service in app.services.values():
        for operation in service.operations.values():
            for step in operation.walk():
                if step.call:
                    assert step.timeout_s < app.load.timeout_s


def test_hotel_is_shallow_and_wide():
    hotel = load_system("hotel")
    assert len(hotel.services) == 9
    assert topology.depth(hotel) == 3
    assert topology.fan_out(hotel, "search") == 3
    assert topology.service_cycles(hotel) == set()


def test_hotel_reads_a_cache_before_every_store():
    hotel = load_system("hotel")
    for name, service in hotel.services.items():
        for route, operation in service.operations.items():
            actions = ["cache" if s.cache else "sql" for s in operation.walk() if s.cache or s.sql]
            if "sql" in actions:
                assert actions[0] == "cache", (name, route)
                assert actions[-1] == "cache", (name, route)


@pytest.mark.live
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("name", "load_s"), [("hotel", 4)])
def test_it_runs_without_errors_and_leaves_nothing(tmp_path, name, load_s):
    app, substrate = load_system(name), LocalSubstrate()
    with state_folder() as state:
        running = substrate.deploy(app, "live", seed=3, owned=True)
        status = running.status()
        assert (status["ready"], status["not_ready"]) == (sum(s.replicas for s in app.services.values()), [])
        with Recording(running, tmp_path / "spool") as recording:
            time.sleep(load_s)
        lines = (running.state.ledger_dir / LOAD_RECORD).read_text().splitlines()
        substrate.remove("live")
        assert list((state / "systems").iterdir()) == []
    requests = [json.loads(line) for line in lines]
    assert len(requests) > app.load.rate_rps * load_s / 2
    assert [r for r in requests if r["status"] != 200] == []
    assert recording.tables["traces"].filter(recording.tables["traces"]["attr.status_code"] == "Error").height == 0
    assert {m.request for m in app.load.mix} >= {r["request"] for r in requests}
