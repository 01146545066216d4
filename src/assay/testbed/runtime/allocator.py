"""Memory pressure inside a container or on a host: a process that allocates and touches what the limit has left.

In a control group the kernel counts what all of its processes use; without one the replicas' resident memory is counted.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import psutil

from assay.testbed.runtime import management
from assay.testbed.runtime.burner import group_of
from assay.testbed.runtime.ledger import LedgerWriter

FULL_SHARE = 0.97
"""A container whose processes reach its limit is killed; this one is filled, not killed."""
BLOCK_BYTES = 1 << 20


async def main(config: dict[str, Any]) -> None:
    """Fill what the replica leaves of its limit, then report and hold the memory until the supervisor hangs up."""
    if "group" in config:
        used = group_of(config).usage().memory_bytes
        spare_this_process()
    else:
        used = config["resident_bytes"] + psutil.Process().memory_full_info().uss  # the rest is the template's
    room = FULL_SHARE * config["limit_bytes"] - used
    blocks = max(0, min(config["size_bytes"], int(room))) // BLOCK_BYTES
    held = [bytearray(b"\x01") * BLOCK_BYTES for _ in range(blocks)]
    LedgerWriter(config["ledger"], config["id"]).write("memory")
    await management.serve(config["management"], {"id": config["id"]}, {"ping": _ping})
    held.clear()


def spare_this_process() -> None:
    """Have the kernel choose among the others when it must kill for want of memory, where we may ask for it."""
    with contextlib.suppress(PermissionError):
        Path("/proc/self/oom_score_adj").write_text("-1000")


async def _ping(_: dict[str, Any]) -> dict[str, Any]:
    return {}
