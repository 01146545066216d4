"""What this machine can do: isolation levels and, for every fault type, whether it can be injected and why not."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

from opsassay.core.errors import NotFoundError, RefusedError
from opsassay.core.schema.faults import fault_type
from opsassay.core.schema.system import IsolationLevel, System
from opsassay.testbed.kernel.probe import Machine, probe_machine
from opsassay.testbed.substrates.local.actuators.table import REPERTOIRES

LEVELS: tuple[IsolationLevel, ...] = ("namespaced", "plain")
"""Best first."""


@dataclass(frozen=True)
class IsolationSupport:
    """One isolation level on this machine: whether systems can run on it, and why not."""

    name: IsolationLevel
    available: bool
    reason: str


@functools.cache
def machine() -> Machine:
    """Return what this user can do with the kernel of this machine; probed once per process."""
    return probe_machine()


def probe() -> dict[IsolationLevel, IsolationSupport]:
    """Return {isolation level: whether this machine supports it, and why not}."""
    namespaced = machine().namespaced
    return {
        "namespaced": IsolationSupport("namespaced", namespaced.available, namespaced.reason),
        "plain": IsolationSupport("plain", available=True, reason=""),
    }


def choose_level(desired: str | None) -> IsolationLevel:
    """Return the isolation level *desired*, None for the best that this machine supports.

    Raises NotFoundError, and RefusedError with the reason why this machine does not have it.
    """
    levels = probe()
    if desired is None:
        return next(name for name in LEVELS if levels[name].available)
    for name, level in levels.items():
        if name == desired:
            if not level.available:
                raise RefusedError(f"This machine has no {desired} isolation: {level.reason}.")
            return name
    raise NotFoundError("isolation level", desired, LEVELS)


def level_for(system: System, desired: str | None) -> IsolationLevel:
    """Return the isolation level for *system*: *desired*, or the best for None; raises NotFoundError, RefusedError."""
    if system.namespace is not None:
        raise RefusedError(f"The namespace {system.namespace.name} runs on its cluster; name the substrate kubernetes.")
    if system.compose is not None:
        if desired not in (None, "compose"):
            raise RefusedError(f"The containers of {system.system} have no {desired} isolation; leave the level out.")
        if os.geteuid() != 0:
            raise RefusedError("Faults act in the networks of containers, which takes root; run it as root.")
        return "compose"
    level = choose_level(desired)
    require_namespaces(system, level)
    return level


def refusal(fault: str, level: IsolationLevel) -> str | None:
    """Return why the fault type *fault* cannot be injected on the isolation *level* here; None when it can."""
    if not (there := probe()[level]).available:
        return there.reason
    return REPERTOIRES[level].refusal(fault_type(fault).name)


def require_namespaces(system: System, level: IsolationLevel) -> None:
    """Raise RefusedError when *system* runs a user's program and *level* has no network namespaces for it."""
    if level != "namespaced" and (programs := system.programs()):
        reason = probe()["namespaced"].reason
        raise RefusedError(
            f"{programs[0]} runs a program, which listens on ports of its own choice: that needs a network namespace, and "
            f"{f'this machine has none: {reason}' if reason else f'the {level} level has none; leave the level out'}."
        )
