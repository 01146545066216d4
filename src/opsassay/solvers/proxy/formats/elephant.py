"""Importer of TraceElephant: the released layouts, and the form that the paper describes.

Released is a folder of runs (``captain-runs-*``, ``magentic-runs-*``, ``swe-agent-runs-*``) with a folder for each task:
``trace_metadata.json`` and ``step_records.json``, or ``summary.json`` and ``history.json``; the public evaluation
also reads single files that contain both. A step has an agent_name, a request (input, request) and an answer (output,
response): a chat completion as an object, or as its ``repr`` by the openai library. Steps are counted from 1.
Sources: the loader of github.com/TraceElephant/TraceElephant (code/trace_locate) and public readers of the data set
TraceElephant/TraceElephant; the form with input_context and output_content: the paper, section 3.3 and App. A.4.

A ``repr`` such as ``ChatCompletion(id='...', choices=[...])`` is parsed, never evaluated: calls with keyword arguments,
lists, tuples, dicts, strings, numbers and the names None, True, False, nan and inf, in time linear in its length; depth
and length are bounded. A call becomes a dict of its arguments, an enum member (``<Kind.name: 1>``) its text.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from opsassay.core.errors import DatapackError
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.core.schema.validation_errors import reason
from opsassay.solvers.proxy.apis import Asked, ModelAnswer
from opsassay.solvers.proxy.apis.base import fields, list_objects
from opsassay.solvers.proxy.apis.chat import read_answer, read_request
from opsassay.solvers.proxy.calls import LaterRequests, ModelCall
from opsassay.solvers.proxy.reading import first_of, read_json
from opsassay.solvers.proxy.steps import AgentIds, render_messages, strip_role_suffix, tool_in_text

LONGEST, DEEPEST = 32_000_000, 100
"""Most characters and most nested brackets of a text that is parsed."""

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>[bu]?'[^'\\]*+(?:\\.[^'\\]*+)*+'|[bu]?"[^"\\]*+(?:\\.[^"\\]*+)*+")
      | (?P<number>-?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>-?[A-Za-z_][\w.]*(?:\[[\w., \[\]]*\](?=\())?)
      | (?P<opaque><[^<>]*>)
      | (?P<mark>[()\[\]{},:=])
    )\s*""",
    re.VERBOSE | re.DOTALL,
)
_NAMES = {"None": None, "True": True, "False": False, "nan": None, "inf": None, "-inf": None}
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def is_object_repr(text: str) -> bool:
    """Return whether *text* begins as the repr of an object: a class name and a keyword argument."""
    return re.match(r"\s*[A-Z][\w.]*(?:\[[\w., ]*\])?\((?:[A-Za-z_]\w*=|\)\s*\Z)", text) is not None


def parse_object_repr(text: str) -> Any:
    """Return the value whose repr is *text*, objects as dicts; raises ValueError with the place of an error."""
    if len(text) > LONGEST:
        raise ValueError(f"it is {len(text):,} characters long, and at most {LONGEST:,} are read")
    reader = _ReprReader(text)
    value = reader.value(0)
    reader.end()
    return value


class _ReprReader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._kind, self._part = "", ""
        self._read_next_token()

    def value(self, depth: int) -> Any:
        """Parse and return the value at the current token; *depth* counts the nesting, which is limited."""
        if depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} brackets are nested at character {self._at:,}")
        kind, part = self._kind, self._part
        self._read_next_token()
        if kind in {"string", "number"}:
            return self._read_literal(part)
        if kind == "opaque":
            return part
        if kind == "name":
            return self._read_named(part, depth)
        if part == "{":
            return self._read_pairs("}", ":", depth)
        if part in {"[", "("}:
            return self._read_items(_CLOSING[part], depth)
        raise self._unexpected_error(part)

    def end(self) -> None:
        """Raise ValueError unless the whole text was parsed."""
        if self._kind != "end":
            raise self._unexpected_error(self._part)

    def _read_literal(self, part: str) -> Any:
        """Return the value of the Python literal *part*; raises ValueError when it is none."""
        try:
            return ast.literal_eval(part)
        except SyntaxError as error:
            raise self._unexpected_error(part) from error

    def _read_named(self, name: str, depth: int) -> Any:
        """Return the constant *name* (None, True ...), or the fields of "Name(key=value, ...)" as a dict."""
        if self._part != "(":
            if name in _NAMES:
                return _NAMES[name]
            raise self._unexpected_error(name)
        self._read_next_token()
        return self._read_pairs(")", "=", depth)

    def _read_pairs(self, closing: str, separator: str, depth: int) -> dict[Any, Any]:
        """Return the pairs up to the bracket *closing*: keyword arguments (*separator* "=") or dict entries (":")."""
        found: dict[Any, Any] = {}
        while (self._kind, self._part) != ("mark", closing):
            key: Any = self._part
            if separator == "=" and self._kind == "name":
                self._read_next_token()
            else:
                key = self.value(depth + 1)
            if (self._kind, self._part) != ("mark", separator):
                raise self._unexpected_error(self._part)
            self._read_next_token()
            found[key if isinstance(key, str) else repr(key)] = self.value(depth + 1)
            self._require_separator(closing)
        self._read_next_token()
        return found

    def _read_items(self, closing: str, depth: int) -> list[Any]:
        """Parse and return the values up to the bracket *closing*; *depth* is their nesting."""
        found: list[Any] = []
        while (self._kind, self._part) != ("mark", closing):
            found.append(self.value(depth + 1))
            self._require_separator(closing)
        self._read_next_token()
        return found

    def _require_separator(self, closing: str) -> None:
        """Read a comma, or stop before the bracket *closing*; raises ValueError for anything else."""
        if (self._kind, self._part) == ("mark", ","):
            self._read_next_token()
        elif (self._kind, self._part) != ("mark", closing):
            raise self._unexpected_error(self._part)

    def _read_next_token(self) -> None:
        """Read the next token: set `_kind` and `_part`, to "end" and "" at the end of the text."""
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            if self._text[self._at :].strip():
                raise self._unexpected_error(self._text[self._at : self._at + 20])
            self._kind, self._part = "end", ""
            return
        self._at = match.end()
        self._kind, self._part = str(match.lastgroup), match[str(match.lastgroup)]

    def _unexpected_error(self, found: str) -> ValueError:
        """Return the ValueError that names *found* ("" for the end) and its character position."""
        what = f"unexpected {found[:20]!r}" if found else "it is cut off"
        return ValueError(f"{what} at character {self._at:,}")


