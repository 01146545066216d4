"""What goes on around a recording: clock jumps, contention, other systems, processes that somebody else ended."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time

import pytest

from opsassay.core.errors import OperationError
from opsassay.testbed.core.status import SystemStatus
from opsassay.testbed.injection.journal import Journal
from opsassay.testbed.injection.unexpected_exits import UnexpectedExits, oom_kills, sentences
from opsassay.testbed.recording.ledger import read_ledger
from opsassay.testbed.recording.machine import Look, MachineWatch, jumps_s, notes, others
from opsassay.testbed.workload.runtime.ledger import LedgerWriter

S = 1_000_000_000


def looks(*offsets_s, **fields):
    return [Look(int((100 + i + offset) * S), i * S, **fields) for i, offset in enumerate(offsets_s)]


def test_a_clock_that_drifts_has_not_jumped():
    assert jumps_s(looks(0, 0.05, 0.1, 0.15, 0.2, 0.25)) == []


def test_a_jump_is_told_with_its_sign_even_when_it_is_taken_back():
    assert jumps_s(looks(0, 0, -2, 0)) == pytest.approx([-2, 2])
    (first, _) = notes(looks(0, 0, -2, 0))
    assert first.startswith("the wall clock jumped by -2.000 s")


def test_the_watch_sees_a_clock_that_is_set_while_it_looks():
    wall = itertools.chain([0, 0], itertools.repeat(5 * S))
    with MachineWatch("own", lambda: ["own"], 0.01, wall=lambda: next(wall), steady=lambda: 0) as watch:
        time.sleep(0.1)
    assert jumps_s(watch.looks) == [5.0]


def test_contention_memory_and_neighbours_are_named():
    quiet = looks(0, 0)
    assert notes(quiet) == []
    busy = notes([*quiet, Look(102 * S, 2 * S, queued=1.5)])
    assert busy == ["the machine was busy: 1.5 more runnable tasks than cores"]
    assert notes([*quiet, Look(102 * S, 2 * S, queued=0.04)]) == []  # which would be told as 0.0 more
    assert notes([*quiet, Look(102 * S, 2 * S, memory_share=0.99)]) == ["the memory of the machine was 99% full"]
    shared = [*quiet, Look(102 * S, 2 * S, systems=frozenset({"b"})), Look(103 * S, 3 * S, systems=frozenset({"a"}))]
    assert others(shared) == ["a", "b"]
    assert notes(shared) == ["other systems ran on this machine: a, b"]


def killed(number):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        os.kill(process.pid, number)
        return process.pid, process.wait()


def test_a_kill_that_nobody_here_sent_is_told():
    exits = UnexpectedExits()
    pid, status = killed(signal.SIGKILL)
    exits.note_exit("stock-0", pid, status)
    (sentence,) = sentences(exits.found, 0)
    assert sentence.startswith(f"stock-0 (pid {pid}) was ended by SIGKILL, which OpsAssay did not send")
    if oom_kills() is not None:
        assert "no out-of-memory kill" in sentence
    assert sentences(exits.found, time.time_ns()) == []


def test_the_status_has_what_ended_under_a_plain_key():
    exits = UnexpectedExits()
    pid, status = killed(signal.SIGKILL)
    exits.note_exit("stock-0", pid, status)
    payload = SystemStatus(name="shop", phase="ready", unexpected_exits=tuple(exits.found)).payload()
    assert [one["pid"] for one in payload["unexpected_exits"]] == [pid]


def test_our_own_kills_and_plain_exits_are_expected():
    exits = UnexpectedExits()
    pid, status = killed(signal.SIGKILL)
    exits.expect(pid)
    exits.note_exit("stock-0", pid, status)
    exits.note_exit("stock-0", pid, 1)
    assert exits.found == []


def test_the_kernels_killer_is_named_when_its_count_rose(tmp_path):
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("nr_free_pages 5\noom_kill 3\n")
    assert oom_kills(vmstat) == 3
    assert oom_kills(tmp_path / "none") is None
    found = [{"time_ns": 5, "process": "pressure-1", "pid": 7, "status": -9, "out_of_memory": True}]
    (sentence,) = sentences(found, 0)
    assert "the kernel's out-of-memory killer acted at that moment" in sentence


def test_a_full_disk_is_told_by_the_journal_and_counted_by_the_ledger(tmp_path):
    full = tmp_path / "full.jsonl"
    full.symlink_to("/dev/full")
    with pytest.raises(OperationError, match=r"full.jsonl cannot be written: No space left on device"):
        Journal(full).write("apply", "a")
    ledger = LedgerWriter(str(full), "stock-0")
    ledger.write("wait", ns=1)  # the request that it belongs to goes on
    assert ledger.lost == 1


def test_a_line_that_a_full_disk_tore_in_the_middle_is_dropped_alone(tmp_path):
    writer = LedgerWriter(str(tmp_path / "stock-0.jsonl"), "stock-0")
    writer.write("wait", ns=1)
    with (tmp_path / "stock-0.jsonl").open("ab") as file:
        file.write(b'{"time_ns": 3, "pro\n')
    writer.write("wait", ns=2)
    assert read_ledger(tmp_path, 0)["ns"].to_list() == [1, 2]
