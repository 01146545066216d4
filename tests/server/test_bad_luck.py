"""Workers that are killed, databases and servers started again, folders that outlive both: nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import psutil
import psycopg
import pytest
import yaml
from sqlalchemy import text

from opsassay.server.client import PlatformError
from opsassay.server.database import engine_of

from .conftest import Running, finished

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]


@pytest.fixture
def running(tmp_path):
    started = Running(tmp_path / "state", "--workers", "0")
    yield started
    started.end()


def many(running, repeats):
    part = {"tasks": ["category-cost", "top-applications"], "repeats": repeats}
    written = yaml.safe_dump({"domain": "finops", "part": part})
    (running.state / "task_sets" / "many.yaml").write_text(written)


def asked(running, task_set="bill", name="lucky"):
    owner = running.user(f"owner of {name}")
    agent = owner.ask(
        "POST", "/api/agents", {"name": name, "kind": "built_in", "domains": ["finops"], "source": "chance"}
    )["id"]
    return owner, owner.request(agent, task_set)


def ended(*workers):
    for one in workers:
        one.terminate()
    for one in workers:
        one.wait(90)


def test_a_worker_that_is_killed_loses_and_doubles_nothing(running):
    many(running, 8)
    owner, benchmark = asked(running, "many")
    workers = [running.worker() for _ in range(3)]
    while not any(cell["run"] for cell in owner.benchmark(benchmark)["cells"]):
        time.sleep(0.2)
    workers[0].kill()
    workers[1].kill()
    workers.append(running.worker())
    found = finished(owner, benchmark, 200)
    ended(*workers)
    assert [(cell["bundle"], cell["error"]) for cell in found["cells"]] == [("Terminated", None)] * 16
    assert len({cell["run"] for cell in found["cells"]}) == 16
    results = [e for e in owner.ask("GET", "/api/events?limit=10000")["items"] if e["kind"] == "result"]
    ours = [event["subject"] for event in results if event["subject"].startswith(benchmark)]
    assert sorted(ours) == sorted({cell["id"] for cell in found["cells"]})


def test_a_database_that_is_started_again_in_the_middle_loses_nothing(running):
    many(running, 6)
    owner, benchmark = asked(running, "many")
    running.end()
    running.start()  # nobody had taken a cell: they still wait
    worker = running.worker()
    while not any(cell["run"] for cell in owner.benchmark(benchmark)["cells"]):
        time.sleep(0.1)
    pid = int((running.state / "postgresql" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)  # the server goes on and says so; it is started again with its database
    running.process.send_signal(signal.SIGTERM)
    running.process.wait(90)
    worker.kill()
    worker.wait()
    running.start()
    worker = running.worker()
    found = finished(owner, benchmark, 200)
    ended(worker)
    assert [cell["bundle"] for cell in found["cells"]] == ["Terminated"] * 12
    assert len({cell["run"] for cell in found["cells"]}) == 12


TAKEN = "SELECT id FROM procrastinate_fetch_job_v2(NULL, (SELECT max(id) FROM procrastinate_workers))"
ENDED = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = 'opsassay'"
BEATS = "SELECT id, last_heartbeat FROM procrastinate_workers"
LISTENING = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'"


def test_a_worker_whose_connections_break_is_a_new_worker_and_a_job_taken_unheard_is_run(running):
    """Each connection breaks at once, as with a database that is killed; the answer that gave a job is lost with them."""
    worker = running.worker()
    with psycopg.connect(running.database(), autocommit=True) as database:
        while not (before := database.execute(BEATS).fetchall()):
            time.sleep(0.1)
        while not database.execute(LISTENING).fetchone()[0]:
            time.sleep(0.1)
        worker.send_signal(signal.SIGSTOP)
        owner, benchmark = asked(running)
        assert database.execute(TAKEN).fetchone()[0]
        database.execute(ENDED)
        worker.send_signal(signal.SIGCONT)
        finished(owner, benchmark)
        while (beats := dict(database.execute(BEATS).fetchall())).keys() & dict(before):
            time.sleep(0.1)
        while dict(database.execute(BEATS).fetchall()) == beats or not database.execute(LISTENING).fetchone()[0]:
            time.sleep(0.1)
    ended(worker)


def test_a_second_server_on_one_database_is_refused(running, tmp_path):
    command = [
        sys.executable,
        "-m",
        "opsassay",
        "server",
        "start",
        "--state",
        str(tmp_path / "other"),
        "--port",
        "0",
        "--database",
        running.database(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Another server uses this database" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_everything_comes_back_from_the_folder(running):
    owner, benchmark = asked(running)
    worker = running.worker("--until-empty")
    before = finished(owner, benchmark)
    worker.wait(60)
    events = owner.ask("GET", "/api/events?limit=10000")["items"]
    time.sleep(16)  # events are noted every 15 s
    running.end()
    shutil.rmtree(running.state / "postgresql")
    running.words = ("--workers", "0", "--reindex")
    running.start()
    assert "filled from" in running.said
    after = owner.benchmark(benchmark)
    same = ("id", "task", "bundle", "agent", "passed", "errored", "metrics", "evidence", "run")
    assert [{k: cell[k] for k in same} for cell in after["cells"]] == [
        {k: cell[k] for k in same} for cell in before["cells"]
    ]
    assert after["state"] == "Finished"
    assert owner.ask("GET", "/api/events?limit=10000")["items"][: len(events)] == events
    running.end()
    running.start()
    assert "is not empty" in running.said
    running.words = ("--workers", "0")
    running.start()


@contextlib.contextmanager
def small_disk(folder, size):
    """Have a disk of *size* at *folder*, a tmpfs."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode()[:200]}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_on_a_full_disk_cells_wait_and_uploads_are_refused_until_there_is_room(running):
    stores, artefacts = running.state / "stores", running.state / "artefacts"
    with small_disk(stores, "400k"), small_disk(artefacts, "64k"):
        owner, benchmark = asked(running, name="patient")
        agent = owner.ask("GET", "/api/agents")["items"][0]["id"]
        report = owner.ask("POST", "/api/reports", {"agent": agent, "task_set": "bill", "said": {"x": 1}})["id"]
        with pytest.raises(PlatformError, match="disk of the platform is full") as caught:
            owner.ask("PUT", f"/api/reports/{report}/artefact", b"x" * 200_000)
        assert caught.value.status == 507
        assert owner.ask("PUT", f"/api/reports/{report}/artefact", b"small")["sha256"]
        filler = stores / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as full:
            while full.write(b"x" * 4096):
                pass
        worker = running.worker()
        deadline = time.monotonic() + 90
        while "the disk is full" not in (running.state / "further.log").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.3)
        filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=20m", stores], check=True)
        found = finished(owner, benchmark, 200)
        ended(worker)
        assert [(cell["bundle"], cell["error"], cell["tries"]) for cell in found["cells"]] == [
            ("Terminated", None, 1)
        ] * 3


