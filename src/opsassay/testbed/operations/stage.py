"""What a trial happens on: a fresh system that is observed, operated and broken; each substrate brings its own stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from opsassay.core.errors import RefusedError
from opsassay.core.registry import Registry
from opsassay.core.schema.cost import AutoscalerSettings, ResourceRequest
from opsassay.core.schema.incident import Window
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.trajectory import SettingsReading
from opsassay.testbed.operations.alert_watch import AlertWatch
from opsassay.testbed.operations.costs import CostedSystem
from opsassay.testbed.operations.toolbox import BaseToolbox
from opsassay.testbed.recording.observer import ObserverProcess


def as_it_is(value: Any) -> Any:
    """Return *value*: where nothing is left open nothing is filled in."""
    return value


@dataclass(frozen=True)
class OperatorToolSession:
    """What an operator is handed: the tools, the alerts where there are any, and on a cluster its own *kubeconfig*.

    *fill* puts the names that a scenario leaves open in their places.
    """

    toolbox: BaseToolbox
    watch: AlertWatch | None = None
    fill: Callable[[Any], Any] = as_it_is
    kubeconfig: Path | None = None


class Stage(Protocol):
    """One fresh system, from its deployment to its end."""

    def observed(self, run_dir: Path, *, probes: bool) -> AbstractContextManager[ObserverProcess]:
        """Have the observer, a process of its own, write the timeline; its last look comes before the block has ended."""

    def health_problem(self) -> str | None:
        """Return why it is not healthy: what is not ready, or that users are not served; None when all is well."""

    def operated(self, usual: Window, run_dir: Path) -> AbstractContextManager[OperatorToolSession]:
        """Provide the tools; what is *usual* for the alerts is the stretch between two instants before anything broke."""

    def broken(self) -> AbstractContextManager[Any]:
        """Apply the trigger; what would outlive the system is undone with the block."""

    def start_agent(self) -> None:
        """Note that from now on whoever changes something is the agent."""

    def stop_agent(self) -> None:
        """Note that the agent's time is over."""

    def read_settings(self) -> SettingsReading:
        """Return what no repair may switch off (authentication, TLS, limits, probes), and what waits for a restart."""

    def require_alive(self) -> None:
        """Raise LostError when the system ended while it was watched: then the machinery failed, and nobody is graded."""

    def leftovers(self) -> list[str]:
        """Return what is still there of the system when it should be gone, each in words; raises OpsAssayError."""


@runtime_checkable
class CostedStage(Stage, Protocol):
    """A stage that tells what its system's cost is made of; live cost tasks happen on such ones."""

    def costed(
        self, requests: Mapping[str, ResourceRequest], autoscalers: Sequence[AutoscalerSettings]
    ) -> CostedSystem:
        """Return the system as its cost sees it, once it *requests* that and has these *autoscalers*."""


class StageSetup(Protocol):
    """What deploys a stage, which ends with the block."""

    def __call__(
        self, scenario: Scenario, seed: int, run_dir: Path, settings: Mapping[str, Any]
    ) -> AbstractContextManager[Stage]:
        """Deploy the system of *scenario* where the *settings* of the substrate say; raises OpsAssayError."""


STAGES = Registry(
    "substrate for trials",
    "opsassay.stages",
    {
        "local": "opsassay.testbed.substrates.local.stage:staged",
        "kubernetes": "opsassay.testbed.substrates.kubernetes.stage:staged",
    },
)
"""A `StageSetup` by the substrate of a scenario; packages add to them through the entry point ``opsassay.stages``."""


def staged(
    scenario: Scenario, seed: int, run_dir: Path, settings: Mapping[str, Any] | None = None
) -> AbstractContextManager[Stage]:
    """Return what deploys the system of *scenario* on its substrate; raises RefusedError where no trial happens there."""
    substrate = scenario.environment.substrate
    if substrate not in (known := STAGES.names()):
        raise RefusedError(f"{scenario.id} needs {substrate}; {' and '.join(known)} are performed here.")
    setup: StageSetup = STAGES.load(substrate)
    return setup(scenario, seed, run_dir, settings or {})
