"""A small world of objects, and requests to its server by hand."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

PODS = "/api/v1/namespaces/shop/pods"
LABELS = {"app": "web"}
CONTAINER = {"name": "web", "image": "web:1", "ports": [{"containerPort": 8080}]}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [CONTAINER]}}
SELECTED = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}


def thing(kind, name, namespace=None, version="v1", labels=None, **body):
    """Return an object; without a namespace it says none."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {}) | ({"labels": labels} if labels else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


RBAC = "rbac.authorization.k8s.io/v1"
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:reader"}
SUBJECTS = [{"kind": "ServiceAccount", "name": "bot", "namespace": "shop"}]
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]

WORLD = [
    thing("Pod", "web-1", "shop", labels={"app": "web", "tier": "front"}, spec={"containers": [CONTAINER]},
          status={"phase": "Running", "podIP": "10.0.0.7",
                  "containerStatuses": [{"name": "web", "ready": True, "restartCount": 3}]}),
    thing("Pod", "db-1", "shop", labels={"app": "db"}, spec={"containers": [{"name": "db", "image": "db:2"}]}),
    thing("Pod", "loose", spec={"containers": [CONTAINER]}, status={"phase": "Pending"}),
    thing("Service", "web", "shop", spec={"selector": LABELS, "ports": [{"port": 80, "targetPort": 8080}]}),
    thing("ServiceAccount", "bot", "shop"),
    thing("ConfigMap", "settings", "shop", data={"a": "1", "b": "2"}),
    thing("Secret", "key", "shop", type="Opaque", data={"k": "dg=="}),
    thing("Node", "worker1", spec={}, status={"conditions": [{"type": "Ready", "status": "True"}]}),
    thing("Deployment", "web", "shop", "apps/v1", labels=LABELS, spec={"replicas": 2, **SELECTED},
          status={"readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 2}),
    thing("StatefulSet", "db", "shop", "apps/v1", spec={"replicas": 1, "serviceName": "db", **SELECTED}),
    thing("DaemonSet", "logs", "kube-system", "apps/v1", spec=SELECTED),
    thing("ReplicaSet", "web-7f", "shop", "apps/v1", spec={"replicas": 2, **SELECTED}),
    thing("Job", "once", "shop", "batch/v1", spec={"template": TEMPLATE}),
    thing("CronJob", "nightly", "shop", "batch/v1",
          spec={"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}}),
    thing("NetworkPolicy", "isolation", "shop", "networking.k8s.io/v1", spec={"podSelector": {"matchLabels": LABELS}}),
    thing("Ingress", "door", "shop", "networking.k8s.io/v1", spec={"rules": [{"host": "shop.example"}]}),
    thing("Role", "reader", "shop", RBAC, rules=RULES),
    thing("RoleBinding", "readers", "shop", RBAC, roleRef=ROLE, subjects=SUBJECTS),
    thing("ClusterRole", "system:reader", None, RBAC, rules=RULES),
    thing("ClusterRoleBinding", "readers", None, RBAC, roleRef=ROLE, subjects=SUBJECTS),
]  # fmt: skip


def connected(at, timeout_s=60.0):
    """Return a connection to *at*, a URL or the path of a Unix socket."""
    if isinstance(at, Path):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(at))
        except OSError:
            connection.close()
            raise
        return connection
    return socket.create_connection(("127.0.0.1", urlsplit(at).port), timeout_s)


def answer_to(at, raw):
    """Send *raw* and return all that is answered, b'' when the connection is closed without a word."""
    with connected(at) as connection:
        connection.sendall(raw)
        return everything(connection)


def everything(connection):
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def asked(at, path, method="GET", body=None, **headers):
    """Return status and decoded answer of one request."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: here",
        *(f"{key.replace('_', '-')}: {headers[key]}" for key in headers),
    ]
    if content:
        lines.append(f"Content-Length: {len(content)}")
    return decoded(answer_to(at, "\r\n".join([*lines, "", ""]).encode() + content))


def decoded(raw):
    """Return status and content of a raw answer; JSON is decoded."""
    head, _, content = raw.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    return status, json.loads(content) if b"application/json" in head else content
