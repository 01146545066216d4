"""Tries candidates on one system of a cluster, by the protocol of "side-effects", App. H: see the laboratory of `local`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from opsassay.core.errors import UserError
from opsassay.core.schema.scenario import OpsCall, Scenario
from opsassay.core.schema.system import System
from opsassay.core.schema.trajectory import CONTROL_PLANE_SUFFIX
from opsassay.testbed.operations.composition import Block, Composition
from opsassay.testbed.operations.laboratory import LaboratorySetup, Repair, require_target
from opsassay.testbed.recording.observer import observing
from opsassay.testbed.substrates.kubernetes.actuators.node_command import NodeCommand
from opsassay.testbed.substrates.kubernetes.api.client import ApiError
from opsassay.testbed.substrates.kubernetes.laboratory import guard
from opsassay.testbed.substrates.kubernetes.laboratory.baseline import restore, taken, verify
from opsassay.testbed.substrates.kubernetes.laboratory.blocks import audit_cases, primitives
from opsassay.testbed.substrates.kubernetes.laboratory.operator import repair
from opsassay.testbed.substrates.kubernetes.running import KubernetesSystem
from opsassay.testbed.substrates.kubernetes.scenario.populating import SystemPopulation
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

NODE_LIMIT_S = 300.0
TASK = """You search for faults that a scripted operator believes to have repaired while a deeper property stays broken.
A program is a YAML text with the one key `changes`: a list of at most six {{verb, arguments}}. Verbs: create (kind, name,
body), patch (kind, name, patch), delete (kind, name){node}. Objects live in one namespace. Services, each with a Deployment
of its name whose pods have the label app: {services}. The workload to fault is {target}; it must go on existing. Answer
with one ```yaml block that holds the whole program."""
OPERATOR = (
    "It sets selectors of empty endpoints, images and templates of ill pods right, removes taints, restarts the API.",
    "It sends no request, and reads no NetworkPolicy, no PodDisruptionBudget and no latency.",
)
"""What the scripted operator does (Table 16), and what it does not look at."""
NODE_VERB = "; node (node: control-plane, op: delay)"


class ClusterLaboratory:
    """One system on a cluster under search; the baseline is what stands when the search begins."""

    def __init__(self, scenario: Scenario, target: str, running: KubernetesSystem, settings: ClusterSettings) -> None:
        self._scenario, self._target = scenario, target
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
        return guard.violation(self._running.api, self._running.name, self._target)

    def repair(self) -> Repair:
        """Have the scripted operator work."""
        return repair(self._running, self._baseline)

    @contextmanager
    def observed(self, timeline: Path) -> Iterator[None]:
        """Observe the system into *timeline* while the block runs; the last reading holds a real request."""
        committed, settings = self._scenario.verification, self._settings
        observed = observing(
            self._running.name, timeline, substrate="kubernetes",
            settings=settings.where(),
            cadence_s=committed.cadence_s, probe_every_s=None, protected=committed.protected_services,
        )  # fmt: skip
        try:
            with observed:
                yield
        finally:
            timeline.with_suffix(CONTROL_PLANE_SUFFIX).unlink(missing_ok=True)


@contextmanager
def _deployed(scenario: Scenario, target: str, seed: int, settings: Mapping[str, Any]) -> Iterator[ClusterLaboratory]:
    system, cluster = require_target(scenario, target), ClusterSettings.model_validate(settings)
    substrate = KubernetesSubstrate(cluster.kubeconfig, cluster.context, image=cluster.image)
    if cluster.node_command:
        NodeCommand(cluster.node_command, substrate.api.context).require()
    block, environment = scenario.cluster, scenario.environment
    exclusive = bool(cluster.node_command)
    furnishing = SystemPopulation(block.stand_ins, block.fillers, exclusive=exclusive) if block else SystemPopulation()
    name = f"discover-{os.getpid()}-{secrets.token_hex(2)}"
    with substrate.deployed(
        system, name, seed=environment.seed + seed, rate_rps=environment.rate_rps, furnishing=furnishing
    ) as running:
        yield ClusterLaboratory(scenario, target, running, cluster)


def _blocks(system: System, target: str, settings: Mapping[str, Any]) -> tuple[Block, ...]:
    return primitives(system, target, nodes=bool(settings.get("node_command")))


def _task(system: System, target: str, settings: Mapping[str, Any]) -> str:
    node = NODE_VERB if settings.get("node_command") else ""
    return TASK.format(services=", ".join(system.services), target=target, node=node)


LABORATORY = LaboratorySetup(
    blocks=_blocks, invalid=lambda _system, target: audit_cases(target), task=_task, operator=OPERATOR, deploy=_deployed
)
