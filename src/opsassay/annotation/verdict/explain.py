"""Why each path was accepted or rejected, in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from opsassay.annotation.search.rules import RULES
from opsassay.core.schema.causal_graph import Annotation, CausalEdge, CausalGraph

GATES = {
    "signature": "the fault does not show at its place",
    "deviation": "the next part behaves as in the baseline",
    "rule": "no rule lets this state cause that one",
    "temporal": "the effect was there before its cause",
    "carried": "what the next part suffers came from elsewhere",
    "surface": "the way ends where no user felt it",
    "hops": "the way is longer than the limit",
}
"""The gates in the order in which they are applied, with the meaning of a failure."""

_MECHANISM = {rule.id: rule.mechanism for rule in RULES}


@dataclass(frozen=True)
class Reasoned:
    """A path as text with *reasons*: one sentence per hop if accepted, one for the failed *gate* if rejected."""

    path: str
    reasons: tuple[str, ...]
    gate: str | None = None


@dataclass(frozen=True)
class Explanation:
    """*summary* in sentences; accepted paths hop by hop; rejected ones with the first gate that each failed."""

    summary: tuple[str, ...]
    accepted: tuple[Reasoned, ...]
    rejected: tuple[Reasoned, ...]

    def lines(self) -> list[str]:
        """Return the whole explanation as lines of text."""
        text = list(self.summary)
        for path in self.accepted:
            text += [f"accepted: {path.path}", *(f"    {reason}" for reason in path.reasons)]
        for path in self.rejected:
            text += [f"rejected at {path.gate}: {path.path}", *(f"    {reason}" for reason in path.reasons)]
        return text


def explain(annotation: Annotation) -> Explanation:
    """Return *annotation* in words: its label, each path with reasons, and why other paths were rejected."""
    edges = {(edge.source, edge.target): edge for edge in annotation.graph.edges}
    onsets = _onset_seconds(annotation.graph)
    accepted = tuple(
        Reasoned(
            _format_path(path), tuple(_describe_hop(annotation.graph, edges, onsets, a, b) for a, b in pairwise(path))
        )
        for path in annotation.paths
    )
    rejected = tuple(
        Reasoned(_format_path(r.path), (r.reason.replace("span|", ""),), r.gate) for r in annotation.rejected
    )
    return Explanation(tuple(_summarise_annotation(annotation)), accepted, rejected)


def _summarise_annotation(annotation: Annotation) -> list[str]:
    """Return lines: labels, alarms, failure paths that each propagation check rejected (counts), false alarms, notes."""
    lines = [f"{annotation.label.value}: {annotation.reason}"]
    if len(annotation.faults) > 1:
        lines += [f"{f.type} at {f.place}: {f.label.value}: {f.reason}" for f in annotation.faults]
    explained, unexplained = (annotation.alarms.get(k, ()) for k in ("explained", "unexplained"))
    if explained or unexplained:
        rest = f"; not explained: {', '.join(map(_format_component, unexplained))}" if unexplained else ""
        lines.append(f"{len(explained)} of {len(explained) + len(unexplained)} alarms are explained{rest}.")
    counted = Counter(r.gate for r in annotation.rejected)
    if counted:
        lines.append("Rejected: " + ", ".join(f"{counted[g]} at {g} ({GATES[g]})" for g in GATES if counted[g]) + ".")
    if annotation.false_alarm_rate is not None:
        share = f"{annotation.false_alarm_rate:.1%}"
        lines.append(f"On the second half of the normal window the screens raise {share} false alarms.")
    return [*lines, *annotation.notes]


def _format_path(path: tuple[str, ...]) -> str:
    """Return *path* as one line, with arrows between its components."""
    return " → ".join(map(_format_component, path))


def _format_component(component: str) -> str:
    """Return the component for a reader: "cart::GET /" for a span, "host n1" for a host, else "kind name"."""
    kind, _, name = component.partition("|")
    return name if kind == "span" else f"host {name}" if kind == "node" else f"{kind} {name}"


def _onset_seconds(graph: CausalGraph) -> dict[str, float]:
    """Return component to its onset in seconds after the root's fault began."""
    times = {node.component: node.timestamp for node in (*graph.nodes, *graph.root_causes) if node.timestamp}
    began = min((node.timestamp for node in graph.root_causes if node.timestamp), default=0)
    return {component: (time - began) / 1e9 for component, time in times.items()}


def _describe_hop(
    graph: CausalGraph, edges: dict[tuple[str, str], CausalEdge], onsets: dict[str, float], source: str, target: str
) -> str:
    """Return a sentence on the hop from *source* to *target*: states, rule, evidence, and its onset in *onsets* (s)."""
    into = edges.get((source, target)) or next((e for (_, t), e in edges.items() if t == target), None)
    states = next((", ".join(n.state) for n in graph.nodes if n.component == target), "")
    when = f" from {onsets[target]:+.0f} s on" if target in onsets else ""
    if into is None:
        return f"{_format_component(target)} is {states}{when}"
    evidence = into.evidence
    why = []
    if "explained_share" in evidence:
        why.append(f"{float(evidence['explained_share']):.0%} of its added time is the root's")
    if "carried_failures" in evidence:
        why.append(f"{evidence['carried_failures']} failed calls came this way")
    if "missing_share" in evidence:
        why.append(f"{float(evidence['missing_share']):.0%} of its missing calls are this caller's")
    if "through" in evidence:
        why.append(f"through {_format_component(str(evidence['through']))}, which looks healthy")
    if "host" in evidence:
        why.append(f"it runs on {evidence['host']} too, whose processor is strained")
    if "at" in evidence:
        why.append(f"it is {evidence['at']}")
    if "answers" in evidence:
        why.append("its answers changed")
    by = f" by {into.rule} ({_MECHANISM.get(into.rule or '', 'given')})"
    return f"{_format_component(target)} is {states}{when}{by}: {'; '.join(why) or 'as the rule says'}"
