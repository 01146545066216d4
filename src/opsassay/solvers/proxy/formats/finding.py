"""Recognises the format of a trace by the content of its file, never by the name alone, and reads it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opsassay.core.errors import DatapackError, UserError
from opsassay.core.schema.json_lines import read_json_lines
from opsassay.core.schema.run import Run
from opsassay.core.schema.trajectory import Trace
from opsassay.core.schema.validation_errors import problem
from opsassay.core.text import plural
from opsassay.solvers.proxy.exchanges import read_session
from opsassay.solvers.proxy.formats.agent_logs import autogen_trace, is_autogen, is_trajectory, trajectory_trace
from opsassay.solvers.proxy.formats.atif import atif_traces, is_atif
from opsassay.solvers.proxy.formats.elephant import elephant_trace, is_elephant, pair_in, read_task
from opsassay.solvers.proxy.formats.gen_ai import is_otlp, traces_of_spans
from opsassay.solvers.proxy.formats.inspect_log import inspect_traces, is_inspect, read_inspect
from opsassay.solvers.proxy.formats.whoandwhen import is_whoandwhen, labelled
from opsassay.solvers.proxy.reading import read_json
from opsassay.solvers.proxy.record import RECORD
from opsassay.solvers.proxy.trace import trace_of
from opsassay.telemetry.tree import read_noun

STEPS = "trace.jsonl"
"""The trace in a run folder, a step per line; run.json in the same folder names solver and task."""

TRACES, LABELS = "traces", "labels"
"""The folders of annotators: a trace and its label are files of the same name, in one folder each."""


def read_one(path: Path, skipped: list[str] | None = None) -> Trace:
    """Return the only trace at *path*; raises UserError for several, DatapackError when it is unreadable.

    Notes on content without a trace are added to *skipped*.
    """
    skipped = [] if skipped is None else skipped
    found = read_traces(path, skipped)
    if len(found) != 1:
        raise UserError(f"{path} holds {len(found)} traces; name one of its files, or export them one by one.")
    empty = [s.step_id for s in found[0].steps if not (s.output_content or s.tool_logs or s.error or s.finish_reason)]
    if empty:
        skipped.append(
            f"{plural(len(empty), 'step')} without text, call, error or reason: {', '.join(map(str, empty[:10]))}"
        )
    return found[0]


def read_traces(path: Path, skipped: list[str] | None = None) -> list[Trace]:
    """Return the traces at *path*: a session, run folder or file in a known format; raises DatapackError.

    Notes on content without a trace are added to *skipped*.
    """
    skipped = [] if skipped is None else skipped
    if path.is_dir() and (path / STEPS).exists() and not (path / RECORD).exists():
        return [_read_run_trace(list(read_json_lines(path / STEPS)), path / STEPS)]
    if (pair := pair_in(path if path.is_dir() else path.parent)) and (path.is_dir() or path in pair):
        return [elephant_trace(read_task(pair), pair[0].parent)]
    if path.is_dir() or path.name == RECORD:
        folder = path if path.is_dir() else path.parent
        return [_read_session_trace(folder, skipped)]
    if not path.exists():
        raise UserError(f"There is no {path}; give a recorded session or the file of a trace.")
    if path.suffix == ".eval":
        return _with_model_events(read_inspect(path), path, skipped)
    return _read_lines(path, skipped) if path.suffix == ".jsonl" else _read_file(path, skipped)


def _read_file(path: Path, skipped: list[str]) -> list[Trace]:
    """Return the traces of a file with a JSON value or JSON lines, recognised by content; notes go to *skipped*."""
    try:
        payload = read_json(path)
    except DatapackError as error:
        if getattr(error.__cause__, "msg", "") != "Extra data":
            raise
        return _read_lines(path, skipped)
    return _read_payload(payload, path, skipped)


def _read_session_trace(folder: Path, skipped: list[str]) -> Trace:
    """Return the trace of a recorded session, notes in *skipped*; raises DatapackError when it has no LLM request."""
    exchanges = read_session(folder)
    trace = trace_of(exchanges, folder.name)
    others = Counter(f"{one.method} {one.path}"[:80] for one in exchanges if one.asked() is None)
    named = ", ".join(f"{name} ({count})" for name, count in others.most_common(5))
    if exchanges and not trace.steps:
        raise DatapackError(
            f"{folder} has {plural(len(exchanges), 'request')} and none is a readable request to a model: {named}."
        )
    if others:
        skipped.append(f"{plural(others.total(), 'request')} to no known API of models, or unreadable: {named}")
    return trace


def _read_lines(path: Path, skipped: list[str]) -> list[Trace]:
    """Return the traces of a JSON lines file, by its content, notes in *skipped*; raises DatapackError for others."""
    lines = list(read_json_lines(path))
    if is_otlp(lines):
        return traces_of_spans(lines, path, skipped)
    if lines and all(isinstance(line, dict) and "step_id" in line for line in lines):
        return [_read_run_trace(lines, path)]
    if is_autogen(lines):
        return [autogen_trace(lines, path, skipped)]
    raise DatapackError(
        f"{path} is in no known format: its lines are neither OTLP spans, events of AutoGen nor steps of a trace."
    )


_FORMATS: tuple[tuple[Callable[[Any], bool], Callable[[Any, Path, list[str]], list[Trace]]], ...] = (
    (lambda of: is_whoandwhen(of) and not is_elephant(of), lambda of, path, _: [labelled(of, path).trace]),
    (is_otlp, lambda of, path, skipped: traces_of_spans([of], path, skipped)),
    (is_inspect, lambda of, path, skipped: _with_model_events(inspect_traces(of, path), path, skipped)),
    (is_atif, lambda of, path, _: atif_traces(of, path)),
    (
        lambda of: isinstance(of, dict) and {"schema_version", "steps"} <= of.keys(),
        lambda _of, path, _: [read_noun(Trace, path)],
    ),
    (is_elephant, lambda of, path, _: [elephant_trace(of, path)]),
    (is_trajectory, lambda of, path, _: [trajectory_trace(of, path)]),
    (lambda of: is_autogen([of]), lambda of, path, skipped: [autogen_trace([of], path, skipped)]),
)
"""(test, reader) of each format of a JSON file; the first test that is true decides."""


def _with_model_events(traces: list[Trace], path: Path, skipped: list[str]) -> list[Trace]:
    """Return *traces*; add samples without a model event to *skipped*; raises DatapackError if none has one."""
    empty = [trace.task_id for trace in traces if not trace.steps]
    if len(empty) == len(traces):
        raise DatapackError(
            f"{path} is a log of inspect_ai with {plural(len(traces), 'sample')} and no model event; nothing is in it."
        )
    if empty:
        skipped.append(f"{plural(len(empty), 'sample')} without a model event: {', '.join(empty[:5])}")
    return traces


def _read_payload(payload: Any, path: Path, skipped: list[str]) -> list[Trace]:
    """Return the traces of *payload* in the first format that fits, notes in *skipped*; raises DatapackError."""
    reader = next((read for tells, read in _FORMATS if tells(payload)), None)
    if reader is None:
        raise DatapackError(
            f"{path} is in no known format; known are traces of OpsAssay, ATIF, OpenTelemetry spans (OTLP JSON), logs of "
            "inspect_ai, trajectories of SWE-agent and mini-swe-agent, Who&When and TraceElephant."
        )
    return reader(payload, path, skipped)


def _read_run_trace(lines: list[Any], path: Path) -> Trace:
    """Return the trace in *lines*, a run folder's trace.jsonl; the first user message is the instruction."""
    run = read_noun(Run, path.parent / "run.json") if (path.parent / "run.json").exists() else None
    first = str(lines[0].get("input_context", "")) if lines and isinstance(lines[0], dict) else ""
    asked = re.search(r"^\[user\]\n(.*?)(?=\n\n\[\w+\]\n|\Z)", first, re.DOTALL | re.MULTILINE)
    about: dict[str, Any] = {"task_id": path.parent.name, "system_name": path.parent.name}
    if run is not None:
        about = {"task_id": run.item, "system_name": run.solver.name, "outcome": run.status.value}
        about |= (
            {"agent_configuration": {run.solver.name: run.solver.configuration}} if run.solver.configuration else {}
        )
    try:
        return Trace.model_validate({**about, "task_instruction": asked[1] if asked else "", "steps": lines})
    except ValidationError as error:
        raise DatapackError(f"{path}: a line is no step of a trace ({problem(error)}).") from error
