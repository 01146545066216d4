"""Memory pressure inside a container or on a host: a process that allocates and touches what the limit has left.

In a control group the kernel counts what all of its processes use; without one the replicas' resident memory is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import psutil

from opsassay.testbed.kernel.cgroups import Group
from opsassay.testbed.workload.runtime import management
from opsassay.testbed.workload.runtime.burner import group_of
from opsassay.testbed.workload.runtime.ledger import LedgerWriter

FULL_SHARE, FULL_GROUP_SHARE = 0.97, 0.995
"""A container whose processes reach its limit is killed; this one is filled to the brim by us, not over it."""
FIRST_GROUP_SHARE = 0.95
"""Until we have reported: what that takes of memory must not make us the one that needs more than there is."""
BLOCK_BYTES = 1 << 20
AGAIN_EVERY_S = 0.1


async def main(config: dict[str, Any]) -> None:
    """Allocate memory until the limit in *config* is nearly full; hold it until the management channel closes."""
    held: list[bytearray] = []
    background = []
    if "group" in config:
        spare_this_process()
        group = group_of(config)
        fill(group, config, held, FIRST_GROUP_SHARE)
        background.append(asyncio.create_task(keep_full(group, config, held)))
    else:
        used = config["resident_bytes"] + psutil.Process().memory_full_info().uss  # the rest is the template's
        hold(held, min(config["size_bytes"], int(FULL_SHARE * config["limit_bytes"]) - used))
    LedgerWriter(config["ledger"], config["id"]).write("memory")
    await management.serve(config["management"], {"id": config["id"]}, {"ping": management.ping}, background)
    held.clear()


def hold(blocks: list[bytearray], size_bytes: int) -> None:
    """Append blocks of touched memory of *size_bytes* in total, rounded down, to *blocks*."""
    blocks.extend(bytearray(b"\x01") * BLOCK_BYTES for _ in range(max(0, size_bytes) // BLOCK_BYTES))


def fill(group: Group, config: dict[str, Any], blocks: list[bytearray], share: float = FULL_GROUP_SHARE) -> None:
    """Allocate *blocks* until *group* uses *share* of its limit, or they have ``size_bytes`` of *config*."""
    room = int(share * config["limit_bytes"]) - group.usage().memory_bytes
    hold(blocks, min(room, config["size_bytes"] - len(blocks) * BLOCK_BYTES))


async def keep_full(group: Group, config: dict[str, Any], blocks: list[bytearray]) -> None:
    """Allocate memory into *blocks* again, for ever, when others in *group* have released some."""
    while True:
        await asyncio.sleep(AGAIN_EVERY_S)
        fill(group, config, blocks)


def spare_this_process() -> None:
    """Exempt this process from the kernel's out-of-memory killer, if permitted."""
    with contextlib.suppress(PermissionError):
        Path("/proc/self/oom_score_adj").write_text("-1000")