PAIRS = (("trace_metadata.json", "step_records.json"), ("summary.json", "history.json"))
"""The two files of a task's folder: metadata of the run, and steps."""
RUNS = {"captain-runs-": "Captain-Agent", "magentic-runs-": "Magentic-One", "swe-agent-runs-": "SWE-Agent"}
"""The system by the prefix of its folder of runs."""
_STEPS = ("steps", "trace", "execution_trace", "step_records", "history")


def is_elephant(payload: Any) -> bool:
    """Return whether *payload* has a form of TraceElephant; unlike Who&When's, its steps have agent_name."""
    steps = first_of(payload, _STEPS) if isinstance(payload, dict) else None
    return isinstance(steps, list) and bool(steps) and all(isinstance(s, dict) and "agent_name" in s for s in steps)


def pair_in(folder: Path) -> tuple[Path, Path] | None:
    """Return the task file and the step file in *folder*, None without any; raises DatapackError for one alone."""
    for about, steps in PAIRS:
        if (folder / about).exists() and (folder / steps).exists():
            return folder / about, folder / steps
    about, steps = PAIRS[0]
    for there, missing in ((about, steps), (steps, about)):
        if (folder / there).exists():
            raise DatapackError(f"{folder} has {there} but no {missing}; unpack both from the data set.")
    return None


def read_task(pair: tuple[Path, Path]) -> dict[str, Any]:
    """Return the two files of a task folder merged into one payload; raises DatapackError."""
    about, steps = map(read_json, pair)
    if not isinstance(about, dict):
        raise DatapackError(f"{pair[0]} holds no JSON object; restore it from the data set.")
    if not isinstance(steps, list) or not steps:
        raise DatapackError(f"{pair[1]} holds no list of steps; restore it from the data set.")
    return {**about, "step_records": steps}


def elephant_trace(payload: dict[str, Any], path: Path) -> Trace:
    """Return the trace in *payload*, read from *path*; raises DatapackError."""
    return trace_and_notes(payload, path)[0]


def trace_and_notes(payload: dict[str, Any], path: Path) -> tuple[Trace, tuple[str, ...]]:
    """Return the trace in *payload* and notes on irregular steps; raises DatapackError."""
    about = {**payload, **(first_of(payload, ("metadata", "trace_metadata")) or {})}
    try:
        steps, notes = _read_steps(first_of(payload, _STEPS))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DatapackError(f"{path}: a step is not in the form of TraceElephant ({reason(error)}).") from error
    runs = runs_folder(path) or ""
    known = next((system for prefix, system in RUNS.items() if runs.startswith(prefix)), path.parent.name)
    reference = first_of(about, ("reference_answer", "ground_truth", "answer", "tests_status"))
    architecture = first_of(about, ("system_architecture", "agent_system_intro"))
    trace = Trace(
        task_id=str(about.get("task_id") or path.stem),
        task_instruction=_as_text(first_of(about, ("task_instruction", "task", "question"))),
        system_name=str(about.get("system_name") or known),
        agent_configuration=fields(about.get("agent_configuration")),
        system_architecture=_as_text(architecture) if architecture else None,
        outcome=str(about["outcome"]) if about.get("outcome") is not None else None,
        reference_answer=None if reference is None else _as_text(reference),
        steps=steps,
    )
    return trace, notes


