"""What a substrate offers: a few verbs, and systems that can be asked, broken and recorded."""

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
    """What keeps recording sessions of a system's telemetry."""

    def open_session(self, directory: Path, name: str) -> None:
        """Start to record all arriving telemetry as session *name* into *directory*."""
        ...

    def refresh(self, name: str) -> None:
        """Copy what session *name* has recorded so far into its directory."""
        ...

    def close_session(self, name: str) -> SessionStats:
        """Stop session *name*; its complete recording is in its directory then."""
        ...


class RunningSystem(Protocol):
    """A handle on a deployed system."""

    @property
    def receiver(self) -> Receiver:
        """The receiver of all telemetry of this system."""
        ...

    def definition(self) -> System:
        """Return the definition of the running system."""
        ...

    def require(self, plan: FaultPlan, source: Path | None = None) -> None:
        """Raise NotFoundError or RefusedError when *plan* cannot be injected here.

        For one that was read from the file *source* it is ConfigError, naming the line.
        """
        ...

    def status(self) -> SystemStatus:
        """Return the current status of the system; raises LostError when it is gone."""
        ...

    def inject(self, plan: FaultPlan, over: Event | None = None) -> Iterator[InjectionEvent]:
        """Inject *plan* and yield its events; closing the iterator undoes it, and so does *over* when it is set."""
        ...

    def set_rate(self, rate_rps: float) -> float:
        """Change the rate of the load to *rate_rps*; return the former rate."""
        ...

    def flush(self) -> None:
        """Make every process send its queued telemetry to the receiver."""
        ...

    def ledger(self, since_ns: int) -> pl.DataFrame:
        """Return the ledger of what faults caused since *since_ns* (UTC), with the columns of `read_ledger`."""
        ...

    def keep_load_log(self, path: Path) -> None:
        """Copy the log of the user's load generator to *path*, now and when it has ended."""
        ...

    def probes(self, protected: Sequence[str] = ()) -> SystemProbes:
        """Return the probes of this system, with requests to the services *protected* (default: its entries)."""
        ...


@dataclass(frozen=True)
class Capabilities:
    """What a substrate has.

    *isolation* holds its levels as {name: {available, reason, ...}}; *machine* is what the kernel of this machine lends,
    None where that does not matter; *place* is the name of a place elsewhere.
    """

    isolation: Mapping[str, Mapping[str, Any]]
    machine: Mapping[str, Any] | None = None
    place: str = ""


class Substrate(Protocol):
    """Runs systems. `load_substrate` makes one from its *name* and settings."""

    name: str
    shared: bool
    """Whether others may have systems there too: then nothing is done to all of them at once."""

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
        """Start *system* under *name* and wait until it is ready; an *owned* one ends with this process.

        *isolation* None is the best level that there is.
        Raises StartError when it does not get ready, UserError for what cannot be started here.
        """
        ...

    def deployed(
        self, system: System, name: str, *, seed: int = 0, rate_rps: float | None = None, isolation: str | None = None
    ) -> AbstractContextManager[RunningSystem]:
        """Run *system* while the block runs; it ends with the block or with this process."""
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

        For a plan that is the field *within* of the file *source* it is ConfigError, naming the line.
        """
        ...

    def remove(self, name: str) -> Sequence[str]:
        """Stop the system *name* and wait until it is gone; return in sentences what the user still has to end."""
        ...

    def logs(self, name: str) -> Mapping[str, str]:
        """Return process name to its log so far of the system *name*; raises NotFoundError."""
        ...

    def status(self) -> list[SystemStatus]:
        """Return the status of each system, after the leftovers of killed supervisors are removed."""
        ...

    def capabilities(self) -> Capabilities:
        """Return the isolation levels of this substrate, with the reason why one is not available."""
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
    """Raise UserError when *settings* has a key that the *substrate* does not allow."""
    for setting in settings:
        if setting not in allowed:
            has = f"it has {', '.join(allowed)}" if allowed else "it has none"
            raise UserError(
                f"The {substrate} substrate has no setting {setting!r} ({has}); choose another --substrate."
            )
