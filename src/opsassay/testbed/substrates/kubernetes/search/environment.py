"""Tries candidates on one system of a cluster, by the protocol of "side-effects", App. H as on this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from opsassay.core.errors import UserError
from opsassay.core.schema.scenario import OpsCall, Scenario
from opsassay.core.schema.system import System
from opsassay.core.schema.trajectory import CONTROL_PLANE_SUFFIX
from opsassay.testbed.operations.search import Block, Composition, FaultSearch, Repair, SearchEnvironment
from opsassay.testbed.recording.observer import observing
from opsassay.testbed.substrates.kubernetes.actuators.node_command import NodeCommand
from opsassay.testbed.substrates.kubernetes.api.client import ApiError
from opsassay.testbed.substrates.kubernetes.running import KubernetesSystem
from opsassay.testbed.substrates.kubernetes.scenario.populating import SystemPopulation
from opsassay.testbed.substrates.kubernetes.search import candidates
from opsassay.testbed.substrates.kubernetes.search.baseline import restore, take_baseline, verify
from opsassay.testbed.substrates.kubernetes.search.candidates import audit_cases, primitives
from opsassay.testbed.substrates.kubernetes.search.operator import repair
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


class ClusterSearchEnvironment(SearchEnvironment):
    """One system on a cluster under search; the baseline is what stands when the search begins."""

    running: KubernetesSystem

    def __init__(self, scenario: Scenario, target: str, seed: int, settings: Mapping[str, Any]) -> None:
        super().__init__(scenario, target, seed, settings)
        self._cluster = ClusterSettings.model_validate(settings)
        self._substrate = KubernetesSubstrate(
            self._cluster.kubeconfig, self._cluster.context, image=self._cluster.image
        )
        self._nodes = NodeCommand(self._cluster.node_command, self._substrate.api.context)
        self._at_nodes = ExitStack()

    @contextmanager
    def deployed(self) -> Iterator[None]:
        """Run the system during the block; its state at the beginning is the baseline."""
        if self._cluster.node_command:
            self._nodes.require()
        block, environment = self.scenario.cluster, self.scenario.environment
        exclusive = bool(self._cluster.node_command)
        population = (
            SystemPopulation(block.stand_ins, block.fillers, exclusive=exclusive) if block else SystemPopulation()
        )
        with self._substrate.deployed(
            self.system, self.name, seed=environment.seed + self.seed, rate_rps=environment.rate_rps,
            furnishing=population,
        ) as self.running:  # fmt: skip
            self._url = self.running.watched([self.target]).protected[self.target]
            self._baseline = take_baseline(self.running)
            yield

    def running_names(self) -> Collection[str]:
        """Return the names of the systems on the cluster."""
        return self._substrate.names()

    def refusal(self, composition: Composition) -> str | None:
        """Return why *composition* must not be applied since a reset does not undo it; None when it may."""
        return candidates.refusal(composition, nodes=bool(self._nodes.command))

    def start(self) -> None:
        """Wait until the system equals the baseline; raises OperationError when it does not in time."""
        verify(self.running, self._baseline, self._url)

    def settle(self) -> None:
        """Restore the baseline; raises OperationError when something still differs."""
        self._at_nodes.close()
        restore(self.running, self._baseline, self._url)

    def make(self, change: OpsCall) -> None:
        """Apply *change*, a creation, patch or node operation; raises UserError when it is refused."""
        given, running = change.arguments, self.running
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
        """Return why the target workload is not valid (missing, scaled to zero, not selected), None when it is."""
        return candidates.violation(self.running.api, self.running.name, self.target)

    def repair(self) -> Repair:
        """Let the scripted operator repair the system; return what it did."""
        return repair(self.running, self._baseline)

    @contextmanager
    def observed(self, timeline: Path) -> Iterator[None]:
        """Record the system in *timeline* during the block; a user request is sent only at the end."""
        committed, settings = self.scenario.verification, self._cluster
        observed = observing(
            self.running.name, timeline, substrate="kubernetes",
            settings=settings.where(),
            cadence_s=committed.cadence_s, probe_every_s=None, protected=committed.protected_services,
        )  # fmt: skip
        try:
            with observed:
                yield
        finally:
            timeline.with_suffix(CONTROL_PLANE_SUFFIX).unlink(missing_ok=True)


def _list_blocks(system: System, target: str, settings: Mapping[str, Any]) -> tuple[Block, ...]:
    """Return the changes to *target* that a search combines into faults; to nodes if *settings* have a node command."""
    return primitives(system, target, nodes=bool(settings.get("node_command")))


def _format_task(system: System, target: str, settings: Mapping[str, Any]) -> str:
    """Return the text that asks a model for faults of *target*; with node changes if *settings* have a node command."""
    node = NODE_VERB if settings.get("node_command") else ""
    return TASK.format(services=", ".join(system.services), target=target, node=node)


FAULT_SEARCH = FaultSearch(
    blocks=_list_blocks,
    invalid=lambda _system, target: audit_cases(target),
    task=_format_task,
    operator=OPERATOR,
    environment=ClusterSearchEnvironment,
)
