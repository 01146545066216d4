"""The Kubernetes substrate: systems as objects in namespaces of their own, on whatever cluster a kubeconfig leads to."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from assay.errors import AssayError, NotFoundError, OperationError, StartError, UserError
from assay.model.incident import FaultPlan
from assay.model.system import Setting, System
from assay.testbed.faults.preconditions import require
from assay.testbed.kubernetes.api.client import Api, ApiError, Object
from assay.testbed.kubernetes.api.readings import is_over, is_ready, why_not_ready
from assay.testbed.kubernetes.faults.changes import clear_cluster_roles
from assay.testbed.kubernetes.faults.offers import WayName
from assay.testbed.kubernetes.faults.ways import require_ways
from assay.testbed.kubernetes.manifests.image import IMAGE
from assay.testbed.kubernetes.manifests.system import Deployed
from assay.testbed.kubernetes.running import KubernetesSystem
from assay.testbed.kubernetes.scenario.furnishing import FurnishedSystem, Furnishing
from assay.testbed.kubernetes.scenario.sharing import await_turn, systems_on

START_TIMEOUT_S = 180.0
REMOVE_TIMEOUT_S = 180.0
TRIAL_START_TIMEOUT_S = 420.0
"""A trial that was not started tells nothing: it waits longer than a person does."""
SECONDS_PER_FILLER = 4.0
"""What an idle pod may add to the time in which everything is ready."""
LOOK_EVERY_S = 0.5
OWNER = "assay/owner"
"""Annotation of a namespace whose system ends with the process that it names: host, pid and start time."""


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
        prefer: WayName | None = None,
    ) -> None:
        self._kubeconfig, self._context = kubeconfig, context
        self.image, self._endpoint = image, endpoint
        self._prefer = prefer
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        """The connection, made on first use."""
        if self._api is None:
            self._api = Api.connect(self._kubeconfig, self._context)
        return self._api

    def deploy(
        self, system: System, name: str, *, seed: int = 0, rate_rps: float | None = None, owned: bool = False,
        isolation: Setting | None = None, on_progress: Callable[[dict[str, Any]], None] | None = None,
        furnishing: Furnishing | None = None,
    ) -> KubernetesSystem:  # fmt: skip
        """Start *system* in a namespace called *name* and wait until it is ready; raises UserError, StartError, LostError.

        An *owned* one is removed by `deployed`, or by the next `status` on this machine when its process was killed. With a
        *furnishing* it is as a scenario wants it, and waits for its turn on the cluster.
        """
        _refuse_level(isolation)
        self.api.require()
        deployed = Deployed(system, name, seed, rate_rps, self.image, self._endpoint)
        timeout_s = START_TIMEOUT_S
        if furnishing is not None:
            deployed = FurnishedSystem(system, name, seed, rate_rps, self.image, self._endpoint, furnishing=furnishing)
            timeout_s = TRIAL_START_TIMEOUT_S + furnishing.fillers * SECONDS_PER_FILLER
        running = KubernetesSystem(self.api, name, self._prefer)
        for namespace in deployed.namespaces():
            self._claim(namespace, owned=owned)
        try:
            if furnishing is not None:
                await_turn(self.api, name, _owner_is_dead)
            for manifest in deployed.manifests()[len(deployed.namespaces()) :]:
                self.api.create(manifest)
            self._wait_ready(running, on_progress, timeout_s)
        except BaseException:
            self._remove(running, wait=furnishing is None)
            raise
        return running

    @contextmanager
    def deployed(
        self,
        system: System,
        name: str,
        *,
        seed: int = 0,
        rate_rps: float | None = None,
        isolation: Setting | None = None,
        furnishing: Furnishing | None = None,
    ) -> Iterator[KubernetesSystem]:
        """Run *system* while the block runs; its namespaces are gone when the block ends.

        Those of one with a *furnishing* are told to go: nothing else has their name, and the cluster ends what it began.
        """
        running = self.deploy(
            system, name, seed=seed, rate_rps=rate_rps, owned=True, isolation=isolation, furnishing=furnishing
        )
        try:
            yield running
        finally:
            self._remove(running, wait=furnishing is None)

    def running(self, name: str) -> KubernetesSystem:
        """Return the running system *name*; raises NotFoundError."""
        names = systems_on(self.api)
        if name not in names:
            raise NotFoundError("system on the cluster", name, names)
        return KubernetesSystem(self.api, name, self._prefer)

    def names(self) -> list[str]:
        """Return the systems on the cluster."""
        return sorted(systems_on(self.api))

    def require(
        self, system: System, plan: FaultPlan, isolation: Setting | None = None, source: Path | None = None
    ) -> None:
        """Raise when *plan*, read from the file *source*, could not be carried out on a *system* started here.

        Which nodes there are to hit is known when it runs.
        """
        _refuse_level(isolation)
        if not any(part.target is not None and part.target.host for part in plan.parts):
            require(system, plan, "kubernetes", source=source)
        require_ways(self.api, plan, self._prefer)

    def remove(self, name: str) -> None:
        """Remove the system *name* and wait until its namespaces are gone; raises OperationError with what holds them."""
        self._remove(self.running(name))

    def status(self) -> list[dict[str, Any]]:
        """Return one row per system of ours; those whose owner on this machine has died are removed first."""
        rows = []
        for name, namespace in systems_on(self.api).items():
            running = KubernetesSystem(self.api, name, self._prefer)
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

    def _wait_ready(
        self, running: KubernetesSystem, on_progress: Callable[[dict[str, Any]], None] | None, timeout_s: float
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            waiting = self._not_yet(running)
            if on_progress:
                on_progress(running.status())
            if not waiting:
                return
            if time.monotonic() > deadline:
                reasons = "; ".join(f"{name} ({reason})" for name, reason in sorted(waiting.items())[:5])
                raise StartError(f"System {running.name} is not ready after {timeout_s:g} s: {reasons}.")
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

    def _remove(self, running: KubernetesSystem, *, wait: bool = True) -> None:
        """Delete the namespaces and *wait* until they are gone; says what keeps them when they are not."""
        names = (running.name, running.watch_namespace)
        for name in names:
            self.api.delete("Namespace", name)
        clear_cluster_roles(self.api, running.watch_namespace)
        deadline = time.monotonic() + REMOVE_TIMEOUT_S
        while wait and (left := [found for name in names if (found := self.api.get("Namespace", name)) is not None]):
            if time.monotonic() > deadline:
                raise OperationError("; ".join(_what_holds(namespace) for namespace in left))
            time.sleep(LOOK_EVERY_S)


def _refuse_level(isolation: Setting | None) -> None:
    if isolation not in (None, "kubernetes"):
        raise UserError(f"The isolation level {isolation} is the local substrate's; leave it out on Kubernetes.")


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
