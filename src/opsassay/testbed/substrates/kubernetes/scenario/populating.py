"""What a scenario puts on a cluster beside its system, or in its place: stand-ins, fillers and further objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opsassay.core.schema.cost import ResourceRequest
from opsassay.core.schema.system import Service
from opsassay.testbed.substrates.kubernetes.manifests.system import PROBE, PROBE_PORT, Deployed, Object
from opsassay.testbed.workload.runtime.settings import SERVICE_PORT

FILLER = "filler"
EXCLUSIVE = "opsassay/exclusive"
"""Label of a namespace whose trial is felt by every system on the cluster."""
ENFORCED = {"pod-security.kubernetes.io/enforce": "baseline"}
"""What a namespace says to servers that know Pod Security (1.23 and newer; older ones have a policy of the cluster's)."""
STAYS_S = 600
"""How long a pod of ours stays bound to a node that is lost: longer than a trial, so that what is lost stays lost."""
LOST = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": STAYS_S}
    for key in ("not-ready", "unreachable")
]
ANYWHERE = [{"operator": "Exists"}]


@dataclass(frozen=True)
class SystemPopulation:
    """What is deployed for a scenario; *objects* are whole manifests in the system's namespace.

    *requests* is what a replica of each service named there requests.
    """

    stand_ins: bool = False
    fillers: int = 0
    exclusive: bool = False
    objects: tuple[Object, ...] = ()
    requests: Mapping[str, ResourceRequest] = field(default_factory=dict)


@dataclass(frozen=True)
class PopulatedSystem(Deployed):
    """A system as a scenario wants it."""

    furnishing: SystemPopulation = SystemPopulation()

    def manifests(self) -> list[Object]:
        """Return every object of the system and the scenario, in the order of creation."""
        if not self.furnishing.stand_ins:
            return [*super().manifests(), *self.fillers(), *self.furnishing.objects]
        services = [made for name, service in self.system.services.items() for made in self._stand_in(name, service)]
        return [
            *self.namespaces(),
            *self.probes(),
            *self.configuration()[:1],
            *services,
            *self.fillers(),
            *self.furnishing.objects,
        ]

    def namespaces(self) -> list[Object]:
        """Return both namespaces; labels forbid pods with access to nodes, and mark an exclusive trial."""
        found = super().namespaces()
        found[0]["metadata"]["labels"] |= ENFORCED
        if self.furnishing.exclusive:
            found[0]["metadata"]["labels"][EXCLUSIVE] = "true"
        return found

    def services(self) -> list[Object]:
        """Return a Deployment and a Service for each service, with the scenario's resource requests."""
        made = super().services()
        for item in made:
            name = item["metadata"]["name"]
            if item["kind"] == "Deployment" and (request := self.furnishing.requests.get(name)) is not None:
                (container,) = item["spec"]["template"]["spec"]["containers"]
                container["resources"] = resources_of(request, self.system.services[name])
        return made

    def probes(self) -> list[Object]:
        """Return the probe's Deployment of two pods, which tolerate lost nodes, and its Service."""
        container = self._container(PROBE, arguments=["probe"], ports=[PROBE_PORT])
        made = self._deployment(PROBE, container, namespace=self.watch_namespace, replicas=2)
        made[0]["spec"]["template"]["spec"]["tolerations"] = ANYWHERE
        return made

    def fillers(self) -> list[Object]:
        """Return the Deployment of the scenario's idle pods, [] without any."""
        if not self.furnishing.fillers:
            return []
        container = self._container(FILLER, command=["sleep", "864000"])
        made = self._deployment(FILLER, container, replicas=self.furnishing.fillers, grace_s=0)
        return [_light(made[0])]

    def _stand_in(self, name: str, service: Service) -> list[Object]:
        """Return the objects of a stand-in for *service*: pods that answer each request with their name."""
        command = ["python", "-m", "opsassay.testbed.substrates.kubernetes.agent.stand_in"]
        container = self._container(name, command=command, ports=[SERVICE_PORT])
        deployment, *others = self._deployment(name, container, replicas=service.replicas, grace_s=service.drain_s)
        return [_light(deployment), *others]


def resources_of(request: ResourceRequest, service: Service) -> Object:
    """Return the requests and limits of a replica of *service*; limits are raised to what *request* needs."""
    return {
        "requests": {"cpu": f"{1000 * request.cpu:g}m", "memory": f"{request.memory_mb}Mi"},
        "limits": {
            "cpu": f"{1000 * max(request.cpu, service.cpu_limit):g}m",
            "memory": f"{max(request.memory_mb, service.memory_limit_mb)}Mi",
        },
    }


def _light(deployment: Object) -> Object:
    """Change *deployment*: without volumes and variables, and its pods stay on a lost node; return it."""
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    pod["tolerations"] = LOST
    del pod["volumes"]
    for container in pod["containers"]:
        del container["volumeMounts"], container["env"]
    return deployment
