"""Generated systems: the same for the same arguments, of the size and shape that was asked for, alive and ending."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.files import parse_yaml
from opsassay.core.schema.system import System
from opsassay.testbed.apps import load_system
from opsassay.testbed.apps.generate import LARGEST, SHAPES, SMALLEST, by_name, generate
from opsassay.testbed.apps.topology_generator import room_for_mutual
from testbed.apps import topology

seeds = st.integers(0, 10**9)
sizes = st.integers(SMALLEST, 48)
shapes = st.sampled_from(SHAPES)
several = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(seeds, sizes, shapes)
@several
def test_every_system_has_its_size_ends_and_has_nothing_dead(seed, size, shape):
    app = generate(seed, size, shape)
    assert len(app.services) == size
    assert len(app.entries()) == 1
    assert topology.terminates(app)
    assert topology.dead_places(app) == set()
    assert topology.services_reached_by_load(app) == set(app.services)
    assert topology.service_cycles(app) == set()


@given(seeds, sizes, shapes, st.data())
@settings(several, max_examples=80)
def test_mutual_dependencies_are_as_many_as_asked_for_and_no_larger_circle_closes(seed, size, shape, data):
    mutual = data.draw(st.integers(1, room_for_mutual(size, shape)))
    app = generate(seed, size, shape, mutual_pairs=mutual)
    assert len(topology.mutual_pairs(app)) == mutual
    assert topology.service_cycles(app) == topology.mutual_pairs(app)
    assert topology.terminates(app)
    assert topology.dead_places(app) == set()


@given(seeds, sizes, shapes)
@several
def test_every_system_can_run(seed, size, shape):
    """Pools fit their databases, callers outwait their callees, routes and tables exist, the load is affordable."""
    app = generate(seed, size, shape)
    for store, spec in app.stores.items():
        assert any(used == store for _, used in app.uses())
        if spec.engine == "postgresql":
            assert topology.connections(app, store) <= topology.POSTGRESQL_CONNECTIONS
            created = {s.split()[2] for s in spec.setup if s.startswith("CREATE TABLE")}
            named = {
                word
                for service in app.services.values()
                for step in service.steps()
                if step.sql and step.store == store
                for word in step.sql.split()
                if word.endswith("_rows")
            }
            assert named <= created
    assert topology.calls_per_request(app) * app.load.rate_rps <= 90
    longest = {
        place: step for place in topology.places(app) for step in topology.places(app)[place].walk() if step.call
    }
    assert all(step.timeout_s < app.load.timeout_s for step in longest.values())
    assert all(operation.steps for operation in topology.places(app).values())


@given(seeds, st.integers(6, 48), shapes)
@several
def test_every_system_has_protections_distractors_and_a_queue(seed, size, shape):
    app = generate(seed, size, shape)
    services = app.services.values()
    steps = [step for service in services for step in service.steps()]
    assert any(step.retries for step in steps)
    assert any(step.breaker_failures for step in steps)
    assert any(step.optional for step in steps)
    assert any(step.tail >= 0.5 for step in steps)
    assert any(step.wait_ms and step.wait_ms >= 60 for step in steps)
    assert any(step.log and step.level == "WARN" for step in steps)
    assert sum(len(service.periodic) for service in services) >= 2
    published = {step.publish for step in steps if step.publish}
    assert published == {subject for service in services for subject in service.consumes} != set()
    (replicated,) = [name for name, service in app.services.items() if service.replicas > 1]
    assert all(step.retries for step in steps if step.callee == replicated), "one of them may restart without harm"


@pytest.mark.slow
@given(seeds, st.integers(12, 40))
@several
def test_shapes_differ_as_their_names_say(seed, size):
    of = {shape: generate(seed, size, shape) for shape in SHAPES}
    depth = {shape: topology.depth(app) for shape, app in of.items()}
    assert depth["wide"] == 3
    assert depth["wide"] <= depth["layered"] <= 6
    assert depth["chain"] > depth["layered"]
    assume(size >= 20)
    most_wanted = {shape: max(topology.fan_in(app, name) for name in app.services) for shape, app in of.items()}
    assert most_wanted["hub"] >= size // 6


def test_the_same_arguments_give_the_same_bytes_in_every_process():
    script = (
        "from opsassay.testbed.apps.generate import generate; "
        "print(generate(7, 26, 'layered', mutual_pairs=2).model_dump_json(), end='')"
    )
    command = [sys.executable, "-c", script]
    texts = {
        subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }
    assert texts == {generate(7, 26, "layered", mutual_pairs=2).model_dump_json()}
    assert generate(8, 26, "layered", mutual_pairs=2).model_dump_json() not in texts


@given(seeds, sizes, shapes)
@settings(max_examples=10, deadline=None)
def test_its_yaml_reads_back_as_the_same_system(seed, size, shape):
    app = generate(seed, size, shape)
    written = yaml.safe_dump(app.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    assert parse_yaml(written, System, "generated") == app


def test_its_name_makes_it_again():
    app = generate(7, 20, "hub", mutual_pairs=1)
    assert app.system == "hub-20-7-mutual-1"
    assert load_system(app.system) == by_name(app.system) == app
    assert by_name("shop") is None
    assert by_name("hub-20") is None


def test_what_cannot_be_had_is_refused_in_one_sentence():
    with pytest.raises(NotFoundError, match="did you mean 'layered'"):
        generate(1, 12, "layerd")
    for size in (SMALLEST - 1, LARGEST + 1):
        with pytest.raises(UserError, match="3 to 100 services"):
            generate(1, size)
    with pytest.raises(UserError, match="room for 1 mutual dependencies, not 2"):
        generate(1, 12, "wide", mutual_pairs=2)
    with pytest.raises(UserError, match="3 to 100 services"):
        load_system("chain-2-1")
