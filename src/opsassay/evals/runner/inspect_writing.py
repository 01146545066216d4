"""Writes runs of a store as logs of inspect_ai: one log per solver and variant, one sample per run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.run import Run, Verdict
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.evals.runner.domain import DOMAINS
from opsassay.evals.runner.store import FINISHED, RunStore, read_diagnosis, read_run, read_verdicts
from opsassay.solvers.agents.record import TRACE
from opsassay.solvers.proxy.apis.counts import inspect_counts
from opsassay.solvers.proxy.formats import read_one
from opsassay.solvers.proxy.steps import split_messages

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import ChatMessage

SCORER = "opsassay"


@dataclass(frozen=True)
class KeptRun:
    """A finished run with its verdict and trace; *succeeded* is None where its domain cannot say."""

    folder: Path
    run: Run
    domain: str
    verdict: Verdict
    succeeded: bool | None
    trace: Trace | None

    @property
    def group(self) -> tuple[str, str, str, str]:
        """(domain, solver, hash of the solver, variant): runs with the same group are in one log."""
        return self.domain, self.run.solver.label, self.run.solver_hash, self.run.arm


_STOPS: dict[str, Any] = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "MAX_TOKENS"), "max_tokens"),
    **dict.fromkeys(("content_filter", "refusal", "SAFETY"), "content_filter"),
}
"""Stop reasons of model APIs -> those of inspect_ai; the original is in the output's metadata."""


def kept_runs(store: RunStore, on_left_out: Callable[[Path, str], None]) -> Iterator[KeptRun]:
    """Yield every graded run of *store* with a result; *on_left_out* is called with other folders and the reason."""
    for folder in store.runs():
        try:
            run, verdicts = read_run(folder), read_verdicts(folder)
            if run.status not in FINISHED:
                on_left_out(folder, f"it is {run.status.value}")
            elif not verdicts:
                on_left_out(folder, "it is not graded; `opsassay score run` does it")
            else:
                domain, verdict = store.domain_of(run), verdicts[0]
                succeeded = DOMAINS.load(domain).succeeded(verdict.metrics)
                trace = read_one(folder / TRACE) if (folder / TRACE).exists() else None
                yield KeptRun(folder, run, domain, verdict, succeeded, trace)
        except OpsAssayError as error:
            on_left_out(folder, str(error))


def logs_of(runs: Sequence[KeptRun]) -> Iterator[tuple[str, EvalLog]]:
    """Yield (file name, inspect_ai log) for each solver and variant of *runs*."""
    ordered = sorted(runs, key=lambda kept: (kept.group, kept.run.item, kept.run.seed, kept.run.attempt))
    for number, (group, members) in enumerate(groupby(ordered, key=lambda kept: kept.group), 1):
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{group[1]}-{group[3]}").strip("-")[:60]
        yield f"{number:03d}-{words}.eval", _make_log(list(members))


def _make_log(runs: Sequence[KeptRun]) -> EvalLog:
    """Return an inspect_ai log of *runs*, of one solver and variant; repeats of a task are its epochs."""
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalResults, EvalScore, EvalSpec, EvalStats

    first, tries = runs[0].run, dict[str, int]()
    samples: list[EvalSample] = []
    for kept in runs:
        tries[kept.run.item] = tries.get(kept.run.item, 0) + 1
        samples.append(_make_sample(kept, tries[kept.run.item]))
    names = list(_scores(runs[0]))
    scores = [
        EvalScore(
            name=name,
            scorer=SCORER,
            metrics=_mean_metric([_scores(kept)[name] for kept in runs if name in _scores(kept)]),
        )
        for name in names
    ]
    ids = list(tries)
    return EvalLog(
        status="success",
        eval=EvalSpec(
            eval_id=f"{first.solver_hash[:16]}-{first.arm}",
            run_id=f"{first.solver_hash[:16]}-{first.arm}",
            task_id=runs[0].domain,
            created=_format_instant(min(kept.run.started_ns for kept in runs)),
            task=f"opsassay/{runs[0].domain}",
            solver=first.solver.label,
            solver_args={"configuration": first.solver.configuration, "arm": first.arm},
            dataset=EvalDataset(name=runs[0].domain, samples=len(ids), sample_ids=ids),
            model=_model_of_runs(runs),
            config=EvalConfig(epochs=max(tries.values())),
            packages=first.versions,
        ),
        results=EvalResults(total_samples=len(samples), completed_samples=len(samples), scores=scores),
        stats=EvalStats(
            started_at=_format_instant(min(kept.run.started_ns for kept in runs)),
            completed_at=_format_instant(max(kept.run.ended_ns or kept.run.started_ns for kept in runs)),
        ),
        samples=samples,
    )


