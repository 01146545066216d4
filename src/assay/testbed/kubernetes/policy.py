"""A network policy that cuts one pod off, from everybody or from one peer; what observes the system still reaches it."""

from __future__ import annotations

from typing import Any

from assay.testbed.kubernetes.api import Object
from assay.testbed.kubernetes.manifests import PURPOSE_LABEL, RECEIVER_PORT
from assay.testbed.kubernetes.wanted import DOOR_PORT

DNS_PORT = 53


def isolation(name: str, namespace: str, label: tuple[str, str], peer: str | None) -> Object:
    """Return the policy *name* that parts the pod with *label* from *peer*, or from all pods of its *namespace*.

    A policy works on connections, and one needs both directions: so both are cut. Telemetry, names and doors pass.
    """
    outward = {"ports": [*_ports("UDP", DNS_PORT), *_ports("TCP", DNS_PORT, RECEIVER_PORT)]}
    inward = {"ports": _ports("TCP", DOOR_PORT)}
    others = [] if peer is None else [_all_but(peer)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": dict([label])},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [inward, *({"from": peers} for peers in others)],
            "egress": [outward, *({"to": peers} for peers in others)],
        },
    }


def _all_but(peer: str) -> list[Any]:
    elsewhere = {"matchExpressions": [{"key": PURPOSE_LABEL, "operator": "NotIn", "values": ["system"]}]}
    here = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [peer]}]}
    return [{"podSelector": here}, {"namespaceSelector": elsewhere}]


def _ports(protocol: str, *numbers: int) -> list[Object]:
    return [{"protocol": protocol, "port": number} for number in numbers]
