"""Tries candidates on one system of a cluster, by the protocol of "side-effects", App. H: see the laboratory of `local`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from opsassay.discovery.composition import Composition
from opsassay.discovery.kubernetes import guard
from opsassay.discovery.kubernetes.baseline import restore, taken, verify
from opsassay.discovery.kubernetes.operator import repair
from opsassay.discovery.laboratory import Laboratory
from opsassay.discovery.operator import Repair
from opsassay.errors import NotFoundError, UserError
from opsassay.model.scenario import OpsCall, Scenario
from opsassay.model.trajectory import CONTROL_PLANE_SUFFIX
from opsassay.testbed.recording.observer import observing
from opsassay.testbed.scenarios import system_of
from opsassay.testbed.substrates.kubernetes.actuators.node_command import NodeCommand
from opsassay.testbed.substrates.kubernetes.api.client import ApiError
from opsassay.testbed.substrates.kubernetes.running import KubernetesSystem
from opsassay.testbed.substrates.kubernetes.scenario.furnishing import Furnishing
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

NODE_LIMIT_S = 300.0


class ClusterLaboratory(Laboratory):
    """One system on a cluster under search; the baseline is what stands when the search begins."""

    def __init__(
        self, scenario: Scenario, target: str, running: KubernetesSystem, folder: Path, settings: ClusterSettings
    ) -> None:
        super().__init__(scenario, target, folder)
        self._running, self._settings = running, settings
        self._nodes = NodeCommand(settings.node_command, running.api.context)
        self._url = running.watched([target]).protected[target]
        self._baseline = taken(running)
        self._at_nodes = ExitStack()

    def refusal(self, composition: Composition) -> str | None:
        """Return why *composition* reaches outside of what the reset covers."""
        return guard.refusal(composition, nodes=bool(self._nodes.command))

    def verify(self) -> None:
        """Raise OperationError unless the baseline holds."""
        verify(self._running, self._baseline, self._url)

    def restore(self, composition: Composition) -> None:
        """Bring the baseline back; raises OperationError when it does not come."""
        del composition  # everything that the reset covers is compared
        self._at_nodes.close()
        restore(self._running, self._baseline, self._url)

    def apply(self, change: OpsCall) -> None:
        """Make *change*; raises UserError for what the server refuses."""
        given, running = change.arguments, self._running
        try:
            if change.verb == "node":
                self._at_nodes.enter_context(self._nodes.broken(given["node"], given["op"], NODE_LIMIT_S))
            elif change.verb == "create":
                metadata = {"name": given["name"], "namespace": running.name}
                version = running.api.version_of(given["kind"])
                head = {"apiVersion": version, "kind": given["kind"], "metadata": metadata}
                running.api.create({**head, **given["body"]})
            elif change.verb == "patch":
                running.api.patch(given["kind"], given["name"], given["patch"], running.name)
            else:
                running.api.delete(given["kind"], given["name"], running.name)
        except ApiError as error:
            raise UserError(str(error)) from error

    def violation(self) -> str | None:
        """Return which precondition does not hold."""
        return guard.violation(self._running.api, self._running.name, self.target)

    def repair(self) -> Repair:
        """Have the scripted operator work."""
        return repair(self._running, self._baseline)

    @contextmanager
    def observed(self, timeline: Path) -> Iterator[None]:
        """Observe the system into *timeline* while the block runs; the last reading holds a real request."""
        committed, settings = self.scenario.verification, self._settings
        observed = observing(
            self._running.name, timeline, substrate="kubernetes",
            settings={"kubeconfig": settings.kubeconfig, "context": settings.context},
            cadence_s=committed.cadence_s, probe_every_s=None, protected=committed.protected_services,
        )  # fmt: skip
        try:
            with observed:
                yield
        finally:
            timeline.with_suffix(CONTROL_PLANE_SUFFIX).unlink(missing_ok=True)


@contextmanager
def cluster_laboratory(
    scenario: Scenario, target: str, folder: Path, *, seed: int, cluster: Mapping[str, Any] | None
) -> Iterator[ClusterLaboratory]:
    """Run the scenario's system, unbroken, on the cluster of the settings in *cluster* while the block runs."""
    system, settings = system_of(scenario), ClusterSettings.model_validate(cluster or {})
    if target not in system.services:
        raise NotFoundError("service", target, system.services)
    substrate = KubernetesSubstrate(settings.kubeconfig, settings.context, image=settings.image)
    nodes = NodeCommand(settings.node_command, substrate.api.context)
    if nodes.command:
        nodes.require()
    block, environment = scenario.cluster, scenario.environment
    furnishing = Furnishing(block.stand_ins, block.fillers, exclusive=bool(nodes.command)) if block else Furnishing()
    name = f"discover-{os.getpid()}-{secrets.token_hex(2)}"
    with substrate.deployed(
        system, name, seed=environment.seed + seed, rate_rps=environment.rate_rps, furnishing=furnishing
    ) as running:
        yield ClusterLaboratory(scenario, target, running, folder, settings)
