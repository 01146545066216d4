"""Small truths and answers, written as a person would draw them on paper."""

from __future__ import annotations

from opsassay.core.schema.causal_graph import Annotation, CausalEdge, CausalGraph, CausalNode
from opsassay.core.schema.diagnosis import Diagnosis, PropagationClaim, RootCauseClaim
from opsassay.core.schema.faults import FaultKind
from opsassay.core.schema.incident import Fault, Label, RootLabel, Truth
from opsassay.core.schema.run import Run, RunStatus, Solver


def finished_run(**changes: object) -> Run:
    run = Run(
        cell="c0",
        attempt=1,
        item="i0",
        item_hash="h",
        system="shop",
        solver=Solver(name="s"),
        solver_hash="sh",
        status=RunStatus.DONE,
    )
    return run.model_copy(update=changes)


def ranking_only_run() -> Run:
    return finished_run(solver=Solver(name="s", configuration={"names_fault_kinds": False}))


def truth(*faults: tuple[str, str] | tuple[str, str, str]) -> Truth:
    """Faults as (type, service) or (type, service, peer)."""
    made = tuple(
        Fault(type=f[0], service=f[1], peer=f[2] if len(f) > 2 else None, start_ns=0, end_ns=1) for f in faults
    )
    return Truth(id="i0", system="shop", faults=made)


def no_fault() -> Truth:
    return Truth(id="i0", system="shop", faults=(Fault(type="NoFault", service=None, start_ns=0, end_ns=1),))


def labelled(*services: str) -> Truth:
    return Truth(id="i0", system="shop", roots=tuple(RootLabel(service=(s,)) for s in services))


def annotation(edges: str, alarms: str, label: Label = Label.ATTRIBUTED, nodes: str = "") -> Annotation:
    """Edges as "a>b b>c", alarms and further nodes as "c d"."""
    pairs = [tuple(e.split(">")) for e in edges.split()]
    names = {n for pair in pairs for n in pair} | set(alarms.split()) | set(nodes.split())
    graph = CausalGraph(
        nodes=tuple(CausalNode(component=f"service|{n}") for n in sorted(names)),
        edges=tuple(CausalEdge(source=f"service|{a}", target=f"service|{b}") for a, b in pairs),
        alarm_nodes=tuple(CausalNode(component=f"service|{n}") for n in alarms.split()),
    )
    return Annotation(label=label, reason="", graph=graph)


def answer(*claims: tuple[str, FaultKind | None], edges: str = "") -> Diagnosis:
    return Diagnosis(
        root_causes=tuple(RootCauseClaim(service=s, fault_kind=k) for s, k in claims),
        propagation=tuple(PropagationClaim(source=e.split(">")[0], target=e.split(">")[1]) for e in edges.split()),
    )
