"""CPU pressure inside a replica's limit, for machines where no cgroup can be made.

What CFS bandwidth control does to a container that shares its quota with burners, done from outside: in every period the
target may run for its fair share of the quota and is stopped for the rest, while a burner in this process uses up what
the quota leaves. SIGSTOP and SIGCONT need no privilege over one's own processes.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

from assay.testbed.runtime import management
from assay.testbed.runtime.ledger import LedgerWriter

PERIOD_S = 0.1


def shares(cpu_limit: float, cores: int, load_percent: float) -> tuple[float, float]:
    """Return (share of a period that the target may run, cores that the burner uses).

    Fair scheduling gives the target one part and each of *cores* burners ``load_percent`` of a part of *cpu_limit*.
    """
    burners = cores * load_percent / 100.0
    target = cpu_limit / (1.0 + burners)
    return min(target, 1.0), cpu_limit - target


async def main(config: dict[str, Any]) -> None:
    """Squeeze the process ``pid`` until the supervisor hangs up or the process ends."""
    run_share, burn_share = shares(config["cpu_limit"], config["cores"], config["load_percent"])
    ended = threading.Event()
    squeezer = threading.Thread(
        target=squeeze,
        args=(config["pid"], run_share, burn_share, ended, LedgerWriter(config["ledger"], config["id"])),
        daemon=True,
    )
    squeezer.start()
    try:
        await management.serve(config["management"], {"id": config["id"]}, {"ping": _ping})
    finally:
        ended.set()
        squeezer.join()
        _signal(config["pid"], signal.SIGCONT)


async def _ping(_: dict[str, Any]) -> dict[str, Any]:
    return {}


def squeeze(pid: int, run_share: float, burn_share: float, ended: threading.Event, ledger: LedgerWriter) -> None:
    """Alternate between running and stopping *pid*, burning CPU while it is stopped, until *ended*."""
    while not ended.is_set():
        period_end = time.monotonic() + PERIOD_S
        if not _signal(pid, signal.SIGCONT):
            return
        time.sleep(PERIOD_S * run_share)
        _signal(pid, signal.SIGSTOP)
        stopped = time.monotonic_ns()
        burn_until = time.thread_time() + PERIOD_S * min(burn_share, 1.0)
        while time.thread_time() < burn_until and time.monotonic() < period_end:
            sum(range(500))
        time.sleep(max(0.0, period_end - time.monotonic()))
        ledger.write("stall", ns=time.monotonic_ns() - stopped)


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
