"""A handle on a system that runs on a cluster: what it is, how it is, what is done to it, what is observed of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import yaml

from opsassay.core.errors import LostError
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.system import System
from opsassay.testbed.core.event import InjectionEvent
from opsassay.testbed.core.status import SystemStatus
from opsassay.testbed.injection.preconditions import require
from opsassay.testbed.substrates.kubernetes.actuators.inject import activity, injecting
from opsassay.testbed.substrates.kubernetes.actuators.mechanisms import CLUSTER, require_mechanisms
from opsassay.testbed.substrates.kubernetes.actuators.offers import offers_of
from opsassay.testbed.substrates.kubernetes.api import topology
from opsassay.testbed.substrates.kubernetes.api.client import Api, DeniedError, Object
from opsassay.testbed.substrates.kubernetes.api.readings import cores, is_over, is_ready, service_of
from opsassay.testbed.substrates.kubernetes.endpoints.pod_endpoint import PodEndpoints, ledger_of
from opsassay.testbed.substrates.kubernetes.endpoints.pod_logs import PodLogs
from opsassay.testbed.substrates.kubernetes.endpoints.remote_receiver import RemoteReceiver
from opsassay.testbed.substrates.kubernetes.manifests.image import IMAGE
from opsassay.testbed.substrates.kubernetes.manifests.system import LOAD, PROBE, watch_of
from opsassay.testbed.substrates.kubernetes.probes import ClusterProbes, Watched
from opsassay.testbed.workload.runtime.settings import SERVICE_PORT

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class KubernetesSystem:
    """A handle on a system that runs in the namespace *name*."""

    api: Api
    name: str
    prefer: str | None = None
    """The way that faults go where they have several, see `actuators/mechanisms.py`."""
    kept: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    """Ledgers of pods that are gone, by file."""

    @property
    def watch_namespace(self) -> str:
        """The namespace of the system's receiver and probe."""
        return watch_of(self.name)

    @property
    def namespaces(self) -> tuple[str, str]:
        """The system's own namespace, and that of its receiver and probe."""
        return self.name, self.watch_namespace

    @cached_property
    def receiver(self) -> RemoteReceiver:
        """The receiver of the system's telemetry, which runs in the cluster; it knows its open sessions."""
        logs = partial(PodLogs, self.api, self.name, tuple(self.definition().services)) if self.existing else None
        return RemoteReceiver(self.api, self.watch_namespace, logs)

    @cached_property
    def existing(self) -> bool:
        """Whether OpsAssay only observes the namespace, and did not deploy it."""
        return self.api.get("ConfigMap", "system", self.watch_namespace) is not None

    @property
    def load_namespace(self) -> str:
        """The namespace of the load generator."""
        return self.watch_namespace if self.existing else self.name

    def definition(self) -> System:
        """Return the system's definition; its hosts are the nodes with replicas; raises LostError when it is gone."""
        if (system := self._read_definition()) is None:
            raise LostError(f"The namespace {self.name} of {self.api.context} holds no system any more.")
        return system

    def _read_definition(self) -> System | None:
        """Return the definition in the ConfigMap of the namespace, None without one."""
        described = self.api.get("ConfigMap", "system", self.watch_namespace)  # of a namespace that exists
        if described is None:
            described = self.api.get("ConfigMap", "system", self.name)
        if described is None:
            return None
        system = System.model_validate(yaml.safe_load(described["data"]["system.yaml"]))
        pods = self.api.list("Pod", self.name)
        nodes = {
            p["spec"].get("nodeName")
            for p in pods
            if {service_of(p), (p["metadata"].get("labels") or {}).get("app")} & system.services.keys()
        }
        free = {name: spec.model_copy(update={"host": None}) for name, spec in system.services.items()}
        return system.model_copy(update={"hosts": tuple(sorted(nodes - {None})) or system.hosts, "services": free})

    def status(self) -> SystemStatus:
        """Return the status by the objects in both namespaces; raises LostError when the system's own is gone."""
        namespace = self.api.get("Namespace", self.name)
        if namespace is None:
            raise LostError(f"The namespace {self.name} of {self.api.context} is gone.")
        pods = [pod for pod in self.pods() if not is_over(pod)]
        missing = sorted(pod["metadata"]["name"] for pod in pods if not is_ready(pod))
        leaving = namespace["status"]["phase"] == "Terminating"
        system = self._read_definition() if not leaving else None
        why = what_holds(namespace) if leaving else "" if system else "its namespaces are there, it is not (yet)"
        return SystemStatus(
            name=self.name,
            phase="stopping" if leaving else "starting" if missing or not pods or not system else "ready",
            replicas=len(pods),
            ready=len(pods) - len(missing),
            not_ready=tuple(missing),
            fault=activity(self.api, self.watch_namespace),
            system=system.system if system else None,
            namespace=self.name,
            unexpected_exits=(),
            machine={"abilities": {}},
            cores=self._cores(),
            endpoints={entry: [url] for entry, url in self._urls(system).items()} if system else {},
            rate_rps=self._rate() if system else None,
            isolation="kubernetes",
            context=self.api.context,
            reason=why,
        )

    def pods(self) -> list[Object]:
        """Return the pods of the system, and its receiver and probe."""
        return [pod for namespace in self.namespaces for pod in self.api.list("Pod", namespace)]

    def require(self, plan: FaultPlan, source: Path | None = None) -> None:
        """Raise an error when *plan* cannot be injected here; ConfigError if it is from the file *source*."""
        require(self.definition(), plan, CLUSTER.refusal, source=source)
        require_mechanisms(self.api, plan, self.prefer, self.name if self.existing else "")

    def inject(self, plan: FaultPlan, over: Event | None = None) -> Iterator[InjectionEvent]:
        """Inject *plan* and yield its events; closing the iterator, its end or *over* undoes it."""
        self.require(plan)
        offers, image = offers_of(self.api, self.prefer, self.name if self.existing else ""), self._image()
        return injecting(self.api, self.name, self.definition(), plan, offers, image, self.kept, over)

    def set_rate(self, rate_rps: float) -> float:
        """Set the load to *rate_rps* and return the former rate; the load generator's pod is replaced."""
        former = self._rate()
        containers = [{"name": LOAD, "env": [{"name": "RATE_RPS", "value": f"{rate_rps:g}"}]}]
        change = {"spec": {"template": {"spec": {"containers": containers}}}}
        self.api.patch("Deployment", LOAD, change, self.load_namespace)
        return former

    def flush(self) -> None:
        """Wait until every process has sent its queued telemetry, which each does every second."""
        from opsassay.testbed.workload.runtime.instruments import EXPORT_EVERY_S

        time.sleep(2 * EXPORT_EVERY_S)

    def keep_load_log(self, path: Path) -> None:
        """Do nothing: on a cluster there is no load generator of a user."""

    def ledger(self, since_ns: int) -> pl.DataFrame:
        """Return the effects of faults on calls since *since_ns* (UTC), of removed pods too; columns as `read_ledger`."""
        pods, system = PodEndpoints.for_namespace(self.api, self.load_namespace), self.definition()
        if self.existing:
            system = system.model_copy(update={"services": {}})  # none of its pods keeps a ledger
        return ledger_of(pods, system, self.kept, since_ns)

    def watched(self, protected: Sequence[str] = ()) -> Watched:
        """Return namespaces and probe URLs for an observer; *protected* defaults to the system's entries."""
        urls = self._urls(self.definition())
        named = {service: urls.get(service, f"http://{service}.{self.name}:{SERVICE_PORT}/") for service in protected}
        return Watched(
            (self.name,), named or {f"{entry}.{self.name}": url for entry, url in urls.items()}, self.watch_namespace
        )

    def probes(self, protected: Sequence[str] = ()) -> ClusterProbes:
        """Return the probes of this system, with requests to the services *protected* (default: its entries)."""
        return ClusterProbes(self.api, self.watched(protected))

    def topology(self) -> set[tuple[topology.Entity, topology.Entity]]:
        """Return the (owner, owned), (node, pod), (service, pod) pairs of the namespace; see `topology.py`."""
        return topology.topology(self.api, self.name)

    def _image(self) -> str:
        """Return the container image of this system's pods."""
        probe = self.api.get("Deployment", PROBE, self.watch_namespace)
        return str(probe["spec"]["template"]["spec"]["containers"][0]["image"]) if probe else IMAGE

    def _cores(self) -> int:
        """Return the sum of cores that nodes can allocate; 0 when this user may not list nodes."""
        try:
            nodes = self.api.list("Node")
        except DeniedError:
            return 0
        return sum(round(cores(node["status"]["allocatable"]["cpu"])) for node in nodes)

    def _urls(self, system: System) -> dict[str, str]:
        """Return {entry service: URL that users request}."""
        if system.namespace is not None:
            return dict(system.namespace.probes)
        paths = system.probe_paths()
        return {entry: f"http://{entry}.{self.name}:{SERVICE_PORT}{path}" for entry, path in paths.items()}

    def _rate(self) -> float:
        """Return the rate of the load in requests per second, 0 without a load generator."""
        generator = self.api.get("Deployment", LOAD, self.load_namespace)
        if generator is None:
            return 0.0
        environment = generator["spec"]["template"]["spec"]["containers"][0]["env"]
        return float(next(entry["value"] for entry in environment if entry["name"] == "RATE_RPS"))


def what_holds(namespace: Object) -> str:
    """Return the reasons in the status of *namespace* why its deletion is not finished."""
    conditions = namespace.get("status", {}).get("conditions") or ()
    words = [c["message"] for c in conditions if c["status"] == "True" and c.get("message")]
    return " ".join(words) or "the cluster gives no reason"
