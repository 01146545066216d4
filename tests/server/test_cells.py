"""What cells go through: the phases of a live run when they happen, wrong clocks, states that last too long, ray."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from pathlib import Path
from zoneinfo import ZoneInfoNotFoundError

import pytest
import sqlalchemy
import yaml

from opsassay.evals.remediation.trial.contract import mark_phase
from opsassay.evals.runner.store import RunStore
from opsassay.server import work
from opsassay.server.artefacts import Artefacts
from opsassay.server.benchmarks import (
    HeldError,
    Platform,
    beat,
    claim_cell,
    give_back,
    move_cell,
    put_error,
    put_off,
    queued_cells,
)
from opsassay.server.database import CELLS, engine_of
from opsassay.server.events import Signer
from opsassay.server.phases import PhaseReader
from opsassay.server.presence import is_left
from opsassay.server.timeouts import expire
from opsassay.server.work import Worker

from .conftest import Running, finished

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    started = Running(tmp_path_factory.mktemp("cells") / "state", "--workers", "0")
    yield started
    started.end()


@pytest.fixture
def platform(running):
    engine = engine_of(running.database())
    yield Platform(running.state, engine, Signer.from_folder(running.state), Artefacts(running.state / "artefacts"))
    engine.dispose()


def asked(running, name="operator"):
    owner = running.user(f"owner of {name}")
    form = {"name": name, "kind": "built_in", "domains": ["finops"], "source": "chance"}
    return owner, owner.request(owner.ask("POST", "/api/agents", form)["id"], "bill")


def test_a_bundle_is_where_its_live_run_is_and_an_attempt_begun_anew_is_at_the_beginning(running, platform):
    _, benchmark = asked(running)

    def row(number=0):
        with platform.engine.connect() as connection:
            of = CELLS.select().where(CELLS.c.benchmark_id == benchmark).order_by(CELLS.c.id)
            return connection.execute(of).mappings().all()[number]

    cell, store = row(), RunStore(platform.store("bill"))
    attempts = store.runs_dir / cell["hash"]
    (attempts / "1").mkdir(parents=True)
    mark_phase(attempts / "1", "ended")  # another worker's attempt, which was aborted
    claim_cell(platform, cell["id"], "one")
    reader = PhaseReader(platform, store, cell["id"], cell["hash"], "one")
    seen = []

    def states():
        reader.read_phases()
        seen.append((row()["bundle"], row()["agent"]))
        return seen[-1]

    assert states() == ("Provisioning", "Initializing")
    (attempts / "2").mkdir()
    for phase, state in (
        ("deployed", ("Provisioning", "Initializing")),
        ("baseline", ("Provisioned", "Initializing")),
        ("triggered", ("FaultInjecting", "Initializing")),
        ("agent_started", ("Ready", "Executing")),
        ("agent_ended", ("Evaluating", "Executing")),
        ("ended", ("Terminating", "Executing")),
    ):
        mark_phase(attempts / "2", phase)
        assert states() == state
    (attempts / "3").mkdir()
    assert states() == ("Provisioning", "Initializing")
    mark_phase(attempts / "3", "triggered")
    assert states() == ("FaultInjecting", "Initializing")
    mark_phase(attempts / "3", "ended")
    assert states()[0] == "Terminating"
    give_back(platform, cell["id"], "one")
    assert claim_cell(platform, cell["id"], "two")["bundle"] == "Terminating"  # and is begun anew
    assert (row()["bundle"], row()["agent"]) == ("Provisioning", "Initializing")
    mark_phase(attempts / "3", "ended")
    assert states()[0] == "Provisioning"  # which is none of the former worker's any more
    put_error(platform, cell["id"], "two", "no result")
    mark_phase(attempts / "3", "ended")
    assert states()[0] == "Error"
    other = row(1)  # of an agent that runs elsewhere its relay says that it is let in
    claim_cell(platform, other["id"], "one")
    hosted = PhaseReader(platform, store, other["id"], other["hash"], "one", hosted=True)
    (store.runs_dir / other["hash"] / "1").mkdir(parents=True)
    mark_phase(store.runs_dir / other["hash"] / "1", "agent_started")
    hosted.read_phases()
    assert (row(1)["bundle"], row(1)["agent"]) == ("FaultInjected", "Initializing")
    put_error(platform, other["id"], "one", "no result")


def test_what_lasts_too_long_is_expired_and_counts(running, platform):
    owner, benchmark = asked(running, name="stuck")
    with platform.engine.begin() as connection:
        connection.execute(CELLS.update().where(CELLS.c.benchmark_id == benchmark).values(bundle="Provisioning"))
    assert expire(platform) == 0
    assert expire(platform, time.time_ns() + int(2 * 3600e9)) == 3
    found = owner.benchmark(benchmark)
    assert [cell["bundle"] for cell in found["cells"]] == ["Error"] * 3
    assert "was Provisioning for more than 1 hours" in found["cells"][0]["error"]


def test_a_worker_whose_clock_is_wrong_neither_loses_nor_takes_a_cell(running, platform):
    _, benchmark = asked(running, name="late")
    with platform.engine.connect() as connection:
        cell = connection.execute(CELLS.select().where(CELLS.c.benchmark_id == benchmark)).mappings().first()["id"]
    assert claim_cell(platform, cell, "one")["tries"] == 1
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: 9 * 10**18)
        patched.setattr(time, "time", lambda: 9e9)
        with pytest.raises(HeldError):
            claim_cell(platform, cell, "two")
        assert beat(platform, cell, "one")
        assert not beat(platform, cell, "two")


def test_a_cell_that_nobody_can_run_says_what_ended_its_workers(running, platform, monkeypatch):
    owner, benchmark = asked(running, name="broken")
    cell = owner.benchmark(benchmark)["cells"][0]["id"]

    def unexpected(platform, benchmark):
        raise ZoneInfoNotFoundError("what it says may be the answer")

    monkeypatch.setattr(work, "asked_by", unexpected)
    for _ in range(work.MOST_TRIES):
        with pytest.raises(ZoneInfoNotFoundError):
            Worker(platform, name="one").run(cell)
    Worker(platform, name="two").run(cell)
    found = {one["id"]: one for one in owner.benchmark(benchmark)["cells"]}[cell]
    assert (found["bundle"], found["tries"]) == ("Error", work.MOST_TRIES + 1)
    assert found["error"] == "It was begun 5 times. one met ZoneInfoNotFoundError, of which its log says more."


@pytest.mark.long
def test_a_live_bundle_is_seen_in_every_state_by_the_chain_of_events(tmp_path):
    running = Running(tmp_path / "state", "--workers", "1")
    try:
        scenario = ROOT / "examples" / "extending" / "scenario.yaml"
        (running.state / "task_sets" / "scenarios").mkdir()
        shutil.copy(scenario, running.state / "task_sets" / "scenarios" / "pool.yaml")
        part = {"scenarios": ["scenarios/pool.yaml"]}
        asked_for = yaml.safe_dump({"domain": "sre", "baselines": [], "part": part})
        (running.state / "task_sets" / "drained.yaml").write_text(asked_for)
        admin = running.client()
        form = {"name": "gentle", "kind": "built_in", "domains": ["sre"], "source": "oracle:gentle"}
        asked_of = admin.request(admin.ask("POST", "/api/agents", form)["id"], "drained")
        (cell,) = finished(admin, asked_of, 280)["cells"]
        events = [e for e in admin.ask("GET", "/api/events?limit=10000")["items"] if e["subject"] == cell["id"]]
    finally:
        running.end()
    assert (cell["bundle"], cell["agent"], cell["tries"], cell["passed"]) == ("Terminated", "Finished", 1, True)
    moves = [json.loads(event["body"]).get("bundle", []) for event in events if event["kind"] == "cell"]
    assert [state for move in moves for state in move] == [
        "Provisioning", "Provisioned", "FaultInjecting", "FaultInjected", "Ready", "Evaluating", "Evaluated",
        "Terminating", "Terminated",
    ]  # fmt: skip
    rested = {move[-1] for move in moves if move}
    assert rested >= {"Provisioning", "FaultInjecting", "Ready", "Evaluating", "Terminating", "Terminated"}


@pytest.mark.long
def test_workers_on_a_ray_cluster_take_what_is_there_and_end(tmp_path):
    pytest.importorskip("ray", reason="ray is not installed: pip install '.[ray]'")
    running = Running(tmp_path / "state", "--workers", "0")
    try:
        fan_out(running)
    finally:
        running.end()


def fan_out(running):
    owner, benchmark = asked(running, "fanned out")
    worker = running.worker("--ray", "local", "-j", "2")
    found = finished(owner, benchmark, 200)
    assert worker.wait(120) == 0
    assert [cell["bundle"] for cell in found["cells"]] == ["Terminated"] * 3
    assert "worker 2 of 2: there is nothing left to do" in (running.state / "further.log").read_text()


MANY = {"domain": "finops", "baselines": [], "part": {"tasks": ["category-cost", "top-applications"], "repeats": 6}}


def waiting_jobs(platform, *benchmarks):
    """Return the benchmarks of the jobs that wait, in the order in which workers take them."""
    query = sqlalchemy.text(
        "SELECT cells.benchmark_id FROM procrastinate_jobs AS job JOIN cells ON cells.id = job.args->>'cell' "
        "WHERE job.status = 'todo' AND cells.benchmark_id = ANY(:benchmarks) ORDER BY job.priority DESC, job.id"
    )
    with platform.engine.connect() as connection:
        return list(connection.execute(query, {"benchmarks": list(benchmarks)}).scalars())


def until(found, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_owners_take_turns_however_many_cells_each_of_them_asks_for(running, platform):
    (running.state / "task_sets" / "many.yaml").write_text(json.dumps(MANY))
    first, second = running.user("asks for many"), running.user("asks for few")

    def ask(owner, name, task_set):
        form = {"name": name, "kind": "built_in", "domains": ["finops"], "source": "chance"}
        return owner.request(owner.ask("POST", "/api/agents", form)["id"], task_set)

    many = [ask(first, f"large {n}", "many") for n in range(2)]
    until(lambda: len(waiting_jobs(platform, *many)) == 24)
    few = ask(second, "small", "many")
    until(lambda: len(waiting_jobs(platform, few)) == 12)
    order = ["few" if one == few else "many" for one in waiting_jobs(platform, *many, few)]
    assert order[:24].count("few") == 12, "who came later does not wait for all of who came before"
    assert max(len(list(group)) for _, group in itertools.groupby(order[:24])) <= 2
    assert order[24:] == ["many"] * 12


def test_the_same_benchmark_is_joined_until_it_is_at_an_end(running, platform):
    owner, benchmark = asked(running, "asks twice")
    (agent,) = (one["id"] for one in owner.ask("GET", "/api/agents")["items"])
    assert owner.request(agent, "bill") == benchmark
    assert [one["id"] for one in owner.ask("GET", "/api/benchmarks")["items"]] == [benchmark]
    form = {"name": "asks too", "kind": "built_in", "domains": ["finops"], "source": "chance"}
    assert owner.request(owner.ask("POST", "/api/agents", form)["id"], "bill") != benchmark  # the control


def far_away(running, name):
    owner = running.user(f"owner of {name}")
    form = {"name": name, "kind": "self_hosted", "domains": ["finops"], "source": ""}
    agent = owner.ask("POST", "/api/agents", form)["id"]
    return owner, agent, owner.request(agent, "bill")


def goes_away(platform, agent):
    with platform.engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE agents SET polled_ns = 1 WHERE id = :agent"), {"agent": agent})


def test_no_worker_waits_for_an_agent_that_runs_elsewhere_and_is_away(running, platform):
    owner, agent, benchmark = far_away(running, "late riser")

    def queued():
        with platform.engine.connect() as connection:
            return queued_cells(connection, benchmark)

    with platform.engine.connect() as connection:
        cell = connection.execute(CELLS.select().where(CELLS.c.benchmark_id == benchmark)).mappings().first()["id"]
    assert queued() == []
    assert claim_cell(platform, cell, "one") is None
    owner.ask("GET", f"/api/agents/{agent}/manifest")
    assert len(queued()) == 3
    assert claim_cell(platform, cell, "one")["tries"] == 1
    assert not is_left(platform.engine, cell)
    goes_away(platform, agent)
    assert is_left(platform.engine, cell)
    put_off(platform, cell, "one")
    with platform.engine.connect() as connection:
        row = connection.execute(CELLS.select().where(CELLS.c.id == cell)).mappings().one()
    assert (row["bundle"], row["agent"], row["worker"], row["tries"]) == ("NotStarted", "NotStarted", None, 0)
    assert claim_cell(platform, cell, "two") is None
    owner.ask("GET", f"/api/agents/{agent}/manifest")
    assert claim_cell(platform, cell, "two")["tries"] == 1


def test_one_worker_at_most_waits_for_an_agent_and_not_for_long(running, platform):
    owner, agent, benchmark = far_away(running, "slow starter")
    owner.ask("GET", f"/api/agents/{agent}/manifest")
    first, second, _ = (cell["id"] for cell in owner.benchmark(benchmark)["cells"])
    claim_cell(platform, first, "one")
    with pytest.raises(HeldError):
        claim_cell(platform, second, "two")
    with platform.writing() as connection:
        move_cell(connection, first, bundle="Ready", agent="Ready")
    assert not is_left(platform.engine, first)
    with platform.engine.begin() as connection:
        connection.execute(CELLS.update().where(CELLS.c.id == first).values(since_ns=CELLS.c.since_ns - int(61e9)))
    owner.ask("GET", f"/api/agents/{agent}/manifest")
    assert is_left(platform.engine, first), "it asks what there is to do, and does not begin"
    with platform.writing() as connection:
        move_cell(connection, first, agent="Executing")
    assert not is_left(platform.engine, first)
    assert claim_cell(platform, second, "two")["tries"] == 1
    _, here = asked(running, "works here")
    cells = [cell["id"] for cell in running.client().benchmark(here)["cells"]]
    assert [claim_cell(platform, cell, "one")["tries"] for cell in cells] == [1, 1, 1]  # the control


def test_a_worker_leaves_an_agent_that_has_gone_and_serves_the_others(tmp_path):
    served = Running(tmp_path / "state", "--workers", "1")
    engine = engine_of(served.database())
    platform = Platform(served.state, engine, Signer.from_folder(served.state), Artefacts(served.state / "artefacts"))
    try:
        owner, agent, benchmark = far_away(served, "gone fishing")

        def entries():
            return owner.ask("GET", f"/api/agents/{agent}/manifest")["entries"]

        until(lambda: any(one["agent_status"] == "Ready" for one in entries()))
        goes_away(platform, agent)
        other, asked_by_other = asked(served, "in a hurry")
        assert finished(other, asked_by_other)["state"] == "Finished"
        assert owner.benchmark(benchmark)["state"] == "Running"
        until(lambda: any(one["agent_status"] == "Ready" for one in entries()))  # it is back, and so is its task
    finally:
        engine.dispose()
        served.end()


@pytest.mark.parametrize(("silent_s", "limits"), [("2.0", {}), ("300.0", {"seconds": 6})])
def test_an_agent_that_started_and_says_nothing_any_more_ends_its_run_by_its_limits(tmp_path, silent_s, limits):
    served = Running(tmp_path / "state", "--workers", "1")
    try:
        asked_of = {"domain": "finops", "baselines": [], "part": {"tasks": ["category-cost"]}}
        asked_of["part"]["settings"] = {"limits": limits}
        (served.state / "task_sets" / "one.yaml").write_text(json.dumps(asked_of))
        owner = served.user("owner")
        agent = owner.register("falls silent", ["finops"])
        relay = served.state / "agents" / agent / "relay.py"
        text = relay.read_text()
        assert "SILENT_S = 300.0\n" in text
        relay.write_text(
            text.replace("SILENT_S = 300.0", f"SILENT_S = {silent_s}").replace("WAIT_S = 20", "WAIT_S = 1")
        )
        asked_for = owner.request(agent, "one")
        entry = next(iter(owner.entries(agent)))
        owner.ask("PUT", f"/api/entries/{entry.id}/status", {"status": "STARTED"}, token=entry._token)
        (cell,) = finished(owner, asked_for, 30)["cells"]
        assert (cell["bundle"], cell["passed"]) == ("Terminated", False)
    finally:
        served.end()
