"""A trial tests one fault at its place: its signature there, and the paths from there to the alarms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from opsassay.annotation.evidence.context import EvidenceContext, Sources
from opsassay.annotation.evidence.sharing import crowded_spans, shared_spans, with_siblings
from opsassay.annotation.evidence.signatures import Signature, check_host, check_signature
from opsassay.annotation.evidence.slo import SIGNALS
from opsassay.annotation.evidence.states import NodeState
from opsassay.annotation.reading.calls import Calls
from opsassay.annotation.reading.graph import SystemGraph
from opsassay.annotation.reading.log_templates import Statements
from opsassay.annotation.search.hops import Place, Terrain
from opsassay.annotation.search.paths import SearchLimits, search
from opsassay.annotation.search.propagation_gate import Carriage, Flows, carry
from opsassay.annotation.verdict.cascade import Trial
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.core.schema.causal_graph import is_host
from opsassay.core.schema.faults import NO_FAULT
from opsassay.core.schema.incident import Fault


@dataclass(frozen=True, eq=False)
class ObservedPack:
    """All data of a datapack since the fault began that the test of a root reads.

    *slower*: the added time at each node as callers experience it.
    """

    calls: Calls
    metrics: pl.DataFrame
    histograms: pl.DataFrame
    statements: Statements
    graph: SystemGraph
    slower: pl.DataFrame
    states: dict[str, NodeState]
    flows: Flows
    alarms: dict[str, dict[str, int | None]]
    suspects: frozenset[str]


@dataclass(frozen=True)
class Placed:
    """A *fault* with the services at its place: its service, or all services of its host."""

    fault: Fault
    services: tuple[str, ...]


def place_faults(faults: Sequence[Fault], root: str | None, graph: SystemGraph) -> list[Placed]:
    """Return the distinct faults (but NoFault) with the services they affect; all moved to the service *root* if given.

    A fault on a host is one fault, also if it is listed once per service of the host; if no service is listed, its
    services are those with pods on the host.
    """
    placed: dict[str, Placed] = {}
    moved = {"service": root, "peer": None, "pod": None, "host": None}
    for reported in faults:
        if reported.type == NO_FAULT or reported.kind is None:
            continue
        pretended = root and (reported.host or root != reported.service)
        fault = reported.model_copy(update=moved) if pretended else reported
        if fault.host is None:
            placed.setdefault(fault.digest(), Placed(fault, (fault.service or "",)))
            continue
        whole = fault.model_copy(update={"service": None, "pod": None})
        services = (fault.service,) if fault.service else graph.services_on(fault.host)
        known = placed.get(whole.digest(), Placed(whole, ()))
        placed[whole.digest()] = Placed(whole, tuple(sorted({*known.services, *services})))
    return list(placed.values())


def try_root(placed: Placed, observed: ObservedPack, settings: AnnotateSettings) -> Trial:
    """Test the fault *placed* as the root cause in *observed*: its signature, and the paths to alarms of users."""
    fault, roots = placed.fault, frozenset(placed.services)
    signature = _move_to_pods(_check_signature(placed, observed, settings), observed.graph)
    if not signature.seen and "signature" not in settings.gates_off:
        return Trial(fault, placed.services, signature, None)
    strained = [r for r in placed.services if signature.reason in ("cpu", "mem")]
    shared = {k: v for r in strained for k, v in shared_spans(observed.graph, r, observed.calls).items()}
    crowded = _crowded_by(signature, placed, observed) if settings.rule("A-X1") else {}
    beside = {node for nodes in (*shared.values(), *crowded.values()) for node in nodes}
    sources = with_siblings(signature.sources, observed.calls, beside, settings.thresholds.signature)
    carriage = carry(observed.calls, observed.slower, observed.flows, sources, roots, settings.carried)
    below = signature.parts or (signature.component,)
    terrain = Terrain(
        root=(signature.component, signature.reason),
        parts=signature.parts,
        own={part: _nodes_of_service(_find_service(part, observed.graph), observed.calls) for part in below},
        states=_add_states_seen_by_callers(observed.states, carriage, signature.sources, observed.calls, fault),
        callers=_strip_span_prefixes(observed.graph.callers()),
        callees=_strip_span_prefixes(observed.graph.callees()),
        shared=shared,
        crowded=crowded,
        carriage=carriage,
        rules=settings.rules(),
        began_ns=fault.start_ns,
        gates_off=settings.gates_off,
    )
    directed = {node: {"latency": None} for node in observed.suspects if carriage.enough(node)}
    limits = _limits_from_host(settings.limits, signature)
    return Trial(
        fault,
        placed.services,
        signature,
        search(terrain, _places_of_alarms(observed.alarms) | _places_of_alarms(directed), limits),
    )


def _check_signature(placed: Placed, observed: ObservedPack, settings: AnnotateSettings) -> Signature:
    """Return whether the telemetry shows the fault on its service, or on its host and the services there."""
    fault, kind = placed.fault, placed.fault.kind
    assert kind is not None

    def scene(root: str, members: frozenset[str] = frozenset()) -> EvidenceContext:
        """Return the evidence about *root*; *members* are the services when *root* is a host."""
        of_root = fault if members else fault.model_copy(update={"service": root})
        return EvidenceContext(
            calls=observed.calls,
            metrics=observed.metrics,
            histograms=observed.histograms,
            root=root,
            fault=of_root,
            thresholds=settings.thresholds,
            statements=observed.statements,
            members=members,
        )

    if fault.host is None:
        return check_signature(kind, scene(placed.services[0]))
    services = [service for service in placed.services if service in observed.calls.services]
    return check_host(kind, scene(fault.host, frozenset(services)), [scene(service) for service in services])


def _crowded_by(signature: Signature, placed: Placed, observed: ObservedPack) -> dict[str, tuple[str, ...]]:
    """Return host to the spans of other services there, for hosts overloaded by the signature's container; else {}."""
    if signature.reason != "cpu" or is_host(signature.component):
        return {}
    return crowded_spans(observed.graph, placed.services[0], observed.calls, observed.states)


