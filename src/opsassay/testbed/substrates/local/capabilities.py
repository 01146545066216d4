"""What this machine can do: isolation levels and, for every fault type, whether it can be injected and why not."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from opsassay.errors import RefusedError
from opsassay.model.faults import fault_type
from opsassay.model.system import IsolationLevel, Setting
from opsassay.testbed.kernel.probe import Machine, probe_machine
from opsassay.testbed.substrates.local.actuators.table import LOCAL_REFUSALS

LEVELS: tuple[IsolationLevel, ...] = ("namespaced", "plain")
"""Best first."""


@dataclass(frozen=True)
class Level:
    """One isolation level on this machine: whether systems can run on it, and why not."""

    name: IsolationLevel
    available: bool
    reason: str


@functools.cache
def machine() -> Machine:
    """Return what the kernel lends to this user, found out once."""
    return probe_machine()


def probe() -> dict[IsolationLevel, Level]:
    """Return the isolation levels of this machine."""
    namespaced = machine().namespaced
    return {
        "namespaced": Level("namespaced", namespaced.available, namespaced.reason),
        "plain": Level("plain", available=True, reason=""),
    }


def choose_level(wanted: IsolationLevel | None) -> IsolationLevel:
    """Return the isolation level to run on: *wanted*, or the best that there is; raises RefusedError with the reason."""
    levels = probe()
    if wanted is None:
        return next(name for name in LEVELS if levels[name].available)
    if not levels[wanted].available:
        raise RefusedError(f"This machine has no {wanted} isolation: {levels[wanted].reason}.")
    return wanted


def refusal(fault: str, level: Setting) -> str | None:
    """Return why *fault* cannot be injected on *level* of this machine, with the way out; None when it can.

    What a cluster can do it says itself, see `testbed/substrates/kubernetes/actuators/ways.py`.
    """
    row = fault_type(fault)
    if level == "kubernetes":
        return None
    if not (there := probe()[level]).available:
        return there.reason
    return LOCAL_REFUSALS.get(row.name) if level == "plain" else None
