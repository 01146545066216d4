"""Pressure is read off the kernel; whose load it is follows from the tree of processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from opsassay.core.schema.trajectory import MOST_SLOWDOWN, Calibration
from opsassay.testbed.recording.pressure import PressureReader, calibrate, processor_slowdown

SLEEP = [sys.executable, "-S", "-c", "import sys, subprocess; subprocess.run(['sleep', '30'])"]


def test_what_the_trial_and_its_descendants_run_is_not_foreign_and_what_others_run_is():
    with subprocess.Popen(SLEEP) as parent:
        try:
            children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
            while not (found := children.read_text().split()):
                time.sleep(0.02)
            grandchild = int(found[0])
            ours, others = foreign_to(os.getpid()), foreign_to(grandchild)
            assert not {os.getpid(), parent.pid, grandchild} & ours.keys()
            assert {os.getpid(), parent.pid} <= others.keys(), "of the grandchild's trial, they are others"
            assert grandchild not in others
            both = PressureReader([grandchild, os.getpid()])._last.others
            assert not {os.getpid(), parent.pid, grandchild} & both.keys()
        finally:
            os.kill(grandchild, 9)
            parent.kill()


def foreign_to(trial):
    return PressureReader([trial])._last.others


def test_time_that_others_use_is_a_share_of_all_processors():
    with subprocess.Popen(["sleep", "30"]) as other:
        reader = PressureReader([other.pid])  # this process is another to it
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            pass
        found = asyncio.run(reader.read(0.0))
        other.kill()
    assert 0.02 < found.foreign <= 1.0
    assert found.noop_s is not None


def test_who_tells_no_trial_is_told_of_no_foreign_load():
    assert asyncio.run(PressureReader(()).read(0.0)).foreign is None


def test_a_kernel_without_pressure_still_has_a_run_queue_and_steal(tmp_path):
    (tmp_path / "stat").write_text("cpu  100 0 100 700 0 0 0 100 0 0\nprocs_running 6\n")
    reader = PressureReader((), tmp_path)
    (tmp_path / "stat").write_text("cpu  150 0 150 700 0 0 0 200 0 0\nprocs_running 8\n")
    found = asyncio.run(reader.read(0.25))
    assert (found.cpu, found.memory, found.io, found.late_s) == (None, None, None, 0.25)
    assert found.steal == 0.5
    assert found.runnable == round(8 / (os.cpu_count() or 1), 2)


def test_shares_are_of_the_time_since_the_last_look(tmp_path):
    (tmp_path / "pressure").mkdir()
    file = tmp_path / "pressure" / "io"
    file.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0 avg60=0 avg300=0 total=9\n")
    reader = PressureReader((), tmp_path)
    time.sleep(0.4)
    file.write_text(file.read_text().replace("total=1000000", "total=1200000"))
    found = asyncio.run(reader.read(0.0))
    assert 0.2 < found.io <= 0.5
    assert found.runnable is None


def test_a_slow_machine_has_longer_limits_and_a_fast_one_those_of_the_scenario():
    here = asyncio.run(calibrate())
    assert 0 < here.noop_s < 1
    assert Calibration(spin_s=0.001, noop_s=0.0001).slowdown == 1.0
    assert Calibration(spin_s=0.04, noop_s=0.0001).slowdown == 2.0
    assert Calibration(spin_s=0.001, noop_s=9.0).slowdown == MOST_SLOWDOWN


def test_a_processor_is_never_faster_than_usual_and_what_it_waits_for_does_not_count(monkeypatch):
    assert 1.0 <= processor_slowdown() <= MOST_SLOWDOWN
    used = iter(n * 0.03 for n in range(100))  # each reading of the thread's clock 30 ms after the one before
    monkeypatch.setattr(time, "thread_time", lambda: next(used))
    monkeypatch.setattr(time, "monotonic", lambda: 1 / 0)
    assert 1.49 < processor_slowdown() < 1.51
