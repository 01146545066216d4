"""Runs of a store as training data: one line per step, with conversational prompt, completion and reward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.incident import Label
from opsassay.core.schema.run import MetricStatus, Run, RunStatus, Verdict
from opsassay.core.schema.trajectory import Trace, TraceStep
from opsassay.evals.diagnosis.score import TRACE, Grader
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.scoring.process import true_graph
from opsassay.scoring.profiles import PROFILES, Profile
from opsassay.scoring.rewards import StepReward, step_rewards
from opsassay.scoring.topology import topology_of
from opsassay.solvers.proxy.formats import read_one
from opsassay.solvers.proxy.steps import split_messages
from opsassay.telemetry.content import content_hash
from opsassay.telemetry.tree import Case

Line = dict[str, Any]
OnLeftOut = Callable[[Path, str], None]

_ROLE = {"developer": "system", "function": "tool"}
"""Roles of model APIs -> their names in chat templates."""


def reward_lines(
    store: RunStore, cases: Iterable[Case], on_left_out: OnLeftOut, profile: Profile = PROFILES["default"]
) -> Iterator[Line]:
    """Yield a line for each step of each ended run of *store* with a trace and an incident with a verified cascade.

    *on_left_out* is called with every other run's folder and the reason. Runs are graded anew; no verdict is written.
    """
    by_hash = {content_hash(case.datapack.path): case for case in cases}
    for run_dir in store.runs():
        try:
            run = read_run(run_dir)
            case = by_hash.get(run.item_hash)
            if why := _why_no_rewards(run, run_dir, case, store):
                on_left_out(run_dir, why)
                continue
            assert case is not None
            yield from _lines_of_run(run, run_dir, case, profile)
        except OpsAssayError as error:
            on_left_out(run_dir, str(error))


def _why_no_rewards(run: Run, run_dir: Path, case: Case | None, store: RunStore) -> str:
    """Return why *run* yields no training lines (domain, status, trace, or its *case*), "" if it does."""
    if store.domain_of(run) != "diagnosis":
        return f"it is a run of the domain {store.domain_of(run)}, and rewards are for diagnoses"
    if run.status in {RunStatus.RUNNING, RunStatus.ABORTED}:
        return f"it is {run.status.value}"
    if not (run_dir / TRACE).exists():
        return f"it has no {TRACE}: {run.solver.label} wrote down no steps"
    if case is None:
        return f"its incident {run.item} is not among the given ones"
    if case.annotation is None or case.annotation.label is not Label.ATTRIBUTED:
        return f"incident {run.item} has no verified cascade; annotate it"
    return ""


def _lines_of_run(run: Run, run_dir: Path, case: Case, profile: Profile) -> Iterator[Line]:
    """Grade the run by *profile* and yield a training line with its reward for each step of its trace."""
    assert case.annotation is not None
    trace = read_one(run_dir / TRACE)
    with Grader(case, profile) as grader:
        verdict, of_case = grader.grade(run_dir), grader.profile
    services = topology_of(case.datapack, of_case.service).entities
    cascade = true_graph(case.annotation.graph, of_case)
    edge_f1 = verdict.metrics["edge_f1"]
    rewards = step_rewards(trace, services, cascade, verdict.evidence, edge_f1, of_case)
    for step, reward in zip(trace.steps, rewards, strict=True):
        yield reward_line(run, trace, step, reward, verdict)


def reward_line(run: Run, trace: Trace, step: TraceStep, reward: StepReward, verdict: Verdict) -> Line:
    """Return a step's training line: TRL's conversational prompt and completion, *reward* and its parts, and labels."""
    hit = verdict.metrics["any_service"]
    return {
        "prompt": messages_of(step.input_context, trace.task_instruction),
        "completion": [{"role": "assistant", "content": completion_of(step)}],
        "reward": reward.reward,
        "edges": reward.edges,
        "evidence": reward.evidence,
        "answer": reward.answer,
        "wasted": reward.wasted,
        "step": step.step_id,
        "steps": len(trace.steps),
        "agent": step.agent_name,
        "model": step.model or "",
        "run": f"{run.cell}/{run.attempt}",
        "item": run.item,
        "system": run.system,
        "solver": run.solver.label,
        "right": hit.status is MetricStatus.SCORED and bool(hit.value),
    }


def messages_of(context: str, instruction: str = "") -> list[dict[str, str]]:
    """Return the chat messages (role, content) in a step's input *context*; [*instruction*] if there are none."""
    found = split_messages(context) or [("user", instruction)]
    return [{"role": _ROLE.get(role, role), "content": text} for role, text in found]


def completion_of(step: TraceStep) -> str:
    """Return the model's output text in *step*, with tool calls in the notation of later inputs."""
    called = [f"[calls {call.tool} {call.arguments}]" for call in step.tool_logs]
    return "\n".join(filter(None, [step.output_content, *called]))
