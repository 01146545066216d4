"""The Kubernetes substrate: systems as objects in namespaces of their own, on whatever cluster a kubeconfig leads to."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from opsassay.core.errors import LostError, NotFoundError, OperationError, OpsAssayError, StartError, UserError
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.system import System
from opsassay.testbed.core.observer_log import forget_observer_log, observer_log
from opsassay.testbed.core.status import SystemStatus
from opsassay.testbed.core.substrate import Capabilities, require_settings
from opsassay.testbed.injection.preconditions import require
from opsassay.testbed.substrates.kubernetes.actuators.changes import clear_cluster_roles
from opsassay.testbed.substrates.kubernetes.actuators.mechanisms import CLUSTER, require_mechanisms
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, Object
from opsassay.testbed.substrates.kubernetes.api.owners import OWNER, owner_is_dead, this_process
from opsassay.testbed.substrates.kubernetes.api.readings import is_over, is_ready, why_not_ready
from opsassay.testbed.substrates.kubernetes.manifests.image import IMAGE
from opsassay.testbed.substrates.kubernetes.manifests.system import Deployed, require_own_runtime, watch_of
from opsassay.testbed.substrates.kubernetes.running import KubernetesSystem, what_holds
from opsassay.testbed.substrates.kubernetes.scenario.attached import guarded, leave, watching_objects
from opsassay.testbed.substrates.kubernetes.scenario.populating import PopulatedSystem, SystemPopulation
from opsassay.testbed.substrates.kubernetes.scenario.sharing import TURN_TIMEOUT_S, attached_on, await_turn, systems_on
from opsassay.testbed.substrates.kubernetes.scenario.standing import keep_standing, standing

START_TIMEOUT_S = 180.0
REMOVE_TIMEOUT_S = 180.0
TRIAL_START_TIMEOUT_S = 420.0
"""A trial that was not started tells nothing: it waits longer than a person does."""
SECONDS_PER_FILLER = 4.0
"""What an idle pod may add to the time in which everything is ready."""
LOOK_EVERY_S = 0.5
CLAIM = "opsassay/claim"
"""Annotation of a namespace by which whoever made it knows it again when the answer was lost."""


class KubernetesSubstrate:
    """Runs systems on the cluster of *context* in *kubeconfig*, kubectl's own choice when they are None."""

    name = "kubernetes"
    shared = True

    @classmethod
    def with_settings(cls, settings: Mapping[str, str]) -> KubernetesSubstrate:
        """Return the substrate with *settings*: kubeconfig, context, image, endpoint; raises UserError for others."""
        require_settings(cls.name, settings, ("kubeconfig", "context", "image", "endpoint"))
        return cls(
            settings.get("kubeconfig"),
            settings.get("context"),
            image=settings.get("image", IMAGE),
            endpoint=settings.get("endpoint"),
        )

    def __init__(
        self,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        image: str = IMAGE,
        endpoint: str | None = None,
        prefer: str | None = None,
    ) -> None:
        self._kubeconfig, self._context = kubeconfig, context
        self.image, self._endpoint = image, endpoint
        self._prefer = prefer
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        """The connection to the cluster, made on first use."""
        if self._api is None:
            self._api = Api.connect(self._kubeconfig, self._context)
        return self._api

    def deploy(
        self, system: System, name: str, *, seed: int = 0, rate_rps: float | None = None, owned: bool = False,
        isolation: str | None = None, on_progress: Callable[[SystemStatus], None] | None = None,
        furnishing: SystemPopulation | None = None,
    ) -> KubernetesSystem:  # fmt: skip
        """Start *system* in a new namespace *name* and wait until it is ready; return it; *isolation* must be None.

        An *owned* system is removed by `deployed`, or, if its process was killed, by the next `status` on this
        machine. *furnishing* adds a scenario's stand-ins, idle pods and objects, and makes it wait for the trial's turn
        on the cluster. Raises UserError, StartError, LostError.
        """
        _refuse_level(isolation)
        if system.namespace is not None:
            raise UserError(f"The namespace {system.namespace.name} runs already; check, record or try it instead.")
        require_own_runtime(system)
        self.api.require()
        deployed = Deployed(system, name, seed, rate_rps, self.image, self._endpoint)
        timeout_s = START_TIMEOUT_S
        if furnishing is not None:
            deployed = PopulatedSystem(system, name, seed, rate_rps, self.image, self._endpoint, furnishing=furnishing)
            timeout_s = TRIAL_START_TIMEOUT_S + furnishing.fillers * SECONDS_PER_FILLER
        running, claimed = KubernetesSystem(self.api, name, self._prefer), list[str]()
        try:
            for namespace in deployed.namespaces():
                self._claim(namespace, owned=owned)
                claimed.append(namespace["metadata"]["name"])
            if furnishing is not None:
                await_turn(self.api, name, owner_is_dead)
            for manifest in deployed.manifests()[len(deployed.namespaces()) :]:
                self.api.create(manifest)
            self._wait_ready(running, on_progress, timeout_s)
        except BaseException as error:
            try:
                self._remove(name, claimed, wait=furnishing is None)
            except OpsAssayError as left:
                error.add_note(str(left))
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
        isolation: str | None = None,
        furnishing: SystemPopulation | None = None,
    ) -> Iterator[KubernetesSystem]:
        """Start *system*, as `deploy` does with these arguments, yield it, and delete its namespaces after the block.

        A *system* that names an existing namespace is observed and restored instead, as `attached` does.
        """
        if system.namespace is not None:
            _refuse_level(isolation)
            with self.attached(system) as observed:
                if rate_rps is not None:
                    observed.set_rate(rate_rps)
                yield observed
            return
        running = self.deploy(
            system, name, seed=seed, rate_rps=rate_rps, owned=True, isolation=isolation, furnishing=furnishing
        )
        try:
            yield running
        finally:
            self._remove(name, running.namespaces, wait=furnishing is None)

    @contextmanager
    def attached(self, system: System, *, exclusive: bool = False) -> Iterator[KubernetesSystem]:
        """Observe the existing namespace of *system* during the block, then restore it.

        An *exclusive* trial does not share the cluster, since it changes nodes. Raises UserError, StartError,
        OperationError, also when another trial there does not end.
        """
        assert system.namespace is not None
        name, made = system.namespace.name, watching_objects(system, self.image, exclusive=exclusive)
        if self.api.get("Namespace", name) is None:
            raise UserError(
                f"There is no namespace {name} on {self.api.context}; name another one in the system's file."
            )
        self._await_turn_in(name)
        self._claim(made[0], owned=True)
        where = {"kubeconfig": self._kubeconfig, "context": self._context}
        with guarded(self.api, name, {key: str(value) for key, value in where.items() if value is not None}):
            await_turn(self.api, name, owner_is_dead)
            watch = made[0]["metadata"]
            keep_standing(self.api, standing(self.api, name), watch["name"], watch["labels"])
            for manifest in made[1:]:
                self.api.create(manifest)
            running = KubernetesSystem(self.api, name, self._prefer)
            self._wait_ready(running, None, START_TIMEOUT_S)
            yield running

    def _await_turn_in(self, name: str) -> None:
        """Wait until no other trial is in the namespace *name* (a killed one is cleared); raises OperationError."""
        deadline = time.monotonic() + TURN_TIMEOUT_S
        while (other := attached_on(self.api).get(name)) is not None:
            if owner_is_dead(other):
                leave(self.api, name)
            if time.monotonic() > deadline:
                raise OperationError(f"Another trial in the namespace {name} did not end.")
            time.sleep(LOOK_EVERY_S)

    def running(self, name: str) -> KubernetesSystem:
        """Return the running system *name*; raises NotFoundError."""
        names = self.names()
        if name not in names:
            raise NotFoundError("system on the cluster", name, names)
        return KubernetesSystem(self.api, name, self._prefer)

    def names(self) -> list[str]:
        """Return the sorted names of OpsAssay's systems and of existing namespaces under test."""
        return sorted({*systems_on(self.api), *attached_on(self.api)})

    def require(
        self,
        system: System,
        plan: FaultPlan,
        isolation: str | None = None,
        *,
        source: Path | None = None,
        within: str = "",
    ) -> None:
        """Raise an error, as `Substrate.require`, when *plan* could not be injected; hosts are not checked."""
        _refuse_level(isolation)
        if not any(part.target is not None and part.target.host for part in plan.parts):
            require(system, plan, CLUSTER.refusal, source=source, within=within)
        require_mechanisms(self.api, plan, self._prefer, system.namespace.name if system.namespace else "")

    def remove(self, name: str) -> list[str]:
        """Remove the system *name*, or restore the existing namespace, and wait; return []; raises OperationError."""
        if name in attached_on(self.api):
            leave(self.api, name)
            return []
        self._remove(name, self.running(name).namespaces)
        return []

    def logs(self, name: str) -> dict[str, str]:
        """Return {pod name: log text} of the system *name*, its receiver and probe; raises NotFoundError."""
        found = observer_log(self.name, name)
        for pod in self.running(name).pods():
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
            with suppress(ApiError):  # its container has not started yet, or it has just gone
                found[metadata["name"]] = self.api.request("GET", path, raw_answer=True).decode(errors="replace")
        return found

    def status(self) -> list[SystemStatus]:
        """Return the status of each system on the cluster; systems whose owner has died are removed first."""
        found = {**systems_on(self.api), **attached_on(self.api)}
        return [self._read_status(name, namespace) for name, namespace in found.items()]

    def capabilities(self) -> Capabilities:
        """Return which cluster is used and that it can run systems, or why it cannot."""
        try:
            version = self.api.require()
        except OpsAssayError as error:
            return Capabilities({"kubernetes": {"available": False, "reason": str(error)}})
        about = {"available": True, "reason": "", "context": self.api.context, "version": version}
        return Capabilities({"kubernetes": about}, place=self.api.context)

    def _read_status(self, name: str, namespace: Object) -> SystemStatus:
        """Return the status of the system *name*; remove it first if its owner has died."""
        running = KubernetesSystem(self.api, name, self._prefer)
        if not owner_is_dead(namespace):
            return running.status()
        phase, reason = "cleared", "its owner is gone"
        try:
            self.remove(name)
        except OperationError as error:
            phase, reason = "stopping", str(error)
        return SystemStatus(name=name, context=self.api.context, phase=phase, reason=reason)

    def _claim(self, namespace: Object, *, owned: bool) -> None:
        """Create *namespace*, by this process if *owned*, once one of that name is deleted; UserError if it is used."""
        metadata, deadline = namespace["metadata"], time.monotonic() + REMOVE_TIMEOUT_S
        name, claim = metadata["name"], secrets.token_hex(8)
        metadata["annotations"] = {CLAIM: claim, **({OWNER: this_process()} if owned else {})}
        while True:
            try:
                self.api.create(namespace)
                return
            except (ApiError, LostError) as error:
                if isinstance(error, ApiError) and error.status != 409:
                    raise
                standing = self.api.get("Namespace", name)
                if standing is not None and (standing["metadata"].get("annotations") or {}).get(CLAIM) == claim:
                    return
                if standing is not None and standing["status"]["phase"] != "Terminating":
                    raise UserError(
                        f"The namespace {name} exists on {self.api.context}; stop its system with "
                        "`opsassay system down --substrate kubernetes`, or choose --name."
                    ) from error
                if time.monotonic() > deadline:
                    raise OperationError(_describe_stuck(standing or namespace)) from error
            time.sleep(LOOK_EVERY_S)

    def _wait_ready(
        self, running: KubernetesSystem, on_progress: Callable[[SystemStatus], None] | None, timeout_s: float
    ) -> None:
        """Wait until all parts of *running* are ready, with calls of *on_progress*; raises StartError when late."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                waiting = self._not_yet(running)
                if on_progress:
                    on_progress(running.status())
            except LostError as error:  # it may come back in time
                waiting = {"the API server": str(error)}
            if not waiting:
                return
            if time.monotonic() > deadline:
                reasons = "; ".join(f"{name} ({reason})" for name, reason in sorted(waiting.items())[:5])
                raise StartError(f"System {running.name} is not ready after {timeout_s:g} s: {reasons}.")
            time.sleep(LOOK_EVERY_S)

    def _not_yet(self, running: KubernetesSystem) -> dict[str, str]:
        """Return {name: reason} of pods that are not ready and deployments that lack ready pods."""
        waiting = {
            pod["metadata"]["name"]: why_not_ready(pod)
            for pod in running.pods()
            if not is_over(pod) and not is_ready(pod)
        }
        for namespace in running.namespaces:
            for item in self.api.list("Deployment", namespace):
                status = item.get("status", {})
                if status.get("readyReplicas", 0) < item["spec"]["replicas"]:
                    waiting.setdefault(item["metadata"]["name"], "its pods are not all ready")
        return waiting

    def _remove(self, name: str, namespaces: Sequence[str], *, wait: bool = True) -> None:
        """Delete the *namespaces* of the system *name*, and *wait* until they are gone; outages of the API are retried.

        Raises OperationError with what prevents it, LostError when the API did not answer in time.
        """
        forget_observer_log(self.name, name)
        # its own goes last: by that one whoever is killed in between is found to have left something
        deadline, untold = time.monotonic() + REMOVE_TIMEOUT_S, [*namespaces]
        while True:
            try:
                while untold:
                    if self.api.delete("Namespace", untold[-1]):
                        with suppress(OpsAssayError):  # else they take the time that they have to finish requests
                            self.api.end_pods(untold[-1], grace_s=1)
                    untold.pop()
                clear_cluster_roles(self.api, watch_of(name))
                found = [self.api.get("Namespace", one) for one in namespaces] if wait else []
            except LostError as error:
                if time.monotonic() > deadline:
                    there = f"The namespaces {', '.join(namespaces)} may still be there"
                    raise LostError(
                        f"{there}; `opsassay system status --substrate kubernetes` clears them: {error}"
                    ) from error
            else:
                left = [namespace for namespace in found if namespace is not None]
                if not left:
                    return
                if time.monotonic() > deadline:
                    raise OperationError("; ".join(map(_describe_stuck, left)))
            time.sleep(LOOK_EVERY_S)


def _refuse_level(isolation: str | None) -> None:
    """Raise UserError unless *isolation* is None: only the local substrate has levels."""
    if isolation is not None:
        raise UserError(f"The isolation level {isolation} is the local substrate's; leave it out on Kubernetes.")


def _describe_stuck(namespace: Object) -> str:
    """Return a sentence on why *namespace* still exists long after its deletion."""
    name, phase = namespace["metadata"]["name"], namespace["status"]["phase"]
    return f"The namespace {name} is stuck in {phase} after {REMOVE_TIMEOUT_S:g} s: {what_holds(namespace)}"
