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
        """Raise when *plan* cannot be carried out here: NotFoundError or RefusedError.

        For one that was read from the file *source* it is ConfigError, naming the line.
        """
        ...

    def status(self) -> SystemStatus:
        """Return how the system is now; raises LostError when it is gone."""
        ...

    def inject(self, plan: FaultPlan, over: Event | None = None) -> Iterator[InjectionEvent]:
        """Inject *plan* and yield its events.

        Closing the iterator undoes it, and so does *over* when it is set.
        """
        ...

    def set_rate(self, rate_rps: float) -> float:
        """Change the load; return the former rate."""
        ...

    def flush(self) -> None:
        """Have every process send its queued telemetry to the receiver."""
        ...

    def ledger(self, since_ns: int) -> pl.DataFrame:
        """Return the truth-side record of what faults cost since *since_ns* (UTC), as `read_ledger` has it."""
        ...

    def keep_load_log(self, path: Path) -> None:
        """Write what a load generator of the user's own wrote to *path*, now and when it has ended."""
        ...

    def probes(self, protected: Sequence[str] = ()) -> SystemProbes:
        """Return what observes this system, with requests to the services *protected*, its entries when there are none."""
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
        """Return the substrate as *settings* say; raises UserError for a setting that it does not have."""
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
        """Raise when *plan* could not be carried out on a new *system* here: NotFoundError or RefusedError.

        For a plan that is the field *within* of the file *source* it is ConfigError, naming the line.
        """
        ...

    def remove(self, name: str) -> Sequence[str]:
        """Stop the system *name* and wait until nothing of it is left; return in sentences what others have to end."""
        ...

    def logs(self, name: str) -> Mapping[str, str]:
        """Return what each process of the system *name* has written to its log until now; raises NotFoundError."""
        ...

    def status(self) -> list[SystemStatus]:
        """Return the status of each system; what a killed supervisor left is cleared first."""
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
    """Return the substrate *name* with *settings*; raises NotFoundError, UserError for a setting that it does not have."""
    substrate: type[Substrate] = SUBSTRATES.load(name)
    return substrate.with_settings(settings or {})


def require_settings(substrate: str, settings: Mapping[str, str], known: Collection[str] = ()) -> None:
    """Raise UserError when *settings* has one that the *substrate* does not know."""
    for setting in settings:
        if setting not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise UserError(
                f"The {substrate} substrate has no setting {setting!r} ({has}); choose another --substrate."
            )
