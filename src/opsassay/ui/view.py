"""Converts a CaseReport to the data of the page script: texts, numbers and indices.

Every text goes through `plain`; the script inserts it with ``textContent`` only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from opsassay.annotation.verdict.explain import GATES, explain
from opsassay.core.errors import NotFoundError
from opsassay.core.schema.causal_graph import Annotation
from opsassay.core.schema.incident import EffectCheck, Fault, Incident, Label
from opsassay.core.text import number_text, plural
from opsassay.scoring.void import void_reason
from opsassay.ui.glossary import LABELS
from opsassay.ui.overlay import Overlay, OverlayMark, answer_overlay, root_groups, truth_overlay
from opsassay.ui.payload import CaseReport, Signals
from opsassay.ui.plain import plain, signed_seconds, utc
from opsassay.ui.tables import answer_view, best_first, footer_rows, grades_view, solver_name, solvers_right

View = dict[str, Any]


def page_view(cases: Sequence[CaseReport]) -> list[View]:
    """Return the JSON-ready page data of *cases*, in the same order."""
    return [case_view(case) for case in cases]


def case_view(case: CaseReport) -> View:
    """Return the JSON-ready page data of one case, in which services are indices into its ``services``."""
    answers = best_first(case.answers)
    layers: list[tuple[str, int | None, Overlay]] = []
    if case.truth or case.annotation:
        layers.append(("Truth", None, truth_overlay(case.truth, case.annotation)))
    layers += [
        (solver_name(a), i, answer_overlay(a.diagnosis, case.truth, case.annotation, case.topology.services))
        for i, a in enumerate(answers)
    ]
    services = _list_services(case, [overlay for _, _, overlay in layers])
    index = {service: i for i, service in enumerate(services)}
    return {
        "id": plain(case.incident.id),
        "system": plain(case.incident.system),
        "fault": plain(_describe_faults(case)),
        "label": plain(case.annotation.label.value) if case.annotation else "not annotated",
        "solved": solvers_right(case.answers),
        "headline": headline(case),
        "facts": _list_facts(case),
        "alerts": _alert_items(case.incident, index),
        "services": [_service_view(case, s) for s in services],
        "calls": [
            {
                "source": index[c.caller],
                "target": index[c.callee],
                "normal": c.calls_normal,
                "abnormal": c.calls_abnormal,
            }
            for c in case.topology.calls
        ],
        "layers": [_layer_view(name, at, overlay, case, index) for name, at, overlay in layers],
        "cascade": _cascade_rows(case),
        "why": explain_view(case.annotation),
        "charts": _chart_data(case, index),
        "grades": grades_view(answers),
        "answers": [answer_view(a) for a in answers],
        "footer": footer_rows(case),
        "commands": [plain(c) for c in case.reproduce] or _list_commands(case),
    }


def headline(case: CaseReport) -> str:
    """Return a sentence on what was broken: the faults, nothing, or that it is unknown."""
    system = plain(case.incident.system, 80)
    if case.truth is None:
        return f"An incident of system {system}; what was broken is not part of this report."
    if case.truth.broken is None:
        return f"An incident of system {system}; what was broken is not on record."
    if not case.truth.broken:
        return f"Nothing was broken in system {system}: a no-fault case, where the right answer is “nothing is wrong”."
    if faults := [fault for fault, _, _ in case.truth.affected()]:
        return f"In system {system}, " + "; ".join(_describe_fault(f) for f in faults) + "."
    roots = plain(_describe_roots(case), 200)
    return f"In system {system}, something was broken at {roots}; the fault itself is not on record."


def _describe_fault(fault: Fault) -> str:
    """Return a clause on *fault*: type, target, parameters, start and duration."""
    target = plain(fault.place or "the system", 80) + (f" → {plain(fault.peer, 80)}" if fault.peer else "")
    knobs = ", ".join(f"{plain(k, 60)} = {_format_parameter(v)}" for k, v in fault.parameters.items())
    lasted = (fault.end_ns - fault.start_ns) / 1e9
    return (
        f"{plain(fault.type, 80)} was injected into {target}"
        + (f" ({knobs})" if knobs else "")
        + f" at {utc(fault.start_ns)} for {lasted:.0f} s"
        + (", emulated" if fault.emulated else "")
    )


def _format_parameter(value: Any) -> str:
    """Return the value of a fault's parameter as text."""
    return f"{value:g}" if isinstance(value, float) else plain(value, 120)


