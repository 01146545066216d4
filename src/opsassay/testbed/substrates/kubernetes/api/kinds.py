"""The kinds of objects that are known here, and where the API has them."""

from __future__ import annotations

KINDS: dict[str, tuple[str, str, bool]] = {
    "Namespace": ("api/v1", "namespaces", False),
    "Node": ("api/v1", "nodes", False),
    "Pod": ("api/v1", "pods", True),
    "Service": ("api/v1", "services", True),
    "Endpoints": ("api/v1", "endpoints", True),
    "ConfigMap": ("api/v1", "configmaps", True),
    "Secret": ("api/v1", "secrets", True),
    "ServiceAccount": ("api/v1", "serviceaccounts", True),
    "Event": ("api/v1", "events", True),
    "ResourceQuota": ("api/v1", "resourcequotas", True),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims", True),
    "PersistentVolume": ("api/v1", "persistentvolumes", False),
    "ReplicationController": ("api/v1", "replicationcontrollers", True),
    "StorageClass": ("apis/storage.k8s.io/v1", "storageclasses", False),
    "Deployment": ("apis/apps/v1", "deployments", True),
    "ReplicaSet": ("apis/apps/v1", "replicasets", True),
    "StatefulSet": ("apis/apps/v1", "statefulsets", True),
    "DaemonSet": ("apis/apps/v1", "daemonsets", True),
    "Job": ("apis/batch/v1", "jobs", True),
    "CronJob": ("apis/batch/v1", "cronjobs", True),
    "HorizontalPodAutoscaler": ("apis/autoscaling/v2", "horizontalpodautoscalers", True),
    "Ingress": ("apis/networking.k8s.io/v1", "ingresses", True),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies", True),
    "Lease": ("apis/coordination.k8s.io/v1", "leases", True),
    "Role": ("apis/rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("apis/rbac.authorization.k8s.io/v1", "rolebindings", True),
    "ClusterRole": ("apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets", True),
    "MutatingWebhookConfiguration": ("apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", False),
    "ValidatingWebhookConfiguration": ("apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", False),
    "LimitRange": ("api/v1", "limitranges", True),
    "ClusterPolicy": ("apis/kyverno.io/v1", "clusterpolicies", False),
    **{
        kind: ("apis/chaos-mesh.org/v1alpha1", kind.lower(), True)
        for kind in (
            "PodChaos", "NetworkChaos", "StressChaos", "HTTPChaos", "DNSChaos", "TimeChaos", "JVMChaos", "IOChaos"
        )
    },
}  # fmt: skip
"""Kind to group and version, plural, and whether it lives in namespaces."""
FORMER = {
    "PodDisruptionBudget": "apis/policy/v1beta1", "CronJob": "apis/batch/v1beta1",
    "HorizontalPodAutoscaler": "apis/autoscaling/v2beta2",
}  # fmt: skip
"""Group and version of the kinds that servers of 1.20 have under another one."""
SHORT_NAMES: dict[str, tuple[str, ...]] = {
    "Namespace": ("ns",),
    "Node": ("no",),
    "Pod": ("po",),
    "Service": ("svc",),
    "Endpoints": ("ep",),
    "ConfigMap": ("cm",),
    "ServiceAccount": ("sa",),
    "Event": ("ev",),
    "ResourceQuota": ("quota",),
    "PersistentVolumeClaim": ("pvc",),
    "PersistentVolume": ("pv",),
    "ReplicationController": ("rc",),
    "StorageClass": ("sc",),
    "Deployment": ("deploy",),
    "ReplicaSet": ("rs",),
    "StatefulSet": ("sts",),
    "DaemonSet": ("ds",),
    "CronJob": ("cj",),
    "HorizontalPodAutoscaler": ("hpa",),
    "Ingress": ("ing",),
    "NetworkPolicy": ("netpol",),
    "PodDisruptionBudget": ("pdb",),
    "LimitRange": ("limits",),
}
"""What kubectl's users may write instead of the plural, as servers offer it."""
IN_ALL = frozenset(
    {
        "Pod", "ReplicationController", "Service", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet",
        "HorizontalPodAutoscaler", "CronJob", "Job",
    }
)  # fmt: skip
"""The kinds that `kubectl get all` lists."""


def version_in(group: str) -> str:
    """Return the apiVersion of what is in *group*, the path of a group and version: ``apps/v1``, ``v1`` for the core."""
    return group.removeprefix("apis/").removeprefix("api/")
