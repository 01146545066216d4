"""The main job on this machine, however busy it is: a true result or an honest end."""

from __future__ import annotations

import json

import pytest

from live import run_opsassay, state_folder, strays
from opsassay.scoring.void import VOID

pytestmark = [pytest.mark.system, pytest.mark.timeout(280)]


def test_the_demo_grades_what_it_explains_or_says_why_it_grades_nobody(tmp_path):
    with state_folder() as folder:
        done = run_opsassay("demo", "--normal", "15", "--abnormal", "15", "-o", str(tmp_path / "demo"), "--json")
        assert strays(folder) == []
    assert done.returncode in {0, 1}, done.stderr
    if done.returncode == 1 and not done.stdout:
        assert "was not normal before the fault" in done.stderr
        assert not list((tmp_path / "demo").glob("incidents/*"))
        assert not list((tmp_path / "demo").glob(".recording-*"))
        return
    told = json.loads(done.stdout)
    assert (done.returncode, told["items"] == []) in {(0, False), (1, True)}
    assert (told["label"] in {label.value for label in VOID}) == (done.returncode == 1) == bool(told["void"])
    if told["label"] == "attributed":
        assert told["truth_roots"] == ["catalog"]
        assert all(cause != effect for cause, effect in told["truth_edges"])
        assert {"baro", "self-time", "constant"} <= {item["method"] for item in told["items"]}
    assert (tmp_path / "demo" / "report.html").exists()
