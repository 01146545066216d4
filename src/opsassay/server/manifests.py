"""Workers on Kubernetes: a Deployment, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opsassay import __version__

IMAGE = f"opsassay:{__version__}"
"""What pods run when no other image is given: that of the Dockerfile at the root of the checkout, which has every extra
that a worker needs; the testbed's own has none of the platform."""
ENDING_S = 90
"""How long a pod is given to end its runs, or to give them back: more than a worker takes at most."""


@dataclass(frozen=True)
class WorkerDeployment:
    """Workers of a platform in one *namespace*.

    *claim* names the volume claim of the platform's folder, which all pods may write to; *secret* holds the database's
    address under the key ``database``. Without *domains* they take cells of all.
    """

    image: str
    server: str
    replicas: int = 4
    jobs: int = 1
    namespace: str = "default"
    claim: str = "opsassay-state"
    secret: str = "opsassay"  # noqa: S105 - a name, not a secret
    domains: tuple[str, ...] = ()
    name: str = "opsassay-worker"

    def manifest(self) -> dict[str, Any]:
        """Return the Kubernetes Deployment of the workers."""
        labels = {"app": self.name}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": dict(labels)},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": dict(labels)},
                "template": {"metadata": {"labels": dict(labels)}, "spec": self._pod_spec()},
            },
        }

    def _pod_spec(self) -> dict[str, Any]:
        """Return the Kubernetes pod spec of a worker."""
        database = {"secretKeyRef": {"name": self.secret, "key": "database"}}
        options = ["--state", "/state", "--server", self.server, "-j", str(self.jobs)]
        options += [word for domain in self.domains for word in ("--domain", domain)]
        return {
            "terminationGracePeriodSeconds": ENDING_S,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "worker",
                    "image": self.image,
                    "command": ["opsassay", "server", "worker", *options],
                    "env": [{"name": "OPSASSAY_DATABASE", "valueFrom": database}],
                    "volumeMounts": [{"name": "state", "mountPath": "/state"}],
                    "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
                }
            ],
            "volumes": [{"name": "state", "persistentVolumeClaim": {"claimName": self.claim}}],
        }
