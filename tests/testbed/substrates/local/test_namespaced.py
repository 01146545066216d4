"""Systems of the namespaced level: who is where, what reaches whom, what a data fault leaves alone, what stays behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from live import Recording, state_folder
from opsassay.cli import run
from opsassay.core.schema.incident import FaultPlan, Target
from opsassay.testbed.apps import load_system
from opsassay.testbed.kernel.cgroups import find_groups
from opsassay.testbed.substrates.local.capabilities import machine, probe
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from testbed import TINY

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        not probe()["namespaced"].available, reason=f"no namespaced level here: {probe()['namespaced'].reason}"
    ),
]


def namespace(pid):
    return Path(f"/proc/{pid}/ns/net").stat().st_ino


def links():
    return sorted(name for _, name in socket.if_nameindex())


def system_groups(name):
    return [path for path in Path("/sys/fs/cgroup").glob("**/opsassay-*") if path.name.startswith(f"opsassay-{name}-")]


@pytest.fixture(scope="module")
def running():
    before = links()
    with state_folder():
        substrate = LocalSubstrate()
        seen = []
        first, second = (
            substrate.deploy(load_system(TINY), name, isolation="namespaced", owned=True, on_progress=seen.append)
            for name in ("spaces", "beside")
        )
        assert seen[0].phase == "starting"  # it answers from the first moment
        yield first, second
        substrate.remove("spaces")
        substrate.remove("beside")
    assert links() == before


def test_every_replica_has_a_network_of_its_own_and_two_systems_do_not_meet(running):
    first, second = (system.status() for system in running)
    pids = [pid for status in (first, second) for pid in [*status.pids.values(), status.pid]]
    assert len({namespace(pid) for pid in pids}) == len(pids)
    assert namespace("self") not in {namespace(pid) for pid in pids}
    assert first.backends == second.backends  # the same addresses, and yet other processes
    for status in (first, second):
        assert status.isolation == "namespaced"
        with urllib.request.urlopen(status.endpoints["front"][0] + "/", timeout=5) as response:
            assert response.status == 200


def test_a_partition_stops_calls_and_not_the_telemetry_of_its_target(running, tmp_path):
    system = running[0]
    plan = FaultPlan(
        fault="NetworkPartition", target=Target(service="middle"), parameters={"direction": "both"}, duration_s=6
    )
    with Recording(system, tmp_path / "spool") as recording:
        events = [(event, time.time_ns()) for event in system.inject(plan)]
    applied = next(at for event, at in events if event["event"] == "applied")
    done, _ = events[-1]
    assert done["event"] == "done"
    assert done["recovered"]
    ended = done["faults"][0]["end_ns"]
    during = (applied, ended - 1_200_000_000)  # a call may outlast the fault if it began a second before
    calls = recording.spans(*during, service="front", kind="Client")
    assert len(calls) > 10
    assert (calls["attr.status_code"] == "Error").mean() > 0.9
    assert recording.spans(*during, service="middle", kind="Server").is_empty()
    metrics = recording.tables["metrics"]
    readings = metrics.filter(
        (metrics["service_name"] == "middle")
        & (metrics["metric"] == "container.cpu.usage")
        & metrics["time"].cast(int).is_between(*during)
    )
    assert len(readings) >= 1


@pytest.mark.skipif(find_groups() is None, reason="no control group can be made here")
def test_a_killed_supervisor_leaves_no_control_group_after_the_next_status():
    assert machine().abilities["cgroup_cpu"].available
    with state_folder():
        running = LocalSubstrate().deploy(load_system(TINY), "orphan", isolation="namespaced")
        (group,) = {path.name for path in system_groups("orphan")}
        quota = next(
            path for path in system_groups("orphan") if (path / "host-a/back-0").is_dir()
        )  # every controller's hierarchy has the same groups
        members = (quota / "host-a/back-0/cgroup.procs").read_text().split()
        assert running.status().pids["back-0"] in map(int, members)
        os.kill(running.status().pid, signal.SIGKILL)
        (row,) = LocalSubstrate().status()
        assert row.phase == "cleared"
        assert system_groups("orphan") == [], group


def test_who_keeps_a_namespace_of_a_system_that_is_down_is_named(capsys):
    with state_folder():
        running = LocalSubstrate().deploy(load_system(TINY), "visited", isolation="namespaced", owned=True)
        with visitor(running.status().pids["back-0"]) as pid:
            assert run(["system", "down", "visited"]) == 0
            out, err = capsys.readouterr()
    assert out == "visited is down.\n"
    assert f"Process {pid} (" in err
    assert "keeps a network namespace of visited" in err


@contextmanager
def visitor(pid):
    """Another process in the network namespace of process *pid*, which is no part of the system."""
    program = f"from opsassay.testbed.kernel.namespaces import join; join({pid}); print(flush=True); open(0).read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process.pid
        process.stdin.close()
