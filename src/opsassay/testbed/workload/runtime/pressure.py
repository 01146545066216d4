"""CPU pressure inside the limit of a replica or of a host, for machines where no cgroup can be made.

What CFS bandwidth control does to a container that shares its quota with burners, done from outside: in every period the
targets run until the quota of all is used up and are stopped for the rest, while a burner in this process uses what burners
would. SIGSTOP and SIGCONT need no privilege over one's own processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

from opsassay.testbed.workload.runtime import management
from opsassay.testbed.workload.runtime.ledger import LedgerWriter

PERIOD_S = 0.1


def shares(cpu_limits: Sequence[float], cores: int, load_percent: float, used_cores: float) -> tuple[float, float]:
    """Return (share of a period after which the CPU quota is used up, cores that the burners use on average).

    The targets have the sum of *cpu_limits* as their quota and use *used_cores*; each of *cores* burners wants
    ``load_percent`` of a core. If all of that fits into the quota, the first is 1.
    """
    burners = cores * load_percent / 100.0
    run = min(1.0, sum(cpu_limits) / (used_cores + burners))
    return run, burners * run


async def main(config: dict[str, Any]) -> None:
    """Take CPU from the processes that the supervisor names, by *config*, until the management channel closes."""
    run_share, burn_share = shares(*(config[name] for name in ("cpu_limits", "cores", "load_percent", "used_cores")))
    ended, ledger = threading.Event(), LedgerWriter(config["ledger"], config["id"])
    pids: list[int] = []

    async def targets(request: dict[str, Any]) -> int:
        pids[:] = request["pids"]
        return len(pids)

    squeezer = threading.Thread(target=squeeze, args=(pids, run_share, burn_share, ended, ledger), daemon=True)
    squeezer.start()
    try:
        await management.serve(
            config["management"], {"id": config["id"]}, {"ping": management.ping, "targets": targets}
        )
    finally:
        ended.set()
        squeezer.join()
        for pid in pids:
            _send_signal(pid, signal.SIGCONT)


def squeeze(
    pids: list[int], run_share: float, burn_share: float, stop_event: threading.Event, ledger: LedgerWriter
) -> None:
    """Stop *pids* (SIGSTOP) after *run_share* of every period and burn *burn_share* of a core, until *stop_event*.

    Each stop is recorded in *ledger*.
    """
    while not stop_event.is_set():
        period_end, present = time.monotonic() + PERIOD_S, tuple(pids)
        for pid in present:
            _send_signal(pid, signal.SIGCONT)
        if run_share < 1.0:
            time.sleep(PERIOD_S * run_share)
            for pid in present:
                _send_signal(pid, signal.SIGSTOP)
        stopped = time.monotonic_ns()
        burn_until = time.thread_time() + PERIOD_S * min(burn_share, 1.0)
        while time.thread_time() < burn_until and time.monotonic() < period_end:
            sum(range(500))
        time.sleep(max(0.0, period_end - time.monotonic()))
        if present and run_share < 1.0:
            ledger.write("stall", ns=time.monotonic_ns() - stopped)


def _send_signal(pid: int, number: signal.Signals) -> None:
    """Send the signal *number* to *pid*, ignoring that it may have ended."""
    with contextlib.suppress(ProcessLookupError):  # it has just ended; its successor is named soon
        os.kill(pid, number)
