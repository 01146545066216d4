"""Annotation: the verified cascade of a known fault (PAVE; OpenRCA 2.0, section 2), or the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import polars as pl

from opsassay.annotation.evidence.baseline import OperationBaseline, calibrate
from opsassay.annotation.evidence.latency_delta import added_time, since
from opsassay.annotation.evidence.metrics import resource_states
from opsassay.annotation.evidence.slo import SurfaceSlo, surface_alarms
from opsassay.annotation.evidence.states import NEEDED, NodeState, node_states, timeouts
from opsassay.annotation.evidence.thresholds import Thresholds
from opsassay.annotation.reading.calls import Calls, read_calls
from opsassay.annotation.reading.graph import SystemGraph, infer_graph
from opsassay.annotation.reading.log_templates import Statements
from opsassay.annotation.reading.preflight import fit_in_memory
from opsassay.annotation.reading.split_windows import parted_at_fault
from opsassay.annotation.search.propagation_gate import find_flows
from opsassay.annotation.search.rules import RULES_VERSION
from opsassay.annotation.verdict.cascade import Trial, account, build_graph, rejected_paths, routes
from opsassay.annotation.verdict.hypothesis_test import ObservedPack, place_faults, try_root
from opsassay.annotation.verdict.levels import root_labels
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.core.schema.causal_graph import Annotation, FaultVerdict
from opsassay.core.schema.incident import Fault, Label
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import one_sided


def decide(*, drifted: bool, signature: str | None, alarms: int, paths: int, instead: str = "") -> tuple[Label, str]:
    """Return (label of a fault, the reason in a sentence); *drifted*: the normal window was not stable.

    *signature* says how the fault shows at its place (None: it does not, and *instead* says what was found), *alarms*
    counts violated nodes of the surface, *paths* accepted paths to them.
    """
    if drifted:
        return (
            Label.DRIFTED,
            "The normal window was not normal: its second half raises too many alarms against its first.",
        )
    if signature is not None and alarms and paths:
        return Label.ATTRIBUTED, f"The fault shows ({signature}) and {_count_paths_in_words(paths)} it to the surface."
    if signature is not None and alarms:
        return (
            Label.UNEXPLAINED,
            f"The fault shows ({signature}) and the surface is violated, but no path carries it there.",
        )
    if signature is not None:
        return Label.ABSORBED, f"The fault shows ({signature}), but no user at the surface feels it."
    if alarms:
        return Label.UNEXPLAINED, f"The surface is violated, but the fault does not show at its place: {instead}."
    return Label.NO_EFFECT, f"Nothing happened that the telemetry shows: {instead}."


def _count_paths_in_words(count: int) -> str:
    """Return the start of a sentence on *count* paths: "1 verified path carries", "2 verified paths carry"."""
    return "1 verified path carries" if count == 1 else f"{count} verified paths carry"


@dataclass(frozen=True, eq=False)
class Opened:
    """A datapack that was read once so that many roots can be tested: all data that do not depend on the fault."""

    pack: Datapack
    calls: Calls
    metrics: pl.DataFrame
    histograms: pl.DataFrame
    graph: SystemGraph
    baseline: OperationBaseline

    def since(self, start_ns: int | None, settings: AnnotateSettings) -> ObservedPack:
        """Return calls, states and alarms from *start_ns* (ns of UTC) on; None: of the whole abnormal window."""
        window = since(self.calls, start_ns)
        with ThreadPoolExecutor(1) as beside:  # these read the calls alone
            alarms = beside.submit(surface_alarms, window, settings.slo, settings.thresholds)
            flows = beside.submit(find_flows, window, settings.carried)
            served = window.entries.filter(~pl.col("ended_early"))
            slower = added_time(served, "felt_ms", ["node"], ["shape"], unmatched_too=True, small_groups_too=True)
            states = _find_node_states(window, self.baseline, slower, settings.thresholds)
        begun_ns = window.start_ns["abnormal"]
        metrics = self.metrics.filter((pl.col("period") == "normal") | (pl.col("time").dt.epoch("ns") >= begun_ns))
        states |= resource_states(metrics, begun_ns, settings.thresholds.resources)
        return ObservedPack(
            calls=window,
            statements=Statements(self.pack, window, settings.thresholds.statements),
            metrics=metrics,
            histograms=self.histograms,
            graph=self.graph,
            slower=slower,
            states=states,
            flows=flows.result(),
            alarms=alarms.result().violated,
            suspects=alarms.result().suspects,
        )


def open_pack(pack: Datapack, settings: AnnotateSettings | None = None) -> Opened:
    """Read *pack* once, to annotate it several times; raises DatapackError for damage, no spans, or too little memory."""
    settings = settings or AnnotateSettings()
    pack, sampled = fit_in_memory(pack, settings.limits.memory_mb)
    calls = read_calls(pack)
    lacking = one_sided(
        lambda period, modality: bool(pack.collect(pack.scan(period, modality).head(1), modality).height)
    )
    calls = replace(calls, notes=(*sampled, *calls.notes, *lacking))
    metrics, histograms = (pack.collect(pack.both(m), m) for m in ("metrics", "metrics_histogram"))
    with ThreadPoolExecutor(1) as beside:
        normal = calls.entries.select(NEEDED).filter(pl.col("period") == "normal")
        bounds = calls.start_ns["normal"], calls.end_ns["normal"]
        baseline = beside.submit(calibrate, normal, *bounds, settings.thresholds)
        graph = infer_graph(calls, metrics)
    return Opened(pack, calls, metrics, histograms, graph, baseline.result())


def annotate(
    datapack: Datapack,
    faults: Sequence[Fault],
    *,
    slo: SurfaceSlo | None = None,
    root: str | None = None,
    settings: AnnotateSettings | None = None,
) -> Annotation:
    """Return the annotation (causal graph, label, reasons) of *datapack* given the *faults* injected into it.

    *root* annotates as if this service had been the target; *slo* replaces that of *settings*. Deterministic; only
    reads the datapack. Raises DatapackError for an unreadable table, a window without spans, and too little memory.
    """
    settings = settings or AnnotateSettings()
    if slo is not None:
        settings = settings.model_copy(update={"slo": slo})
    opened = open_pack(parted_at_fault(datapack, faults), settings)
    return annotate_opened(opened, faults, root=root, settings=settings)


def annotate_opened(
    opened: Opened, faults: Sequence[Fault], *, root: str | None = None, settings: AnnotateSettings | None = None
) -> Annotation:
    """Return the result of `annotate` for *opened*, a datapack that is already read; other parameters as there."""
    settings = settings or AnnotateSettings()
    seen = opened.since(min((f.start_ns for f in faults if f.kind is not None), default=None), settings)
    return annotate_seen(opened, seen, faults, root=root, settings=settings)


def annotate_seen(
    opened: Opened,
    observed: ObservedPack,
    faults: Sequence[Fault],
    *,
    root: str | None = None,
    settings: AnnotateSettings,
) -> Annotation:
    """Return the result of `annotate` from *observed*, the data since the faults began, shared by many tested faults."""
    placed = place_faults(faults, root, opened.graph)
    trials = [try_root(each, observed, settings) for each in placed]
    label, reason = _label(trials, trials, opened.baseline, observed)
    accepted = [t for t in trials if t.paths] if label == "attributed" else []
    return Annotation(
        label=label,
        reason=reason,
        graph=build_graph(accepted, observed.states, observed.graph),
        paths=tuple(route for trial in accepted for route in routes(trial)),
        rejected=rejected_paths(trials),
        alarms=account(accepted, observed.alarms),
        thresholds={"settings": settings.model_dump(mode="json"), "rules": RULES_VERSION},
        false_alarm_rate=opened.baseline.false_alarm_rate,
        faults=tuple(_judge_fault(trial, trials, opened.baseline, observed) for trial in trials),
        roots=root_labels(accepted, observed.graph),
        notes=opened.calls.notes,
    )


def _find_node_states(
    calls: Calls, baseline: OperationBaseline, slower: pl.DataFrame, thresholds: Thresholds
) -> dict[str, NodeState]:
    """Return node to its deviations in the fault window: latency, errors, missing calls and timeouts."""
    entries = calls.entries.select(NEEDED)
    now, normal = (entries.filter(pl.col("period") == p) for p in ("abnormal", "normal"))
    window = calls.start_ns["abnormal"], calls.end_ns["abnormal"]
    states = node_states(now, normal, baseline.nodes, slower, window, thresholds)
    for node, first in timeouts(calls, thresholds).items():
        state = states.get(node, NodeState(width_ns=window[1] - window[0]))
        states[node] = replace(state, onsets={**state.onsets, "timeout": first})
    return states


def _label(
    chosen: Sequence[Trial], trials: Sequence[Trial], baseline: OperationBaseline, observed: ObservedPack
) -> tuple[Label, str]:
    """Return (label, reason) for the faults of *chosen*; alarms that only other *trials* explain do not count."""
    shown = "; ".join(t.signature.sentence for t in chosen if t.signature.seen or t.found)
    unseen = "; ".join(_explain_unseen(t, observed) for t in chosen if not t.signature.seen)
    paths = sum(len(routes(t)) for t in chosen)
    others = {path[-1][0] for trial in trials if trial not in chosen for path in trial.paths}
    alarms = len({f"span|{node}" for node in observed.alarms} - others) if trials else 0
    return decide(
        drifted=baseline.drifted,
        signature=shown or None,
        alarms=max(alarms, int(paths > 0)),
        paths=paths,
        instead=unseen or ("" if trials else "no fault was injected"),
    )


def _judge_fault(
    trial: Trial, trials: Sequence[Trial], baseline: OperationBaseline, observed: ObservedPack
) -> FaultVerdict:
    """Return the verdict on the fault of *trial*, given all *trials* of the incident."""
    label, reason = _label([trial], trials, baseline, observed)
    return FaultVerdict(
        type=trial.fault.type,
        place=trial.fault.place,
        label=label,
        reason=reason,
        shown=trial.signature.seen,
        direction=trial.signature.direction,
    )


def _explain_unseen(trial: Trial, observed: ObservedPack) -> str:
    """Return why the fault of *trial* was not seen: its target has no traces, or the sentence of its check."""
    if not set(trial.services) & set(observed.calls.services):
        return f"the target {trial.fault.place} is nowhere in the traces"
    return trial.signature.sentence
