"""Builds the causal graph of accepted trials (tested faults), and lists their paths and explained alarms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from opsassay.annotation.evidence.signatures import Signature
from opsassay.annotation.evidence.states import NodeState
from opsassay.annotation.reading.calls import BEHIND
from opsassay.annotation.reading.graph import SystemGraph
from opsassay.annotation.search.hops import HEALTHY, Hop, Place
from opsassay.annotation.search.paths import Found
from opsassay.core.schema.causal_graph import CausalEdge, CausalGraph, CausalNode, RejectedPath, is_host
from opsassay.core.schema.incident import Fault


@dataclass(frozen=True, eq=False)
class Trial:
    """One tested fault: its place (*services*), its signature there, and the result of the search (None: no search)."""

    fault: Fault
    services: tuple[str, ...]
    signature: Signature
    found: Found | None

    @property
    def paths(self) -> tuple[tuple[Place, ...], ...]:
        """The accepted paths, each as (component, state) pairs from the root on."""
        return self.found.paths if self.found else ()


def public(component: str) -> str:
    """Return the name *component* without the internal suffix that tells requests on one wildcard route apart."""
    return component.partition(BEHIND)[0]


def routes(trial: Trial) -> tuple[tuple[str, ...], ...]:
    """Return the distinct accepted paths as component names; paths that differ in states alone count once."""
    return tuple(dict.fromkeys(tuple(public(place[0]) for place in path) for path in trial.paths))


def rejected_paths(trials: Sequence[Trial]) -> tuple[RejectedPath, ...]:
    """Return every rejected path of all *trials* (tested faults), each with the first check (gate) that it failed."""
    rows: dict[tuple[str, ...], RejectedPath] = {}
    for trial in trials:
        if not trial.signature.seen:
            path: tuple[str, ...] = (trial.signature.component,)
            rows[path] = RejectedPath(path=path, gate="signature", reason=trial.signature.sentence)
        for r in trial.found.rejected if trial.found else ():
            rows.setdefault(r.path, RejectedPath(path=r.path, gate=r.gate, reason=r.reason))
    return tuple(rows.values())


def account(accepted: Sequence[Trial], alarms: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Return {"explained": alarms at the end of *accepted* trials' paths, "unexplained": other *alarms*}, each sorted."""
    explained = {path[-1][0] for trial in accepted for path in trial.paths}
    every = {f"span|{node}" for node in alarms}
    return {"explained": tuple(sorted(explained)), "unexplained": tuple(sorted(every - explained))}


class _GraphDraft:
    """A causal graph under construction; *states*: node to its deviations, for the onsets."""

    def __init__(self, states: Mapping[str, NodeState]) -> None:
        self.states = states
        self.nodes: dict[str, dict[str, int | None]] = {}
        self.edges: dict[tuple[str, str], CausalEdge] = {}
        self.services: dict[str, str] = {}
        self.roots: list[CausalNode] = []

    def add_node(self, component: str, service: str, reason: str | None = None) -> None:
        """Add *component* of *service* with the symptom *reason* (None: none) and its onset; reasons of one node add up."""
        name = component.removeprefix("span|")
        state = self.states.get(name)
        reasons = self.nodes.setdefault(public(component), {})
        if reason is not None:
            reasons[reason] = state.onsets.get(reason) if state else None
        if not is_host(component):
            self.services[public(component)] = service

    def add_edge(self, source: str, target: str, hop: Hop) -> None:
        """Add the edge with rule and evidence of *hop*; of several hops between two nodes the first counts."""
        pair = (public(source), public(target))
        if pair[0] != pair[1]:
            edge = CausalEdge(source=pair[0], target=pair[1], rule=hop.rule.id, evidence=dict(hop.evidence))
            self.edges.setdefault(pair, edge)


def build_graph(accepted: Sequence[Trial], states: Mapping[str, NodeState], system: SystemGraph) -> CausalGraph:
    """Return the causal graph that unites the accepted paths; empty without any. *states* give the onsets.

    It also has the components between the ends of a hop: from a container its pod and service, and the healthy span
    that rules H-04 and H-07 pass, which is marked as such.
    """
    if not accepted:
        return CausalGraph()
    draft = _GraphDraft(states)
    for trial in accepted:
        _add_trial(draft, trial, system)
    roots = {root.component for root in draft.roots}
    made = {n: _make_causal_node(n, reasons) for n, reasons in sorted(draft.nodes.items()) if n not in roots}
    ends = sorted({public(path[-1][0]) for trial in accepted for path in trial.paths})
    return CausalGraph(
        fault_type=accepted[0].fault.type,
        fault_types=tuple(t.fault.type for t in accepted),
        nodes=(*draft.roots, *made.values()),
        edges=tuple(draft.edges[k] for k in sorted(draft.edges)),
        root_causes=tuple(draft.roots),
        alarm_nodes=tuple(made[n] for n in ends if n in made),
        component_to_service=dict(sorted(draft.services.items())),
    )


def _add_trial(draft: _GraphDraft, trial: Trial, system: SystemGraph) -> None:
    """Add to *draft* the root of *trial* and every component on its accepted hops."""
    signature, fault = trial.signature, trial.fault
    draft.roots.append(
        CausalNode(
            component=signature.component, state=(signature.reason,), timestamp=fault.start_ns, fault_type=fault.type
        )
    )
    if not is_host(signature.component):
        draft.services[signature.component] = _split_component(signature.component)[1]
    for hop in trial.found.hops if trial.found else ():
        inner = list(_inner_components(hop, fault.pod, system))
        pod = system.service_of(hop.target[0]) if hop.target[0].startswith("pod|") else None
        draft.add_node(hop.target[0], pod or _split_component(hop.target[0])[1], hop.target[1])
        for component, owner, state in inner:
            draft.add_node(component, owner, state)
        for source, target in pairwise([hop.source[0], *(component for component, _, _ in inner), hop.target[0]]):
            draft.add_edge(source, target, hop)


def _inner_components(hop: Hop, pod: str | None, system: SystemGraph) -> Iterable[tuple[str, str, str]]:
    """Return (component, service, state) of each component between the ends of *hop*, such as pod and service."""
    if "through" in hop.evidence:
        component = str(hop.evidence["through"])
        yield component, component.removeprefix("span|").partition("::")[0], HEALTHY
    if hop.source[0].startswith("container|"):
        service = _split_component(hop.source[0])[1]
        for name in [f"pod|{pod}"] if pod else system.pods_of(service)[:1]:
            yield name, service, hop.source[1]
        if host := hop.evidence.get("host"):
            yield f"node|{host}", service, hop.source[1]
            service = _split_component(hop.target[0])[1]
            yield from ((name, service, "inj_affected") for name in system.pods_of(service)[:1])
        yield f"service|{service}", service, "inj_affected"
    if hop.source[0].startswith("pod|"):
        owner = system.service_of(hop.source[0]) or _split_component(hop.source[0])[1]
        yield f"service|{owner}", owner, "inj_affected"


def _split_component(component: str) -> tuple[str, str]:
    """Return (*component*, its service): "span|cart::GET /" gives "cart" as the second."""
    return component, component.partition("|")[2].partition("::")[0]


def _make_causal_node(name: str, reasons: Mapping[str, int | None]) -> CausalNode:
    """Return the node *name*: symptoms of *reasons* (to onset, ns), and their earliest onset, None if none is known."""
    onset = min((t for t in reasons.values() if t), default=None)
    return CausalNode(
        component=name, state=tuple(sorted(reasons)), timestamp=onset, healthy_bypass=set(reasons) == {HEALTHY}
    )
