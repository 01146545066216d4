"""What a substrate offers: a few verbs, and systems that can be asked, broken and recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from opsassay.model.incident import FaultPlan
from opsassay.model.system import IsolationLevel, System
from opsassay.registry import Registry
from opsassay.telemetry.otlp.counts import SessionStats


class Receiver(Protocol):
    """What keeps recording sessions of a system's telemetry."""

    def open_session(self, directory: Path, name: str) -> None:
        """Start to record everything that arrives."""
        ...

    def refresh(self, name: str) -> None:
        """Have what the open session has recorded until now in its directory, where its spool can be read."""
        ...

    def close_session(self, name: str) -> SessionStats:
        """Stop the session; its whole spool is in its directory then."""
        ...


class RunningSystem(Protocol):
    """A handle on a deployed system."""

    @property
    def receiver(self) -> Receiver:
        """The receiver that all of its telemetry goes to."""
        ...

    def definition(self) -> System:
        """Return the system that runs here."""
        ...

    def require(self, plan: FaultPlan, source: Path | None = None) -> None:
        """Raise when *plan* cannot be carried out here; ConfigError naming the line when it was read from *source*."""
        ...

    def status(self) -> dict[str, Any]:
        """Return name, phase, ready and not_ready replicas, the active fault, endpoints, rate_rps, isolation."""
        ...

    def inject(self, plan: FaultPlan) -> Iterator[dict[str, Any]]:
        """Inject *plan* and yield its events (applied, effect, undone, done); closing the iterator undoes it."""
        ...

    def set_rate(self, rate_rps: float) -> float:
        """Change the load; return the former rate."""
        ...

    def flush(self) -> None:
        """Have every process send its queued telemetry to the receiver."""
        ...

    def ledger(self, since_ns: int) -> pl.DataFrame:
        """Return the truth-side record of what faults cost since *since_ns*."""
        ...


class Substrate(Protocol):
    """Runs systems."""

    name: str

    def deploy(
        self,
        system: System,
        name: str,
        *,
        seed: int = 0,
        rate_rps: float | None = None,
        owned: bool = False,
        isolation: IsolationLevel | None = None,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> RunningSystem:
        """Start *system* under *name* and wait until it is ready; an *owned* one ends with this process.

        *isolation* None is the best level that there is.
        """
        ...

    def running(self, name: str) -> RunningSystem:
        """Return the running system *name*."""
        ...

    def remove(self, name: str) -> None:
        """Stop the system *name* and wait until nothing of it is left."""
        ...

    def status(self) -> list[dict[str, Any]]:
        """Return one row per system; what a killed supervisor left is cleared first."""
        ...

    def capabilities(self) -> dict[str, Any]:
        """Return the isolation levels of this machine, with the reason why one is not available."""
        ...


SUBSTRATES = Registry(
    "substrate",
    "opsassay.substrates",
    {
        "kubernetes": "opsassay.testbed.substrates.kubernetes.substrate:KubernetesSubstrate",
        "local": "opsassay.testbed.substrates.local.substrate:LocalSubstrate",
    },
)
"""Substrates by name; packages add to them through the entry point ``opsassay.substrates``."""
