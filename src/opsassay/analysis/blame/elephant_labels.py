"""Labels of traces of TraceElephant, which only a benchmark of techniques reads, and which folders are its tasks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError
from opsassay.core.schema.trajectory import Attribution, LabelledTrace
from opsassay.solvers.proxy.formats.elephant import PAIRS, runs_folder, trace_and_notes
from opsassay.solvers.proxy.reading import first_of
from opsassay.solvers.proxy.steps import strip_role_suffix

_LABELS = ("label", "annotation", "failure_attribution", "ground_truth_label")
_AGENT = ("failure_responsible_agent", "responsible_agent", "failure_agent", "mistake_agent")
_STEP = ("decisive_failure_step", "failure_step", "decisive_step", "mistake_step")


def is_task(folder: Path) -> bool:
    """Return whether *folder* is meant to hold a task: a pair of files, or one of the newer two."""
    return any(all((folder / name).exists() for name in pair) for pair in PAIRS) or any(
        (folder / name).exists() for name in PAIRS[0]
    )


def number_key(path: Path) -> tuple[int, str]:
    """Return a sort key by which 2.json stands before 10.json."""
    digits = re.search(r"\d+", path.stem)
    return int(digits[0]) if digits else 0, path.stem


def labelled_elephant(payload: dict[str, Any], path: Path, id_: str) -> LabelledTrace:
    """Return the trace with its label; raises DatapackError when it bears none that names a step."""
    trace, notes = trace_and_notes(payload, path)
    bearer = {**payload, **(first_of(payload, _LABELS) or {})}
    agent, step = first_of(bearer, _AGENT), first_of(bearer, _STEP)
    if not agent or step in {None, ""}:
        raise DatapackError(f"{path} has no label: it lacks {_AGENT[-1]} or {_STEP[-1]}; leave it out or annotate it.")
    number = _step_number(step)
    if number is None:
        raise DatapackError(
            f"{path}: the label names no one step ({_STEP[-1]} is {step!r}); correct it or leave it out."
        )
    name = strip_role_suffix(str(agent))
    if 1 <= number <= len(trace.steps) and trace.steps[number - 1].agent_name != name:
        notes = (*notes, f"step {number} is by {trace.steps[number - 1].agent_name}, the label blames {name}")
    reason = str(first_of(bearer, ("mistake_reason", "reason")) or "")
    return LabelledTrace(
        id=id_,
        subset=runs_folder(path) or trace.system_name,
        trace=trace,
        label=Attribution(agent_name=name, step_id=number, reason=reason),
        notes=notes,
    )


def _step_number(value: Any) -> int | None:
    """Return the one whole number that a label names, as a number or in a text such as "12" or "step 12"."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    found = re.findall(r"-?\d+(?:\.\d+)?", str(value))
    return int(found[0]) if len(found) == 1 and found[0].isdigit() else None