def _model_of_runs(runs: Sequence[KeptRun]) -> str:
    """Return the model's name from the traces of *runs*, else from their solver; "none/none" for a method."""
    steps = (step.model for kept in runs if kept.trace for step in kept.trace.steps if step.model)
    return next(steps, None) or str(runs[0].run.solver.configuration.get("model") or "none/none")


def _make_sample(stored: KeptRun, epoch: int) -> EvalSample:
    """Return the run *stored* as an inspect_ai sample of its task; *epoch* is its number among repeats, from 1."""
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessageAssistant, ModelOutput
    from inspect_ai.scorer import Score

    run, verdict, diagnosis = stored.run, stored.verdict, read_diagnosis(stored.folder)
    answer = "" if diagnosis is None else diagnosis.model_dump_json(exclude_defaults=True, by_alias=True)
    steps = stored.trace.steps if stored.trace else ()
    asked = (stored.trace.task_instruction if stored.trace else "") or run.item
    given = _messages(steps[-1].input_context, f"{stored.run.cell}-in") if steps else []
    said = ChatMessageAssistant(id=f"{run.cell}-{run.attempt}-out", content=answer or run.error or "")
    reasons = [f"{name}: {metric.reason}" for name, metric in verdict.metrics.items() if metric.reason]
    return EvalSample(
        id=run.item,
        epoch=epoch,
        input=asked,
        target="",
        messages=[*given, said],
        output=ModelOutput.from_message(said),
        scores={SCORER: Score(value=_scores(stored), answer=answer or None, explanation="\n".join(reasons) or None)},
        metadata={
            "run": f"{run.cell}/{run.attempt}", "system": run.system, "seed": run.seed, "arm": run.arm,
            "isolation": run.isolation, "status": run.status.value, "limits_hit": list(run.limits_hit), "spent": run.spent,
            "flags": list(run.flags), "profile": verdict.profile,
        },
        events=list(_events(steps, f"{run.cell}-{run.attempt}", run.started_ns)),
        uuid=f"{run.cell}-{run.attempt}",
        started_at=_format_instant(run.started_ns),
        completed_at=_format_instant(run.ended_ns or run.started_ns),
        total_time=((run.ended_ns or run.started_ns) - run.started_ns) / 1e9,
    )  # fmt: skip


def _scores(stored: KeptRun) -> dict[str, float]:
    """Return the value of every metric of *stored* by name, NaN without one, and "success" (1, 0 or NaN)."""
    values = {name: metric.value for name, metric in stored.verdict.metrics.items()}
    right = None if stored.succeeded is None else float(stored.succeeded)
    return {name: math.nan if value is None else value for name, value in {"success": right, **values}.items()}


def _mean_metric(values: Sequence[float]) -> dict[str, Any]:
    """Return inspect_ai's metric "mean" over the *values* that are not NaN, {} when all are."""
    from inspect_ai.log import EvalMetric

    known = [value for value in values if not math.isnan(value)]
    return {"mean": EvalMetric(name="mean", value=sum(known) / len(known))} if known else {}


