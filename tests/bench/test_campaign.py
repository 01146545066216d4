"""Campaigns: the whole plan is checked first, and what was recorded is not recorded twice after any end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.bench.campaign import load_plan
from assay.errors import ConfigError, UserError
from live import run_assay, state_folder, strays

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


@pytest.mark.live
@pytest.mark.timeout(200)
def test_a_campaign_that_was_killed_goes_on_where_it_was(tmp_path):
    plan, out = written(tmp_path / "plan.yaml", PLAN), tmp_path / "out"
    with state_folder() as state:
        command = [sys.executable, "-m", "assay", "campaign", str(plan), "-o", str(out), "-j", "2"]
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
        run_assay("status")
        again = run_assay("campaign", str(plan), "-o", str(out), "-j", "2", "--json")
    assert again.returncode == 0, again.stderr
    items = json.loads(again.stdout)["items"]
    assert len(items) == 4
    assert first <= {item["incident"] for item in items}
    assert len(list((out / "incidents").glob("[!.]*"))) == 4
    assert {item["label"] for item in items if item["fault"] == "NoFault"} <= {"no_effect", "drifted"}
