"""Leases: one worker a cell, a heartbeat, a takeover when it ends, and nothing that is scored twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import psutil
import pytest

from opsassay.core.schema.run import RunStatus, Solver
from opsassay.core.schema.task import Task
from opsassay.evals.runner.lease import LEASES, LeasedError, LeaseLostError, LeaseTimes, is_alive, take_lease
from opsassay.evals.runner.run import AttemptOutcome, RunEnd, RunSpec, attempt
from opsassay.evals.runner.store import RunStore, read_run

DEAF = LeaseTimes(heartbeat_s=1000, expired_s=0.3)
"""A holder that never renews."""

HOLDER = """
import sys, time
from pathlib import Path
from evals.runner.test_lease import cell, done
from opsassay.evals.runner.run import attempt
from opsassay.evals.runner.store import RunStore
def stuck(run_dir, stop):
    print("begun", flush=True)
    time.sleep(600)
attempt(RunStore(Path(sys.argv[1])), cell(), stuck, limits={})
"""


def cell():
    task = Task(id="t", domain="sre", name="t", system="s", commitment="c")
    return RunSpec(task, Solver(name="m"), "x")


def done(_run_dir, _stop):
    return AttemptOutcome(RunStatus.DONE)


def statuses(store):
    return [(read_run(path).status, read_run(path).error) for path in store.attempts_of(cell().hash)]


def test_a_lease_is_held_by_one_until_it_is_given_back(tmp_path):
    lease = take_lease(tmp_path, "a")
    assert not lease.took_over
    with pytest.raises(LeasedError, match="runs this cell now"):
        take_lease(tmp_path, "a")
    take_lease(tmp_path, "b").release()
    lease.release()
    take_lease(tmp_path, "a").release()
    assert list((tmp_path / LEASES).iterdir()) == []


def test_a_heartbeat_keeps_it_and_without_one_it_is_taken_over(tmp_path):
    beating = LeaseTimes(heartbeat_s=0.05, expired_s=0.5)
    lease = take_lease(tmp_path, "a", beating)
    time.sleep(1.0)
    with pytest.raises(LeasedError):
        take_lease(tmp_path, "a", beating)
    lease.release()
    deaf = take_lease(tmp_path, "a", DEAF)
    time.sleep(0.5)
    second = take_lease(tmp_path, "a", DEAF)
    assert second.took_over
    with pytest.raises(LeaseLostError), deaf.held():
        raise AssertionError("nobody gets here")
    assert deaf.lost
    deaf.release()
    with second.held():  # what was lost is not given back over the head of its holder
        pass
    second.release()


def test_the_lease_of_another_machine_ends_with_its_heartbeat_alone(tmp_path):
    (tmp_path / LEASES).mkdir()
    path = tmp_path / LEASES / "a.json"
    path.write_text(json.dumps({"owner": "o", "host": "elsewhere", "pid": 1, "boot_id": "b", "process_started": 0.0}))
    with pytest.raises(LeasedError, match="elsewhere, process 1"):
        take_lease(tmp_path, "a")
    os.utime(path, (time.time() - 60,) * 2)
    assert take_lease(tmp_path, "a").took_over


def test_a_worker_that_lost_its_lease_scores_nothing(tmp_path):
    slow, quick = RunStore(tmp_path, DEAF), RunStore(tmp_path, DEAF)
    begun, go_on, problems = threading.Event(), threading.Event(), []

    def waiting(_run_dir, stop):
        begun.set()
        go_on.wait(30)
        return AttemptOutcome(RunStatus.DONE)

    def run_slowly():
        try:
            attempt(slow, cell(), waiting, limits={})
        except LeaseLostError as lost:
            problems.append(lost)

    thread = threading.Thread(target=run_slowly)
    thread.start()
    assert begun.wait(30)
    with pytest.raises(LeasedError):
        attempt(RunStore(tmp_path), cell(), done, limits={})
    time.sleep(0.5)
    assert attempt(quick, cell(), done, limits={}).name == "2"
    go_on.set()
    thread.join(30)
    assert len(problems) == 1
    assert [status for status, _ in statuses(quick)] == [RunStatus.ABORTED, RunStatus.DONE]
    assert [e["event"] for e in quick.attempts()] == ["begun", "ended", "begun", "ended"]


def test_a_killed_worker_is_taken_over_at_once_on_its_own_machine(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    worker = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert worker.stdout.readline() == "begun\n"
    store = RunStore(tmp_path)
    with pytest.raises(LeasedError):
        attempt(store, cell(), done, limits={})
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    worker.stdout.close()
    assert attempt(store, cell(), done, limits={}).name == "2"
    assert statuses(store) == [(RunStatus.ABORTED, "its process ended before the run did"), (RunStatus.DONE, None)]


def test_a_stolen_lease_is_told_to_whoever_is_solving(tmp_path):
    times = LeaseTimes(heartbeat_s=0.05, expired_s=30)

    def look(_run_dir, stop):
        assert not stop()
        path = tmp_path / LEASES / f"{cell().hash}.json"
        path.write_text(json.dumps({"owner": "thief"}))
        ends = time.monotonic() + 10
        while not stop() and time.monotonic() < ends:
            time.sleep(0.02)
        assert stop()
        return AttemptOutcome(RunStatus.DONE)

    with pytest.raises(LeaseLostError):
        attempt(RunStore(tmp_path, times), cell(), look, limits={})


class NoOp:
    """A job that does nothing for a moment."""

    def __init__(self, seed):
        self.cell, self.task_name, self.solver_name = replace(cell(), seed=seed), "t", f"m {seed}"

    def run(self, store, given_up, _say):
        def solve(_run_dir, _stop):
            time.sleep(0.02)
            return AttemptOutcome(RunStatus.DONE)

        run_dir = attempt(store, self.cell, solve, limits={}, given_up=given_up)
        return RunEnd(self, run_dir, read_run(run_dir))

    def end_all(self):
        """Nothing that runs has to be killed."""


WORKER = """
import sys
from pathlib import Path
from evals.runner.test_lease import NoOp
from opsassay.evals.runner.queue import make_runs
from opsassay.evals.runner.store import RunStore
for end in make_runs(RunStore(Path(sys.argv[1])), [NoOp(seed) for seed in range(int(sys.argv[2]))], 2):
    print(end.run_dir, flush=True)
"""


@pytest.mark.slow
def test_workers_of_several_processes_make_every_cell_once_while_one_of_them_is_killed(tmp_path):
    environment, count = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, 40
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), str(count)],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for _ in range(3)
    ]
    workers[0].stdout.readline()
    workers[0].kill()
    said = [worker.communicate(timeout=120)[0].split() for worker in workers]
    assert said[1] == said[2]
    assert len(set(said[1])) == count
    runs = [read_run(path) for path in RunStore(tmp_path).runs()]
    done = [run.cell for run in runs if run.status is RunStatus.DONE]
    assert len(done) == len(set(done)) == count
    assert {run.status for run in runs} <= {RunStatus.DONE, RunStatus.ABORTED}


def test_who_has_ended_and_was_not_waited_for_does_not_run():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    holder = {"pid": child.pid, "process_started": psutil.Process(child.pid).create_time()}
    assert is_alive(holder)
    child.kill()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert not is_alive(holder)
    child.stdin.close()
    child.wait()
