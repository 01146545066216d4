"""The substrate as commands see it: deploys systems of threads, finds them again, removes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from opsassay.core.errors import NotFoundError, RefusedError, UserError
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.system import System
from opsassay.testbed.core.status import SystemStatus
from opsassay.testbed.core.substrate import Capabilities, require_settings
from opsassay.testbed.injection.preconditions import require
from opsassay_threads.system import THREADS, ThreadSystem

_running: dict[str, ThreadSystem] = {}
"""The systems of this process by name; they end with it."""


class ThreadSubstrate:
    """Runs systems as threads of this process."""

    name = "threads"
    shared = False

    @classmethod
    def with_settings(cls, settings: Mapping[str, str]) -> ThreadSubstrate:
        """Return the substrate: it has no settings."""
        require_settings(cls.name, settings)
        return cls()

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
    ) -> ThreadSystem:
        """Start *system*; it is ready when this returns, and ends with this process, *owned* or not."""
        if isolation is not None:
            raise NotFoundError("isolation level", isolation, ())
        if system.stores:
            raise RefusedError(f"{system.system} has stores, and threads have none; choose another --substrate.")
        if name in _running:
            raise UserError(f"A system named {name!r} is already running; choose another name.")
        _running[name] = running = ThreadSystem(system, name, seed, rate_rps)
        if on_progress:
            on_progress(running.status())
        return running

    @contextmanager
    def deployed(
        self, system: System, name: str, *, seed: int = 0, rate_rps: float | None = None, isolation: str | None = None
    ) -> Iterator[ThreadSystem]:
        """Run *system* while the block runs."""
        running = self.deploy(system, name, seed=seed, rate_rps=rate_rps, isolation=isolation)
        try:
            yield running
        finally:
            self.remove(name)

    def running(self, name: str) -> ThreadSystem:
        """Return the running system *name*; raises NotFoundError."""
        if name not in _running:
            raise NotFoundError("running system", name, _running)
        return _running[name]

    def names(self) -> list[str]:
        """Return the names of the running systems."""
        return sorted(_running)

    def require(
        self,
        system: System,
        plan: FaultPlan,
        isolation: str | None = None,
        *,
        source: Path | None = None,
        within: str = "",
    ) -> None:
        """Raise when *plan* could not be carried out on a new *system* here."""
        require(system, plan, THREADS.refusal, source=source, within=within)

    def remove(self, name: str) -> Sequence[str]:
        """End the system *name*."""
        self.running(name).end()
        del _running[name]
        return ()

    def logs(self, name: str) -> Mapping[str, str]:
        """Return nothing: threads have no log of their own; raises NotFoundError."""
        self.running(name)
        return {}

    def status(self) -> list[SystemStatus]:
        """Return the status of each system."""
        return [running.status() for running in _running.values()]

    def capabilities(self) -> Capabilities:
        """Return the one level that there is."""
        return Capabilities({self.name: {"available": True, "reason": ""}}, place="threads of this process")
