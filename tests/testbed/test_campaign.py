"""Campaigns: the whole plan is checked first, and what was recorded is not recorded twice after any end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from live import run_opsassay, state_folder, strays
from opsassay.core.errors import ConfigError, UserError
from opsassay.core.schema.locks import folder_lock
from opsassay.telemetry.tree import Tree
from opsassay.testbed.campaign import LOCK, half_recorded, incident_ids, load_plan, run_campaign
from opsassay.testbed.recording.record import spool_of

TINY = Path(__file__).parents[1] / "testbed" / "tiny.yaml"
PLAN = f"""\
campaign: test
systems:
  - system: {TINY}
    faults:
      - {{fault: HTTPResponseAbort, targets: [back, middle]}}
      - {{fault: NoFault, repeats: 2}}
warmup_s: 0.5
normal_s: 3
abnormal_s: 3
"""


def written(path, text):
    path.write_text(text)
    return path


def test_a_plan_becomes_one_cell_per_target_and_repeat(tmp_path):
    injections = load_plan(written(tmp_path / "plan.yaml", PLAN))
    assert [(i.plan.fault, i.plan.target and i.plan.target.service) for i in injections] == [
        ("HTTPResponseAbort", "back"), ("HTTPResponseAbort", "middle"), ("NoFault", None), ("NoFault", None),
    ]  # fmt: skip
    assert len({injection.cell for injection in injections}) == 4
    assert len({injection.seed for injection in injections}) == 4
    assert [i.cell for i in load_plan(tmp_path / "plan.yaml")] == [i.cell for i in injections]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("targets: [back, middle]", "targets: [bak]", "did you mean 'back'?"),
        ("HTTPResponseAbort, targets: [back, middle]", "HTTPResponseAbort", "needs a target"),
        ("abnormal_s: 3", "abnormal: 3", "did you mean 'abnormal_s'?"),
        (str(TINY), "shp", "did you mean 'shop'?"),
    ],
)
def test_a_wrong_plan_is_refused_before_anything_starts(tmp_path, old, new, words):
    with pytest.raises((ConfigError, UserError), match=words.replace("?", r"\?")):
        load_plan(written(tmp_path / "plan.yaml", PLAN.replace(old, new)))


@pytest.mark.long
@pytest.mark.live
@pytest.mark.timeout(200)
def test_a_campaign_that_was_killed_goes_on_where_it_was(tmp_path):
    plan, out = written(tmp_path / "plan.yaml", PLAN), tmp_path / "out"
    with state_folder() as state:
        command = [sys.executable, "-m", "opsassay", "incident", "campaign", str(plan), "-o", str(out), "-j", "2"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as campaign:
            deadline = time.monotonic() + 60
            while not list(out.glob("incidents/[!.]*")):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            campaign.kill()
        first = {path.name for path in out.glob("incidents/[!.]*")}
        deadline = time.monotonic() + 20
        while strays(state):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        run_opsassay("system", "status")
        again = run_opsassay("incident", "campaign", str(plan), "-o", str(out), "-j", "2", "--json")
    assert again.returncode == 0, again.stderr
    items = json.loads(again.stdout)["items"]
    assert len(items) == 4
    assert first <= {item["incident"] for item in items}
    assert len(list((out / "incidents").glob("[!.]*"))) == 4
    assert list(out.glob(".recording-*")) == []
    assert {item["label"] for item in items if item["fault"] == "NoFault"} <= {"no_effect", "drifted"}


def test_entries_for_hosts_and_for_several_faults_at_once(tmp_path):
    faults = """\
      - {fault: CPUStress, targets: [back], hosts: [host-a], parameters: {cores: 8}}
      - faults:
          - {fault: NetworkDelay, target: {service: back}}
          - {fault: HTTPResponseAbort, target: {service: middle}}
        repeats: 2
"""
    text = PLAN.replace("      - {fault: NoFault, repeats: 2}\n", faults)
    injections = load_plan(written(tmp_path / "plan.yaml", text))
    assert [i.plan.name for i in injections[2:]] == [
        "CPUStress", "CPUStress", "NetworkDelay + HTTPResponseAbort", "NetworkDelay + HTTPResponseAbort",
    ]  # fmt: skip
    assert [part.name for part in injections[3].plan.parts] == ["CPUStress on host-a"]
    assert len({injection.cell for injection in injections}) == 6


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("targets: [back, middle]", "hosts: [host-b]", r"plan.yaml:5: systems.0.faults.0: There is no host 'host-b'"),
        ("HTTPResponseAbort, targets", "JVMMySQLException, targets", "uses no database"),
        ("{fault: NoFault, repeats: 2}", "{fault: NoFault, parameters: {factor: 2}}", "has no parameter 'factor'"),
        ("{fault: NoFault, repeats: 2}", "{fault: HTTPResponseAbort, targets: [back]}", "is planned twice"),
        ("seed: 1", "warmup_s: 1", "given twice"),
    ],
)
def test_what_cannot_work_is_named_by_line(tmp_path, old, new, says):
    text = PLAN.replace(old, new) if old in PLAN else PLAN + new + "\n"
    with pytest.raises(ConfigError, match=says):
        load_plan(written(tmp_path / "plan.yaml", text))


def test_what_a_killed_recording_left_is_told_apart(tmp_path):
    injections, tree = load_plan(written(tmp_path / "plan.yaml", PLAN)), Tree(tmp_path / "out")
    ids = incident_ids(injections, tree)
    ours = spool_of(tree, ids[injections[0].cell])
    other = spool_of(tree, "0123456789abcdef")
    ours.mkdir()
    other.mkdir()
    assert half_recorded(injections, tree) == ([ours], [other])


def test_two_campaigns_do_not_write_to_one_tree(tmp_path):
    injections, tree = load_plan(written(tmp_path / "plan.yaml", PLAN)), Tree(tmp_path / "out")
    incident_ids(injections, tree)
    with folder_lock(tree.root, name=LOCK), pytest.raises(UserError, match="Another campaign records into"):
        next(run_campaign(injections, tree, 1))
