"""The Kubernetes substrate: systems as objects in namespaces of their own, on whatever cluster a kubeconfig leads to."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import yaml

from assay.errors import AssayError, LostError, NotFoundError, OperationError, RefusedError, StartError, UserError
from assay.model.incident import FaultPlan
from assay.model.system import IsolationLevel, System
from assay.testbed.kubernetes.api import Api, ApiError, Object
from assay.testbed.kubernetes.image import IMAGE
from assay.testbed.kubernetes.manifests import INSTANCE_LABEL, LOAD, MANAGED, Deployed
from assay.testbed.kubernetes.readings import is_over, is_ready, why_not_ready
from assay.testbed.runtime.settings import SERVICE_PORT

if TYPE_CHECKING:
    import polars as pl

    from assay.telemetry.otlp.client import ReceiverControl
    from assay.testbed.kubernetes.observer import Watched

START_TIMEOUT_S = 180.0
REMOVE_TIMEOUT_S = 180.0
LOOK_EVERY_S = 0.5
OWNER = "assay/owner"
"""Annotation of a namespace whose system ends with the process that it names: host, pid and start time."""


@dataclass(frozen=True)
class KubernetesSystem:
    """A handle on a system that runs in the namespace *name*."""

    api: Api
    name: str

    @property
    def watch_namespace(self) -> str:
        """Where its receiver and probe live."""
        return f"{self.name}-watch"

    @property
    def receiver(self) -> ReceiverControl:
        """Not there: telemetry stays in the cluster's receiver, or goes to the collector that was named."""
        raise RefusedError(
            "Recording from a cluster is not supported; give systems a collector of yours with --endpoint."
        )

    def definition(self) -> System:
        """Return the system that runs here."""
        described = self.api.get("ConfigMap", "system", self.name)
        if described is None:
            raise LostError(f"The namespace {self.name} of {self.api.context} holds no system any more.")
        return System.model_validate(yaml.safe_load(described["data"]["system.yaml"]))

    def status(self) -> dict[str, Any]:
        """Return name, phase, ready and not_ready replicas, the active fault, endpoints, rate_rps, isolation."""
        namespace = self.api.get("Namespace", self.name)
        if namespace is None:
            raise LostError(f"The namespace {self.name} of {self.api.context} is gone.")
        pods = [pod for pod in self.pods() if not is_over(pod)]
        missing = sorted(pod["metadata"]["name"] for pod in pods if not is_ready(pod))
        leaving = namespace["status"]["phase"] == "Terminating"
        system = self.definition() if not leaving else None
        return {
            "name": self.name,
            "phase": "stopping" if leaving else "starting" if missing or not pods else "ready",
            "replicas": len(pods),
            "ready": len(pods) - len(missing),
            "not_ready": missing,
            "fault": None,
            "endpoints": {entry: [url] for entry, url in self._urls(system).items()} if system else {},
            "rate_rps": self._rate() if system else None,
            "isolation": "kubernetes",
            "context": self.api.context,
        }

    def pods(self) -> list[Object]:
        """Return the pods of the system and of what watches over it."""
        return [pod for namespace in (self.name, self.watch_namespace) for pod in self.api.list("Pod", namespace)]

    def inject(self, plan: FaultPlan) -> Iterator[dict[str, Any]]:
        """Refuse: faults of the catalogue are injected by the supervisor, which a cluster has none of."""
        raise RefusedError(f"{plan.fault or 'A fault'} cannot be injected on Kubernetes yet; use the local substrate.")

    def set_rate(self, rate_rps: float) -> float:
        """Change the load; return the former rate. The generator is replaced, so that its pod is another one."""
        former = self._rate()
        containers = [{"name": LOAD, "env": [{"name": "RATE_RPS", "value": f"{rate_rps:g}"}]}]
        self.api.patch("Deployment", LOAD, {"spec": {"template": {"spec": {"containers": containers}}}}, self.name)
        return former

    def flush(self) -> None:
        """Wait until every process has sent what it had queued: each does so on its own, every second."""
        from assay.testbed.runtime.instruments import EXPORT_EVERY_S

        time.sleep(2 * EXPORT_EVERY_S)

    def ledger(self, since_ns: int) -> pl.DataFrame:
        """Refuse: what a fault costs is not written down on a cluster."""
        raise RefusedError(f"There is no ledger on Kubernetes (asked for since {since_ns}); use the local substrate.")

    def watched(self) -> Watched:
        """Return what an observer of this system needs to know."""
        from assay.testbed.kubernetes.observer import Watched

        system = self.definition()
        protected = {f"{entry}.{self.name}": url for entry, url in self._urls(system).items()}
        return Watched((self.name,), protected, self.watch_namespace)

    def _urls(self, system: System) -> dict[str, str]:
        paths = system.probe_paths()
        return {entry: f"http://{entry}.{self.name}:{SERVICE_PORT}{path}" for entry, path in paths.items()}

    def _rate(self) -> float:
        generator = self.api.get("Deployment", LOAD, self.name)
        if generator is None:
            return 0.0
        environment = generator["spec"]["template"]["spec"]["containers"][0]["env"]
        return float(next(entry["value"] for entry in environment if entry["name"] == "RATE_RPS"))


