"""The profile `compat` against 500 grades of the public scorer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsassay.core.schema.causal_graph import Annotation, CausalEdge, CausalGraph, CausalNode
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.faults import CATALOGUE
from opsassay.core.schema.incident import Fault, Label, Truth
from opsassay.scoring.profiles import PROFILES
from opsassay.scoring.verdict import grade

from .cases import finished_run

TYPE_OF_KIND = {row.kind.value: row.name for row in CATALOGUE.values()}
OURS_OF_THEIRS = {
    "precision": "precision",
    "recall": "recall",
    "f1": "f1",
    "exact_match": "exact_match",
    "fault_kind_accuracy": "fault_kind_accuracy",
    "node_precision": "node_precision",
    "node_recall": "node_recall",
    "node_f1": "node_f1",
    "edge_precision": "edge_precision",
    "edge_recall": "edge_recall",
    "edge_f1": "edge_f1",
    "path_reachability_hit_undirected": "path_reachability_hit",
}


def truth_of(case: dict[str, Any]) -> Truth:
    faults = tuple(
        Fault(type=TYPE_OF_KIND[f["fault_kind"]], service=f["service"], peer=peer_of(f), start_ns=0, end_ns=1)
        for f in case["truth"]["faults"]
    )
    return Truth(id="case", system="s", faults=faults)


def peer_of(fault: dict[str, Any]) -> str | None:
    ends = {fault["direction_src"], fault["direction_dst"]} - {None, fault["service"]}
    assert len(ends) <= 1
    return ends.pop() if ends else None


def annotation_of(case: dict[str, Any]) -> Annotation:
    def nodes(names: list[str]) -> tuple[CausalNode, ...]:
        return tuple(CausalNode(component=f"service|{name}") for name in names)

    edges = tuple(CausalEdge(source=f"service|{a}", target=f"service|{b}") for a, b in case["truth"]["edges"])
    graph = CausalGraph(nodes=nodes(case["truth"]["nodes"]), edges=edges, alarm_nodes=nodes(case["truth"]["alarms"]))
    return Annotation(label=Label.ATTRIBUTED, reason="given", graph=graph)


@pytest.fixture(scope="session")
def peer_cases(real_data: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (real_data / "peer-grades" / "cases.jsonl").read_text().splitlines()]


def test_compat_gives_every_figure_of_the_public_scorer(peer_cases: list[dict[str, Any]]) -> None:
    assert len(peer_cases) == 500
    differences = []
    for number, case in enumerate(peer_cases):
        answer = Diagnosis.model_validate(case["answer"])
        verdict = grade(finished_run(), answer, truth_of(case), annotation_of(case), None, PROFILES["compat"])
        for theirs, ours in OURS_OF_THEIRS.items():
            expected = case["grades"][theirs]
            if verdict.metrics[ours].value != (None if expected is None else float(expected)):
                differences.append((number, ours, verdict.metrics[ours], expected))
    assert not differences


def test_the_directed_default_never_grounds_more_than_the_undirected_public_walk(
    peer_cases: list[dict[str, Any]],
) -> None:
    fewer = 0
    for case in peer_cases:
        answer = Diagnosis.model_validate(case["answer"])
        graded = [
            grade(finished_run(), answer, truth_of(case), annotation_of(case), None, profile).metrics
            for profile in (PROFILES["compat"], PROFILES["compat"].model_copy(update={"undirected": False}))
        ]
        undirected, directed = (m["path_reachability_hit"].value or 0.0 for m in graded)
        assert directed <= undirected
        fewer += directed < undirected
    assert fewer > 0
