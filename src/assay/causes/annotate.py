"""annotate: the verified cascade of a known fault (PAVE; OpenRCA 2.0, section 2), or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from assay.causes.added import since
from assay.causes.baseline import Baseline, calibrate
from assay.causes.calls import Calls, read_calls
from assay.causes.carried import Carriage, carry
from assay.causes.cascade import Trial, account, build_graph, rejected_paths, routes
from assay.causes.evidence import Scene, Sources
from assay.causes.graph import SystemGraph, infer_graph
from assay.causes.hops import Place, Terrain
from assay.causes.label import decide
from assay.causes.levels import root_labels
from assay.causes.room import require_readable
from assay.causes.rules import RULES_VERSION, active_rules
from assay.causes.search import search
from assay.causes.settings import Settings
from assay.causes.sharing import shared_spans, with_siblings
from assay.causes.signatures import check_signature
from assay.causes.slo import SIGNALS, Slo, suspected_slow, violations
from assay.causes.states import NodeState, Thresholds, node_states
from assay.model.causal_graph import Annotation
from assay.model.faults import NO_FAULT
from assay.model.incident import Fault
from assay.telemetry.datapack import Datapack


@dataclass(frozen=True, eq=False)
class Recording:
    """What one datapack shows since the fault began: all that a trial of a root reads."""

    pack: Datapack
    calls: Calls
    metrics: pl.DataFrame
    histograms: pl.DataFrame
    graph: SystemGraph
    states: dict[str, NodeState]
    alarms: dict[str, dict[str, int | None]]
    suspects: frozenset[str]


@dataclass(frozen=True, eq=False)
class Opened:
    """A datapack that was read once, to try many roots on: what does not depend on the fault."""

    pack: Datapack
    calls: Calls
    metrics: pl.DataFrame
    histograms: pl.DataFrame
    graph: SystemGraph
    baseline: Baseline

    def since(self, start_ns: int | None, settings: Settings) -> Recording:
        """Return what is seen from the beginning of the fault on (None: the whole abnormal window)."""
        window = since(self.calls, start_ns)
        return Recording(
            pack=self.pack,
            calls=window,
            metrics=self.metrics,
            histograms=self.histograms,
            graph=self.graph,
            states=_states(window, self.baseline, settings.thresholds),
            alarms=violations(window, settings.slo, settings.thresholds),
            suspects=suspected_slow(window, settings.slo),
        )


def open_pack(pack: Datapack, settings: Settings | None = None, system_graph: SystemGraph | None = None) -> Opened:
    """Read *pack* once; raises DatapackError for an unreadable table, a window without spans, and too little memory."""
    settings = settings or Settings()
    require_readable(pack, settings.limits.memory_mb)
    calls = read_calls(pack)
    metrics = pack.both("metrics").collect()
    graph = system_graph or infer_graph(calls, metrics)
    return Opened(
        pack, calls, metrics, pack.both("metrics_histogram").collect(), graph, calibrate(calls, settings.thresholds)
    )


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

    *root* pretends that this service was the target, which is how wrong roots are tried; *slo* replaces that of
    *settings*. Pure apart from reading the datapack, and deterministic. Raises DatapackError for an unreadable table.
    """
    settings = settings or Settings()
    if slo is not None:
        settings = settings.model_copy(update={"slo": slo})
    return annotate_opened(open_pack(datapack, settings, system_graph), faults, root=root, settings=settings)


def annotate_opened(
    opened: Opened, faults: Sequence[Fault], *, root: str | None = None, settings: Settings | None = None
) -> Annotation:
    """Return what `annotate` returns, for a datapack that was read before."""
    settings = settings or Settings()
    real = [f for f in faults if f.type != NO_FAULT and f.kind is not None]
    moved = {"service": root, "peer": None, "pod": None, "host": None}
    placed = [f.model_copy(update=moved) if root and root != f.service else f for f in real]
    tried = list({fault.digest(): fault for fault in placed}.values())
    seen = opened.since(min((f.start_ns for f in tried), default=None), settings)
    trials = [_try(fault, seen, settings) for fault in tried]
    label, reason = _label(trials, opened.baseline, seen)
    accepted = [t for t in trials if t.paths] if label == "attributed" else []
    return Annotation(
        label=label,
        reason=reason,
        graph=build_graph(accepted, seen.states, seen.graph),
        paths=tuple(route for trial in accepted for route in routes(trial)),
        rejected=rejected_paths(trials),
        alarms=account(accepted, seen.alarms),
        thresholds={"settings": settings.model_dump(mode="json"), "rules": RULES_VERSION},
        false_alarm_rate=opened.baseline.false_alarm_rate,
        roots=root_labels(accepted, seen.graph),
        notes=opened.calls.notes,
    )


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
        return Trial(fault, signature, None)
    shared = shared_spans(seen.graph, root, calls) if signature.reason in ("cpu", "mem") else {}
    carriage = carry(calls, with_siblings(signature.sources, scene, shared), root)
    terrain = Terrain(
        root=(signature.component, signature.reason),
        own=tuple(sorted(calls.entries.filter(pl.col("service") == root).get_column("node").unique())),
        states=_with_faulted_ends(seen.states, carriage, signature.sources, calls, fault),
        callers=_spans(seen.graph.callers()),
        callees=_spans(seen.graph.callees()),
        shared=shared,
        carriage=carriage,
        rules=active_rules(extensions=settings.extensions, off=settings.rules_off),
        began_ns=fault.start_ns,
    )
    directed = {node: {"latency": None} for node in seen.suspects if carriage.enough(node)}
    return Trial(fault, signature, search(terrain, _ends(seen.alarms) | _ends(directed), settings.limits))


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


def _label(trials: Sequence[Trial], baseline: Baseline, seen: Recording) -> tuple[str, str]:
    shown = "; ".join(t.signature.sentence for t in trials if t.signature.seen)
    unseen = "; ".join(_unseen(t, seen) for t in trials if not t.signature.seen)
    paths = sum(len(routes(t)) for t in trials)
    alarms = len(seen.alarms) if trials else 0
    return decide(
        drifted=baseline.drifted,
        shown=shown or None,
        alarms=max(alarms, int(paths > 0)),
        paths=paths,
        unseen=unseen or ("" if trials else "no fault was injected"),
    )


def _unseen(trial: Trial, seen: Recording) -> str:
    service = trial.fault.service
    if service not in seen.calls.services:
        return f"the target {service} is nowhere in the traces"
    return trial.signature.sentence