def test_a_database_of_a_newer_version_is_refused_by_an_older_worker_and_server(running):
    engine = engine_of(running.database())
    with engine.begin() as connection:
        present = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    worker = running.worker("--until-empty")
    assert worker.wait(60) == 1
    assert "made by a newer OpsAssay; upgrade this one" in (running.state / "further.log").read_text()
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :present"), {"present": present})
    engine.dispose()


def test_a_port_that_is_taken_is_one_sentence_and_nothing_is_started(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "opsassay",
            "server",
            "start",
            "--state",
            str(tmp_path / "s"),
            "--port",
            str(port),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert not (tmp_path / "s" / "postgresql").exists()
        advised = re.search(r"give (--port \d+) for a free one", done.stderr)
        command = [*command[:-2], *advised[1].split(), "--workers", "0", "--", "true"]
        followed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"Port {port} cannot be used" in done.stderr
    assert followed.returncode == 0, followed.stderr


def test_an_address_of_another_machine_is_one_sentence(tmp_path):
    command = [
        sys.executable,
        "-m",
        "opsassay",
        "server",
        "start",
        "--state",
        str(tmp_path / "s"),
        "--bind",
        "192.0.2.1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == "Error: 192.0.2.1 is no address of this machine; give one that is, as 127.0.0.1.\n"
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "postgresql://nobody:x@127.0.0.1:1/none"])
def test_a_database_that_is_none_or_away_is_one_sentence_without_its_password(url, tmp_path):
    command = [sys.executable, "-m", "opsassay", "server", "worker", "--state", str(tmp_path / "s"), "--database", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2)
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert ":x@" not in done.stderr


def test_the_end_leaves_no_process(tmp_path):
    running = Running(tmp_path / "state", "--workers", "2")
    family = psutil.Process(running.process.pid).children(recursive=True)
    assert len(family) > 5
    running.end()
    _, alive = psutil.wait_procs(family, 10)
    assert alive == []
