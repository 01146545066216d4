"""Environments: what one task happens in, from its deployment to its removal, by the same six verbs everywhere."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

from opsassay.core.draws import derived_secret, derived_seed, new_secret
from opsassay.core.errors import OperationError, RefusedError
from opsassay.core.registry import Registry
from opsassay.core.schema.cost import AutoscalerSettings, ResourceRequest
from opsassay.core.schema.incident import Window
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.trajectory import SettingsReading
from opsassay.testbed.operations.costs import CostedSystem
from opsassay.testbed.operations.tool_session import OperatorToolSession
from opsassay.testbed.recording.observer import ObserverProcess

Session_co = TypeVar("Session_co", covariant=True)


class Environment(Protocol[Session_co]):
    """What one task happens in; the verbs are called in this order, `remove` and `verify` whatever happened before."""

    def prepare(self) -> None:
        """Deploy what the task happens on, and wait until it is healthy."""

    def start(self) -> None:
        """Break it, and wait until the agent's first alert can be seen."""

    def session(self) -> Session_co:
        """Return the tools of the agent."""

    def settle(self) -> None:
        """Record until the system has settled after the agent's end, and undo what was broken."""

    def remove(self) -> None:
        """Remove all of it."""

    def verify(self) -> Sequence[str]:
        """Return what is not as it was before `prepare`, each in words, and record it."""


class LiveEnvironment(ABC):
    """The system of *scenario*, deployed for one trial into *run_dir*; a substrate says how.

    *settings* are those of the substrate. All verbs raise OpsAssayError.
    """

    baseline: Window
    """The period before the trigger that alerts compare with; the trial sets it before it asks for the session."""

    def __init__(self, scenario: Scenario, seed: int, run_dir: Path, settings: Mapping[str, Any]) -> None:
        self.scenario, self.seed, self.run_dir, self.settings = scenario, seed, run_dir, settings
        secret = new_secret()
        self.drawn_seed = derived_seed(secret, "system")
        """What names and load are drawn with: an agent that knows the scenario knows neither."""
        self.reader = derived_secret(secret, "settings")
        """The key under which secrets among the settings are written down."""
        self._deployment, self._trigger = ExitStack(), ExitStack()
        self._session: OperatorToolSession | None = None

    def prepare(self) -> None:
        """Deploy the system; it belongs to this process, so that a killed trial leaves none behind."""
        self._deployment.enter_context(self.deployed())

    def start(self) -> None:
        """Apply the trigger."""
        self._trigger.enter_context(self.broken())

    def session(self) -> OperatorToolSession:
        """Return the operator's tools, the same at every call."""
        if self._session is None:
            self._session = self._deployment.enter_context(self.operated())
        return self._session

    def settle(self) -> None:
        """Undo what of the trigger would outlive the system."""
        self._trigger.close()

    def remove(self) -> None:
        """Remove the system, and what of the trigger would outlive it."""
        error = sys.exc_info()
        try:
            self._trigger.__exit__(*error)
        finally:
            self._deployment.__exit__(*error)

    @abstractmethod
    def verify(self) -> list[str]:
        """Return what is still there of the system when it should be gone, each in words."""

    @abstractmethod
    def deployed(self) -> AbstractContextManager[None]:
        """Run the system while the block runs."""

    @abstractmethod
    def operated(self) -> AbstractContextManager[OperatorToolSession]:
        """Provide the tools while the block runs, and watch the alerts."""

    @abstractmethod
    def broken(self) -> AbstractContextManager[None]:
        """Apply the trigger, and undo with the block what would outlive the system."""

    @abstractmethod
    def observed(self, *, probes: bool) -> AbstractContextManager[ObserverProcess]:
        """Have the observer, a process of its own, write the timeline; its last look comes before the block has ended."""

    @abstractmethod
    def health_problem(self) -> str | None:
        """Return what is not ready, or that users are not served; None when the system is healthy."""

    @abstractmethod
    def read_settings(self) -> SettingsReading:
        """Return how everything is set, what no repair may switch off apart from the rest, and what waits for a restart."""

    @abstractmethod
    def require_alive(self) -> None:
        """Raise LostError when the system ended during the trial: the machinery failed, and no agent is graded."""

    def start_agent(self) -> None:  # noqa: B027 - most substrates have nothing to do
        """Attribute changes to the agent from now on; a substrate whose tools record every change does nothing."""

    def stop_agent(self) -> None:  # noqa: B027 - as above
        """End what `start_agent` began."""

    def costed(
        self, requests: Mapping[str, ResourceRequest], autoscalers: Sequence[AutoscalerSettings]
    ) -> CostedSystem:
        """Return the system as its cost sees it, once it *requests* that and has these *autoscalers*."""
        del requests, autoscalers
        raise OperationError("Live cost tasks need a substrate that tells what its systems request and use.")


class MakeEnvironment(Protocol):
    """Makes the environment of a trial; a class of `LiveEnvironment` is one."""

    def __call__(self, scenario: Scenario, seed: int, run_dir: Path, settings: Mapping[str, Any]) -> LiveEnvironment:
        """Return the environment of *scenario*; nothing is deployed yet."""


ENVIRONMENTS = Registry(
    "substrate for trials",
    "opsassay.environments",
    {
        "local": "opsassay.testbed.substrates.local.environment:LocalEnvironment",
        "kubernetes": "opsassay.testbed.substrates.kubernetes.environment:ClusterEnvironment",
    },
)
"""A `MakeEnvironment` by the substrate of a scenario; packages add to them by the entry point ``opsassay.environments``."""


def environment_for(
    scenario: Scenario, seed: int, run_dir: Path, settings: Mapping[str, Any] | None = None
) -> LiveEnvironment:
    """Return the environment of *scenario* on its substrate; raises RefusedError where no trial happens there."""
    substrate = scenario.environment.substrate
    if substrate not in (known := ENVIRONMENTS.names()):
        raise RefusedError(f"{scenario.id} needs {substrate}; {' and '.join(known)} are performed here.")
    make: MakeEnvironment = ENVIRONMENTS.load(substrate)
    return make(scenario, seed, run_dir, settings or {})
