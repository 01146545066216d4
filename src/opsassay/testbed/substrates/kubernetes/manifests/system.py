"""A system as manifests: from the app YAML that `local` runs to objects that plain kubectl applies. Pure."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from opsassay.core.errors import UserError
from opsassay.core.schema.system import Service, System
from opsassay.testbed.substrates.kubernetes.manifests.image import IMAGE
from opsassay.testbed.workload.runtime.settings import SERVICE_PORT

Object = dict[str, Any]

LOAD = "loadgenerator"
RECEIVER, RECEIVER_PORT = "receiver", 4318
PROBE, PROBE_PORT = "probe", 8080
STORE_PORTS = {"postgresql": 5432, "valkey": 6379, "nats": 4222}
INSTANCE_LABEL, PURPOSE_LABEL = "app.kubernetes.io/instance", "app.kubernetes.io/component"
MANAGED = {"app.kubernetes.io/managed-by": "opsassay"}
KEY_SECRET = "endpoint-key"  # noqa: S105 - the name of an object
"""The secret that holds what the endpoints of pods are opened with, another one in each of the two namespaces."""
SETTING = "SETTING_"
"""What the names of a service's settings begin with in the environment of its pods."""
UID = 1000
SMALL = {"cpu": "10m", "memory": "48Mi"}
"""What everything asks of the scheduler: systems of many pods fit on small machines, and limits are what bounds them."""


def watch_of(name: str) -> str:
    """Return the name of the namespace for the receiver and the probe of the system *name*."""
    return f"{name}-watch"


def require_own_runtime(system: System) -> None:
    """Raise UserError when *system* has a local program or container, which cannot run on a cluster."""
    if programs := system.programs():
        words = f"{programs[0]} is a {'container' if system.compose else 'program'} of this machine"
        raise UserError(f"{words}; on a cluster services are of OpsAssay's runtime.")


