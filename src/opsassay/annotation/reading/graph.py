"""The system graph: services, pods, operations and who calls whom, inferred from telemetry when none is given."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opsassay.annotation.reading.calls import Calls


@dataclass(frozen=True)
class SystemGraph:
    """Components are ``type|name``; calls run from the caller's span to the callee's.

    *edges*: (source, kind, target) with the kinds calls and calls_async (span to span), includes (service to span),
    routes_to (service to pod), runs (pod to container) and schedules (host, ``node|name``, to pod).
    """

    components: frozenset[str]
    edges: frozenset[tuple[str, str, str]]

    def callers(self) -> dict[str, tuple[str, ...]]:
        """Return span to the spans that call it synchronously, sorted."""
        return self._group_edges("calls", reverse=True)

    def callees(self) -> dict[str, tuple[str, ...]]:
        """Return span to the spans that it calls, synchronously or not, sorted."""
        both = [self._group_edges(kind, reverse=False) for kind in ("calls", "calls_async")]
        return {n: tuple(sorted({*both[0].get(n, ()), *both[1].get(n, ())})) for n in both[0].keys() | both[1].keys()}

    def pods_of(self, service: str) -> tuple[str, ...]:
        """Return the pods (``pod|name``) that *service* routes to, sorted."""
        return tuple(sorted(t for s, kind, t in self.edges if kind == "routes_to" and s == f"service|{service}"))

    def service_of(self, pod: str) -> str | None:
        """Return the service that routes to *pod* (``pod|name``); None when it is not known."""
        return min(
            (s.removeprefix("service|") for s, kind, t in self.edges if kind == "routes_to" and t == pod), default=None
        )

    def services_on(self, host: str) -> tuple[str, ...]:
        """Return the services with a pod on *host*, sorted."""
        pods = {t for s, kind, t in self.edges if kind == "schedules" and s == f"node|{host}"}
        routed = {s for s, kind, t in self.edges if kind == "routes_to" and t in pods}
        return tuple(sorted(service.removeprefix("service|") for service in routed))

    def hosts_of(self, service: str) -> tuple[str, ...]:
        """Return the hosts that run a pod of *service*, sorted."""
        pods = set(self.pods_of(service))
        return tuple(
            sorted({s.removeprefix("node|") for s, kind, t in self.edges if kind == "schedules" and t in pods})
        )

    def containers_of(self, pods: tuple[str, ...]) -> tuple[str, ...]:
        """Return the containers (``container|name``) that *pods* (bare names) run, sorted."""
        nodes = {f"pod|{pod}" for pod in pods}
        return tuple(sorted({t for s, kind, t in self.edges if kind == "runs" and s in nodes}))

    def _group_edges(self, kind: str, *, reverse: bool) -> dict[str, tuple[str, ...]]:
        """Return source to its sorted targets, for edges of *kind*; with *reverse* target to its sources."""
        found: dict[str, set[str]] = {}
        for source, edge_kind, target in self.edges:
            if edge_kind == kind:
                key, value = (target, source) if reverse else (source, target)
                found.setdefault(key, set()).add(value)
        return {key: tuple(sorted(values)) for key, values in found.items()}


def infer_graph(calls: Calls, metrics: pl.DataFrame) -> SystemGraph:
    """Return the graph of services, pods, containers and hosts that *calls* and the labels of *metrics* show.

    *metrics* is the metrics table: service_name and the attributes k8s.pod.name, k8s.container.name and k8s.node.name.
    """
    edges: set[tuple[str, str, str]] = set()
    served = calls.entries.select("service", "node", "pod", key=pl.col("node").hash(1) ^ pl.col("pod").hash(2))
    for service, node, pod in served.unique("key").drop("key").iter_rows():
        edges.add((f"service|{service}", "includes", f"span|{node}"))
        if pod:
            edges.add((f"service|{service}", "routes_to", f"pod|{pod}"))
    ends = (pl.col("caller_node").hash(1), pl.col("callee_node").hash(2), pl.col("asynchronous").hash(3))
    made = (
        calls.exits.lazy()
        .filter(pl.col("caller_entry").is_not_null() & pl.col("callee_node").is_not_null())
        .select("caller_node", "callee_node", "asynchronous", key=ends[0] ^ ends[1] ^ ends[2])
        .unique("key")
        .drop("key")
        .collect()
    )
    for caller, callee, asynchronous in made.iter_rows():
        edges.add((f"span|{caller}", "calls_async" if asynchronous else "calls", f"span|{callee}"))
    labels = ["service_name", *(f"attr.k8s.{level}.name" for level in ("pod", "container", "node"))]
    for service, pod, container, node in metrics.select(labels).unique().iter_rows():
        if service not in calls.services or not pod:
            continue
        edges.add((f"service|{service}", "routes_to", f"pod|{pod}"))
        edges.add((f"pod|{pod}", "runs", f"container|{container or service}"))
        if node:
            edges.add((f"node|{node}", "schedules", f"pod|{pod}"))
    return SystemGraph(frozenset(c for s, _, t in edges for c in (s, t)), frozenset(edges))
