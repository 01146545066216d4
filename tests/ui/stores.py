"""Stores of runs for the tests of pages: made by the store's own code, graded as `opsassay score run` leaves them."""

from __future__ import annotations

from evals.remediation.performers import write
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run import Metric, MetricStatus, Run, RunStatus, Solver
from opsassay.core.schema.trajectory import ToolCall, TraceStep
from opsassay.evals.remediation.tasks import keep_scenario
from opsassay.evals.runner.run import verdict_of
from opsassay.evals.runner.store import RunStore, cell_hash, write_verdict
from scoring.verifiers.made import at, change, entity, probe, recording, scenario, timeline


def run_of(solver="good", task="t-00", seed=0, **further):
    given = {
        "cell": cell_hash(task, solver, "default", seed), "attempt": 0, "domain": "finops", "item": task,
        "item_hash": f"form of {task}", "system": "focus", "solver": Solver(name=solver, kind="agent"),
        "solver_hash": f"hash of {solver}", "seed": seed, "started_ns": 10**18, "isolation": "sealed",
        "spent": {"model_calls": 2.0},
    }  # fmt: skip
    return Run(**given | further)


def begun(root, **given):
    """Return the folder and the record of a run that has begun."""
    return RunStore(root).begin(run_of(**given))


def ended(root, passed=True, *, status=RunStatus.DONE, graded=True, reason="", error=None, **given):
    """Return the folder of a run that has ended."""
    folder, run = begun(root, **given)
    finish(root, folder, run, status, error)
    if graded:
        value = None if reason else float(passed)
        metric = Metric(value=value, status=MetricStatus.FAILED if reason else MetricStatus.SCORED, reason=reason)
        write_verdict(folder, verdict_of(run, {"passed": metric}))
    return folder


def finish(root, folder, run, status=RunStatus.DONE, error=None):
    RunStore(root).end(folder, run.model_copy(update={"status": status, "ended_ns": 10**18 + 10**9, "error": error}))


def two_solvers(root, tasks=20):
    """Make a store in which one solver succeeds on all but two tasks and another on two."""
    for n in range(tasks):
        ended(root, n >= 2, solver="good", task=f"t-{n:02}", started_ns=10**18 + n)
        ended(root, n < 3, solver="poor", task=f"t-{n:02}", started_ns=10**18 + n)
    return root


def a_trial(root, *, solver="agent-a", outage=True, passed=False, seed=0, text="", **given):
    """Return the folder of a trial that has ended: a look, a change that takes the system down, one that repairs it."""
    d1 = [1.0] * 4 + [(0.9, ("front-0",))] * 8 + [(0.5 if outage else 0.9, ("cart-0", "front-0"))] * 4 + [1.0] * 15
    load = {s: {"front GET /": (20 * s, max(0, 4 * (s - 4)))} for s in range(31)}
    probes = [probe("p1", 2), probe("p2", 15, took=3.0, reachable=not outage), probe("p3", 27)]
    made = timeline(d1, d4={14: ("db",)}, probes=probes, load=load, entities={0: [entity("front-0"), entity("cart-0")]})
    actions = [
        change(11, tool="logs", mutating=False),
        change(12, tool="restart", touched=["cart"]),
        change(16, tool="undo"),
    ]
    recorded = recording(made, deployed=0, triggered=4, started=10, ended=20, actions=actions)
    committed = scenario(committed_depth="D3", blast_radius={}, truth={"root_causes": ["front"]})
    keep_scenario(root, committed)
    folder, run = begun(
        root, solver=solver, task=committed.id, item_hash=committed.digest(), domain="sre", system="shop", seed=seed,
        arm="baseline/probes-on", started_ns=at(10) + seed, **given,
    )  # fmt: skip
    write(folder, recorded)
    for number, (seconds, tool, said) in enumerate(
        [
            (10.2, "logs", "The front is slow."),
            (11.5, "restart", f"I restart cart. {text}"),
            (15.5, "undo", "That was wrong."),
        ],
        1,
    ):
        call = ToolCall(tool=tool, arguments={"target": "cart"}, output="", status="ok")
        append_line(folder / "trace.jsonl", TraceStep(
            step_id=number, agent_id="a", agent_name="Mitigation", input_context="", output_content=said, tool_logs=(call,),
            started_at=at(seconds), ended_at=at(seconds + 0.4)))  # fmt: skip
    finish(root, folder, run)
    metrics = {
        name: Metric(value=float(passed), status=MetricStatus.SCORED)
        for name in ("v_outcome", "v_temporal", "certificate")
    }
    write_verdict(folder, verdict_of(run, metrics))
    return folder