def _describe_faults(case: CaseReport) -> str:
    """Return the injected faults in short: "TYPE on PLACE", "no fault", "unknown"."""
    if case.truth is None:
        return "unknown"
    if not case.truth.broken:
        return "no fault" if case.truth.broken is False else "not on record"
    injected = ", ".join(f"{fault.type} on {fault.place}" for fault, _, _ in case.truth.affected())
    return injected or f"not on record, at {_describe_roots(case)}"


def _list_facts(case: CaseReport) -> list[tuple[str, str]]:
    """Return (name, text) of the facts on the incident's page, empty ones left out."""
    incident, truth, note = case.incident, case.truth, case.annotation
    facts = [("System", incident.system), ("Description", incident.description)]
    if truth:
        kinds = {_kind_of_fault(f) for f in truth.faults} - {""}
        facts += [("Observable as", ", ".join(sorted(kinds))), ("Root cause", _describe_roots(case))]
    facts.append(("Label", LABELS[note.label] if note else "not annotated"))
    facts.append(("Reason", note.reason if note else ""))
    facts.append(("Void", void_reason(truth, note) if truth else ""))
    if truth and truth.is_fingerprinted:
        facts.append(("Fingerprinted", "recorded before draws had a secret; a grade on it gives no rank"))
    facts += [("Effect check", _describe_effect(effect)) for effect in (truth.effects if truth else ())]
    if truth:
        recovered = {None: "", True: "yes, after the fault was undone", False: "no"}[truth.recovered]
        facts += [("Recovered", recovered), ("Isolation", truth.isolation), ("Notes", "\n".join(truth.notes))]
    facts.append(("Normal window", f"{utc(incident.normal.start_ns)}, {incident.normal.seconds:.0f} s"))
    facts.append(("Abnormal window", f"{utc(incident.abnormal.start_ns)}, {incident.abnormal.seconds:.0f} s"))
    return [(name, plain(text)) for name, text in facts if text]


def _describe_effect(effect: EffectCheck) -> str:
    """Return the result of the effect check: the signal before and after the fault, and the threshold."""
    before, after, threshold = (number_text(one, 4) for one in (effect.before, effect.after, effect.threshold))
    return (
        f"{'passed' if effect.passed else 'not passed'}: {effect.signature.rstrip('.')} went from {before} to {after} "
        f"(threshold {threshold}, seen after {effect.seconds:.1f} s)"
    )


def _kind_of_fault(fault: Fault) -> str:
    """Return the fault's kind, "" when its type is unknown here."""
    try:
        return fault.kind.value if fault.kind else ""
    except NotFoundError:  # an imported case may carry a fault type that the catalogue does not have
        return ""


def _describe_roots(case: CaseReport) -> str:
    """Return the true root services as text; equivalent ones are joined by "or"."""
    groups = root_groups(case.truth, case.annotation)
    return "; ".join(" or ".join(sorted(g)) for g in groups) or "none"


def _list_services(case: CaseReport, overlays: Sequence[Overlay]) -> list[str]:
    """Return all services named by topology, signals, alerts or *overlays*, sorted."""
    names = set(case.topology.services) | {s.service for s in case.signals.services}
    names |= {name for c in case.topology.calls for name in (c.caller, c.callee)}
    names |= {alert.service for alert in case.incident.alerts}
    for overlay in overlays:
        names |= {n.service for n in overlay.nodes} | {x for e in overlay.edges for x in (e.source, e.target)}
    return sorted(names)


def _service_view(case: CaseReport, service: str) -> View:
    """Return the page data of *service*: name, whether it is the entry, whether it has spans, number of alerts."""
    return {
        "name": plain(service, 400),
        "entry": service == case.topology.entry,
        "known": service in case.topology.services,
        "alerts": sum(1 for a in case.incident.alerts if a.service == service),
    }


