"""CIRCA: it blames the service whose signals their causes do not explain (regression hypothesis test)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import rustworkx

from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.faults import FaultKind
from opsassay.solvers.methods.base import numbers_of, ranked, stated
from opsassay.solvers.methods.claims import KIND_PROTOCOL, KINDS, claim_of_signal
from opsassay.solvers.methods.matrix import (
    COLUMN_SET,
    IMPUTATION,
    METRIC_TO_SERVICE,
    Matrix,
    Readings,
    baseline_words,
    readings,
    z_scores,
)
from opsassay.solvers.methods.parameters import NotNegative, Positive
from opsassay.solvers.methods.propagation import PROTOCOL
from opsassay.solvers.methods.signals import METRIC
from opsassay.telemetry.calls import service_calls
from opsassay.telemetry.datapack import Datapack

TRAFFIC, SATURATION, LATENCY, ERRORS = "traffic", "saturation", "latency", "errors"

_WITHIN = ((TRAFFIC, SATURATION), (TRAFFIC, LATENCY), (SATURATION, LATENCY), (TRAFFIC, ERRORS), (LATENCY, ERRORS))
"""Cause and effect within a service: the structural graph of the four golden signals."""

Group = tuple[str, str]
"""A service and one of its golden signals."""


@dataclass(frozen=True)
class Circa:
    """Rank services by the largest residual of a column, regressed on its parents in the structural graph."""

    claim_at_z: NotNegative = 10.0
    """Blame no service when the top residual is lower."""

    anomalous_at_z: NotNegative = 3.0
    """The |z| from which a column is anomalous, and its score is added to its causes' (descendant adjustment)."""

    ridge: NotNegative = 1.0
    """Penalty on standardised parents: normal bins are few and parents are correlated."""

    window: Positive | None = None
    """Length of the baseline in seconds, up to the end of the normal period; None takes all of the period."""

    name: ClassVar[str] = "circa"
    source: ClassVar[str] = "CIRCA (KDD 2022): regression hypothesis test; the leaderboard audit, appendix F"
    cost: ClassVar[str] = "one small regression per column"
    fault_kinds: ClassVar[tuple[FaultKind, ...]] = KINDS

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The thresholds and the other fields that are not None, by name."""
        return numbers_of(self)

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Blame the service of the column with the largest adjusted residual (`_adjusted`)."""
        table = readings(view, window_s=self.window)
        calls = [(caller, callee) for caller, callee, _ in service_calls(view).iter_rows()]
        groups = [(s, signal_of(name)) for s, name in zip(table.services, table.signals, strict=True)]
        parents = structural_parents(groups, calls)
        residual = self._residuals(table, groups, parents)
        scores = self._adjusted(np.abs(residual).max(axis=0, initial=0.0), groups, parents)
        ranking = ranked(dict.fromkeys(view.candidates(), 0.0) | table.by_service(scores))
        protocol = stated(
            baseline_window=f"{baseline_words(self.window)}, on which the regressions are fitted",
            column_set=f"{COLUMN_SET}; means of {table.step_s:g} s bins",
            imputation=IMPUTATION,
            zero_variance="a residual of zero variance has z = 0",
            metric_to_service=METRIC_TO_SERVICE,
            claim_threshold=f"an adjusted residual of at least {self.claim_at_z:g}",
            fault_kind=KIND_PROTOCOL,
            propagation=PROTOCOL,
            graph="traffic, saturation, latency and errors of a service; callers' traffic causes callees', callees' "
            f"latency and errors cause callers'; from {len(calls)} calls seen in spans",
            regression=f"ridge {self.ridge:g} on standardised parents",
            adjustment=f"from |z| {self.anomalous_at_z:g} on, the largest score among anomalous effects is added",
        )
        fallback = "" if calls else "no calls between services were seen: every column stands for itself, as in max-z"
        if not ranking or ranking[0].score < self.claim_at_z:
            diagnosis = claim_of_signal(view, ranking, None, 0.0, protocol)
        else:
            place = table.top_signal(ranking[0].service, scores)
            reading = float(residual[np.abs(residual[:, place]).argmax(), place])
            note = f"{table.signals[place]} of {ranking[0].service} is {reading:.1f} deviations from what explains it"
            diagnosis = claim_of_signal(view, ranking, table.signals[place], reading, protocol, note)
        return diagnosis.model_copy(update={"notes": (*diagnosis.notes, *([fallback] if fallback else []))})

    def _residuals(self, table: Readings, groups: list[Group], parents: Mapping[Group, set[Group]]) -> Matrix:
        """Return z of the residual of every abnormal reading (bins x columns); *groups* has the group of each column.

        Columns of a group are regressed on those of its parent groups, both standardised by the normal period; the
        residual is standardised by its own normal mean and sd (CIRCA, KDD 2022, section 4.2: regression-based hypothesis
        testing; the reference uses ordinary least squares or support vectors, ours is ridge).
        """
        members: dict[Group, list[int]] = {}
        for place, group in enumerate(groups):
            members.setdefault(group, []).append(place)
        standard = z_scores(table.normal, np.vstack([table.normal, table.abnormal]))
        rows, out = len(table.normal), np.zeros_like(table.abnormal)
        for group, columns in members.items():
            causes = sorted(place for parent in parents.get(group, ()) for place in members.get(parent, ()))
            explained = _ridge(standard[:, causes], standard[:, columns], rows, self.ridge) if causes else 0.0
            residual = standard[:, columns] - explained
            out[:, columns] = z_scores(residual[:rows], residual[rows:])
        return out

    def _adjusted(self, scores: Matrix, groups: list[Group], parents: Mapping[Group, set[Group]]) -> Matrix:
        """Return *scores* (one per column) with the largest score of anomalous effects added to anomalous columns.

        For a group g with own score s_g (the largest of its columns): below_g = max over effects e of (s_e + below_e), of
        those where that is at least `anomalous_at_z`, and 0 for a group whose s_g is lower than that; adjusted = own +
        below for anomalous columns (CIRCA, section 4.3: descendant adjustment).
        """
        largest: dict[Group, float] = {}
        for group, score in zip(groups, scores.tolist(), strict=True):
            largest[group] = max(score, largest.get(group, 0.0))
        effects: dict[Group, set[Group]] = {}
        for effect, causes in parents.items():
            for cause in causes:
                effects.setdefault(cause, set()).add(effect)
        below: dict[Group, float] = {}
        for group in _effects_first(largest, effects):
            known = [largest[e] + below[e] for e in effects.get(group, ()) if e in below]
            anomalous = [score for score in known if score >= self.anomalous_at_z]
            below[group] = max(anomalous, default=0.0) if largest[group] >= self.anomalous_at_z else 0.0
        added = [below[group] if scores[i] >= self.anomalous_at_z else 0.0 for i, group in enumerate(groups)]
        adjusted: Matrix = scores + np.array(added)
        return adjusted


