"""annotate: the verified cascade of a known fault (PAVE; OpenRCA 2.0, section 2), or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from assay.causes.added import since
from assay.causes.baseline import Baseline, calibrate
from assay.causes.calls import BEHIND, Calls, read_calls
from assay.causes.carried import Carriage, carry
from assay.causes.evidence import Scene, Sources
from assay.causes.graph import SystemGraph, infer_graph
from assay.causes.label import decide
from assay.causes.rules import RULES_VERSION, active_rules
from assay.causes.search import Found, Place, SearchLimits, Terrain, search
from assay.causes.signatures import Signature, check_signature
from assay.causes.slo import SIGNALS, Slo, suspected_slow, violations
from assay.causes.states import NodeState, Thresholds, node_states
from assay.model.base import Noun
from assay.model.causal_graph import Annotation, CausalEdge, CausalGraph, CausalNode, RejectedPath
from assay.model.faults import NO_FAULT
from assay.model.incident import Fault
from assay.telemetry.datapack import Datapack


class Settings(Noun):
    """Everything that can be tuned beside the SLO; an annotation carries it."""

    thresholds: Thresholds = Thresholds()
    limits: SearchLimits = SearchLimits()
    extensions: bool = True
    rules_off: frozenset[str] = frozenset()


def annotate(
    datapack: Datapack,
    faults: Sequence[Fault],
    *,
    system_graph: SystemGraph | None = None,
    slo: Slo | None = None,
    root: str | None = None,
    settings: Settings | None = None,
) -> Annotation:
    """Return the annotation of *datapack* given the *faults* that were injected into it.

    *root* pretends that this service was the target, which is how wrong roots are tried. Pure apart from reading the
    datapack, and deterministic. Raises DatapackError for an unreadable table.
    """
    settings, slo = settings or Settings(), slo or Slo()
    calls = read_calls(datapack)
    metrics = datapack.both("metrics").collect()
    histograms = datapack.both("metrics_histogram").collect()
    graph = system_graph or infer_graph(calls, metrics)
    baseline = calibrate(calls, settings.thresholds)
    real = [f for f in faults if f.type != NO_FAULT and f.kind is not None]
    tried = [f.model_copy(update={"service": root, "peer": None}) if root and root != f.service else f for f in real]
    window = since(calls, min((f.start_ns for f in tried), default=None))
    states = _states(window, baseline, settings.thresholds)
    alarms = violations(window, slo, settings.thresholds)
    seen = Recording(datapack, window, metrics, histograms, graph, states, _ends(alarms), suspected_slow(window, slo))
    trials = [_try(fault, seen, settings) for fault in tried]
    label, reason = _label(trials, baseline, len(alarms))
    accepted = [t for t in trials if t[1] is not None] if label == "attributed" else []
    return Annotation(
        label=label,
        reason=reason,
        graph=_graph(accepted, states),
        paths=tuple(route for _, found, _ in accepted if found for route in _routes(found)),
        rejected=_rejected(trials),
        alarms=_alarm_account([found for _, found, _ in accepted if found], alarms),
        thresholds={"settings": settings.model_dump(mode="json"), "slo": slo.model_dump(), "rules": RULES_VERSION},
        false_alarm_rate=baseline.false_alarm_rate,
    )


@dataclass(frozen=True, eq=False)
class Recording:
    """What one datapack shows since the fault began: all that a trial of a root reads."""

    pack: Datapack
    calls: Calls
    metrics: pl.DataFrame
    histograms: pl.DataFrame
    graph: SystemGraph
    states: dict[str, NodeState]
    alarms: frozenset[Place]
    suspects: frozenset[str]


Trial = tuple[Signature, Found | None, Fault]


def _states(calls: Calls, baseline: Baseline, thresholds: Thresholds) -> dict[str, NodeState]:
    now, normal = (calls.entries.filter(pl.col("period") == p) for p in ("abnormal", "normal"))
    return node_states(now, normal, baseline.nodes, (calls.start_ns["abnormal"], calls.end_ns["abnormal"]), thresholds)


def _try(fault: Fault, seen: Recording, settings: Settings) -> Trial:
    """Put the root of *fault* on trial: its signature, what that carried, and the ways to the alarms."""
    kind, root, calls = fault.kind, fault.service or "", seen.calls
    assert kind is not None
    scene = Scene(seen.pack, calls, seen.metrics, seen.histograms, root, fault, settings.thresholds)
    signature = check_signature(kind, scene)
    if not signature.seen:
        return signature, None, fault
    carriage = carry(calls, signature.sources, root)
    terrain = Terrain(
        root=(signature.component, signature.reason),
        own=tuple(sorted(calls.entries.filter(pl.col("service") == root).get_column("node").unique())),
        states=_with_faulted_ends(seen.states, carriage, signature.sources, calls, fault),
        callers=_spans(seen.graph.callers()),
        callees=_spans(seen.graph.callees()),
        carriage=carriage,
        rules=active_rules(extensions=settings.extensions, off=settings.rules_off),
        began_ns=fault.start_ns,
    )
    directed = _ends({node: {"latency": None} for node in seen.suspects if carriage.enough(node)})
    return signature, search(terrain, seen.alarms | directed, settings.limits), fault


def _ends(alarms: Mapping[str, Mapping[str, int | None]]) -> frozenset[Place]:
    return frozenset((f"span|{n}", state) for n, signals in alarms.items() for s in signals for state in SIGNALS[s])


def _spans(neighbours: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {k.removeprefix("span|"): tuple(v.removeprefix("span|") for v in vs) for k, vs in neighbours.items()}


def _with_faulted_ends(
    states: dict[str, NodeState], carriage: Carriage, sources: Sources, calls: Calls, fault: Fault
) -> dict[str, NodeState]:
    """Add what only callers see: operations at the faulted end (missing or affected), and starved callees."""
    failed_exits = calls.exits.filter(pl.col("exit").is_in(sorted(sources.exits)))
    unserved = dict(failed_exits.filter("absent").group_by("callee_node").agg(pl.col("time_ns").min()).iter_rows())
    result = dict(states)

    def add(node: str, reason: str, onset: int) -> None:
        state = result.get(node, NodeState())
        result[node] = replace(state, onsets={reason: onset, **state.onsets})

    for node in sorted(carriage.at_links):
        add(node, "missing" if node in unserved else "inj_affected", unserved.get(node, fault.start_ns))
    for _, callee in carriage.starved:
        add(callee, "silent", max(fault.start_ns, calls.start_ns["abnormal"]))
    return result


def _label(trials: Sequence[Trial], baseline: Baseline, alarms: int) -> tuple[str, str]:
    shown = [s.sentence for s, _, _ in trials if s.seen]
    unseen = "; ".join(s.sentence for s, _, _ in trials if not s.seen) or "no fault was injected"
    paths = sum(len(_routes(found)) for _, found, _ in trials if found)
    if not trials and not baseline.drifted:
        alarms = 0
    return decide(drifted=baseline.drifted, shown="; ".join(shown) or None, alarms=alarms, paths=paths, unseen=unseen)


def _routes(found: Found) -> tuple[tuple[str, ...], ...]:
    """Return the distinct paths as components: one route may carry several states."""
    return tuple(dict.fromkeys(tuple(_public(place[0]) for place in path) for path in found.paths))


def _public(component: str) -> str:
    return component.partition(BEHIND)[0]


def _graph(accepted: Sequence[Trial], states: dict[str, NodeState]) -> CausalGraph:
    if not accepted:
        return CausalGraph()
    nodes: dict[str, dict[str, int | None]] = {}
    edges: dict[tuple[str, str], CausalEdge] = {}
    services: dict[str, str] = {}
    roots: list[CausalNode] = []
    ends: set[str] = set()
    for signature, found, fault in accepted:
        if found is None or not found.paths:
            continue
        root = CausalNode(
            component=signature.component, state=(signature.reason,), timestamp=fault.start_ns, fault_type=fault.type
        )
        roots.append(root)
        services[signature.component] = signature.component.partition("|")[2]
        ends |= {path[-1][0] for path in found.paths}
        for hop in found.hops:
            _note(nodes, services, hop.target, states)
            pair = (_public(hop.source[0]), _public(hop.target[0]))
            if pair[0] != pair[1]:
                edges.setdefault(
                    pair, CausalEdge(source=pair[0], target=pair[1], rule=hop.rule.id, evidence=dict(hop.evidence))
                )
    made = {
        name: CausalNode(
            component=name, state=tuple(sorted(r)), timestamp=min((t for t in r.values() if t), default=None)
        )
        for name, r in sorted(nodes.items())
    }
    return CausalGraph(
        fault_type=accepted[0][2].type,
        fault_types=tuple(f.type for _, _, f in accepted),
        nodes=(*roots, *made.values()),
        edges=tuple(edges[k] for k in sorted(edges)),
        root_causes=tuple(roots),
        alarm_nodes=tuple(made[n] for n in sorted({_public(e) for e in ends}) if n in made),
        component_to_service=dict(sorted(services.items())),
    )


def _note(
    nodes: dict[str, dict[str, int | None]], services: dict[str, str], place: Place, states: dict[str, NodeState]
) -> None:
    component, reason = place
    name = component.removeprefix("span|")
    onset = states[name].onsets.get(reason) if name in states else None
    nodes.setdefault(_public(component), {})[reason] = onset
    services[_public(component)] = name.partition("::")[0]


def _rejected(trials: Sequence[Trial]) -> tuple[RejectedPath, ...]:
    rows: list[RejectedPath] = []
    for signature, found, _ in trials:
        if not signature.seen:
            rows.append(RejectedPath(path=(signature.component,), gate="signature", reason=signature.sentence))
        if found is not None:
            rows += [RejectedPath(path=(r.source[0], r.component), gate=r.gate, reason=r.reason) for r in found.refused]
    return tuple(rows)


def _alarm_account(found: Sequence[Found], alarms: dict[str, dict[str, int | None]]) -> dict[str, tuple[str, ...]]:
    explained = {path[-1][0] for f in found for path in f.paths}
    every = {f"span|{node}" for node in alarms}
    return {"explained": tuple(sorted(explained & every)), "unexplained": tuple(sorted(every - explained))}
