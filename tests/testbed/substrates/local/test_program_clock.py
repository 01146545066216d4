"""Clocks of a team's own programs, set wrong while they run, by libfaketime, and right again."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from live import state_folder, strays
from opsassay.core.errors import ConfigError, StartError
from opsassay.core.schema.incident import FaultPlan
from opsassay.testbed.apps import load_system
from opsassay.testbed.substrates.local.capabilities import probe
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from testbed.substrates.local.test_own_programs import ask

pytestmark = [pytest.mark.live, pytest.mark.timeout(200)]

ONE = """
system: one
services:
  front:
    program: {{command: {command}, ports: {{http: 8080}}, ready: {{http: GET /health}}, calls: [], clock: faketime}}
load: {{rate_rps: 5, mix: [{{request: front GET /items/1}}]}}
"""
STATIC = Path(__file__).parents[4] / "examples" / "own_system" / ".venv" / "bin" / "caddy"


def load(folder, command="[python3, own_program.py]"):
    if not (level := probe()["namespaced"]).available:
        pytest.skip(f"no namespaces here: {level.reason}")
    folder.chmod(0o755)
    shutil.copy(Path(__file__).with_name("own_program.py"), folder)
    (folder / "system.yaml").write_text(ONE.format(command=command))
    try:
        return load_system(str(folder / "system.yaml"))
    except ConfigError as error:
        pytest.skip(str(error))


def told(running):
    """Return by how many seconds the program's clock is wrong, and how long 0.2 s were for it."""
    _, seen = ask(running, "/clock")
    return seen["time"] - time.time(), seen["waited"]


@pytest.mark.parametrize("offset_s", [-60, 3600])
def test_the_clock_of_a_program_is_wrong_while_the_fault_lasts_and_time_passes_as_ever(tmp_path, offset_s):
    system = load(tmp_path)
    with state_folder(), LocalSubstrate().deployed(system, "one") as running:
        plan = {"fault": "TimeSkew", "target": {"service": "front"}, "parameters": {"offset_ms": offset_s * 1e3}}
        before, seen = told(running), {}
        for event in running.inject(FaultPlan.model_validate({**plan, "duration_s": 8})):
            seen[event["event"]] = event
            if event["event"] == "effect":
                during = told(running)
        after = told(running)
        assert [round(apart) for apart, _ in (before, during, after)] == [0, offset_s, 0]
        assert all(0.19 < waited < 2 for _, waited in (before, during, after))
        assert seen["effect"]["passed"], seen
        assert seen["done"]["recovered"], seen
        assert abs(seen["effect"]["after"] - abs(offset_s) * 1e3) < 2500


def test_a_program_that_is_started_again_has_the_wrong_clock_and_shows_no_mark_of_the_fault(tmp_path):
    system = load(tmp_path)
    with state_folder(), LocalSubstrate().deployed(system, "one") as running:
        _, calm = ask(running, "/report")
        plan = FaultPlan.model_validate({"fault": "TimeSkew", "target": {"service": "front"}, "duration_s": 30})
        for event in running.inject(plan):
            if event["event"] == "effect":
                former = running.status().pids["front-0"]
                os.kill(former, signal.SIGKILL)
                deadline = time.monotonic() + 30
                while running.status().pids["front-0"] in (former, None) or running.status().not_ready:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
                time.sleep(1.5)
                _, broken = ask(running, "/report")
                apart, _ = told(running)
                assert round(apart) == -60
        assert broken["environment"].keys() == calm["environment"].keys()
        assert broken["etc"] == calm["etc"]


def test_a_program_out_of_reach_of_the_library_is_refused_with_the_reason(tmp_path):
    if not STATIC.exists():
        pytest.skip("examples/own_system is not installed: make examples/own_system/.installed")
    system = load(tmp_path, f"[{STATIC}, respond, --listen, ':8080']")
    with state_folder() as state, pytest.raises(StartError) as raised:
        LocalSubstrate().deploy(system, "one")
    assert "libfaketime does not set the clock of this program: it is linked statically; leave `clock` out" in str(
        raised.value
    )
    assert strays(state) == []
