"""CPU pressure inside a control group: processes that burn what the group's limit gives them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from opsassay.testbed.kernel.cgroups import Group, Groups
from opsassay.testbed.workload.runtime import management
from opsassay.testbed.workload.runtime.forks import die_with_parent
from opsassay.testbed.workload.runtime.ledger import LedgerWriter

PERIOD_S = 0.05
LOOK_EVERY_S = 0.1


async def main(config: dict[str, Any]) -> None:
    """Burn ``load_percent`` of ``cores`` cores until the management channel closes; record throttling of the group."""
    burners = [fork_burner(config["load_percent"] / 100.0) for _ in range(config["cores"])]
    looking = asyncio.create_task(account(group_of(config), LedgerWriter(config["ledger"], config["id"])))
    try:
        await management.serve(config["management"], {"id": config["id"]}, {"ping": management.ping}, [looking])
    finally:
        for pid in burners:
            os.kill(pid, 9)


def group_of(config: dict[str, Any]) -> Group:
    """Return the control group that *config* names, whose CPU limit is exhausted."""
    parents = {controller: Path(parent) for controller, parent in config["parents"].items()}
    return Group(config["group"], Groups(parents, config["versions"]))


def fork_burner(share: float) -> int:
    """Fork a process that computes for *share* (0 to 1) of a core until this process ends; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    die_with_parent()
    while True:
        period_end = time.monotonic() + PERIOD_S
        burn_until = time.thread_time() + PERIOD_S * share
        while time.thread_time() < burn_until:
            sum(range(500))
        time.sleep(max(0.0, period_end - time.monotonic()))


async def account(group: Group, ledger: LedgerWriter) -> None:
    """Record in *ledger* at intervals, for ever, for how long *group* was throttled."""
    before = group.usage().throttled_s
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        now = group.usage().throttled_s
        if now > before:
            ledger.write("stall", ns=int((now - before) * 1e9))
        before = now
