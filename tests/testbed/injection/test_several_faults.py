"""Several faults at once and faults on whole hosts, in one small running system."""

from __future__ import annotations

import json
import os
import signal
import time

import polars as pl
import psutil
import pytest

from live import Recording, run_opsassay, state_folder
from opsassay.core.errors import ConfigError, OperationError
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.incident import FaultPlan
from opsassay.testbed.apps import load_system
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from testbed import CORNER

pytestmark = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(150)]
ON_HOST_B = {"stock", "price", "archive"}


@pytest.fixture(scope="module")
def corner():
    with state_folder():
        running = LocalSubstrate().deploy(load_system(CORNER), "several", seed=5, owned=True, isolation="plain")
        time.sleep(6)
        yield running
        LocalSubstrate().remove("several")


def settle(running):
    deadline = time.monotonic() + 30
    while running.status().not_ready or running.status().fault:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(3)  # so that there are moments before


def carried_out(running, faults, seconds, on=None):
    """Return the events of a plan of *faults*, which may be acted *on*."""
    settle(running)
    events = []
    for event in running.inject(FaultPlan.model_validate({"faults": faults, "duration_s": seconds})):
        events.append(event)
        if on:
            on(event)
    return events


def service(name, fault, **parameters):
    return {"fault": fault, "target": {"service": name}, "parameters": parameters}


def host(name, fault, **parameters):
    return {"fault": fault, "target": {"host": name}, "parameters": parameters}


def stages(events):
    return [(e["event"], e["fault"]) for e in events if "fault" in e]


def test_two_faults_are_journalled_checked_and_undone_each_by_itself(corner, tmp_path):
    with Recording(corner, tmp_path / "spool") as recording:
        faults = [service("rate", "NetworkDelay", delay_ms=100), service("stock", "HTTPResponseAbort", code=503)]
        events = carried_out(corner, faults, 3)
    done = events[-1]
    assert [fault["type"] for fault in done["faults"]] == ["NetworkDelay", "HTTPResponseAbort"]
    assert [root["service"] for root in done["roots"]] == [["rate"], ["stock"]]
    assert [effect["passed"] for effect in done["effects"]] == [True, True]
    assert done["recovered"]
    assert done["notes"] == []
    assert stages(events)[:2] == [("applied", "NetworkDelay"), ("applied", "HTTPResponseAbort")]
    assert stages(events)[-2:] == [("undone", "HTTPResponseAbort"), ("undone", "NetworkDelay")]
    journal = [json.loads(line) for line in corner.state.journal.read_text().splitlines()][-4:]
    assert [entry["event"] for entry in journal] == ["apply", "apply", "undone", "undone"]
    assert journal[0]["injection"] == journal[3]["injection"] != journal[1]["injection"] == journal[2]["injection"]
    window = [fault[edge] for fault in done["faults"] for edge in ("start_ns", "end_ns")]
    slow = recording.spans(min(window), max(window), service="stock", name="GET /rate", kind="Client")
    assert slow["duration"].median() > 100_000_000
    failed = recording.spans(min(window), max(window), service="front", name="GET /items", kind="Client")
    assert (failed["attr.http.response.status_code"] == 503).mean() > 0.8


@pytest.mark.faults
def test_two_faults_of_one_family_on_one_service_add_up(corner, tmp_path):
    with Recording(corner, tmp_path / "spool") as recording:
        faults = [service("rate", "NetworkDelay", delay_ms=100), service("rate", "HTTPResponseDelay", delay_ms=150)]
        (*_, done) = carried_out(corner, faults, 3)
    assert [effect["passed"] for effect in done["effects"]] == [True, True]
    calls = recording.spans(
        done["faults"][0]["start_ns"], done["faults"][0]["end_ns"], service="stock", name="GET /rate"
    )
    assert calls["duration"].median() > 250_000_000


def test_a_journal_that_cannot_be_written_is_told_and_nothing_is_broken(corner):
    settle(corner)
    journal = corner.state.journal
    kept = journal.rename(journal.with_name("kept.jsonl"))
    journal.symlink_to("/dev/full")
    began = time.time_ns()
    try:
        with pytest.raises(OperationError, match=f"{journal} cannot be written: No space left on device"):
            list(corner.inject(FaultPlan.model_validate({**service("rate", "HTTPResponseAbort"), "duration_s": 3})))
        assert corner.status().fault is None
        assert corner.ledger(began).height == 0
    finally:
        journal.unlink()
        kept.rename(journal)


def test_a_fault_is_undone_even_when_that_cannot_be_written_down(corner):
    settle(corner)
    journal = corner.state.journal
    kept = journal.with_name("kept.jsonl")

    def fill(event):
        if event["event"] == "applied":
            journal.rename(kept)
            journal.symlink_to("/dev/full")

    try:
        (*_, done) = carried_out(corner, [service("rate", "HTTPResponseAbort")], 3, fill)
    finally:
        journal.unlink()
        kept.rename(journal)
    (note,) = done["notes"]
    assert note.startswith(
        f"HTTPResponseAbort on rate was undone, but that could not be written to the journal: The undo journal {journal}"
    )
    assert done["recovered"]