def _move_to_pods(signature: Signature, graph: SystemGraph) -> Signature:
    """Return *signature* of an overloaded host with pods in place of its containers, where pods are known."""
    if not is_host(signature.component):
        return signature
    pods = [graph.pods_of(p.removeprefix("container|")) if p.startswith("container|") else () for p in signature.parts]
    parts = tuple(dict.fromkeys(p for part, of in zip(signature.parts, pods, strict=True) for p in of or (part,)))
    return replace(signature, parts=parts) if signature.reason in ("cpu", "mem") else signature


def _find_service(part: str, graph: SystemGraph) -> str:
    """Return the service of the component *part* (``type|name``); for a pod the one that routes to it."""
    kind, _, name = part.partition("|")
    return (graph.service_of(part) or name) if kind == "pod" else name


def _limits_from_host(limits: SearchLimits, signature: Signature) -> SearchLimits:
    """Return *limits* with one more hop when the signature is on a host, whose first hop leads to its services."""
    return limits.model_copy(update={"hops": limits.hops + 1}) if signature.parts else limits


def _nodes_of_service(service: str, calls: Calls) -> tuple[str, ...]:
    """Return the nodes (operations) of *service* in *calls*, sorted."""
    return tuple(sorted(calls.entries.filter(pl.col("service") == service).get_column("node").unique()))


def _places_of_alarms(alarms: Mapping[str, Mapping[str, int | None]]) -> frozenset[Place]:
    """Return the (span, state) pairs that a path must reach to explain *alarms*: node to signals with onsets."""
    return frozenset((f"span|{n}", state) for n, signals in alarms.items() for s in signals for state in SIGNALS[s])


def _strip_span_prefixes(neighbours: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return *neighbours* with ``span|`` removed from all keys and values."""
    return {k.removeprefix("span|"): tuple(v.removeprefix("span|") for v in vs) for k, vs in neighbours.items()}


def _add_states_seen_by_callers(
    states: dict[str, NodeState], carriage: Carriage, sources: Sources, calls: Calls, fault: Fault
) -> dict[str, NodeState]:
    """Return *states* plus deviations that only callers see: at faulted ends of links, and callees no longer called."""
    failed_exits = calls.exits.filter(pl.col("exit").is_in(sorted(sources.exits)))
    unserved = dict(failed_exits.filter("absent").group_by("callee_node").agg(pl.col("time_ns").min()).iter_rows())
    result = dict(states)

    def add(node: str, reason: str, onset: int) -> None:
        """Add *reason* with the onset *onset* (ns) to *node*, unless the node has that reason."""
        state = result.get(node, NodeState())
        result[node] = replace(state, onsets={reason: onset, **state.onsets})

    for node in sorted(carriage.at_links):
        add(node, "missing" if node in unserved else "inj_affected", unserved.get(node, fault.start_ns))
    for _, callee in carriage.starved:
        add(callee, "silent", max(fault.start_ns, calls.start_ns["abnormal"]))
    return result