def signal_of(name: str) -> str:
    """Return the golden signal that the column *name* measures, by words in it such as "latency" or "error"."""
    lower = name.lower()
    if name.startswith(METRIC) and not any(word in lower for word in ("latency", "error", "fault", "request")):
        return SATURATION
    if "latency" in lower:
        return LATENCY
    return ERRORS if any(word in lower for word in ("failed", "error", "fault")) else TRAFFIC


def structural_parents(groups: Iterable[Group], calls: Iterable[tuple[str, str]]) -> dict[Group, set[Group]]:
    """Return per group (service, signal) its causes: in its service, and along (caller, callee) *calls*."""
    known = set(groups)
    parents: dict[Group, set[Group]] = {group: set() for group in known}
    edges = [((s, cause), (s, effect)) for s, _ in known for cause, effect in _WITHIN]
    for caller, callee in calls:
        edges += [((caller, TRAFFIC), (callee, TRAFFIC))]
        edges += [((callee, signal), (caller, signal)) for signal in (LATENCY, ERRORS)]
    for cause, effect in edges:
        if cause in known and effect in known:
            parents[effect].add(cause)
    return parents


def _ridge(causes: Matrix, effects: Matrix, rows: int, penalty: float) -> Matrix:
    """Return *effects* as predicted from *causes* by a ridge regression that is fitted to the first *rows*.

    *causes* is bins x parents, *effects* bins x columns. coefficients = (X'X + penalty rows I)^-1 X'Y with X the causes
    and an intercept, which is not penalised (Hoerl and Kennard 1970).
    """
    design = np.column_stack([causes, np.ones(len(causes))])
    fitted = design[:rows]
    weight = penalty * rows * np.eye(design.shape[1])
    weight[-1, -1] = 0.0  # the intercept is not shrunk
    coefficients = np.linalg.lstsq(fitted.T @ fitted + weight, fitted.T @ effects[:rows], rcond=None)[0]
    predicted: Matrix = design @ coefficients
    return predicted


def _effects_first(groups: Iterable[Group], effects: Mapping[Group, set[Group]]) -> list[Group]:
    """Return *groups* in an order in which each follows its *effects*; groups of one cycle are sorted by name."""
    graph: rustworkx.PyDiGraph[Group, None] = rustworkx.PyDiGraph()
    index = {group: graph.add_node(group) for group in sorted(groups)}
    edges = [
        (index[c], index[e]) for c, found in sorted(effects.items()) for e in sorted(found) if {c, e} <= index.keys()
    ]
    graph.add_edges_from_no_data(edges)
    return [graph[node] for part in rustworkx.strongly_connected_components(graph) for node in sorted(part)]
