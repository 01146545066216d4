"""What a candidate must be to be scored: it stays inside what the baseline can restore, and leaves its workload in place.

A candidate that breaks this is an attack on the verifier, not a fault ("side-effects", App. H.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsassay.core.schema.scenario import OpsCall
from opsassay.core.schema.system import System
from opsassay.testbed.operations.composition import Composition
from opsassay.testbed.substrates.local.operations import NAMES
from opsassay.testbed.substrates.local.substrate import LocalSystem

RESTORED = frozenset(
    {
        "config set",
        "config unset",
        "release",
        "scale",
        "restart",
        "firewall add",
        "clock set",
        "consumer stall",
        "pool leak",
    }
)
"""The verbs whose effect `Baseline.restore` takes back."""


def refusal(composition: Composition, system: System) -> str | None:
    """Return why *composition* may not be applied at all: it reaches outside the reset boundary; None when it may."""
    return next((reason for change in composition.changes if (reason := _outside(change, system))), None)


def violation(running: LocalSystem, system: System, target: str) -> str | None:
    """Return which precondition does not hold now that a candidate is applied, None when all hold.

    The workload exists, has a replica in the desired state at least, and is found under its own name.
    """
    rows = [row for row in running.operate("ps", {})["replicas"] if row["service"] == target]
    if target not in system.services or not rows:
        return f"{target} does not exist: its desired state has no replica"
    records: Mapping[str, Any] = running.operate("config get", {"target": NAMES})["settings"]
    if records.get(target, target) not in system.services:
        return f"the name {target} stands for nothing"
    return None


def _outside(change: OpsCall, system: System) -> str | None:
    named = change.arguments.get("target") or change.arguments.get("service") or change.arguments.get("host")
    if change.verb not in RESTORED:
        return f"`{change.verb}` changes what the baseline is restored from, or what it cannot restore"
    if not isinstance(named, str):
        return f"`{change.verb}` names nothing of the system that it would be done to"
    if named in system.stores or (named not in system.services and named not in system.hosts and named != NAMES):
        return f"`{change.verb}` on {named} changes the control plane, which the baseline does not cover"
    return None
