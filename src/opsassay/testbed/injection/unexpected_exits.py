"""Processes of a system that were ended by a signal of others than OpsAssay, such as of the out-of-memory killer."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VMSTAT = Path("/proc/vmstat")


class UnexpectedExits:
    """Records ends of processes by signals, except those that OpsAssay expects."""

    def __init__(self) -> None:
        self._expected: set[int] = set()
        self._oom_kills = oom_kills()
        self.found: list[dict[str, Any]] = []

    def expect(self, pid: int) -> None:
        """Record that OpsAssay is about to kill *pid*, whose end is then not unexpected."""
        self._expected.add(pid)

    def note_exit(self, process: str, pid: int, status: int) -> None:
        """Record that a signal ended *process* (*status* < 0), unless `expect` was called with its *pid*."""
        expected = pid in self._expected
        self._expected.discard(pid)
        if status >= 0 or expected:
            return
        before, self._oom_kills = self._oom_kills, oom_kills()
        out_of_memory = None if self._oom_kills is None or before is None else self._oom_kills > before
        self.found.append(
            {
                "time_ns": time.time_ns(),
                "process": process,
                "pid": pid,
                "status": status,
                "out_of_memory": out_of_memory,
            }
        )


def sentences(exits: Sequence[dict[str, Any]], since_ns: int) -> list[str]:
    """Return one sentence for each of *exits* since *since_ns* (UTC ns): which process, and which signal ended it."""
    return [_describe_exit(one) for one in exits if one["time_ns"] >= since_ns]


def _describe_exit(exit_: dict[str, Any]) -> str:
    """Return one sentence on a process that a signal ended, and whether the out-of-memory killer may have sent it."""
    number = -exit_["status"]
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    said = f"{exit_['process']} (pid {exit_['pid']}) was ended by {name}, which OpsAssay did not send"
    if number != signal.SIGKILL:
        return said
    reasons = {
        True: "the kernel's out-of-memory killer acted at that moment; give the host more memory or less to do",
        False: "the kernel counts no out-of-memory kill, so somebody else on this machine killed it",
        None: "this kernel does not count out-of-memory kills; see its log",
    }
    return f"{said}: {reasons[exit_['out_of_memory']]}"


def oom_kills(vmstat: Path = VMSTAT) -> int | None:
    """Return how many processes the kernel has killed for lack of memory since boot, by *vmstat*; None if unknown."""
    try:
        counts = dict(line.split() for line in vmstat.read_text().splitlines())
    except OSError:
        return None
    return int(counts["oom_kill"]) if "oom_kill" in counts else None
