"""Which format a path is in: by what stands in it, never by its name alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opsassay.errors import DatapackError, UserError
from opsassay.model.json_lines import read_json_lines
from opsassay.model.run import Run
from opsassay.model.trajectory import Attribution, LabelledTrace, Trace
from opsassay.proxy.exchanges import read_session
from opsassay.proxy.formats.elephant import elephant_trace, is_elephant, labelled_elephant
from opsassay.proxy.formats.gen_ai import is_otlp, traces_of_spans
from opsassay.proxy.formats.inspect_log import inspect_traces, is_inspect, read_inspect
from opsassay.proxy.formats.whoandwhen import is_whoandwhen, labelled
from opsassay.proxy.reading import numbered, read_json
from opsassay.proxy.record import RECORD
from opsassay.proxy.trace import trace_of
from opsassay.telemetry.tree import read_noun

STEPS = "trace.jsonl"
"""The trace in a run folder, one step a line; who ran on what stands in run.json beside it."""

TRACES, LABELS = "traces", "labels"
"""The folders of a benchmark of our own: a trace and its label are files of the same name, apart from each other."""


def read_one(path: Path) -> Trace:
    """Return the one trace at *path*; raises UserError when there are several, DatapackError when it is unreadable."""
    found = read_traces(path)
    if len(found) != 1:
        raise UserError(f"{path} holds {len(found)} traces; name one of its files, or export them one by one.")
    return found[0]


def read_traces(path: Path) -> list[Trace]:
    """Return the traces at *path*: a recorded session, a run folder, or a file in a known format; raises DatapackError."""
    if path.is_dir() and (path / STEPS).exists() and not (path / RECORD).exists():
        return [_steps(list(read_json_lines(path / STEPS)), path / STEPS)]
    if path.is_dir() or path.name == RECORD:
        folder = path if path.is_dir() else path.parent
        return [trace_of(read_session(path), folder.name)]
    if not path.exists():
        raise UserError(f"There is no {path}; give a recorded session or the file of a trace.")
    if path.suffix == ".eval":
        return read_inspect(path)
    if path.suffix == ".jsonl":
        return _of_lines(path)
    return _of_payload(read_json(path), path)


def read_labelled(folder: Path) -> list[LabelledTrace]:
    """Return the labelled traces below *folder*: Who&When, TraceElephant, or traces/ and labels/ of our own.

    Raises UserError when there are none, DatapackError when one cannot be read.
    """
    if (folder / TRACES).is_dir() and (folder / LABELS).is_dir():
        return [_ours(path, folder) for path in sorted((folder / TRACES).glob("*.json"), key=numbered)]
    paths = sorted(folder.rglob("*.json"), key=lambda path: (str(path.parent), numbered(path)))
    found = [case for path in paths if (case := _labelled(path)) is not None]
    if not found:
        raise UserError(
            f"{folder} holds no labelled traces; it needs Who&When or TraceElephant, or {TRACES}/ beside {LABELS}/."
        )
    return found


def _ours(path: Path, folder: Path) -> LabelledTrace:
    label = folder / LABELS / path.name
    if not label.exists():
        raise DatapackError(f"{path} has no label: {label} is missing; annotate it or move it out of the benchmark.")
    trace = read_noun(Trace, path)
    return LabelledTrace(id=path.stem, subset=trace.system_name, trace=trace, label=read_noun(Attribution, label))


def _labelled(path: Path) -> LabelledTrace | None:
    payload = read_json(path)
    if is_whoandwhen(payload):
        return labelled(payload, path)
    ours = isinstance(payload, dict) and "schema_version" in payload  # a trace whose label would be a file of its own
    return labelled_elephant(payload, path) if is_elephant(payload) and not ours else None


def _of_lines(path: Path) -> list[Trace]:
    lines = list(read_json_lines(path))
    if lines and all(is_otlp(line) for line in lines):
        return traces_of_spans(lines, path)
    if lines and all(isinstance(line, dict) and "step_id" in line for line in lines):
        return [_steps(lines, path)]
    raise DatapackError(f"{path} is in no known format: its lines are neither OTLP spans nor steps of a trace.")


def _of_payload(payload: Any, path: Path) -> list[Trace]:
    if is_whoandwhen(payload):
        return [labelled(payload, path).trace]
    if is_otlp(payload):
        return traces_of_spans([payload], path)
    if is_inspect(payload):
        return inspect_traces(payload, path)
    if isinstance(payload, dict) and "schema_version" in payload and "steps" in payload:
        return [read_noun(Trace, path)]
    if is_elephant(payload):
        return [elephant_trace(payload, path)]
    raise DatapackError(
        f"{path} is in no known format; known are traces of OpsAssay, OpenTelemetry spans (OTLP JSON), logs of inspect_ai, "
        "Who&When and TraceElephant."
    )


def _steps(lines: list[Any], path: Path) -> Trace:
    """Return the trace of a run folder's trace.jsonl; the first thing that a user said in it is the instruction."""
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
        raise DatapackError(f"{path}: a line is no step of a trace ({error.errors()[0]['msg']}).") from error
