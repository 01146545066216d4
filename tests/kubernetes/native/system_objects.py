"""What every cluster of ours holds before a test begins: what pods may be, DNS as a Deployment, who may do what for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.kubernetes.native.images import BOX_IMAGE

if TYPE_CHECKING:
    from tests.kubernetes.native.control_plane import ControlPlane

NAMES = {"k8s-app": "kube-dns"}


def apply_system_objects(control_plane: ControlPlane) -> None:
    """Create the cluster's own objects."""
    control_plane.apply([*pod_security(), *names("10.96.0.10")])


def pod_security() -> list[dict[str, Any]]:
    """Return what pods may be: no way to their node for anybody, anything for administrators and in kube-system.

    Who makes a pod is asked: controllers make those of deployments, as accounts of kube-system. Administrators, and with
    them the pods by which faults reach a node, are asked nothing.
    """
    anything: dict[str, Any] = {
        "privileged": True,
        "allowedCapabilities": ["*"],
        "volumes": ["*"],
        "hostNetwork": True,
        "hostPID": True,
        "hostIPC": True,
        "hostPorts": [{"min": 0, "max": 65535}],
    }
    nothing = {"volumes": ["configMap", "secret", "emptyDir", "projected", "downwardAPI", "persistentVolumeClaim"]}
    everybody = {"kind": "Group", "name": "system:authenticated"}
    controllers = {"kind": "Group", "name": "system:serviceaccounts:kube-system"}
    return [
        *_policy("privileged", anything, controllers, "kube-system"),
        *_policy("baseline", nothing, everybody, None),
    ]


def _policy(name: str, allowed: dict[str, Any], who: dict[str, str], place: str | None) -> list[dict[str, Any]]:
    """Return the policy *name* and what lets *who* make pods by it, in one *place* or everywhere."""
    group, kind = "rbac.authorization.k8s.io", "RoleBinding" if place else "ClusterRoleBinding"
    anyone = {rule: {"rule": "RunAsAny"} for rule in ("runAsUser", "seLinux", "supplementalGroups", "fsGroup")}
    rule = {"apiGroups": ["policy"], "resources": ["podsecuritypolicies"], "resourceNames": [name], "verbs": ["use"]}
    metadata = {"name": f"psp:{name}"}
    return [
        {
            "apiVersion": "policy/v1beta1",
            "kind": "PodSecurityPolicy",
            "metadata": {"name": name},
            "spec": {**anyone, **allowed},
        },
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": kind,
            "metadata": {**metadata, **({"namespace": place} if place else {})},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": metadata["name"]},
            "subjects": [{"apiGroup": group, **who}],
        },
    ]


def names(address: str) -> list[dict[str, Any]]:
    """Return the objects of a DNS server for the cluster's services, at *address*; ours, under the usual names."""
    metadata = {"name": "coredns", "namespace": "kube-system", "labels": NAMES}
    container = {
        "name": "coredns",
        "image": BOX_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["names"],
        "ports": [{"containerPort": 53, "protocol": "UDP", "name": "dns"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    template = {
        "metadata": {"labels": NAMES},
        "spec": {
            "serviceAccountName": "coredns",
            "dnsPolicy": "Default",
            "priorityClassName": "system-cluster-critical",
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
            "containers": [container],
        },
    }
    deployment = {"replicas": 2, "selector": {"matchLabels": NAMES}, "template": template}
    service = {"clusterIP": address, "selector": NAMES, "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]}
    role = {"apiGroups": [""], "resources": ["services", "endpoints", "pods", "namespaces"], "verbs": ["list", "watch"]}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "coredns", "namespace": "kube-system"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": [role],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
            "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}],
        },
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", "metadata": {**metadata, "name": "kube-dns"}, "spec": service},
    ]
