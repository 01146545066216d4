"""What a namespace that exists allows: its system, the scenarios that its objects and this user's rights leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from opsassay.core.errors import NotFoundError, OpsAssayError, UserError
from opsassay.core.schema.cluster import STANDARD
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.system import System
from opsassay.testbed.scenarios.generated.namespace import (
    KINDS_READ,
    probe_urls,
    scenarios_of_namespace,
    system_of_namespace,
)
from opsassay.testbed.substrates.kubernetes.access.account import role_objects
from opsassay.testbed.substrates.kubernetes.actuators.changes import Change, undo_of
from opsassay.testbed.substrates.kubernetes.api.client import PATCH_TYPES, Api, ApiError, DeniedError, Object
from opsassay.testbed.substrates.kubernetes.api.merging import merge_patch
from opsassay.testbed.substrates.kubernetes.manifests.image import IMAGE
from opsassay.testbed.substrates.kubernetes.manifests.system import watch_of
from opsassay.testbed.substrates.kubernetes.scenario.attached import watching_objects
from opsassay.testbed.substrates.kubernetes.scenario.names import OpenNames, workers
from opsassay.testbed.substrates.kubernetes.scenario.objects import changes_of
from opsassay.testbed.substrates.kubernetes.scenario.sharing import attached_on

PROBE_TIMEOUT_S = 5.0
NO_TRIAL = "No trial can take place"
"""What the note on a right begins with without which there is none."""
ABSENT = 404


@dataclass(frozen=True)
class DrawnNamespace:
    """A namespace as a *system*, its *scenarios*, the classes *left_out* with the reason, and *notes* on rights.

    *replicas* is, by deployment, how many are ready and how many there shall be.
    """

    system: System
    scenarios: Sequence[Scenario]
    left_out: Mapping[str, str]
    notes: Sequence[str]
    replicas: Mapping[str, tuple[int, int]]


def draw(api: Api, name: str, *, seed: int = 0, per_class: int = 1, system_file: str = "system.yaml") -> DrawnNamespace:
    """Read the namespace *name* and draw up to *per_class* scenarios of each class from *seed*; changes nothing.

    *system_file* is where its system will be stored. What breaks it, and the undo, is tried by dry runs. Raises
    NotFoundError, UserError, LostError.
    """
    api.require()
    if api.get("Namespace", name) is None:
        known = [one["metadata"]["name"] for one in api.list("Namespace")]
        raise NotFoundError(f"namespace on {api.context}", name, known)
    there, notes = _there(api, name)
    if not there.get("Deployment"):
        raise UserError(
            f"The namespace {name} of {api.context} has no deployment; scenarios are drawn from deployments."
        )
    probes = {
        deployment: url
        for deployment, urls in probe_urls(name, there).items()
        if (url := next((one for one in urls if answers(api, one)), "")) and _ready_of_desired(there)[deployment][1]
    }
    if not probes:
        raise UserError(
            f"No deployment of {name} answers a GET with 200 behind a Service of its own, so no probe would see whether "
            "it works; a trial needs one."
        )
    system = system_of_namespace(name, there, probes)
    notes += _refused(api, system)
    names = OpenNames(name, watch_of(name), IMAGE, workers(there.get("Node", ())))
    scenarios, left_out = scenarios_of_namespace(
        system, there, seed, per_class, system_file, lambda scenario: objection(api, scenario, names)
    )
    return DrawnNamespace(system, scenarios, left_out, notes, _ready_of_desired(there))


def _there(api: Api, name: str) -> tuple[dict[str, list[Object]], list[str]]:
    """Return ({kind: objects of the namespace *name*, and nodes}, a note for each kind that may not be read)."""
    found, notes = dict[str, list[Object]](), list[str]()
    for kind in KINDS_READ:
        try:
            found[kind] = api.list(kind, name)
        except DeniedError as error:
            notes.append(f"{kind} objects are left out: {error}")
    (role, *_) = (one for one in role_objects(name, watch_of(name), STANDARD) if one["kind"] == "ClusterRole")
    if "Node" in found and (refusal := api.try_out(role)) is not None:
        del found["Node"]
        notes.append(f"Node objects are left out, since agents cannot be let see them: {refusal}")
    return found, notes


def _ready_of_desired(objects: Mapping[str, Sequence[Object]]) -> dict[str, tuple[int, int]]:
    """Return {deployment: (ready replicas, desired replicas)} from *objects* by kind."""
    return {
        one["metadata"]["name"]: (one.get("status", {}).get("readyReplicas", 0), one["spec"].get("replicas", 1))
        for one in objects["Deployment"]
    }


def answers(api: Api, url: str) -> bool:
    """Return whether *url* answers 200 to a request through the API server's proxy."""
    parts = urlsplit(url)
    service, namespace = (parts.hostname or "").split(".")
    path = f"{api.path_of('Service', namespace, service)}:{parts.port}/proxy{parts.path}"
    try:
        api.request("GET", path, timeout_s=PROBE_TIMEOUT_S, tries=1)
    except OpsAssayError:
        return False
    return True


def _refused(api: Api, system: System) -> list[str]:
    """Return why trials on *system* are impossible: another one runs, or dry runs of what they create are refused."""
    namespace, *_ = watching_objects(system, IMAGE)
    if system.system in attached_on(api):
        return [f"{NO_TRIAL} while another one does, which has changed what is seen here."]
    roles = role_objects(system.system, namespace["metadata"]["name"], STANDARD)
    tried = [namespace, *(one for one in roles if one["kind"] == "Role")]
    return [f"{NO_TRIAL}: {refusal}" for one in tried if (refusal := api.try_out(one)) is not None]


def objection(api: Api, scenario: Scenario, names: OpenNames) -> str:
    """Return why the changes of *scenario*, with *names* filled in, fail in dry runs, or their undo; '' if neither."""
    assert scenario.cluster is not None
    try:
        for change in changes_of(api, scenario.cluster.changes, names):
            _try(api, change)
    except OpsAssayError as error:
        return str(error)
    return ""


def _try(api: Api, change: Change) -> None:
    """Try *change* and its undo by dry runs; raises UserError or ApiError if one is refused or the undo is inexact."""
    undo, path = undo_of(api, change), api.path_of(change.kind, change.namespace, change.name)
    assert undo is not None
    if change.create is not None:
        if (refusal := api.try_out(change.create)) is not None:
            raise UserError(refusal)
        try:
            api.request("DELETE", path, query={"dryRun": "All"})
        except ApiError as error:
            if error.status != ABSENT:
                raise
        return
    for body in (change.patch, undo.body):
        api.request("PATCH", path, body, query={"dryRun": "All"}, content_type=PATCH_TYPES["merge"])
    standing = api.get(change.kind, change.name, change.namespace)
    if merge_patch(merge_patch(standing, change.patch), undo.body) != standing:
        raise UserError(f"The undo of the change of {change.kind} {change.name} would not restore what stands.")
