"""A trial on a cluster: objects in namespaces of their own, changes of objects that the cluster takes back, kubectl.

What is seen of a system that sends telemetry is the same as on this machine: the receiver beside it is read from here.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from opsassay.core.errors import LostError, OperationError, OpsAssayError, RefusedError
from opsassay.core.schema.cost import AutoscalerSettings, ResourceRequest
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run_folder import ACTIONS, CLUSTER, TIMELINE
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.trajectory import SettingsReading
from opsassay.testbed.operations.alert_watch import AlertWatch
from opsassay.testbed.operations.environment import LiveEnvironment
from opsassay.testbed.operations.held_faults import hold_faults
from opsassay.testbed.operations.live import ARRIVAL_S, LiveAlerts, LiveTelemetry, live_telemetry, users_are_served
from opsassay.testbed.operations.state_alerts import AlertRules, StateAlerts
from opsassay.testbed.operations.telemetry_view import TelemetryView
from opsassay.testbed.operations.tool_session import OperatorToolSession
from opsassay.testbed.recording.observer import ObserverProcess, observing
from opsassay.testbed.scenarios import system_of
from opsassay.testbed.substrates.kubernetes.access import account
from opsassay.testbed.substrates.kubernetes.access.audit import Audit
from opsassay.testbed.substrates.kubernetes.access.kubectl import Kubectl, require_near
from opsassay.testbed.substrates.kubernetes.access.tools import ClusterToolSession
from opsassay.testbed.substrates.kubernetes.actuators.changes import injected
from opsassay.testbed.substrates.kubernetes.actuators.node_command import NodeCommand
from opsassay.testbed.substrates.kubernetes.api.client import Api, DeniedError, Object
from opsassay.testbed.substrates.kubernetes.api.next_start import READ_AT_START, next_start
from opsassay.testbed.substrates.kubernetes.api.readings import (
    ALWAYS_SET,
    WORKLOADS,
    exposure,
    is_ready,
    plain_settings,
    programs,
    protected_settings,
)
from opsassay.testbed.substrates.kubernetes.endpoints.probing import send_probe
from opsassay.testbed.substrates.kubernetes.manifests.system import watch_of
from opsassay.testbed.substrates.kubernetes.running import KubernetesSystem
from opsassay.testbed.substrates.kubernetes.scenario.costed import ClusterCost
from opsassay.testbed.substrates.kubernetes.scenario.names import OpenNames, takes_pods, workers
from opsassay.testbed.substrates.kubernetes.scenario.objects import await_state, broken_nodes, changes_of, manifest
from opsassay.testbed.substrates.kubernetes.scenario.populating import SystemPopulation
from opsassay.testbed.substrates.kubernetes.scenario.standing import Standing, differences, require_kept, standing
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

MACHINERY_S = 900.0
"""Beside what a scenario grants: after this long the cluster itself takes back what was changed."""
HEALTHY_WITHIN_S = 3.0
UNSEEN_S = 60.0
"""How long the telemetry may be out of reach before a trial is given up; a reading of less than that is missing."""
CLOCKS_APART_S = 1.0
"""Alerts are evaluated by this machine's clock over what pods noted by theirs."""


