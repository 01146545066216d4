"""What threads wait for a processor: of real processes, taken by another one or held back by their group."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from opsassay.testbed.kernel.runqueue import Waits, threads_of

PINNED = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
BURN = f"{PINNED}while True: pass"
REST = f"{PINNED}import time; time.sleep(600)"


@pytest.fixture
def started():
    running: list[subprocess.Popen[bytes]] = []

    def start(program: str) -> int:
        running.append(subprocess.Popen([sys.executable, "-c", program]))
        return running[-1].pid

    yield start
    for one in running:
        one.kill()
        one.wait()


def until(holds) -> bool:
    return any(holds() or time.sleep(0.1) for _ in range(200))


def test_two_that_compute_on_one_processor_wait_for_each_other_and_one_that_rests_does_not(started):
    waits = {pid: Waits() for pid in (started(BURN), started(BURN), started(REST))}

    def waited() -> list[float]:
        return [one.add(threads_of([pid])) for pid, one in waits.items()]

    assert until(lambda: all(seconds > 0.5 for seconds in waited()[:2]))
    time.sleep(0.5)  # the one that rests has begun to
    before = waited()
    assert until(lambda: all(now > then + 1.0 for now, then in zip(waited()[:2], before[:2], strict=True)))
    assert waited()[2] - before[2] < 0.5


def test_the_sum_does_not_fall_when_threads_end_and_ends_with_nobody(started):
    waits, pids = Waits(), [started(BURN), started(BURN)]
    assert until(lambda: waits.add(threads_of(pids)) > 0.2)
    whole = waits.add(threads_of(pids))
    assert waits.add(threads_of(pids[:1])) >= whole
    assert waits.add([]) >= whole


def test_who_has_ended_has_no_threads_and_waits_for_nothing():
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert threads_of([ended.pid]) == []
    assert Waits().add([ended.pid]) is None
    assert os.getpid() in threads_of([os.getpid()])
