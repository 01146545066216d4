"""Environments: the system of one task, from its deployment to its removal, by the same six verbs everywhere."""

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
from opsassay.testbed.operations.noise import Noise
from opsassay.testbed.operations.tool_session import OperatorToolSession
from opsassay.testbed.recording.observer import ObserverProcess

Session_co = TypeVar("Session_co", covariant=True)


class Environment(Protocol[Session_co]):
    """The system of one task; the verbs are called in this order, `remove` and `verify` in any case."""

    def prepare(self) -> None:
        """Deploy the system of the task and wait until it is healthy, before any fault."""

    def start(self) -> None:
        """Apply the fault and wait until the agent can see its first alert."""

    def session(self) -> Session_co:
        """Return the tool session by which the agent acts."""

    def settle(self) -> None:
        """Record until the system has settled after the agent's time, then undo the fault."""

    def remove(self) -> None:
        """Remove the system of the task."""

    def verify(self) -> Sequence[str]:
        """Return in words, and record, what of the machine or cluster differs from before `prepare`."""


class LiveEnvironment(ABC):
    """The system of *scenario*, deployed for one trial into *run_dir*; each substrate implements it.

    *settings* are those of the substrate. All verbs raise OpsAssayError.
    """

    baseline: Window
    """The period before the trigger that alerts compare with; the trial sets it before it calls `session`."""

    def __init__(self, scenario: Scenario, seed: int, run_dir: Path, settings: Mapping[str, Any]) -> None:
        self.scenario, self.seed, self.run_dir, self.settings = scenario, seed, run_dir, settings
        secret = new_secret()
        self.drawn_seed = derived_seed(secret, "system")
        """The seed of names and load, which an agent cannot derive from the scenario."""
        self.reader = derived_secret(secret, "settings")
        """The key of the digests by which secret settings are recorded."""
        self._deployment, self._trigger = ExitStack(), ExitStack()
        self._session: OperatorToolSession | None = None

    def prepare(self) -> None:
        """Deploy the system, which ends with this process even if that is killed."""
        self._deployment.enter_context(self.deployed())

    def start(self) -> None:
        """Apply the faults and changes by which the scenario breaks the system (its trigger)."""
        self._trigger.enter_context(self.broken())

    def session(self) -> OperatorToolSession:
        """Return the operator's tool session, the same object at every call."""
        if self._session is None:
            self._session = self._deployment.enter_context(self.operated())
        return self._session

    def settle(self) -> None:
        """Undo those faults and changes of the scenario that would outlive the system."""
        self._trigger.close()

    def remove(self) -> None:
        """Remove the system, and undo those faults and changes of the scenario that would outlive it."""
        error = sys.exc_info()
        try:
            self._trigger.__exit__(*error)
        finally:
            self._deployment.__exit__(*error)

    @abstractmethod
    def verify(self) -> list[str]:
        """Return a sentence for each part of the removed system that still exists, [] when none does."""

    @abstractmethod
    def deployed(self) -> AbstractContextManager[None]:
        """Deploy the system, run it while the block runs, and remove it."""

    @abstractmethod
    def operated(self) -> AbstractContextManager[OperatorToolSession]:
        """Yield the operator's tool session for the block, and evaluate the alert rules meanwhile."""

    @abstractmethod
    def broken(self) -> AbstractContextManager[None]:
        """Apply the faults and changes of the scenario's trigger for the block, then undo what outlives the system."""

    @abstractmethod
    def observed(self, *, probes: bool) -> AbstractContextManager[ObserverProcess]:
        """Run the process that records the timeline, for the block; with *probes* it sends requests regularly."""

    @abstractmethod
    def health_problem(self) -> str | None:
        """Return what is not ready, or that user requests fail, as a sentence; None when the system is healthy."""

    def noise(self) -> Noise:
        """Return the background noise of the trial, a context manager; raises RefusedError where there is none."""
        raise RefusedError("Background noise is made in a system of our own on this machine; leave `noise` out.")

    @abstractmethod
    def read_settings(self) -> SettingsReading:
        """Return all settings, those that protect the system apart, and the changes that wait for a restart."""

    @abstractmethod
    def require_alive(self) -> None:
        """Raise LostError when the system ended by itself during the trial, which then must not be graded."""

    def start_agent(self) -> None:  # noqa: B027 - most substrates have nothing to do
        """Attribute changes of the system to the agent from now on; does nothing where its tools record them."""

    def stop_agent(self) -> None:  # noqa: B027 - as above
        """Stop attributing changes of the system to the agent."""

    def costed(
        self, requests: Mapping[str, ResourceRequest], autoscalers: Sequence[AutoscalerSettings]
    ) -> CostedSystem:
        """Set *requests* (by service) and *autoscalers*; return the system with its costs; raises OperationError."""
        del requests, autoscalers
        raise OperationError("Live cost tasks need a substrate that tells what its systems request and use.")


class MakeEnvironment(Protocol):
    """A function that makes the environment of a trial, such as a subclass of `LiveEnvironment`."""

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
"""Substrate of a scenario to its `MakeEnvironment`; packages add to them by the entry point ``opsassay.environments``."""


def environment_for(
    scenario: Scenario, seed: int, run_dir: Path, settings: Mapping[str, Any] | None = None
) -> LiveEnvironment:
    """Return the environment that runs *scenario* on its substrate; raises RefusedError for an unknown one.

    *seed* draws the background noise; *run_dir* gets the records of the trial; *settings* are those of the substrate.
    """
    substrate = scenario.environment.substrate
    if substrate not in (known := ENVIRONMENTS.names()):
        raise RefusedError(f"{scenario.id} needs {substrate}; {' and '.join(known)} are performed here.")
    make: MakeEnvironment = ENVIRONMENTS.load(substrate)
    return make(scenario, seed, run_dir, settings or {})
