"""What a trial happens on: a fresh system that is watched, operated and broken. `local` and a cluster each are one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from opsassay.model.incident import Window
from opsassay.testbed.operations.alert_watch import AlertWatch
from opsassay.testbed.operations.toolbox import BaseToolbox


def as_it_is(value: Any) -> Any:
    """Return *value*: where nothing is left open nothing is filled in."""
    return value


@dataclass(frozen=True)
class Operation:
    """What an operator is handed: the tools, the alerts where there are any, and on a cluster its own *kubeconfig*.

    *fill* puts the names that a scenario leaves open in their places.
    """

    toolbox: BaseToolbox
    watch: AlertWatch | None = None
    fill: Callable[[Any], Any] = as_it_is
    kubeconfig: Path | None = None


class Stage(Protocol):
    """One fresh system, from its deployment to its end."""

    def observed(self, run_dir: Path, *, probes: bool) -> AbstractContextManager[Any]:
        """Have the observer, a process of its own, write the timeline; it probes once more when the block has ended."""

    def ailment(self) -> str | None:
        """Return why it is not healthy: what is not ready, or that users are not served; None when all is well."""

    def operated(self, usual: Window, run_dir: Path) -> AbstractContextManager[Operation]:
        """Provide the tools; what is *usual* for the alerts is the stretch between two instants before anything broke."""

    def broken(self) -> AbstractContextManager[Any]:
        """Apply the trigger; what would outlive the system is undone with the block."""

    def let_in(self) -> None:
        """Note that from now on whoever changes something is the agent."""

    def let_out(self) -> None:
        """Note that the agent's time is over."""

    def require_alive(self) -> None:
        """Raise LostError when the system ended while it was watched: then the machinery failed, and nobody is graded."""
