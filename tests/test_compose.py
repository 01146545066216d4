"""The paper's Compose check as a user runs it: two real containers, a wrong port, and nothing left behind."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.authoring.checks import proposed_depth
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.score import grade_trial, read_recording
from opsassay.evals.runner.oracles import EVERY_ORACLE
from opsassay.evals.runner.store import RunStore

FOLDER = Path(__file__).parents[1] / "examples" / "compose"


@pytest.fixture
def example(monkeypatch):
    """Return the example's script, and forget it and its neighbours afterwards."""
    monkeypatch.syspath_prepend(FOLDER)
    import check

    yield check
    for name in ("check", "stack", "image"):
        sys.modules.pop(name, None)


def test_the_scenario_commits_what_the_paper_does_and_its_verbs_exist(example):
    scenario = load_yaml(FOLDER / "scenario.yaml", Scenario)
    committed = scenario.verification
    assert (committed.committed_depth, committed.temporal_depth, committed.temporal_window_s) == ("D3", "D3", 30)
    assert (committed.probe_every_s, committed.floor_availability) == (1, 0.85)
    assert proposed_depth(scenario) == "D3"
    tools = example.containers.TOOLS
    steps = [step for oracle in scenario.oracles.values() for step in oracle.steps if step.verb]
    for call in (*scenario.trigger.operations, *steps):
        tools[call.verb.replace(" ", "_")].arguments.model_validate(call.arguments, strict=True)


def test_what_is_missing_is_said_in_a_sentence(example, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert re.fullmatch(r"it needs root|podman, .* not found \(apt-get install podman .*\)", example.unavailable())


def left_behind():
    """Return what a run could leave on the machine: mounts, interfaces, rules, groups, containers' helpers."""
    said = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for command in (["iptables-save"], ["ps", "-eo", "comm"])
    ]
    helpers = sorted(name for name in said[1].split() if name in {"conmon", "aardvark-dns", "podman"})
    rules = [line for line in said[0].splitlines() if not line.startswith("#")]
    links = sorted(path.name for path in Path("/sys/class/net").iterdir())
    groups = sorted(map(str, Path("/sys/fs/cgroup").glob("**/libpod*")))
    return Path("/proc/mounts").read_text(), links, rules, helpers, groups


@pytest.mark.long
@pytest.mark.timeout(420)
def test_both_repairs_end_healthy_and_v_temporal_alone_parts_them(example, tmp_path):
    if reason := example.unavailable():
        pytest.skip(f"no Compose check here: {reason}")
    before = left_behind()
    done = subprocess.run(
        [sys.executable, FOLDER / "check.py", tmp_path], capture_output=True, text=True, timeout=400, check=False
    )
    if "The image cannot be made here" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert left_behind() == before
    plan = TrialPlan(scenarios=(str(FOLDER / "scenario.yaml"),), agents=({"name": EVERY_ORACLE},))
    found = {}
    for cell in cells_of(plan):
        folder = RunStore(tmp_path).finished(cell.cell.hash)
        found[cell.agent.oracle] = grade_trial(folder, cell.scenario), read_recording(folder)
    for verdict, recording in found.values():
        assert verdict.judgement("v_outcome").passed
        assert verdict.judgement("v_depth").passed
        broken = [p.status for tick in recording.timeline.ticks for p in tick.probes if not p.reachable]
        assert 502 in broken  # healthy containers, and a gateway that reaches nobody
    gentle, aggressive = (found[name][0].judgement("v_temporal") for name in ("gentle", "aggressive"))
    assert (gentle.passed, gentle.value) == (True, 1.0)
    assert re.match(r"0 of \d+ D3 ticks lost, [1-9]\d* more to the standing fault", gentle.reason)
    assert aggressive.failed
    assert aggressive.value < 0.85
    for name, (_, recording) in found.items():
        seen = [o for tick in recording.timeline.ticks for o in tick.observations if o.depth == "D1"]
        torn_down = any(set(o.failing) == {"api-0", "proxy-0"} for o in seen)
        assert torn_down == (name == "aggressive")