@pytest.mark.faults
def test_a_host_without_cpu_slows_all_of_its_services(corner):
    (_, effect, *_, done) = carried_out(corner, [host("host-b", "CPUStress", cores=16)], 4)
    assert effect["passed"]
    assert effect["host"] == "host-b"
    (fault,) = done["faults"]
    assert (fault["service"], fault["host"]) == (None, "host-b")
    assert set(done["roots"][0]["service"]) == ON_HOST_B
    assert done["recovered"]


@pytest.mark.faults
def test_a_host_that_is_down_comes_back(corner):
    down = []

    def look(event):
        if event["event"] == "effect":
            time.sleep(1.5)
            down.append(set(corner.status().not_ready))

    (*_, done) = carried_out(corner, [host("host-b", "PodFailure")], 3, look)
    assert {name.rpartition("-")[0] for name in down[0]} == ON_HOST_B
    assert done["recovered"]
    assert len(done["roots"][0]["pod"]) == 3


@pytest.mark.faults
def test_a_host_that_is_cut_off_talks_within_itself(corner, tmp_path):
    with Recording(corner, tmp_path / "spool") as recording:
        (*_, done) = carried_out(corner, [host("host-a", "NetworkPartition", direction="both")], 6)
    assert done["effects"][0]["passed"]
    begun = done["faults"][0]["start_ns"]
    users = recording.spans(begun, begun + 2_000_000_000, service="loadgenerator", name="GET /")
    assert (users["attr.status_code"] == "Error").mean() > 0.9  # front is on host-a, users are not
    ledger = corner.ledger(begun)
    lost = set(ledger.filter(pl.col("kind") == "packet_loss")["link"])
    assert lost
    assert not lost & {"front-0>price-0", "price-0>rate-0"}  # both on host-a


@pytest.mark.faults
def test_the_memory_of_a_host_fills(corner):
    (*_, done) = carried_out(corner, [host("host-b", "MemoryStress", size_mb=2000)], 3)
    assert done["effects"][0]["passed"]
    for name, pid in corner.status().pids.items():
        assert psutil.Process(pid).rlimit(psutil.RLIMIT_AS)[0] == psutil.RLIM_INFINITY, name


@pytest.mark.faults
def test_pressure_follows_a_target_that_restarts(corner):
    (*_, done) = carried_out(corner, [service("rate", "CPUStress", cores=3), service("rate", "ContainerKill")], 7)
    stalls = corner.ledger(done["faults"][0]["start_ns"]).filter(pl.col("kind") == "stall")["time_ns"]
    assert stalls.max() > done["faults"][0]["end_ns"] - 500_000_000
    assert [effect["passed"] for effect in done["effects"]] == [True, True]
    assert done["recovered"]
    assert done["notes"] == []  # what a fault killed is no surprise


@pytest.mark.faults
def test_a_companion_that_somebody_kills_lets_its_target_go_and_is_named(corner):
    def kill_it(event):
        if event["event"] == "effect":
            squeezed = psutil.Process(corner.status().pids["rate-0"])
            siblings = squeezed.parent().children()
            busiest = max(siblings, key=lambda p: p.create_time())
            os.kill(busiest.pid, signal.SIGKILL)
            deadline = time.monotonic() + 3
            while squeezed.status() == psutil.STATUS_STOPPED and time.monotonic() < deadline:
                time.sleep(0.05)
            assert squeezed.status() != psutil.STATUS_STOPPED

    (*_, done) = carried_out(corner, [service("rate", "CPUStress", cores=3)], 4, kill_it)
    (note,) = done["notes"]
    assert note.startswith("pressure-")
    assert "was ended by SIGKILL, which OpsAssay did not send" in note
    assert done["recovered"]


def test_what_cannot_work_is_refused_before_the_normal_window_by_file_and_line(corner, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("fault: JVMMySQLException\ntarget:\n  service: rate\n")
    with pytest.raises(ConfigError, match="uses no database"):
        corner.require(load_yaml(plan, FaultPlan), source=plan)
    began = time.monotonic()
    for command in (
        ("system", "inject", str(plan), "--on", "several"),
        ("incident", "record", CORNER, str(plan), "-o", str(tmp_path / "o")),
    ):
        done = run_opsassay(*command)
        assert done.returncode == 2
        assert f"{plan}:3: target.service: JVMMySQLException cannot act on rate: it uses no database" in done.stderr
    assert time.monotonic() - began < 30, "the normal window alone takes a minute"
    assert not (tmp_path / "o").exists()
    (tmp_path / "file").write_text("")
    good = tmp_path / "good.yaml"
    good.write_text("fault: PodKill\ntarget: {service: rate}\n")
    done = run_opsassay("incident", "record", CORNER, str(good), "-o", str(tmp_path / "file"))
    assert done.returncode == 2
    assert f"Cannot write to {tmp_path / 'file'}: " in done.stderr
