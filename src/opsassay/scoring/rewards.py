"""Process rewards: the value of each step of a trace for the verified cascade and for the answer's evidence.

OpenRCA 2.0 proposes verified edges as step-wise supervision (arXiv 2606.27154, sections 4.3 and A.5) and defines no
rewards; these are OpsAssay's. They need no model.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from opsassay.core.schema.run import EvidenceResult, Metric
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.scoring.process import ServiceGraph
from opsassay.scoring.profiles import Profile
from opsassay.scoring.trajectory import visited_services


@dataclass(frozen=True)
class StepReward:
    """The reward of one step, in four parts; over a trace each part sums to at most 1."""

    step_id: int
    edges: float
    evidence: float
    answer: float
    wasted: float

    @property
    def reward(self) -> float:
        """The sum edges + evidence + answer - wasted, in [-1, 3]."""
        return self.edges + self.evidence + self.answer - self.wasted


def step_rewards(
    trace: Trace,
    services: Collection[str],
    cascade: ServiceGraph,
    evidence: Sequence[EvidenceResult],
    edge_f1: Metric | None,
    profile: Profile,
) -> tuple[StepReward, ...]:
    """Return the reward of every step of *trace*, in order.

    - edges: of the edges of *cascade*, the share whose two ends had been queried after this step and not before; of its
      services where it has no edge. Queried is a service of *services* that an answered call names.
    - evidence: of the statements in *evidence*, the share that are relevant and that an answered call of this step ran
      first, word for word; those that no step ran belong to the last one.
    - answer: *edge_f1* of the answer, at the last step; 0 where there is none.
    - wasted: the share of all tool calls of the trace that are calls of this step which failed or had been made before.
    """
    if not trace.steps:
        return ()
    looked = [_services_looked_at(step, {*services, *cascade.nodes}, profile) for step in trace.steps]
    edges, credited = _newly_covered_edges(looked, cascade), _credit_evidence(trace.steps, evidence)
    wasted = _wasted_share_of_calls(trace.steps)
    last = len(trace.steps) - 1
    final = edge_f1.value if edge_f1 is not None and edge_f1.value is not None else 0.0
    return tuple(
        StepReward(
            step_id=step.step_id,
            edges=edges[number],
            evidence=credited[number],
            answer=final if number == last else 0.0,
            wasted=wasted[number],
        )
        for number, step in enumerate(trace.steps)
    )


def _services_looked_at(step: TraceStep, services: Iterable[str], profile: Profile) -> frozenset[str]:
    """Return those of *services* that successful tool calls of *step* name, names compared by *profile*."""
    return visited_services(_list_successful_calls(step), services, profile)


def _list_successful_calls(step: TraceStep) -> Iterable[ToolCall]:
    """Return the tool calls of *step* without an error."""
    return (call for call in step.tool_logs if call.status == "ok")


def _newly_covered_edges(services_by_step: Sequence[frozenset[str]], cascade: ServiceGraph) -> list[float]:
    """Return per step the share of the cascade's edges whose two services were first both queried by then."""
    goals = [frozenset(edge) for edge in cascade.edges] or [frozenset({node}) for node in cascade.nodes]
    known: set[str] = set()
    shares = []
    for services in services_by_step:
        before = sum(goal <= known for goal in goals)
        known |= services
        shares.append((sum(goal <= known for goal in goals) - before) / len(goals) if goals else 0.0)
    return shares


def _credit_evidence(steps: Sequence[TraceStep], evidence: Sequence[EvidenceResult]) -> list[float]:
    """Return per step the share of statements that are relevant and that it ran first; else the last step's."""
    ran: dict[str, int] = {}
    for number, step in enumerate(steps):
        for call in _list_successful_calls(step):
            for value in call.arguments.values():
                if isinstance(value, str):
                    ran.setdefault(_normalise_statement(value), number)
    shares = [0.0] * len(steps)
    for result in evidence:
        if result.status == "ok" and result.relevant and not result.vacuous:
            shares[ran.get(_normalise_statement(result.sql), len(steps) - 1)] += 1 / len(evidence)
    return shares


def _normalise_statement(text: str) -> str:
    """Return the SQL *text* with single spaces and without a final semicolon."""
    return " ".join(text.split()).rstrip("; ")


def _wasted_share_of_calls(steps: Sequence[TraceStep]) -> list[float]:
    """Return per step the share of all the trace's tool calls that it made and that failed or were repeated."""
    calls = sum(len(step.tool_logs) for step in steps)
    seen: set[str] = set()
    shares = []
    for step in steps:
        lost = 0
        for call in step.tool_logs:
            key = f"{call.tool}\0{json.dumps(call.arguments, sort_keys=True)}"
            lost += call.status == "error" or key in seen
            seen.add(key)
        shares.append(lost / calls if calls else 0.0)
    return shares