def _events(steps: Sequence[TraceStep], name: str, began_ns: int) -> Iterator[Any]:
    """Yield inspect_ai's events of *steps*: a span per agent's turn, a model event per step, and tool events.

    *name* is the prefix of their ids, *began_ns* (ns of UTC) the time of steps without one.
    """
    from inspect_ai.event import SpanBeginEvent, SpanEndEvent

    for number, (agent, turn) in enumerate(groupby(steps, key=lambda step: step.agent_name)):
        span, members = f"{name}-span-{number}", list(turn)
        at = {"working_start": 0.0, "span_id": span}
        began, ended = _as_datetime(members[0].started_at or began_ns), _as_datetime(members[-1].ended_at or began_ns)
        yield SpanBeginEvent(id=span, name=agent, type="agent", uuid=f"{span}-begin", timestamp=began, **at)
        for step in members:
            yield from _events_of_step(step, f"{name}-{step.step_id}", at, began)
        yield SpanEndEvent(id=span, uuid=f"{span}-end", timestamp=ended, **at)


def _events_of_step(step: TraceStep, name: str, at: Mapping[str, Any], began: datetime) -> Iterator[Any]:
    """Yield inspect_ai's model event of the step, then one per tool call, with fields *at* and ids from *name*."""
    from inspect_ai.event import ModelEvent
    from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, GenerateConfig, ModelOutput, ModelUsage
    from inspect_ai.tool import ToolCall as InspectCall

    when = began if step.started_at is None else _as_datetime(step.started_at)
    ended = when if step.ended_at is None else _as_datetime(step.ended_at)
    calls = [
        InspectCall(id=f"{name}-{number}", function=call.tool, arguments=_as_plain_json(call.arguments))
        for number, call in enumerate(step.tool_logs)
    ]
    said = ChatMessageAssistant(
        id=step.request_id or f"{name}-out", content=step.output_content, tool_calls=calls or None
    )
    usual = "tool_calls" if calls else "stop"
    output = ModelOutput(
        model=step.model or "",
        choices=[ChatCompletionChoice(message=said, stop_reason=_STOPS.get(step.finish_reason or "", usual))],
        usage=ModelUsage(**inspect_counts(step.usage)) if step.usage else None,
        error=step.error,
        metadata={"opsassay": {"finish_reason": step.finish_reason}},
    )
    yield ModelEvent(
        model=step.model or "none/none", input=_messages(step.input_context, name), tools=[], tool_choice="auto",
        config=GenerateConfig(), output=output, error=step.error, timestamp=when, completed=ended, uuid=name, **at,
    )  # fmt: skip
    for call, logged in zip(calls, step.tool_logs, strict=True):
        yield _make_tool_event(call.id, call.arguments, logged, ended, at)


def _make_tool_event(id_: str, arguments: dict[str, Any], call: ToolCall, when: datetime, at: Mapping[str, Any]) -> Any:
    """Return inspect_ai's event *id_* of a tool call at *when*, with fields *at*; an error's message is the output."""
    from inspect_ai.event import ToolEvent
    from inspect_ai.tool import ToolCallError

    error = ToolCallError("unknown", call.output) if call.status == "error" else None
    return ToolEvent(
        id=id_, function=call.tool, arguments=arguments, result="" if error else call.output, error=error, timestamp=when,
        completed=when, uuid=f"{id_}-tool", **at,
    )  # fmt: skip


def _messages(context: str, name: str) -> list[ChatMessage]:
    """Return the chat messages in a step's input *context*, ids from *name*; unknown roles become the user's."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageTool, ChatMessageUser

    kinds: Mapping[str, Any] = {
        "system": ChatMessageSystem, "developer": ChatMessageSystem, "assistant": ChatMessageAssistant,
        "tool": ChatMessageTool, "function": ChatMessageTool,
    }  # fmt: skip
    return [
        kinds.get(role, ChatMessageUser)(id=f"{name}-{number}", content=text)
        for number, (role, text) in enumerate(split_messages(context))
    ]


def _as_plain_json(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return *arguments* with every value that JSON cannot represent replaced by its text."""
    return dict(json.loads(json.dumps(arguments, default=str)))


def _as_datetime(time_ns: int) -> datetime:
    """Return *time_ns*, ns since 1970, as a UTC time in microseconds."""
    return datetime.fromtimestamp(time_ns // 1000 / 1e6, UTC)


def _format_instant(time_ns: int) -> str:
    """Return *time_ns*, ns since 1970, as an ISO 8601 text."""
    return _as_datetime(time_ns).isoformat()