@dataclass(frozen=True)
class _StepRecord:
    """One parsed record: the agent's *name*, the model call, its input as text, and a note *odd* on an irregularity."""

    name: str
    fields: dict[str, Any]
    call: ModelCall
    context: str
    odd: str | None


def _read_steps(records: Sequence[Any]) -> tuple[tuple[TraceStep, ...], tuple[str, ...]]:
    """Return the steps of *records* in order, and notes on irregular or renumbered ones."""
    read = [_read_record(record) for record in records]
    later, ids = LaterRequests([one.call for one in read]), AgentIds()
    steps, notes = [], []
    for number, one in enumerate(read, 1):
        logs = tuple(_read_tool_call(log) for log in list_objects(one.fields.get("tool_logs")) if "function" not in log)
        logs = logs or one.call.tool_logs(later.results(number - 1))
        answer = one.call.answer or ModelAnswer("")
        steps.append(
            TraceStep(
                step_id=number,
                agent_id=str(one.fields.get("agent_id", ids.id_of(one.name))),
                agent_name=one.name,
                input_context=one.context,
                output_content=answer.text,
                tool_logs=logs,
                usage=answer.usage,
                model=answer.model or one.call.asked.model,
                request_id=answer.id,
                kind="tool" if logs or tool_in_text(answer.text) else "plain",
                error=answer.error,
            )
        )
        stated = one.fields.get("step_id", number)
        notes += [f"step {number} {one.odd}"] if one.odd else []
        notes += [f"step {number} is called {stated!r} in the file"] if str(stated) != str(number) else []
    return tuple(steps), tuple(notes)


def _read_record(record: dict[str, Any]) -> _StepRecord:
    """Return *record* with its parsed model call; plain texts of input and output are kept unparsed."""
    given, said = first_of(record, ("input", "request")), first_of(record, ("output", "response"))
    merged = {**record, **fields(given), **fields(said), "agent_name": record["agent_name"]}
    name = strip_role_suffix(str(merged["agent_name"]))
    if {"input_context", "output_content"} & merged.keys():
        answer = ModelAnswer(_as_text(merged.get("output_content", "")))
        context = _as_text(merged.get("input_context", ""))
        return _StepRecord(name, merged, ModelCall(Asked(None, ()), answer), context, None)
    merged = {**record, "tool_logs": record.get("tool_logs")}
    asked = read_request(fields(given))
    context = render_messages(asked.messages) if asked.messages else _as_text(given)
    answer, odd = _read_output(said)
    if not answer.tool_uses:  # SWE-Agent's calls stand beside the answer instead of in it
        called = [log for log in list_objects(record.get("tool_logs")) if "function" in log]
        answer = replace(answer, tool_uses=read_answer({"choices": [{"message": {"tool_calls": called}}]}).tool_uses)
    return _StepRecord(name, merged, ModelCall(asked, answer), context, odd)


def _read_output(value: Any) -> tuple[ModelAnswer, str | None]:
    """Return the parsed model output and a note on an irregular one; unparsable text stays text."""
    odd, read = None, value
    if isinstance(value, str) and is_object_repr(value):
        try:
            read = parse_object_repr(value)
        except ValueError as error:
            odd = f"has an output that is no whole printed object ({error}); it is kept as text"
    if isinstance(read, dict):
        if read.get("choices") or read.get("error"):
            return read_answer(read), odd
        if {"content", "tool_calls", "refusal"} & read.keys():
            return read_answer({"choices": [{"message": read}]}), odd
    return ModelAnswer(_as_text(value)), odd


def _read_tool_call(log: dict[str, Any]) -> ToolCall:
    """Return the tool call in *log* under any known key; a status other than success becomes "error"."""
    status = str(first_of(log, ("status", "execution_status")) or "ok").lower()
    reported: Literal["ok", "error"] = (
        "ok" if status in {"ok", "success", "succeeded", "completed", "true"} else "error"
    )
    arguments = first_of(log, ("arguments", "input", "input_arguments", "args"))
    return ToolCall(
        tool=str(first_of(log, ("tool", "tool_name", "name")) or ""),
        arguments=arguments if isinstance(arguments, dict) else {} if arguments is None else {"raw": arguments},
        output=_as_text(first_of(log, ("output", "outputs", "result"))),
        status=reported,
    )


def runs_folder(path: Path) -> str | None:
    """Return the name of the data set's run folder (``captain-runs-*`` ...) around *path*, None outside one."""
    return next((part for part in reversed(path.absolute().parts) if part.startswith(tuple(RUNS))), None)


def _as_text(value: Any) -> str:
    """Return a string unchanged, None as "" and anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
