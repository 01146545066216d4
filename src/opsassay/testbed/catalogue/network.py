"""Packet faults."""

from __future__ import annotations

from typing import Any

from opsassay.errors import RefusedError
from opsassay.model.incident import PlannedFault


def impairment_of(plan: PlannedFault) -> dict[str, Any]:
    """Return the impairment that *plan* asks for, as networks read it: its kind and its numbers."""
    parameters = plan.parameters
    match plan.fault:
        case "NetworkDelay":
            jitter_ms = parameters.get("jitter_ms", 0.0)
            return {"kind": "delay", "delay_s": parameters["delay_ms"] / 1e3, "jitter_s": jitter_ms / 1e3}
        case "NetworkLoss":
            return {"kind": "loss", "share": parameters["loss_percent"] / 100}
        case "NetworkDuplicate":
            return {"kind": "duplicate", "share": parameters["duplicate_percent"] / 100}
        case "NetworkCorrupt":
            return {"kind": "corrupt", "share": parameters["corrupt_percent"] / 100}
        case "NetworkBandwidth":
            return {"kind": "bandwidth", "bytes_per_s": parameters["rate_bps"] / 8}
        case "NetworkPartition":
            return {"kind": "partition"}
        case other:
            raise RefusedError(f"No network has an impairment for {other}.")
