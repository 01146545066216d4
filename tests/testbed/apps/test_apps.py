"""The systems that ship: their shape as counted from their YAML, and that each of them runs."""

from __future__ import annotations

import json
import time

import pytest

from live import Recording, state_folder
from opsassay.testbed.apps import load_system, names
from opsassay.testbed.recording.ledger import LOAD_RECORD
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from testbed.apps import topology

APPS = names()


@pytest.fixture(params=APPS)
def app(request):
    return load_system(request.param)


def test_nothing_is_dead_and_everything_ends(app):
    forgotten = {"archive"} if app.system == "till" else set()  # a deployment that costs and serves nobody
    assert topology.services_reached_by_load(app) == set(app.services) - forgotten
    operators = {"dispatch", "archive"} if app.system == "depot" else set()  # what an operator asks them for
    dead = topology.dead_places(app)
    assert {service for service, _ in dead} == forgotten | operators
    assert not operators or all(route.startswith("POST /") for _, route in dead)
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


@pytest.mark.parametrize("name", ["shop", "hotel", "train"])
def test_benign_distractors_and_all_protections_are_there(name):
    app = load_system(name)
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
    assert len(depths) >= (1 if app.system == "till" else 2)  # a till is what cost tasks are about: small on purpose
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


def test_train_has_44_services_and_calls_over_up_to_six_hops():
    train = load_system("train")
    assert len(train.services) == 44
    assert topology.depth(train) == 7  # services on the longest way: six hops
    assert {topology.depth_of(train, kind.request) for kind in train.load.mix} == {3, 4, 5, 7}
    assert topology.fan_in(train, "ts-order-service") >= 8
    assert all(topology.fan_in(train, f"ts-{name}-service") >= 4 for name in ("station", "route", "travel", "seat"))


def test_train_has_exactly_two_mutual_dependencies_and_no_other_circle():
    train = load_system("train")
    pairs = {frozenset({"ts-travel-service", "ts-seat-service"}), frozenset({"ts-user-service", "ts-auth-service"})}
    assert topology.mutual_pairs(train) == pairs
    assert topology.service_cycles(train) == pairs


def test_train_shares_one_database_and_has_a_queue():
    train = load_system("train")
    databases = [name for name, store in train.stores.items() if store.engine == "postgresql"]
    assert databases == ["shared-db"]
    assert sum(store == "shared-db" for _, store in train.uses()) == 23
    assert {name for name, service in train.services.items() if service.consumes} == {
        "ts-notification-service",
        "ts-delivery-service",
    }


def test_a_user_request_costs_few_enough_calls_for_two_cores(app):
    """A call took 1.5 to 2 ms of CPU in all processes together, its statements and its telemetry included."""
    assert topology.calls_per_request(app) <= 12
    assert topology.calls_per_request(app) * app.load.rate_rps <= 150


@pytest.mark.live
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("name", "rate_rps", "load_s"),
    [
        pytest.param("hotel", 12, 4, marks=pytest.mark.long),
        pytest.param("train", 4, 5, marks=pytest.mark.long),
        ("layered-9-4-mutual-1", 6, 3),
    ],
)
def test_it_runs_without_errors_and_leaves_nothing(tmp_path, name, rate_rps, load_s):
    app, substrate = load_system(name), LocalSubstrate()
    with state_folder() as state:
        running = substrate.deploy(app, "live", seed=3, rate_rps=rate_rps, owned=True)
        status = running.status()
        assert (status.ready, status.not_ready) == (sum(s.replicas for s in app.services.values()), ())
        record = running.state.ledger_dir / LOAD_RECORD
        with Recording(running, tmp_path / "spool") as recording:
            deadline = time.monotonic() + 60
            time.sleep(load_s)
            while len(record.read_text().splitlines()) <= rate_rps * load_s / 2 and time.monotonic() < deadline:
                time.sleep(0.5)
        lines = record.read_text().splitlines()
        substrate.remove("live")
        assert list((state / "systems").glob("[!.]*")) == []
    requests = [json.loads(line) for line in lines]
    assert len(requests) > rate_rps * load_s / 2
    assert [r for r in requests if r["status"] != 200] == []
    assert recording.tables["traces"].filter(recording.tables["traces"]["attr.status_code"] == "Error").height == 0
    assert {m.request for m in app.load.mix} >= {r["request"] for r in requests}