@dataclass(frozen=True)
class Deployed:
    """One instance of *system*: the *name* is its namespace, what watches over it lives in another.

    *endpoint* is where telemetry goes; None has a receiver of ours beside it. *key* opens the system's pod endpoints,
    by which faults are ordered, *watch_key* those of what watches over it: whoever runs commands in a pod of the system can
    read the one, and not the other. Both are secrets, and others every time.
    """

    system: System
    name: str
    seed: int = 0
    rate_rps: float | None = None
    image: str = IMAGE
    endpoint: str | None = None
    key: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    watch_key: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    @property
    def watch_namespace(self) -> str:
        """The namespace of receiver and probe, to which agents have no access."""
        return watch_of(self.name)

    def labels(self, component: str) -> dict[str, str]:
        """Return the labels for objects of *component*."""
        return {"app": component, INSTANCE_LABEL: self.name, **MANAGED}

    def manifests(self) -> list[Object]:
        """Return every object of the system, in the order of creation."""
        return [
            *self.namespaces(),
            *self.watchers(),
            *self.configuration(),
            *self.stores(),
            *self.services(),
            self.load(),
        ]

    def namespaces(self) -> list[Object]:
        """Return the namespaces of the system and of its receiver and probe."""
        purposes = {self.name: "system", self.watch_namespace: "watch"}
        return [
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": namespace,
                    "labels": {INSTANCE_LABEL: self.name, PURPOSE_LABEL: purpose, **MANAGED},
                },
            }
            for namespace, purpose in purposes.items()
        ]

    def watchers(self) -> list[Object]:
        """Return the objects of the receiver, unless telemetry goes elsewhere, and of the probe."""
        found: list[Object] = [self._make_secret(KEY_SECRET, {"key": self.watch_key}, self.watch_namespace)]
        if self.endpoint is None:
            container = self._container(RECEIVER, arguments=["receiver"], ports=[RECEIVER_PORT], keyed=True)
            found += self._deployment(RECEIVER, container, namespace=self.watch_namespace)
        container = self._container(PROBE, arguments=["probe"], ports=[PROBE_PORT])
        return [*found, *self._deployment(PROBE, container, namespace=self.watch_namespace)]

    def configuration(self) -> list[Object]:
        """Return ConfigMaps and Secrets: the system, each service's settings, passwords and the endpoint key."""
        described = self.system.model_dump(mode="json", exclude_defaults=True)
        found: list[Object] = [self._make_secret(KEY_SECRET, {"key": self.key})]
        for name, store in self.system.stores.items():
            if store.password is not None:
                del described["stores"][name]["password"]
                found.append(self._make_secret(f"{name}-password", {"PASSWORD": store.password}))
        for name, service in self.system.services.items():
            described["services"][name].pop("config", None)
            plain = {key: value for key, value in service.config.items() if not _is_secret(key)}
            if plain or service.required:
                found.append(self._config_map(f"{name}-config", plain))
            if len(plain) < len(service.config):
                hidden = {key: value for key, value in service.config.items() if _is_secret(key)}
                found.append(self._make_secret(f"{name}-secrets", hidden))
        return [self._config_map("system", {"system.yaml": yaml.safe_dump(described, sort_keys=False)}), *found]

    def stores(self) -> list[Object]:
        """Return a Deployment and a Service for each store."""
        found: list[Object] = []
        for name, store in self.system.stores.items():
            container = self._container(name, arguments=["store", name], ports=[STORE_PORTS[store.engine]])
            if store.password is not None:
                container["envFrom"] = [{"secretRef": {"name": f"{name}-password"}}]
            found += self._deployment(name, container, strategy={"type": "Recreate"})
        return found

    def services(self) -> list[Object]:
        """Return a Deployment and a Service for each service."""
        return [made for name, service in self.system.services.items() for made in self._service_objects(name, service)]

    def load(self, namespace: str | None = None) -> Object:
        """Return the deployment of the load generator, in *namespace* (None: that of the system)."""
        rate = self.rate_rps or self.system.load.rate_rps
        container = self._container(LOAD, arguments=["load"], environment={"RATE_RPS": f"{rate:g}"}, keyed=True)
        return self._deployment(LOAD, container, namespace=namespace)[0]

    def _service_objects(self, name: str, service: Service) -> list[Object]:
        """Return the Deployment and Service of the service *name*."""
        container = self._container(
            name,
            arguments=["replica", name],
            ports=[SERVICE_PORT],
            environment={"RELEASE": service.release},
            keyed=True,
        )
        container["resources"] = {
            "requests": SMALL,
            "limits": {"cpu": f"{service.cpu_limit * 1000:.0f}m", "memory": f"{service.memory_limit_mb}Mi"},
        }
        sources = []
        if service.required or any(not _is_secret(key) for key in service.config):
            sources.append({"configMapRef": {"name": f"{name}-config"}, "prefix": SETTING})
        if any(_is_secret(key) for key in service.config):
            sources.append({"secretRef": {"name": f"{name}-secrets"}, "prefix": SETTING})
        if sources:
            container["envFrom"] = sources
        return self._deployment(name, container, replicas=service.replicas, grace_s=service.drain_s + 5)

    def _deployment(
        self,
        name: str,
        container: Object,
        *,
        namespace: str | None = None,
        replicas: int = 1,
        strategy: Object | None = None,
        grace_s: float = 5,
    ) -> list[Object]:
        """Return a Deployment of *replicas* pods of *container* and a Service of the same name for each port, if any.

        *namespace* None is that of the system; *strategy* is the rollout strategy, None the default of Kubernetes.
        """
        labels = self.labels(name)
        spread = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": name}},
        }
        pod = {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": round(grace_s),
            "securityContext": {"runAsUser": UID, "runAsGroup": UID, "fsGroup": UID},
            "topologySpreadConstraints": [spread],
            "containers": [container],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        }
        if any(mount["name"] == "system" for mount in container["volumeMounts"]):
            pod["volumes"] = [*pod["volumes"], {"name": "system", "configMap": {"name": "system"}}]  # type: ignore[misc]
        specification = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            **({"strategy": strategy} if strategy else {}),
        }
        metadata = self._make_metadata(name, namespace)
        found: list[Object] = [
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": specification}
        ]
        for port in container.get("ports", ()):
            entry = {"port": port["containerPort"], "targetPort": port["containerPort"]}
            exposed = {"selector": {"app": name}, "ports": [entry]}
            found.append({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": exposed})
        return found

    def _container(
        self,
        name: str,
        *,
        command: Sequence[str] = (),
        arguments: Sequence[str] = (),
        ports: Iterable[int] = (),
        environment: dict[str, str] | None = None,
        keyed: bool = False,
    ) -> Object:
        """Return a container of OpsAssay's image, ready when its first port listens; *keyed*: with the endpoint key."""
        fields = {
            "POD_NAME": "metadata.name",
            "POD_IP": "status.podIP",
            "NODE_NAME": "spec.nodeName",
            "POD_NAMESPACE": "metadata.namespace",
        }
        plain = {
            "TELEMETRY": self._telemetry_endpoint(),
            "TOKEN": self._derive_token(),
            "SEED": str(self.seed),
            **(environment or {}),
        }
        container: Object = {
            "name": name,
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            **({"command": list(command)} if command else {}),
            **({"args": list(arguments)} if arguments else {}),
            "env": [
                *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()),
                *({"name": key, "value": value} for key, value in plain.items()),
                *(
                    [{"name": "ENDPOINT_KEY", "valueFrom": {"secretKeyRef": {"name": KEY_SECRET, "key": "key"}}}]
                    if keyed
                    else []
                ),
            ],
            "resources": {"requests": SMALL},
            "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],  # noqa: S108
        }
        if name not in {RECEIVER, PROBE}:
            container["volumeMounts"].append({"name": "system", "mountPath": "/etc/opsassay"})
        if listed := [{"containerPort": port} for port in ports]:
            container["ports"] = listed
            container["readinessProbe"] = {
                "tcpSocket": {"port": listed[0]["containerPort"]},
                "periodSeconds": 1,
                "failureThreshold": 2,
            }
        return container

    def _telemetry_endpoint(self) -> str:
        """Return the URL for telemetry: the user's collector if set, else the system's receiver."""
        return self.endpoint or f"http://{RECEIVER}.{self.watch_namespace}:{RECEIVER_PORT}"

    def _derive_token(self) -> str:
        """Return the shared token by which replicas trust each other, derived from name and seed."""
        return hashlib.sha256(f"{self.name}:{self.seed}".encode()).hexdigest()[:16]

    def _make_metadata(self, name: str, namespace: str | None = None) -> Object:
        """Return the metadata of the object *name*; *namespace* None is that of the system."""
        return {"name": name, "namespace": namespace or self.name, "labels": self.labels(name)}

    def _make_secret(self, name: str, data: dict[str, str], namespace: str | None = None) -> Object:
        """Return the secret *name* with *data*; *namespace* None is that of the system."""
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": self._make_metadata(name, namespace),
            "stringData": data,
        }

    def _config_map(self, name: str, data: dict[str, str]) -> Object:
        """Return the config map *name* with *data* in the system's namespace."""
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": self._make_metadata(name), "data": data}


def _is_secret(setting: str) -> bool:
    """Return whether *setting* ends in _PASSWORD or _SECRET, so that it is stored in a Secret."""
    return setting.endswith(("_PASSWORD", "_SECRET"))


def render(objects: Iterable[Object]) -> str:
    """Return *objects* as YAML documents for `kubectl apply -f`."""
    return "---\n".join(yaml.safe_dump(item, sort_keys=False, width=120) for item in objects)
