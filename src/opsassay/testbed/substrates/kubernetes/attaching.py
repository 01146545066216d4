"""A namespace that runs a team's own deployments as a system that can be recorded: its services, pages, what is seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.backends import TeamBackends
from opsassay.core.schema.namespace import ExistingNamespace
from opsassay.core.schema.program import Program
from opsassay.core.schema.system import Load, LoadMix, Service, System
from opsassay.testbed.apps.attached import page_at
from opsassay.testbed.apps.compose import NOT_HTTP, store_port
from opsassay.testbed.core.fleet import LOAD_GENERATOR
from opsassay.testbed.scenarios.generated.namespace import MOST_REPLICAS, probe_urls, service_of
from opsassay.testbed.substrates.kubernetes.api.client import Api, Object
from opsassay.testbed.substrates.kubernetes.api.readings import cores, memory_bytes
from opsassay.testbed.substrates.kubernetes.drawing import answers
from opsassay.testbed.substrates.kubernetes.manifests.system import watch_of

CPU_LIMIT, MEMORY_LIMIT_MB = 1.0, 512
"""What is written of a container without limits; no pressure is put on it."""

CHANGES = (
    "adds the namespace {watch}: a load generator, a receiver, a probe, the undo of a fault, a copy of what is put back",
    "adds roles and their bindings in {name}, for the undo of a fault",
    "deletes a pod, changes the image or a label of a pod, adds a network policy, as the fault says, and undoes that",
    "where nodes may be broken, runs a privileged pod in {watch} on the node of the pod that is hit",
)
"""All that is done to a cluster, {name} being the namespace and {watch} the one that watches it."""


@dataclass(frozen=True)
class AttachedNamespace:
    """A namespace as a *system* with its load, and a sentence on each workload that is *left_out*."""

    system: System
    left_out: Mapping[str, str]


def attach(api: Api, name: str, pages: Sequence[str], backends: TeamBackends | None) -> AttachedNamespace:
    """Return the namespace *name* as a system whose users get *pages* (URLs in the cluster); changes nothing.

    Services are its deployments and stateful sets. Raises NotFoundError, UserError for a page that is none.
    """
    api.require()
    if api.get("Namespace", name) is None:
        raise NotFoundError(f"namespace on {api.context}", name, [o["metadata"]["name"] for o in api.list("Namespace")])
    there = {"Service": api.list("Service", name), "Deployment": _workloads(api, name)}
    services, left_out, unlimited = dict[str, Service](), dict[str, str](), list[str]()
    for workload in there["Deployment"]:
        service = workload["metadata"]["name"]
        if (reason := _unfit(workload)) is not None:
            left_out[service] = reason
            continue
        services[service] = _read_service(service, workload, service_of(workload, there))
        if not all(_limits(workload)):
            unlimited.append(service)
    if not services:
        raise UserError(f"No deployment or stateful set of {name} on {api.context} runs; name another namespace.")
    asked = {
        service: url
        for service, urls in probe_urls(name, there).items()
        if service in services and (url := next((one for one in urls if answers(api, one)), ""))
    }
    requests = []
    for page in pages:
        entry, url = _entry_at(api, name, page, there, services)
        asked[entry] = url
        requests.append(LoadMix(request=f"{entry} GET /{url.split('/', 3)[3]}"))
    return AttachedNamespace(
        System(
            system=name,
            host_cpu_limit=max([1.0, *(one.cpu_limit for one in services.values())]),
            services=services,
            load=Load(mix=tuple(requests)),
            backends=backends,
            namespace=ExistingNamespace(name=name, context=api.context, probes=asked, unlimited=tuple(unlimited)),
        ),
        left_out,
    )


def changes_of(name: str) -> list[str]:
    """Return in words all that commands on the namespace *name* do to its cluster."""
    return [one.format(name=name, watch=watch_of(name)) for one in CHANGES]


def _workloads(api: Api, name: str) -> list[Object]:
    """Return the deployments and stateful sets of the namespace *name*, by name."""
    found = [one for kind in ("Deployment", "StatefulSet") for one in api.list(kind, name)]
    return sorted(found, key=lambda one: str(one["metadata"]["name"]))


def _unfit(workload: Object) -> str | None:
    """Return why *workload* is no service of a system, None when it is one."""
    replicas = workload["spec"].get("replicas", 1)
    if not 1 <= replicas <= MOST_REPLICAS:
        return f"it has {replicas} replicas, and a service has 1 to {MOST_REPLICAS}"
    if workload["spec"]["template"]["spec"].get("hostNetwork"):
        return "its pods are in the network of their node"
    if workload["metadata"]["name"] == LOAD_GENERATOR:
        return "OpsAssay's load generator has this name"
    return None


def _read_service(name: str, workload: Object, service: Object | None) -> Service:
    """Return the service *name* for *workload*, whose Kubernetes *service*, if any, says where it listens."""
    port = next(_ports(workload, service), 0)
    cpu, memory_mb = _limits(workload)
    image = workload["spec"]["template"]["spec"]["containers"][0].get("image", "")
    ports = {"tcp" if port in NOT_HTTP else "http": port} if port else {}
    calls = () if port in NOT_HTTP or store_port({"image": image}) else None  # a store calls none
    return Service(
        replicas=workload["spec"].get("replicas", 1),
        cpu_limit=cpu or CPU_LIMIT,
        memory_limit_mb=memory_mb or MEMORY_LIMIT_MB,
        program=Program(container=name, ports=ports, calls=calls),
    )


def _ports(workload: Object, service: Object | None) -> Iterator[int]:
    """Yield the ports of the pods of *workload*: where *service* leads, what it states, what its image is known for."""
    containers = workload["spec"]["template"]["spec"]["containers"]
    stated = [port for one in containers for port in one.get("ports") or ()]
    named = {port["name"]: port["containerPort"] for port in stated if "name" in port}
    if service is not None:
        first = service["spec"]["ports"][0]
        target = first.get("targetPort", first["port"])
        yield from [int(port)] if (port := named.get(target, target)) and str(port).isdigit() else []
    yield from (port["containerPort"] for port in stated)
    if (known := store_port({"image": containers[0].get("image", "")})) is not None:
        yield known


def _limits(workload: Object) -> tuple[float, int]:
    """Return cores and memory in MiB that the first container of *workload* may use, 0 where it has no limit."""
    container = workload["spec"]["template"]["spec"]["containers"][0]
    limits = (container.get("resources") or {}).get("limits") or {}
    memory = memory_bytes(str(limits["memory"])) if "memory" in limits else 0
    return cores(str(limits["cpu"])) if "cpu" in limits else 0.0, math.floor(memory / 2**20)


def _entry_at(
    api: Api, name: str, page: str, there: Mapping[str, Sequence[Object]], services: Mapping[str, Service]
) -> tuple[str, str]:
    """Return (service, URL with the namespace) of *page*; raises UserError unless it is answered well."""
    parts, path = urlsplit(page), page_at(page).path
    host, *rest = (parts.hostname or "").split(".")
    port = parts.port or 80
    by_service = {
        found["metadata"]["name"]: (found, workload["metadata"]["name"])
        for workload in there["Deployment"]
        if workload["metadata"]["name"] in services and (found := service_of(workload, there)) is not None
    }
    known = ", ".join(
        f"http://{one}:{port['port']}/"
        for one, (found, _) in sorted(by_service.items())
        for port in found["spec"]["ports"]
    )
    listed = [one["port"] for one in by_service[host][0]["spec"]["ports"]] if host in by_service else []
    if (rest and rest[0] != name) or port not in listed:
        raise UserError(
            f"--entry {page}: no Service of {name} is there for its workloads; they have {known or 'none'}."
        )
    url = f"http://{host}.{name}:{port}{path}"
    if not answers(api, url):
        raise UserError(f"--entry {page} is not answered well through {api.context}; give a page that users get.")
    return by_service[host][1], url
