"""What every substrate has to do, through the protocols of `core/substrate.py` alone.

A module that imports these tests gives them fixtures: *substrate*, *pair* (a running system of `pair.yaml`, module-wide),
*leftovers* (a function that returns what is left of a removed system), and a *slow_fault* that the substrate can inject.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from opsassay.core.errors import LostError, NotFoundError, RefusedError, UserError
from opsassay.core.schema.incident import FaultPlan
from opsassay.telemetry.otlp.seal import decode_spool
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.substrate import SUBSTRATES, load_substrate

EXAMPLE = Path(__file__).parents[3] / "examples" / "substrate"
PAIR = load_system(str(EXAMPLE / "pair.yaml"))
USUAL_S = 4.0


def planned(fault, service="back", seconds=4.0, **parameters):
    return FaultPlan.model_validate(
        {"fault": fault, "target": {"service": service}, "parameters": parameters, "duration_s": seconds}
    )


def wait_for(condition, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_it_is_found_by_its_name_and_refuses_settings_that_it_does_not_have(substrate):
    assert substrate.name in SUBSTRATES.names()
    assert type(load_substrate(substrate.name)) is type(substrate)
    with pytest.raises(UserError, match="has no setting 'colour'"):
        load_substrate(substrate.name, {"colour": "red"})


def test_a_deployed_system_is_ready_and_says_what_it_is(substrate, pair):
    status = pair.status()
    assert (status.system, status.phase, status.not_ready, status.fault) == ("pair", "ready", (), None)
    assert status.ready == status.replicas >= 2
    assert status.rate_rps == 20
    assert set(status.endpoints) == {"front"}
    assert status.payload()["name"] == status.name
    assert pair.definition().services.keys() == PAIR.services.keys()
    assert status.name in substrate.names()
    assert status.name in [one.name for one in substrate.status()]
    assert substrate.running(status.name).status().system == "pair"
    assert any(level["available"] for level in substrate.capabilities().isolation.values())
    with pytest.raises(NotFoundError):
        substrate.running("nobody")
    assert all(isinstance(log, str) for log in substrate.logs(status.name).values())
    with pytest.raises(NotFoundError):
        substrate.logs("nobody")


def test_what_cannot_be_injected_is_refused_before_anything_happens(substrate, pair):
    with pytest.raises(NotFoundError, match="did you mean 'back'"):
        pair.require(planned("PodFailure", "bak"))
    with pytest.raises(RefusedError, match=r"cannot be injected here|uses no database"):
        substrate.require(PAIR, planned("JVMMySQLLatency", "front"))


def test_a_fault_is_seen_and_undone(pair, slow_fault, tmp_path):
    wait_for(lambda: not pair.status().not_ready)
    pair.receiver.open_session(tmp_path / "spool", "contract")
    time.sleep(USUAL_S)
    during = []
    events = []
    for event in pair.inject(slow_fault):
        events.append(event)
        during.append(pair.status().fault)
    pair.flush()
    time.sleep(1.5)
    pair.receiver.refresh("contract")  # a later access gets the same receiver
    assert pair.receiver.close_session("contract").signals["traces"].kept_items > 0
    assert [event["event"] for event in events] == ["applied", "effect", "undone", "done"]
    assert events[1]["passed"], events[1]
    assert events[-1]["recovered"]
    assert list(events[-1]["roots"][0]["service"]) == ["back"]
    assert slow_fault.fault in during[0]
    assert pair.status().fault is None
    traces = decode_spool(tmp_path / "spool")["traces"]
    assert {"front", "back"} <= set(traces["service_name"])


def test_an_injection_that_is_closed_is_undone_at_once(pair, slow_fault):
    wait_for(lambda: not pair.status().not_ready)
    events = pair.inject(slow_fault.model_copy(update={"duration_s": 600.0}))
    assert next(events)["event"] == "applied"
    with pytest.raises(RefusedError, match="still active"):
        next(pair.inject(slow_fault))
    events.close()
    wait_for(lambda: pair.status().fault is None)


def test_probes_read_the_depths_and_send_requests(pair):
    async def probe():
        async with pair.probes() as probes:
            return await probes.read(), await probes.request(probes.protected[0])

    reading, answer = asyncio.run(probe())
    assert (reading.ready_replicas.value, reading.ready_backends.value) == (1.0, 1.0)
    assert answer.status == 200


def test_the_load_can_be_changed(pair):
    former = pair.set_rate(30.0)
    assert pair.set_rate(former) == 30.0


def test_what_is_removed_leaves_nothing(substrate, leftovers):
    with substrate.deployed(PAIR, "brief") as running:
        assert running.status().phase == "ready"
        with pytest.raises(UserError):
            substrate.deploy(PAIR, "brief")
    assert "brief" not in substrate.names()
    assert leftovers("brief") == []
    with pytest.raises(LostError):
        running.status()
