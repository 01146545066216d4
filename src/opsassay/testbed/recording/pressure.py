"""How short the machine is while a system is observed, and by whom: read with every tick, at a few milliseconds each.

Only others count against a trial. A process is another's when it is neither the trial nor its descendant, was there at
two ticks in a row and is no thread of the kernel; the processor time that it used in between was not the trial's doing.
What cannot be seen from here, as the neighbours of a container, is in the shares of /proc/pressure alone.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from opsassay.core.schema.trajectory import MOST_SLOWDOWN, USUAL_SPIN_S, Calibration, MachinePressure

PROC = Path("/proc")
CORES = os.cpu_count() or 1
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
KERNEL_THREADS = 2
SPINS, SPIN_STEPS = 9, 200_000
"""How often a fixed piece of work is done, and how much it is: about 10 ms on a core of 2023."""


class _Seen(NamedTuple):
    """One process: its parent, clock ticks used, whether it is ready to run, and when it was started."""

    parent: int
    used: int
    runnable: bool
    started: int


@dataclass(frozen=True)
class _KernelState:
    at_s: float
    waited_us: Mapping[str, int]
    busy: tuple[int, int] | None
    """Clock ticks of all processors, and those that a hypervisor kept."""
    runnable: int | None
    others: Mapping[int, _Seen]


class PressureReader:
    """Reads pressure between one call and the next; the descendants of the processes *trial*, if known, are the trial's."""

    def __init__(self, trial: Sequence[int], proc: Path = PROC) -> None:
        self._trial, self._proc = trial, proc
        self._last = self._read_kernel()

    async def read(self, late_s: float) -> MachinePressure:
        """Return the pressure on this machine since the last call; *late_s* is how late this call is."""
        noop_s = await noop()
        before, self._last = self._last, await asyncio.to_thread(self._read_kernel)
        return self._pressure_between(before, self._last, late_s, noop_s)

    def _pressure_between(
        self, before: _KernelState, now: _KernelState, late_s: float, noop_s: float
    ) -> MachinePressure:
        """Return the pressure on the machine between the states *before* and *now*.

        *late_s* is how late the tick began, *noop_s* how long a call that does nothing took.
        """
        span_s = max(now.at_s - before.at_s, 1e-3)
        shares = {
            name: round(min((us - before.waited_us[name]) / 1e6 / span_s, 1.0), 3)
            for name, us in now.waited_us.items() if name in before.waited_us
        }  # fmt: skip
        pressure = MachinePressure(**shares, late_s=round(late_s, 3), noop_s=round(noop_s, 4))
        found: dict[str, float] = {}
        if now.runnable is not None:
            found["runnable"] = round(now.runnable / CORES, 2)
        if now.busy is not None and before.busy is not None and now.busy[0] > before.busy[0]:
            found["steal"] = round((now.busy[1] - before.busy[1]) / (now.busy[0] - before.busy[0]), 3)
        if self._trial:
            stayed = [
                (one, then) for pid, one in now.others.items()
                if (then := before.others.get(pid)) is not None and then.started == one.started
            ]  # fmt: skip
            used_s = sum(one.used - then.used for one, then in stayed) / TICKS_PER_S
            found["foreign"] = round(min(used_s / span_s / CORES, 1.0), 3)
            found["foreign_runnable"] = round(sum(one.runnable for one, _ in stayed) / CORES, 2)
        return pressure.model_copy(update=found)

    def _read_kernel(self) -> _KernelState:
        """Return what holds now: time waited for CPU, memory and IO, CPU time, runnable tasks, foreign processes."""
        waited = {name: us for name in ("cpu", "memory", "io") if (us := _waited_us(self._proc, name)) is not None}
        busy, runnable = _processors(self._proc)
        others = _others(_read_processes(self._proc), self._trial) if self._trial else {}
        return _KernelState(time.monotonic(), waited, busy, runnable, others)


async def noop() -> float:
    """Return the seconds that a call in a thread takes that does nothing, the overhead of each probe."""
    began = time.monotonic()
    await asyncio.to_thread(int)
    return time.monotonic() - began


async def calibrate() -> Calibration:
    """Return how long a fixed computation and a no-op take on this machine now (medians); takes about 0.1 s."""
    spins, noops = [], []
    for _ in range(SPINS):
        began = time.monotonic()
        for _ in range(SPIN_STEPS):
            pass
        spins.append(time.monotonic() - began)
        noops.append(await noop())
    return Calibration(spin_s=round(statistics.median(spins), 5), noop_s=round(statistics.median(noops), 5))


def processor_slowdown() -> float:
    """Return how many times slower than usual a processor here computes, 1 to MOST_SLOWDOWN, by CPU time."""
    spins = []
    for _ in range(SPINS):
        began = time.thread_time()
        for _ in range(SPIN_STEPS):
            pass
        spins.append(time.thread_time() - began)
    return min(max(statistics.median(spins) / USUAL_SPIN_S, 1.0), MOST_SLOWDOWN)


def _others(processes: Mapping[int, _Seen], trial: Sequence[int]) -> dict[int, _Seen]:
    """Return {pid: state} of *processes* that are not of *trial* (pids), its descendants, or kernel threads."""
    ours: dict[int, bool] = {0: False, 1: False, **dict.fromkeys(trial, True)}

    def is_ours(pid: int) -> bool:
        if pid not in ours:
            ours[pid] = False  # a tree that changed while it was read may lead in a circle
            ours[pid] = pid in processes and is_ours(processes[pid].parent)
        return ours[pid]

    return {
        pid: one for pid, one in processes.items()
        if KERNEL_THREADS not in (pid, one.parent) and not is_ours(pid)
    }  # fmt: skip


def _read_processes(proc: Path) -> dict[int, _Seen]:
    """Return {pid: (parent, CPU ticks used, whether runnable, start time)} of all processes under *proc*."""
    found = {}
    for pid in filter(str.isdecimal, (path.name for path in proc.iterdir())):
        if (text := _read_text(proc / pid / "stat")) is not None:
            fields = text.rpartition(")")[2].split()  # a name may hold blanks and brackets
            found[int(pid)] = _Seen(
                int(fields[1]), int(fields[11]) + int(fields[12]), fields[0] == "R", int(fields[19])
            )
    return found


def _waited_us(proc: Path, name: str) -> int | None:
    """Return for how many µs ever some task waited for the resource *name*, from *proc*/pressure; None if unknown."""
    text = _read_text(proc / "pressure" / name)
    return None if not text else int(text.splitlines()[0].rpartition("total=")[2])


def _processors(proc: Path) -> tuple[tuple[int, int] | None, int | None]:
    """Return (total, stolen) clock ticks of all processors, and the number of tasks ready to run; None where unknown."""
    lines = (_read_text(proc / "stat") or "").splitlines()
    found = {words[0]: words[1:] for line in lines if (words := line.split())}
    times = [int(one) for one in found.get("cpu", ())[:8]]
    return (sum(times), times[7]) if len(times) == 8 else None, _first_word(found.get("procs_running"), int)


def _first_word(words: list[str] | None, as_: Callable[[str], int]) -> int | None:
    """Return the first of *words* converted by *as_*, None when *words* is empty or None."""
    return as_(words[0]) if words else None


def _read_text(path: Path) -> str | None:
    """Return the text of *path*, None when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended, or this kernel has none
        return None
