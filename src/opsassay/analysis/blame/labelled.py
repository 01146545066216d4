"""Reads labelled traces of a folder: Who&When, TraceElephant, or those settled by annotators."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError, OpsAssayError, UserError
from opsassay.core.schema.trajectory import Attribution, LabelledTrace, Trace
from opsassay.solvers.proxy.formats.elephant import (
    PAIRS,
    RUNS,
    is_elephant,
    pair_in,
    read_task,
    runs_folder,
    trace_and_notes,
)
from opsassay.solvers.proxy.formats.finding import LABELS, TRACES
from opsassay.solvers.proxy.formats.whoandwhen import is_whoandwhen, labelled
from opsassay.solvers.proxy.reading import first_of, read_json
from opsassay.solvers.proxy.steps import strip_role_suffix
from opsassay.telemetry.tree import read_noun

_LABELS = ("label", "annotation", "failure_attribution", "ground_truth_label")
_AGENT = ("failure_responsible_agent", "responsible_agent", "failure_agent", "mistake_agent")
_STEP = ("decisive_failure_step", "failure_step", "decisive_step", "mistake_step")


def is_task(folder: Path) -> bool:
    """Return whether *folder* is a TraceElephant task: it has both files of a pair, or one of the first pair."""
    return any(all((folder / name).exists() for name in pair) for pair in PAIRS) or any(
        (folder / name).exists() for name in PAIRS[0]
    )


def number_key(path: Path) -> tuple[int, str]:
    """Return a sort key by which 2.json comes before 10.json."""
    digits = re.search(r"\d+", path.stem)
    return int(digits[0]) if digits else 0, path.stem


def labelled_elephant(payload: dict[str, Any], path: Path, id_: str) -> LabelledTrace:
    """Return the TraceElephant trace in *payload* with its label; raises DatapackError without a labelled step."""
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
    """Return the only whole number in a label's step: a number, or text such as "12" or "step 12"; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    found = re.findall(r"-?\d+(?:\.\d+)?", str(value))
    return int(found[0]) if len(found) == 1 and found[0].isdigit() else None


def read_labelled(folder: Path, on_odd: Callable[[str], None] | None = None) -> list[LabelledTrace]:
    """Return the labelled traces below *folder*: Who&When, TraceElephant, or OpsAssay's folders traces/ and labels/.

    One that cannot be read, or whose labelled step does not exist, is reported to *on_odd* and left out; without
    *on_odd* it raises DatapackError. Raises UserError when there are none.
    """
    found: list[LabelledTrace] = []
    readers = (
        _list_own_traces(folder)
        if (folder / TRACES).is_dir() and (folder / LABELS).is_dir()
        else _list_public_traces(folder)
    )
    for read in readers:
        try:
            case = read()
            if case is not None and not 1 <= (case.label.step_id or 0) <= len(case.trace.steps):
                raise DatapackError(
                    f"{case.id}: the label names step {case.label.step_id}, and there are steps 1 to "
                    f"{len(case.trace.steps)}; correct the label or leave the trace out."
                )
        except OpsAssayError as error:
            if on_odd is None:
                raise
            on_odd(str(error))
        else:
            found += [_with_unique_id(case, found)] if case is not None else []
    if not found:
        raise UserError(
            f"{folder} holds no labelled traces that can be read; it needs Who&When or TraceElephant, or {TRACES}/ beside "
            f"{LABELS}/."
        )
    return found


def _with_unique_id(case: LabelledTrace, before: Sequence[LabelledTrace]) -> LabelledTrace:
    """Return *case* with a number appended to its id when a trace *before* it has the same id."""
    same = sum(re.fullmatch(rf"{re.escape(case.id)}(?: \(\d+\))?", other.id) is not None for other in before)
    return case.model_copy(update={"id": f"{case.id} ({same + 1})"}) if same else case


def _list_own_traces(folder: Path) -> Iterator[Callable[[], LabelledTrace | None]]:
    """Yield for each file in traces/ of *folder* a function that reads the trace with its label."""
    return (partial(_read_own_trace, path, folder) for path in sorted((folder / TRACES).glob("*.json"), key=number_key))


def _read_own_trace(path: Path, folder: Path) -> LabelledTrace:
    """Return the trace in *path* with its label from labels/; raises DatapackError without a label."""
    label = folder / LABELS / path.name
    if not label.exists():
        raise DatapackError(f"{path} has no label: {label} is missing; annotate it or move it out of the benchmark.")
    trace = read_noun(Trace, path)
    return LabelledTrace(id=path.stem, subset=trace.system_name, trace=trace, label=read_noun(Attribution, label))


def _list_public_traces(folder: Path) -> Iterator[Callable[[], LabelledTrace | None]]:
    """Yield for each TraceElephant task folder and each other JSON file a function that reads its trace."""
    files = sorted(_list_json_files(folder), key=lambda path: (str(path.parent), number_key(path)))
    tasks = {parent for parent in {path.parent for path in files} if is_task(parent)}
    runs = (path for path in (folder, *folder.rglob("*")) if path.is_dir() and path.name.startswith(tuple(RUNS)))
    tasks |= {task for run in runs for task in run.iterdir() if task.is_dir()}
    yield from (
        partial(_read_task_folder, task) for task in sorted(tasks, key=lambda task: (task.parent, number_key(task)))
    )
    yield from (partial(_read_labelled, path) for path in files if not tasks & {path.parent, *path.parents})


def _list_json_files(folder: Path) -> Iterator[Path]:
    """Yield all JSON files below *folder*, without those that macOS adds to archives."""
    return (
        path for path in folder.rglob("*.json") if not path.name.startswith("._")
    )  # those are a Mac's, of an archive


def _read_task_folder(folder: Path) -> LabelledTrace | None:
    """Return the labelled trace of a TraceElephant task *folder*; raises DatapackError without its two files."""
    pair = pair_in(folder)
    if pair is None:
        expected = " or ".join(" beside ".join(names) for names in PAIRS)
        raise DatapackError(f"{folder} holds no trace: it needs {expected}.")
    return labelled_elephant(read_task(pair), folder, f"{folder.parent.name}/{folder.name}")


def _read_labelled(path: Path) -> LabelledTrace | None:
    """Return the labelled trace in the file *path*; None when its format is unknown."""
    payload = read_json(path)
    ours = isinstance(payload, dict) and "schema_version" in payload  # a trace whose label would be a file of its own
    if is_elephant(payload) and not ours:
        return labelled_elephant(payload, path, f"{path.parent.name}/{path.stem}")
    return labelled(payload, path) if is_whoandwhen(payload) else None