class ClusterEnvironment(LiveEnvironment):
    """What the scenario describes, as it is *running* on the cluster of the settings; stand-ins send no *telemetry*."""

    running: KubernetesSystem
    names: OpenNames
    telemetry: LiveTelemetry | None = None

    def __init__(self, scenario: Scenario, seed: int, run_dir: Path, settings: Mapping[str, Any]) -> None:
        super().__init__(scenario, seed, run_dir, settings)
        assert scenario.cluster is not None
        self.block, self.cluster = scenario.cluster, ClusterSettings.model_validate(settings)
        self.before: Standing = {}
        self._audit: Audit | None = None
        self._rights = ExitStack()

    @cached_property
    def nodes(self) -> NodeCommand:
        """The command by which nodes of the cluster can be broken."""
        return NodeCommand(self.cluster.node_command, self.running.api.context)

    @contextmanager
    def deployed(self) -> Iterator[None]:
        """Deploy the scenario's system in new namespaces, owned by this process, for the block; then remove them."""
        scenario, block, cluster = self.scenario, self.block, self.cluster
        substrate = KubernetesSubstrate(cluster.kubeconfig, cluster.context, image=cluster.image)
        api, system = substrate.api, system_of(scenario)
        name = f"trial-{os.getpid()}-{secrets.token_hex(2)}" if system.namespace is None else system.namespace.name
        if block.existing != (system.namespace is not None):
            raise RefusedError(f"{scenario.id}: `existing` goes with a system whose file names its namespace.")
        version = api.require()
        require_near(cluster.kubectl, version)
        if block.nodes or block.node_tool:
            NodeCommand(cluster.node_command, api.context).require()
        self.names = names = OpenNames(name, watch_of(name), cluster.image, workers(nodes_of(api)))
        if len(names.workers) < block.workers and not block.existing:
            raise RefusedError(
                f"{scenario.id} needs {block.workers} nodes; {api.context} has {len(names.workers)} for pods."
            )
        for plan in scenario.trigger.faults:
            substrate.require(system, plan)
        about = {"context": api.context, "version": version, "nodes": names.workers}
        (self.run_dir / CLUSTER).write_text(json.dumps(about) + "\n")
        objects = tuple(manifest(api, one, names) for one in block.objects)
        furnishing = SystemPopulation(block.stand_ins, block.fillers, block.exclusive, objects, block.requests)
        deployed = substrate.attached(system, exclusive=block.exclusive) if block.existing else substrate.deployed(
            system, name, seed=self.drawn_seed, rate_rps=scenario.environment.rate_rps, furnishing=furnishing
        )  # fmt: skip
        with deployed as self.running, ExitStack() as stack:
            if block.existing:
                self.before = standing(api, name)
                require_kept(block.rules(), self.before, name)
            topology = sorted(self.running.topology())
            (self.run_dir / CLUSTER).write_text(json.dumps({**about, "topology": topology}) + "\n")
            if not block.silent:
                self.telemetry = stack.enter_context(live_telemetry(self.running.receiver, self.run_dir))
            yield

    def observed(self, *, probes: bool) -> AbstractContextManager[ObserverProcess]:
        """Run the process that writes the timeline, for the block; with *probes* it sends requests regularly."""
        committed = self.scenario.verification
        return observing(
            self.running.name,
            self.run_dir / TIMELINE,
            substrate="kubernetes",
            settings=self.cluster.where(),
            cadence_s=committed.cadence_s,
            probe_every_s=committed.probe_every_s if probes else None,
            protected=committed.protected_services,
        )

    def health_problem(self) -> str | None:
        """Return which pods, nodes or protected services are not healthy, or that users are not served; else None."""
        if missing := self.running.status().not_ready:
            return f"{', '.join(missing)} not ready"
        nodes = [node for node in nodes_of(self.running.api) if node["metadata"]["name"] in self.names.workers]
        if not self.block.existing and (there := sum(takes_pods(node) for node in nodes)) < self.block.workers:
            return f"{there} of {self.block.workers} nodes take pods"
        for service, url in self.running.watched(self.scenario.verification.protected_services).protected.items():
            answer = send_probe(self.running.api, self.running.watch_namespace, url, HEALTHY_WITHIN_S)
            if answer["status"] != 200:
                return f"{service} answers {answer['status'] or answer['error']}"
        return self._blindness()

    def _blindness(self) -> str | None:
        """Return why telemetry does not show that users are served; None if it does, or if there is no telemetry."""
        if self.telemetry is None:
            return None
        served = users_are_served(self.telemetry)
        if abs(ahead_s := self.telemetry.clock_ahead_s) > CLOCKS_APART_S:
            return f"the clock of the receiver's node is {ahead_s:+.1f} s from this machine's"
        return None if served else "users are not served in time, by the telemetry that has arrived"

    @contextmanager
    def operated(self) -> Iterator[OperatorToolSession]:
        """Yield the agent's session (kubectl, telemetry) with the scenario's rights; record writes to the API."""
        lock, path = threading.Lock(), self.run_dir / ACTIONS

        def record(action: Any) -> None:
            with lock:
                append_line(path, action)

        with ExitStack() as stack:
            self._rights = stack.enter_context(ExitStack())
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="opsassay-access-")))
            kubeconfig = self._rights.enter_context(self._access(folder))
            user = f"system:serviceaccount:{self.names.watch}:{account.ACCOUNT}"
            self._audit = stack.enter_context(
                Audit(
                    self.running.api, self.running.name, record, rules=self.block.rules(), log=self.cluster.audit_log,
                    user=user,
                )
            )  # fmt: skip
            kubectl, view, live = Kubectl(kubeconfig, self.cluster.kubectl), None, None
            if self.telemetry is not None:
                live = LiveAlerts(self.telemetry, system_of(self.scenario).slo, self.baseline)
            state = StateAlerts(self.run_dir / TIMELINE, self.scenario.verification, self.baseline.end_ns)
            alerts = AlertRules(live, state, ARRIVAL_S)
            if self.telemetry is not None:
                view = TelemetryView(self.telemetry, alerts)
            session = ClusterToolSession(kubectl, self.nodes, self.block.node_tool, self.names, record, view)
            session.watch = stack.enter_context(AlertWatch(alerts, self.run_dir, patience_s=UNSEEN_S))
            session.kubeconfig = kubeconfig
            yield session

    def costed(self, requests: Mapping[str, ResourceRequest], autoscalers: Sequence[AutoscalerSettings]) -> ClusterCost:
        """Set *requests* and *autoscalers* of services, and return the system with its costs."""
        system = ClusterCost(self.running.api, self.running.name, system_of(self.scenario))
        for service, request in requests.items():
            system.set_requests(service, request)
        for one in autoscalers:
            system.set_autoscaler(one)
        return system

    @contextmanager
    def _access(self, folder: Path) -> Iterator[Path]:
        """Create the agent's account with its rights, yield a kubeconfig for it in *folder*, and delete them."""
        api, name, watch = self.running.api, self.running.name, self.names.watch
        if not self.cluster.open_nodes:
            account.require_closed(api, name, self.names.image)
        made = account.role_objects(name, watch, self.block.rules())
        try:
            for item in made:
                api.create(item)
            lasts_s = self.scenario.environment.agent_timeout_s + MACHINERY_S
            token = account.issue_token(api, watch, lasts_s)
            yield account.write_kubeconfig(api, name, token, folder / "kubeconfig")
        finally:
            for item in reversed(made):
                with suppress(OpsAssayError):
                    api.delete(item["kind"], item["metadata"]["name"], item["metadata"].get("namespace"))

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Inject faults, change objects and break nodes for the block; if this process dies, all is undone too."""
        environment, api = self.scenario.environment, self.running.api
        limit_s = environment.settle_s + environment.agent_timeout_s + environment.aftermath_s + MACHINERY_S
        changes = changes_of(api, self.block.changes, self.names)
        avoid = broken_nodes(self.block, self.names)
        with ExitStack() as stack:
            for plan in self.scenario.trigger.faults:
                stack.enter_context(hold_faults(self.running, _with_node_names(plan, self.names), limit_s))
            for own, part in groupby(changes, lambda change: change.namespace == self.running.name):
                made = injected(api, list(part), self.names.watch, limit_s, image=self.names.image, avoid=avoid)
                stack.enter_context(_forgiven(made) if own else made)
            for one in self.block.nodes:
                stack.enter_context(self.nodes.broken(self.names.node(one.node), one.op, limit_s))
            for state in self.block.until:
                await_state(api, state, self.names)
            yield

    def start_agent(self) -> None:
        """Attribute all writes to the API to the agent from now on."""
        assert self._audit is not None
        self._audit.begin()

    def stop_agent(self) -> None:
        """Revoke the agent's rights, so that nothing it left running can act, and record its last writes."""
        assert self._audit is not None
        self._rights.close()
        self._audit.end()

    def read_settings(self) -> SettingsReading:
        """Return settings that protect the system, its programs and rights, and changes that wait for a restart."""
        api, namespace = self.running.api, self.running.name
        kinds = (*WORKLOADS, "Job", "Pod", "Service", "NetworkPolicy", *ALWAYS_SET, *READ_AT_START)
        there = {kind: api.list(kind, namespace) for kind in kinds}
        workloads = [item for kind in ("Deployment", "StatefulSet", "DaemonSet") for item in there[kind]]
        others = [item for kind in ("ReplicaSet", "Job", "Pod") for item in there[kind]]
        configured, pending = next_start(there, api.list("Node") if self.block.changes_nodes else ())
        return SettingsReading(
            time_ns=time.time_ns(),
            settings=protected_settings(workloads, there["NetworkPolicy"], self.reader)
            | programs([*workloads, *others])
            | exposure(there["Service"]),
            others=plain_settings(there),
            configured=configured,
            pending_restart=pending,
        )

    def require_alive(self) -> None:
        """Raise LostError when the namespace is gone, or a node is lost in a trial that breaks none."""
        api = self.running.api
        if api.get("Namespace", self.running.name) is None:
            raise LostError(f"The namespace {self.running.name} of {api.context} is gone.")
        if self.block.nodes or self.block.node_tool:
            return
        there = {node["metadata"]["name"] for node in nodes_of(api) if is_ready(node)}
        if lost := [name for name in self.names.workers if name not in there]:
            raise LostError(f"Lost during the trial, which breaks no node: {', '.join(lost)} of {api.context}.")

    def verify(self) -> list[str]:
        """Return a sentence for each namespace, right or node of the trial that is not as before."""
        api, name, watch = self.running.api, self.running.name, self.names.watch
        made = account.role_objects(name, watch, self.block.rules())
        owned = [("Namespace", one, None) for one in ((watch,) if self.block.existing else (name, watch))]
        owned += [(o["kind"], o["metadata"]["name"], o["metadata"].get("namespace")) for o in made]
        found = [
            f"{kind} {item} is still there" for kind, item, place in owned if api.get(kind, item, place) is not None
        ]
        if self.block.existing:
            return found + differences(api, name, self.before)
        nodes = {node["metadata"]["name"] for node in nodes_of(api) if takes_pods(node)}
        return found + [f"node {node} takes no pods" for node in self.names.workers if node not in nodes]


def nodes_of(api: Api) -> list[Object]:
    """Return the nodes of the cluster, [] when this user may not list nodes."""
    try:
        return api.list("Node")
    except DeniedError:
        return []


def _with_node_names(plan: FaultPlan, names: OpenNames) -> FaultPlan:
    """Return *plan* with placeholders such as {worker1} replaced by node names."""
    return FaultPlan.model_validate(names.fill(plan.model_dump(mode="json")))


@contextmanager
def _forgiven(context: AbstractContextManager[Any]) -> Iterator[None]:
    """Enter *context* and ignore OperationError at its exit, since its namespace is removed anyway."""
    held = ExitStack()
    held.enter_context(context)
    try:
        yield
    finally:
        with suppress(OperationError):
            held.close()
