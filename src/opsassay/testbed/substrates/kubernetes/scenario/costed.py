"""What the cost of a system on a cluster is made of: requests of its pods, and HorizontalPodAutoscalers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opsassay.core.schema.cost import AutoscalerSettings, ResourceRequest
from opsassay.core.schema.system import System
from opsassay.testbed.operations.costs import GB, Allocation
from opsassay.testbed.substrates.kubernetes.api.client import PATCH_TYPES, Api, Object
from opsassay.testbed.substrates.kubernetes.api.readings import is_over
from opsassay.testbed.substrates.kubernetes.scenario.populating import resources_of

HPA = "HorizontalPodAutoscaler"
METRICS_API = "metrics.k8s.io"
"""What a cluster's own autoscaling controller reads usage from."""
SCALER = "kube-autoscaler"
"""Field manager of what is scaled here: by its beginning it is known to be none of the agent's writes."""
STABLE_S = 9
"""As long as our own autoscaler waits until it scales down."""


@dataclass(frozen=True)
class ClusterCost:
    """The `CostedSystem` of *system* in *namespace*: whatever tools or kubectl changed, it is read from the objects."""

    api: Api
    namespace: str
    system: System

    @cached_property
    def scales_itself(self) -> bool:
        """Whether the cluster serves the metrics API that HorizontalPodAutoscalers need."""
        return any(group["name"] == METRICS_API for group in self.api.request("GET", "/apis")["groups"])

    def allocations(self) -> Mapping[str, Allocation]:
        """Return {service: sum of what its pods request}, pending pods included."""
        found = dict.fromkeys(self.system.services, Allocation(0, 0.0, 0.0))
        for pod in self.api.list("Pod", self.namespace):
            service = (pod["metadata"].get("labels") or {}).get("app")
            if service in found and not is_over(pod):
                replicas, cpu, memory_gb = found[service]
                more_cpu, more_bytes = _requested(pod["spec"])
                found[service] = Allocation(replicas + 1, cpu + more_cpu, memory_gb + more_bytes / GB)
        return found

    def requests(self) -> Mapping[str, ResourceRequest]:
        """Return {service: CPU and memory that its deployment requests per replica}."""
        found = {}
        for item in self.api.list("Deployment", self.namespace):
            cpu, memory = _requested(item["spec"]["template"]["spec"])
            if item["metadata"]["name"] in self.system.services and cpu and memory >= 2**20:
                found[item["metadata"]["name"]] = ResourceRequest(cpu=cpu, memory_mb=int(memory / 2**20))
        return found

    def set_requests(self, service: str, request: ResourceRequest) -> None:
        """Set what each replica of *service* requests, by a rolling update of its deployment."""
        container = {"name": service, "resources": resources_of(request, self.system.services[service])}
        change = {"spec": {"template": {"spec": {"containers": [container]}}}}
        self.api.patch("Deployment", service, change, self.namespace)

    def autoscalers(self) -> Mapping[str, AutoscalerSettings]:
        """Return {service: settings of its autoscaler}; only those that target a share of the CPU request."""
        found = (_settings(item["spec"]) for item in self.api.list(HPA, self.namespace))
        return {one.service: one for one in found if one is not None and one.service in self.system.services}

    def set_autoscaler(self, settings: AutoscalerSettings) -> None:
        """Create or change the autoscaler with *settings*."""
        self.api.create(self._make_manifest(settings), replace=True)

    def delete_autoscaler(self, service: str) -> None:
        """Delete the HorizontalPodAutoscaler that scales *service*, whatever its name."""
        for item in self.api.list(HPA, self.namespace):
            if item["spec"]["scaleTargetRef"]["name"] == service:
                self.api.delete(HPA, item["metadata"]["name"], self.namespace)

    def scale(self, service: str, replicas: int) -> None:
        """Set the number of *replicas* of *service*."""
        self.api.request(
            "PATCH", self.api.path_of("Deployment", self.namespace, service), {"spec": {"replicas": replicas}},
            query={"fieldManager": SCALER}, content_type=PATCH_TYPES["merge"],
        )  # fmt: skip

    def _make_manifest(self, settings: AutoscalerSettings) -> Object:
        """Return the HorizontalPodAutoscaler of *settings*."""
        target = {"type": "Utilization", "averageUtilization": round(100 * settings.target_utilization)}
        return {
            "apiVersion": self.api.version_of(HPA),
            "kind": HPA,
            "metadata": {"name": settings.service, "namespace": self.namespace},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": settings.service},
                "minReplicas": settings.min_replicas,
                "maxReplicas": settings.max_replicas,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": STABLE_S}},
            },
        }


def _requested(pod_spec: Mapping[str, Any]) -> tuple[float, float]:
    """Return (cores, bytes) that the containers of *pod_spec* request in total."""
    asked = [(one.get("resources") or {}).get("requests") or {} for one in pod_spec["containers"]]
    cpu, memory = ([_parse_amount(one.get(name, 0)) for one in asked] for name in ("cpu", "memory"))
    return sum(cpu), sum(memory)


def _parse_amount(quantity: str | int) -> float:
    """Return the number that a Kubernetes *quantity* such as 250m or 1Gi stands for."""
    from kubernetes.utils.quantity import parse_quantity

    return float(parse_quantity(quantity))  # type: ignore[no-untyped-call]


def _settings(spec: Mapping[str, Any]) -> AutoscalerSettings | None:
    """Return the autoscaler settings in *spec* of a HorizontalPodAutoscaler, None unless it targets CPU utilization."""
    for metric in spec.get("metrics") or ():
        about = metric.get("resource") or {}
        share = (about.get("target") or {}).get("averageUtilization")
        if about.get("name") == "cpu" and share:
            return AutoscalerSettings(
                service=spec["scaleTargetRef"]["name"], min_replicas=spec.get("minReplicas") or 1,
                max_replicas=spec["maxReplicas"], target_utilization=share / 100,
            )  # fmt: skip
    return None