class KubernetesSubstrate:
    """Runs systems on the cluster of *context* in *kubeconfig*, kubectl's own choice when they are None."""

    name = "kubernetes"

    def __init__(
        self,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        image: str = IMAGE,
        endpoint: str | None = None,
    ) -> None:
        self._kubeconfig, self._context = kubeconfig, context
        self._image, self._endpoint = image, endpoint
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        """The connection, made on first use."""
        if self._api is None:
            self._api = Api.connect(self._kubeconfig, self._context)
        return self._api

    def deploy(
        self, system: System, name: str, *, seed: int = 0, rate_rps: float | None = None, owned: bool = False,
        isolation: IsolationLevel | None = None, on_progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> KubernetesSystem:  # fmt: skip
        """Start *system* in a namespace called *name* and wait until it is ready; raises UserError, StartError, LostError.

        An *owned* one is removed by `deployed`, or by the next `status` on this machine when its process was killed.
        """
        if isolation is not None:
            raise UserError(f"The isolation level {isolation} is the local substrate's; leave it out on Kubernetes.")
        self.api.require()
        deployed = Deployed(system, name, seed, rate_rps, self._image, self._endpoint)
        running = KubernetesSystem(self.api, name)
        for namespace in deployed.namespaces():
            self._claim(namespace, owned=owned)
        try:
            for manifest in deployed.manifests()[len(deployed.namespaces()) :]:
                self.api.create(manifest)
            self._wait_ready(running, on_progress)
        except BaseException:
            self._remove(running)
            raise
        return running

    @contextmanager
    def deployed(
        self, system: System, name: str, *, seed: int = 0, rate_rps: float | None = None
    ) -> Iterator[KubernetesSystem]:
        """Run *system* while the block runs; its namespaces are gone when the block ends."""
        running = self.deploy(system, name, seed=seed, rate_rps=rate_rps, owned=True)
        try:
            yield running
        finally:
            self._remove(running)

    def running(self, name: str) -> KubernetesSystem:
        """Return the running system *name*; raises NotFoundError."""
        names = self._names()
        if name not in names:
            raise NotFoundError("system on the cluster", name, names)
        return KubernetesSystem(self.api, name)

    def remove(self, name: str) -> None:
        """Remove the system *name* and wait until its namespaces are gone; raises OperationError with what holds them."""
        self._remove(self.running(name))

    def status(self) -> list[dict[str, Any]]:
        """Return one row per system of ours; those whose owner on this machine has died are removed first."""
        rows = []
        for name, namespace in self._names().items():
            running = KubernetesSystem(self.api, name)
            if _owner_is_dead(namespace):
                self._remove(running)
                rows.append(
                    {"name": name, "phase": "cleared", "context": self.api.context, "reason": "its owner is gone"}
                )
                continue
            rows.append(running.status())
        return rows

    def capabilities(self) -> dict[str, Any]:
        """Return what the cluster is, or the reason why there is none."""
        try:
            version = self.api.require()
        except AssayError as error:
            return {"kubernetes": {"available": False, "reason": str(error)}}
        return {"kubernetes": {"available": True, "reason": "", "context": self.api.context, "version": version}}

    def _claim(self, namespace: Object, *, owned: bool) -> None:
        name = namespace["metadata"]["name"]
        if owned:
            namespace["metadata"]["annotations"] = {OWNER: _this_process()}
        try:
            self.api.create(namespace)
        except ApiError as error:
            if error.status != 409:
                raise
            raise UserError(
                f"The namespace {name} exists on {self.api.context}; stop its system with `assay down`, or choose --name."
            ) from error

    def _names(self) -> dict[str, Object]:
        selector = ",".join(f"{key}={value}" for key, value in MANAGED.items())
        found = {item["metadata"]["name"]: item for item in self.api.list("Namespace", selector=selector)}
        return {name: item for name, item in found.items() if item["metadata"]["labels"].get(INSTANCE_LABEL) == name}

    def _wait_ready(self, running: KubernetesSystem, on_progress: Callable[[dict[str, Any]], None] | None) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            waiting = self._not_yet(running)
            if on_progress:
                on_progress(running.status())
            if not waiting:
                return
            if time.monotonic() > deadline:
                reasons = "; ".join(f"{name} ({reason})" for name, reason in sorted(waiting.items())[:5])
                raise StartError(f"System {running.name} is not ready after {START_TIMEOUT_S:g} s: {reasons}.")
            time.sleep(LOOK_EVERY_S)

    def _not_yet(self, running: KubernetesSystem) -> dict[str, str]:
        """Return what is not ready, with the reason: pods, and deployments whose pods are not there yet."""
        waiting = {
            pod["metadata"]["name"]: why_not_ready(pod)
            for pod in running.pods()
            if not is_over(pod) and not is_ready(pod)
        }
        for namespace in (running.name, running.watch_namespace):
            for item in self.api.list("Deployment", namespace):
                status = item.get("status", {})
                if status.get("readyReplicas", 0) < item["spec"]["replicas"]:
                    waiting.setdefault(item["metadata"]["name"], "its pods are not all ready")
        return waiting

    def _remove(self, running: KubernetesSystem) -> None:
        """Delete the namespaces and wait until they are gone; says what keeps them when they are not."""
        names = (running.name, running.watch_namespace)
        for name in names:
            self.api.delete("Namespace", name)
        deadline = time.monotonic() + REMOVE_TIMEOUT_S
        while left := [found for name in names if (found := self.api.get("Namespace", name)) is not None]:
            if time.monotonic() > deadline:
                raise OperationError("; ".join(_what_holds(namespace) for namespace in left))
            time.sleep(LOOK_EVERY_S)


def _what_holds(namespace: Object) -> str:
    """Return in one sentence why *namespace* is still there."""
    conditions = namespace["status"].get("conditions") or ()
    words = [c["message"] for c in conditions if c["status"] == "True" and c.get("message")]
    name = namespace["metadata"]["name"]
    why = " ".join(words) or "the cluster gives no reason"
    return f"The namespace {name} is stuck in {namespace['status']['phase']} after {REMOVE_TIMEOUT_S:g} s: {why}"


def _this_process() -> str:
    process = psutil.Process(os.getpid())
    return f"{socket.gethostname()}:{process.pid}:{process.create_time():.2f}"


def _owner_is_dead(namespace: Object) -> bool:
    """Tell whether the owner of *namespace* was a process of this machine that is no more."""
    owner = (namespace["metadata"].get("annotations") or {}).get(OWNER)
    if owner is None:
        return False
    host, pid, created = owner.rsplit(":", 2)
    if host != socket.gethostname():
        return False
    try:
        return abs(psutil.Process(int(pid)).create_time() - float(created)) > 0.1
    except psutil.NoSuchProcess:
        return True
