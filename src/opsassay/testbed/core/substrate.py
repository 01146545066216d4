"""The protocol of a substrate, which runs systems, and of a running system, which can be observed, broken and recorded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, Self

from opsassay.core.errors import UserError
from opsassay.core.registry import Registry
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.system import System
from opsassay.telemetry.otlp.counts import SessionStats
from opsassay.testbed.core.event import InjectionEvent
from opsassay.testbed.core.probes import SystemProbes
from opsassay.testbed.core.status import SystemStatus

if TYPE_CHECKING:
    import polars as pl


class Receiver(Protocol):
    """Records sessions of a system's telemetry."""

    def open_session(self, directory: Path, name: str) -> None:
        """Start to record all arriving telemetry as session *name* into *directory*."""
        ...

    def refresh(self, name: str) -> None:
        """Copy what session *name* has recorded so far into its directory."""
        ...

    def close_session(self, name: str) -> SessionStats:
        """Stop session *name*, its complete recording being in its directory then; return counts of what arrived."""
        ...


class RunningSystem(Protocol):
    """A deployed system."""

    @property
    def receiver(self) -> Receiver:
        """The receiver of all telemetry of this system; a session that it opened is known at each later access."""
        ...

    def definition(self) -> System:
        """Return the definition of the running system."""
        ...

    def require(self, plan: FaultPlan, source: Path | None = None) -> None:
        """Raise NotFoundError or RefusedError when *plan* cannot be injected into this system.

        If the plan was read from the file *source*, ConfigError that names the line is raised instead.
        """
        ...

    def status(self) -> SystemStatus:
        """Return the current status of the system; raises LostError when it is gone."""
        ...

    def inject(self, plan: FaultPlan, over: Event | None = None) -> Iterator[InjectionEvent]:
        """Inject *plan* and yield its events; closing the iterator, or setting *over*, undoes the faults early."""
        ...

    def set_rate(self, rate_rps: float) -> float:
        """Change the rate of the load to *rate_rps*; return the former rate."""
        ...

    def flush(self) -> None:
        """Make every process send its queued telemetry to the receiver."""
        ...

    def ledger(self, since_ns: int) -> pl.DataFrame:
        """Return what faults caused since *since_ns* (UTC), a row per effect; columns as in `read_ledger`."""
        ...

    def keep_load_log(self, path: Path) -> None:
        """Copy the log of a user's own load generator, if there is one, to *path*: now, and again when it has ended."""
        ...

    def probes(self, protected: Sequence[str] = ()) -> SystemProbes:
        """Return the health probes of this system, which send requests to *protected* (default: its entries)."""
        ...


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of a substrate.

    *isolation* has its levels as {name: {available, reason, ...}}; *machine* is the kernel's abilities, None where they do
    not matter; *place* names where systems run, "" for this machine.
    """

    isolation: Mapping[str, Mapping[str, Any]]
    machine: Mapping[str, Any] | None = None
    place: str = ""


class Substrate(Protocol):
    """Runs systems. `load_substrate` makes one from its *name* and settings."""

    name: str
    shared: bool
    """Whether others may run systems there too; then no operation applies to all systems at once."""

    @classmethod
    def with_settings(cls, settings: Mapping[str, str]) -> Self:
        """Return the substrate with *settings*; raises UserError for an unknown setting."""
        ...

    def deploy(
        self,
        system: System,
        name: str,
        *,
        seed: int = 0,
        rate_rps: float | None = None,
        owned: bool = False,
        isolation: str | None = None,
        on_progress: Callable[[SystemStatus], None] | None = None,
    ) -> RunningSystem:
        """Start *system* under *name*, wait until it is ready, and return it; an *owned* one ends with this process.

        *isolation* None is the best level available here; *rate_rps* None is the load rate of the system file. *seed*
        draws names and load; *on_progress* gets the status meanwhile. Raises StartError when it does not become ready,
        UserError for what cannot be started here.
        """
        ...

    def deployed(
        self, system: System, name: str, *, seed: int = 0, rate_rps: float | None = None, isolation: str | None = None
    ) -> AbstractContextManager[RunningSystem]:
        """Run *system*, as `deploy` does, during the block and yield it; it also ends when this process is killed."""
        ...

    def running(self, name: str) -> RunningSystem:
        """Return the running system *name*; raises NotFoundError."""
        ...

    def names(self) -> list[str]:
        """Return the names of the running systems."""
        ...

    def require(
        self,
        system: System,
        plan: FaultPlan,
        isolation: str | None = None,
        *,
        source: Path | None = None,
        within: str = "",
    ) -> None:
        """Raise NotFoundError or RefusedError when *plan* could not be injected into a new *system* here.

        *isolation* is the level of the new system, None the best. For a plan that is the field *within* of the file
        *source*, ConfigError that names the line is raised instead.
        """
        ...

    def remove(self, name: str) -> Sequence[str]:
        """Stop the system *name* and wait for its end; return a sentence on each process that the user has to end."""
        ...

    def logs(self, name: str) -> Mapping[str, str]:
        """Return {process name: log text so far} of the system *name*; raises NotFoundError."""
        ...

    def status(self) -> list[SystemStatus]:
        """Return the status of each system; remains of systems whose supervisor was killed are removed first."""
        ...

    def capabilities(self) -> Capabilities:
        """Return which isolation levels this substrate has here, and why the others are not available."""
        ...


LOCAL = "local"
SUBSTRATES = Registry(
    "substrate",
    "opsassay.substrates",
    {
        LOCAL: "opsassay.testbed.substrates.local.substrate:LocalSubstrate",
        "kubernetes": "opsassay.testbed.substrates.kubernetes.substrate:KubernetesSubstrate",
    },
)
"""Substrates by name; packages add to them through the entry point ``opsassay.substrates``."""


def load_substrate(name: str = LOCAL, settings: Mapping[str, str] | None = None) -> Substrate:
    """Return the substrate *name* with *settings*; raises NotFoundError, and UserError for an unknown setting."""
    substrate: type[Substrate] = SUBSTRATES.load(name)
    return substrate.with_settings(settings or {})


def require_settings(substrate: str, settings: Mapping[str, str], allowed: Collection[str] = ()) -> None:
    """Raise UserError when *settings* has a key outside of *allowed*; *substrate* is named in the message."""
    for setting in settings:
        if setting not in allowed:
            has = f"it has {', '.join(allowed)}" if allowed else "it has none"
            raise UserError(
                f"The {substrate} substrate has no setting {setting!r} ({has}); choose another --substrate."
            )