def _layer_view(name: str, answer: int | None, overlay: Overlay, case: CaseReport, index: dict[str, int]) -> View:
    """Return *overlay* as page data; *answer*: the answer's number or None (truth); *index*: service to number."""
    start = _first_fault_ns(case)
    return {
        "name": name,
        "answer": answer,
        "judgedRoots": overlay.judged_roots,
        "judgedEdges": overlay.judged_edges,
        "nodes": [
            {
                "service": index[n.service],
                "mark": n.mark.value,
                "alarm": n.is_alarm,
                "states": plain(", ".join(n.states), 200),
                "onset": _format_onset(n.onset_ns, start),
            }
            for n in overlay.nodes
        ],
        "edges": [
            {
                "source": index[e.source],
                "target": index[e.target],
                "mark": e.mark.value,
                "rules": plain(", ".join(e.rules), 200),
            }
            for e in overlay.edges
        ],
        "summary": _describe_layer(overlay, answer, case.annotation.label if case.annotation else None),
    }


def _describe_layer(overlay: Overlay, answer: int | None, label: Label | None) -> str:
    """Return how many roots and edges *overlay* has: true ones if *answer* is None, else right, missing and wrong."""
    if answer is None:
        root_count = sum(n.mark is OverlayMark.ROOT for n in overlay.nodes)
        others = len(overlay.nodes) - root_count
        counts = ((root_count, "root"), (others, "other affected service"), (len(overlay.edges), "edge"))
        unverified = "" if label in (None, Label.ATTRIBUTED) else f"; labelled {label.value}: no verified cascade"
        return ", ".join(plural(number, noun) for number, noun in counts) + unverified
    roots = _count_marks([n.mark for n in overlay.nodes], judged=overlay.judged_roots)
    edges = _count_marks([e.mark for e in overlay.edges], judged=overlay.judged_edges)
    return f"Roots: {roots}. Edges: {edges}."


def _count_marks(marks: list[OverlayMark], *, judged: bool) -> str:
    """Return how many *marks* are right, missing and wrong; how many are claimed unless *judged*."""
    if not judged:
        return f"{len(marks)} claimed, not judged"
    return ", ".join(
        f"{marks.count(m)} {w}"
        for m, w in ((OverlayMark.AGREES, "right"), (OverlayMark.MISSING, "missing"), (OverlayMark.WRONG, "wrong"))
    )


def _first_fault_ns(case: CaseReport) -> int:
    """Return the start of the first fault, of the abnormal window when no fault is known; ns."""
    faults = case.truth.faults if case.truth else ()
    return min((f.start_ns for f in faults), default=case.incident.abnormal.start_ns)


def _format_onset(onset_ns: int | None, start_ns: int) -> str:
    """Return *onset_ns* as seconds after *start_ns* with a sign, such as "+3.2 s"; "" for None."""
    return "" if onset_ns is None else signed_seconds(onset_ns - start_ns)


def _cascade_rows(case: CaseReport) -> list[list[str]]:
    """Return [source, target, onset, rule, evidence] for each edge of the true cascade."""
    if case.annotation is None:
        return []
    graph, start = case.annotation.graph, _first_fault_ns(case)
    onset = {n.component: n.timestamp for n in graph.nodes}
    return [
        [
            plain(e.source, 200),
            plain(e.target, 200),
            _format_onset(onset.get(e.target), start) or "–",
            plain(e.rule or "–", 200),
            plain(e.evidence, 600) if e.evidence else "–",
        ]
        for e in graph.edges
    ]


def _alert_items(incident: Incident, index: dict[str, int]) -> list[View]:
    """Return the alerts as page data by time; *index* is service to number."""
    return [
        {
            "at": utc(a.time_ns),
            "x": axis_seconds(incident, a.time_ns),
            "service": index[a.service],
            "signal": plain(a.signal, 80),
            "value": number_text(a.value, 4),
            "threshold": number_text(a.threshold, 4),
            "message": plain(a.message, 600),
        }
        for a in sorted(incident.alerts, key=lambda a: (a.time_ns, a.service))
    ]


