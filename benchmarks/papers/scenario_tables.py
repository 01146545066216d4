"""Tables 1, 2 and 4 to 7 of "side-effects": scenarios and what is committed for them, pairs of oracles, slices of runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from opsassay.core.schema.scenario import OpsCall, Scenario
from opsassay.evals.remediation.authoring.checks import layers
from opsassay.evals.remediation.tables import BASELINE, TrialRow, group_rows, share
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.tables import ResultTable

from .running import part_of

CHECKS = {
    "D1": "{:.0%} of replicas ready", "D2": "every backend list filled",
    "D3": "an end-to-end request to {} answered", "D4": "every part of the control plane runs",
}  # fmt: skip
"""What each depth asks of the final state."""


def scenario_tables(scenarios: Iterable[Scenario]) -> list[ResultTable]:
    """Return Tables 1, 4, 5 and 6 of *scenarios*, each once."""
    known = sorted({one.id: one for one in scenarios}.values(), key=lambda one: one.id)
    used = tuple((one.id, one.title, f"{_depth(one)}: {_check(one)}") for one in known)
    injected = tuple((one.id, one.title, _injection(one), _depth(one), _class(one)) for one in known)
    return [
        ResultTable("Scenarios", ("ID", "plain description", "required check"), used, number=1),
        ResultTable("Injection and depth", ("ID", "scenario", "injection", "depth", "class"), injected, number=4),
        _alerts(known),
        _layers(known),
    ]


def _depth(scenario: Scenario) -> str:
    return scenario.verification.committed_depth


def _class(scenario: Scenario) -> str:
    return "D1-check" if _depth(scenario) == "D1" else "deeper-check"


def _check(scenario: Scenario) -> str:
    committed = scenario.verification
    services = ", ".join(committed.protected_services) or "the entries of the system"
    value = committed.final_availability if committed.committed_depth == "D1" else services
    return CHECKS[committed.committed_depth].format(value)


def _injection(scenario: Scenario) -> str:
    """Return what breaks, in words of the catalogue, of operations, and of objects of a cluster."""
    faults = (
        f"{part.fault} of {part.target.name}" if part.target else str(part.fault)
        for plan in scenario.trigger.faults
        for part in plan.parts
    )
    cluster = scenario.cluster
    objects = [
        f"{'create' if one.create is not None else 'patch'} {one.kind} {one.name}: {json.dumps(one.create or one.patch)}"
        for one in (cluster.changes if cluster is not None else ())
    ]
    objects += [f"{one.op} node {one.node}" for one in (cluster.nodes if cluster is not None else ())]
    return "; ".join([*faults, *map(_call, scenario.trigger.operations), *objects]) or "nothing is broken"


def _call(call: OpsCall) -> str:
    return f"{call.verb} {json.dumps(call.arguments, sort_keys=True)}" if call.arguments else call.verb


def _alerts(scenarios: Sequence[Scenario]) -> ResultTable:
    rows = [(one.id, " ".join(one.alert.split())) for one in scenarios]
    rows += [(f"{one.id}, constrained", " ".join(one.constrained.split())) for one in scenarios if one.constrained]
    return ResultTable("Alert prompts", ("ID", "alert text, or what is appended"), tuple(rows), number=5)


def _layers(scenarios: Sequence[Scenario]) -> ResultTable:
    found: dict[tuple[str, str, str], list[str]] = {}
    for one in scenarios:
        key = (one.category, " / ".join(layers(one)) or "none", _depth(one))
        found.setdefault(key, []).append(one.id)
    rows = tuple((name, ", ".join(ids), layer, depth) for (name, layer, depth), ids in sorted(found.items()))
    columns = ("fault class", "examples", "fault layer", "committed depth")
    return ResultTable("From fault class to committed depth", columns, rows, number=6)


def oracle_pairs(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 2: oracles of one scenario that V_temporal alone tells apart, with the least availability."""
    found = []
    scripted = [row for row in rows if row.agent.startswith(ORACLE)]
    for (scenario, _, _), members in group_rows(scripted, lambda row: (row.scenario, row.arm, row.probes)):
        by_oracle = group_rows(members, lambda row: (row.agent,))
        alike = [(name, own) for (name,), own in by_oracle if all(r.outcome and r.depth_holds and r.probe for r in own)]
        if len({row.temporal for _, own in alike for row in own}) < 2:
            continue
        for name, own in alike:
            least = min((row.least_availability for row in own if row.least_availability is not None), default=None)
            counts = (_share(own, one) for one in _VERIFIERS)
            found.append((scenario, name, *counts, None if least is None else f"{least:.3f}"))
    columns = ("scenario", "runner", "outcome", "V_temporal", "V_depth", "V_probe", "least availability")
    return ResultTable("Pairs that V_temporal alone tells apart", columns, tuple(found), number=2)


_VERIFIERS: tuple[Callable[[TrialRow], bool], ...] = (
    lambda row: row.outcome, lambda row: row.temporal, lambda row: row.depth_holds, lambda row: row.probe,
)  # fmt: skip


def _share(rows: Sequence[TrialRow], held: Callable[[TrialRow], bool]) -> str:
    return share(sum(map(held, rows)), len(rows))


def run_slices(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 7: which runs each table is over, oracles apart; slices overlap, as in the paper."""
    agents = [row for row in rows if not row.agent.startswith(ORACLE)]
    base = [row for row in agents if row.arm == BASELINE]
    cells = group_rows(base, lambda row: (row.scenario, row.agent))
    paired = [row for _, members in cells if len({row.probes for row in members}) == 2 for row in members]
    slices: list[tuple[str, list[TrialRow], str]] = [
        ("all runs", agents, "9, 10, 13"),
        ("baseline prompt, probes on", [row for row in agents if row.main], "8, 11, 14, 15; ITBench's 4, 17 to 19"),
        *((f"prompt {arm}", [row for row in agents if row.arm == arm], "9")
          for arm in sorted({row.arm for row in agents} - {BASELINE})),
        ("baseline prompt, probes off", [row for row in base if not row.probes], "9"),
        ("of these and the main slice: paired arms", paired, "12"),
        ("oracles and controls", [row for row in rows if row.agent.startswith(ORACLE)], "2; solvability, no baseline"),
    ]  # fmt: skip
    found = tuple(
        (name, len(members), len({row.scenario for row in members}), len({row.agent for row in members}), used)
        for name, members, used in slices
        if members
    )
    columns = ("slice", "n", "scenarios", "agents", "used for tables")
    return ResultTable("Run slices", columns, found, number=7)


if __name__ == "__main__":
    part_of("side_effects")
