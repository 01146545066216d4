"""Memory pressure inside a replica's container: a process that allocates and touches what its limit has left."""

from __future__ import annotations

from typing import Any

import psutil

from assay.testbed.runtime import management
from assay.testbed.runtime.ledger import LedgerWriter

FULL_SHARE = 0.97
"""A container whose processes reach its limit is killed; this one is filled, not killed."""
BLOCK_BYTES = 1 << 20


async def main(config: dict[str, Any]) -> None:
    """Fill what the replica leaves of its limit, then report and hold the memory until the supervisor hangs up."""
    room = FULL_SHARE * config["limit_bytes"] - config["resident_bytes"]
    own = psutil.Process().memory_info().rss
    blocks = max(0, min(config["size_bytes"], int(room - own))) // BLOCK_BYTES
    held = [bytearray(b"\x01") * BLOCK_BYTES for _ in range(blocks)]
    LedgerWriter(config["ledger"], config["id"]).write("memory")
    await management.serve(config["management"], {"id": config["id"]}, {"ping": _ping})
    held.clear()


async def _ping(_: dict[str, Any]) -> dict[str, Any]:
    return {}
