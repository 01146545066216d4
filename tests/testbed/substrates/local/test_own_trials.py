"""Trials on programs of a team's own, as the page types them: a right repair is certified, a harmful one is not."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from live import run_opsassay, skip_if_starved, state_folder
from opsassay.core.errors import RefusedError
from opsassay.testbed.apps import load_system
from opsassay.testbed.substrates.local.capabilities import probe
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from testbed.substrates.local.trials_page import (
    certificates,
    commands_of_the_page,
    plan_of_the_page,
    scenario_of_the_page,
)

pytestmark = [pytest.mark.live, pytest.mark.alone, pytest.mark.timeout(900)]

PAIR = """
system: my-shop
hosts: [host-a, host-b]
services:
  front:
    config: {BACK_URL: "http://orders:8080"}
    program: {command: [python3, own_program.py], ports: {http: 8080}, ready: {http: GET /health}, calls: [orders]}
  orders:
    replicas: 2
    program: {command: [python3, own_program.py], ports: {http: 8080}, ready: {http: GET /health}, calls: []}
load:
  rate_rps: 20
  timeout_s: 3
  mix: [{request: "front GET /items/{int:9}"}]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    if not (level := probe()["namespaced"]).available:
        pytest.skip(f"no namespaces here: {level.reason}")
    folder = tmp_path_factory.mktemp("project")
    folder.chmod(0o755)
    shutil.copy(Path(__file__).with_name("own_program.py"), folder)
    (folder / "system.yaml").write_text(PAIR)
    (folder / "orders-hang.yaml").write_text(scenario_of_the_page())
    (folder / "trials.yaml").write_text(plan_of_the_page())
    with state_folder():
        yield folder


@pytest.mark.drawn
def test_the_commands_of_the_page_certify_the_right_repair_and_reject_the_harmful_one(project):
    for line in commands_of_the_page():
        done = run_opsassay(*shlex.split(line)[1:], cwd=project, timeout=800)
        if done.returncode:
            skip_if_starved(done.stdout + done.stderr)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert certificates(project / "trials") == {
        "oracle:right": True, "oracle:silenced": False, "oracle:careless": False,
    }  # fmt: skip


def test_an_operator_stops_starts_and_limits_programs(project):
    with LocalSubstrate().deployed(load_system(str(project / "system.yaml")), "operated") as running:
        stopped = running.operate("stop", {"target": "orders", "replica": 1})
        assert stopped == {"stopped": ["orders-1"]}
        states = {row["replica"]: row["state"] for row in running.operate("ps", {})["replicas"]}
        assert states == {"front-0": "ready", "orders-0": "ready", "orders-1": "stopped"}
        assert running.operate("start", {"target": "orders"}) == {"started": ["orders-1"], "not_ready": []}
        running.operate("config set", {"target": "orders", "key": "cpu_limit", "value": "0.25"})
        assert running.operate("config get", {"target": "orders"})["settings"] == {
            "cpu_limit": "0.25", "memory_limit_mb": "256",
        }  # fmt: skip
        quotas = [path.read_text().split()[0] for path in groups_of("operated", "orders-0")]
        assert quotas == ["25000"]
        running.operate("scale", {"service": "orders", "replicas": 3})
        assert [path.read_text().split()[0] for path in groups_of("operated", "orders-2")] == ["25000"]
        running.operate("config unset", {"target": "orders", "key": "cpu_limit"})
        assert [path.read_text().split()[0] for path in groups_of("operated", "orders-0")] == ["50000"]
        for value in ("0", "99", "much"):
            with pytest.raises(RefusedError, match="is a number from"):
                running.operate("config set", {"target": "orders", "key": "cpu_limit", "value": value})


def groups_of(system: str, replica: str) -> list[Path]:
    """Return the files that hold the quota of *replica*, by either version of control groups."""
    places = Path("/sys/fs/cgroup").glob(f"**/opsassay-{system}-*/*/{replica}")
    files = [place / name for place in places for name in ("cpu.cfs_quota_us", "cpu.max") if (place / name).exists()]
    return files or pytest.skip("no control groups here")