def axis_seconds(incident: Incident, time_ns: int) -> float:
    """Return the position of *time_ns* on the charts' axis: seconds from the boundary of the two windows.

    The normal window ends at zero and the abnormal one begins there: a gap between them is cut out, and a normal window
    recorded after the abnormal one is drawn first.
    """
    normal, abnormal = incident.normal, incident.abnormal
    before = time_ns < abnormal.start_ns if _is_in_order(incident) else normal.start_ns <= time_ns < normal.end_ns
    return round((min(0, time_ns - normal.end_ns) if before else time_ns - abnormal.start_ns) / 1e9, 3)


def _is_in_order(incident: Incident) -> bool:
    """Whether the normal window ends before the abnormal one begins."""
    return incident.normal.end_ns <= incident.abnormal.start_ns


def _describe_gap(incident: Incident) -> str:
    """Return a sentence on the order of the windows and a gap that is cut out; "" when there is no gap."""
    gap_s = (incident.abnormal.start_ns - incident.normal.end_ns) / 1e9
    if not _is_in_order(incident):
        return "The normal window was recorded after the abnormal one and is drawn first."
    return f"{gap_s:,.0f} s between the two windows are cut out." if gap_s >= 1 else ""


def _chart_data(case: CaseReport, index: dict[str, int]) -> View:
    """Return the charts' data, times in seconds from the start of the abnormal window; *index*: service to number."""
    incident, signals = case.incident, case.signals
    start, end = -incident.normal.seconds, incident.abnormal.seconds
    windows = [
        (axis_seconds(incident, f.start_ns), axis_seconds(incident, min(f.end_ns, incident.abnormal.end_ns)))
        for f, _, _ in (case.truth.affected() if case.truth else ())
    ]
    roots = sorted({index[s] for g in root_groups(case.truth, case.annotation) for s in g if s in index})
    return {
        "x": [axis_seconds(incident, t) for t in signals.times_ns],
        "bucket": signals.bucket_s,
        "start": start,
        "end": end,
        "gap": _describe_gap(incident),
        "faults": [(max(a, start), min(b, end)) for a, b in windows],
        "roots": roots,
        "entry": index.get(case.topology.entry) if case.topology.entry else None,
        "series": _series_items(signals, index),
    }


def _series_items(signals: Signals, index: dict[str, int]) -> list[View]:
    """Return per service its request rate, error share in percent and latencies in ms, over time."""
    return [
        {
            "service": index[s.service],
            "rate": [_round_value(v) for v in s.requests_per_s],
            "errors": [_round_value(None if v is None else 100 * v) for v in s.error_share],
            "p50": [_round_value(v) for v in s.latency_p50_ms],
            "p99": [_round_value(v) for v in s.latency_p99_ms],
        }
        for s in signals.services
    ]


def _round_value(value: float | None) -> float | None:
    """Return *value* with four significant digits, None when it is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def _list_commands(case: CaseReport) -> list[str]:
    """Return the command lines that reproduce the results on the page of *case*."""
    datapack = plain(case.incident.id, 200)
    methods = sorted({a.run.solver.label for a in case.answers if a.run.solver.kind == "method"})
    return [
        f"opsassay incident annotate incidents/{datapack}",
        *(f"opsassay run diagnose incidents/{datapack} -m {plain(m, 200)}" for m in methods),
        *(["opsassay score run runs/*/*"] if case.answers else []),
    ]


MOST_PATHS = 60
"""Paths of each kind that a page lists; the rest is counted."""


def explain_view(annotation: Annotation | None) -> dict[str, Any] | None:
    """Return the JSON-ready explanation of *annotation*, None without one."""
    if annotation is None:
        return None
    explained = explain(annotation)
    return {
        "summary": [plain(line) for line in explained.summary],
        "accepted": [[plain(p.path), [plain(r) for r in p.reasons]] for p in explained.accepted[:MOST_PATHS]],
        "rejected": [
            [plain(p.path), p.gate or "", GATES.get(p.gate or "", ""), plain("; ".join(p.reasons))]
            for p in explained.rejected[:MOST_PATHS]
        ],
        "more": max(len(explained.accepted) - MOST_PATHS, 0) + max(len(explained.rejected) - MOST_PATHS, 0),
    }
