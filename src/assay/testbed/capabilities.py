"""What this machine can do: isolation levels and, for every fault type, whether it can be injected and why not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

from assay.errors import RefusedError
from assay.model.faults import fault_type
from assay.model.system import IsolationLevel
from assay.testbed.faults.actuators import LOCAL_REFUSALS

LEVELS: tuple[IsolationLevel, ...] = ("namespaced", "plain")


@dataclass(frozen=True)
class Level:
    """One isolation level on this machine: whether systems can run on it, and why not."""

    name: IsolationLevel
    available: bool
    reason: str


def probe() -> dict[IsolationLevel, Level]:
    """Probe the isolation levels of this machine."""
    return {
        "namespaced": Level("namespaced", available=False, reason=_why_not_namespaced()),
        "plain": Level("plain", available=True, reason=""),
    }


def _why_not_namespaced() -> str:
    if sys.platform != "linux":
        return "network namespaces exist on Linux only; use the plain level"
    if os.geteuid() != 0:
        can = (
            shutil.which("unshare")
            and not subprocess.run(["unshare", "-Urnm", "true"], capture_output=True, check=False).returncode
        )
        if not can:
            return "needs root or unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1)"
    return "this version runs systems on the plain level only; the machine itself would allow namespaces"


def choose_level(wanted: IsolationLevel | None) -> IsolationLevel:
    """Return the isolation level to run on: *wanted*, or the best that there is; raises RefusedError with the reason."""
    levels = probe()
    if wanted is None:
        return next(name for name in LEVELS if levels[name].available)
    if not levels[wanted].available:
        raise RefusedError(f"This machine has no {wanted} isolation: {levels[wanted].reason}.")
    return wanted


def refusal(fault: str, level: str) -> str | None:
    """Return why *fault* cannot be injected on *level* of this machine, with the way out; None when it can."""
    row = fault_type(fault)
    if level != "plain":
        return _why_not_namespaced()
    return LOCAL_REFUSALS.get(row.name)
