"""Predictions of failing agent and step for Who&When and TraceElephant: JSON lines, or text printed by Who&When's code.

They become lines of ``answers.jsonl``, as in comparisons of techniques. Who&When counts steps from 0, TraceElephant
from 1. Source of the text: github.com/ag2ai/Agents_Failure_Attribution, which prints a block for each file.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from opsassay.analysis.answers import PREDICTIONS
from opsassay.analysis.answers.external_answers import Document, merge_notes, require_text
from opsassay.analysis.answers.importing import list_files, sentence_about
from opsassay.analysis.blame.answers import ANSWERS, AnswerLine, read_answers
from opsassay.core.errors import NotFoundError, OpsAssayError, UserError, nearest
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.locks import folder_lock
from opsassay.core.schema.trajectory import LabelledTrace
from opsassay.core.untrusted import CAUSED_BY_CONTENT
from opsassay.solvers.proxy.reading import first_of

SUFFIXES = (".jsonl", ".json", ".txt", ".log")
_BLOCK = re.compile(r"Prediction for ([^:\n]+?):(.*?)(?=Prediction for [^:\n]+?:|\Z)", re.DOTALL)
_SAID = {
    "predicted_agent": re.compile(r"Agent Name\W*:\W*([^\n*]+)", re.IGNORECASE),
    "predicted_step": re.compile(r"Step Number\W*:\W*([^\n*]+)", re.IGNORECASE),
    "reason": re.compile(r"Reason for Mistake\W*:\s*(.+)", re.IGNORECASE | re.DOTALL),
}
_TRACE = ("trace", "trace_id", "file", "file_name", "filename", "task_id", "question_ID", "instance_id", "id", "idx")
_AGENT = (
    "predicted_agent", "failure_responsible_agent", "responsible_agent", "agent_name", "agent", "mistake_agent",
)  # fmt: skip
_STEP = (
    "predicted_step", "decisive_failure_step", "decisive_step", "failure_step", "step_number", "step", "mistake_step",
)  # fmt: skip
_REASON, _TECHNIQUE = ("reason", "mistake_reason", "explanation"), ("technique", "method", "mode")


@dataclass(frozen=True)
class KeptPrediction:
    """An imported prediction: its *line* of answers about *case*; *known*: an earlier import stored it."""

    source: str
    case: LabelledTrace
    line: AnswerLine
    known: bool

    @property
    def is_agent_right(self) -> bool:
        """Whether the predicted agent's name equals the labelled one."""
        return self.line.agent is not None and self.line.agent == self.case.label.agent_name

    @property
    def is_step_right(self) -> bool:
        """Whether the predicted step equals the labelled one."""
        return self.line.step is not None and self.line.step == self.case.label.step_id


@dataclass
class PredictionReport:
    """The result of an import: the predictions *kept*, and a sentence per problem."""

    kept: list[KeptPrediction] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def holds_predictions(source: Path) -> bool:
    """Return whether any file of *source* has predictions: Who&When's text, or rows with agent and step."""
    for path in list_files(source.resolve()):
        document = Document(path, source.resolve())
        try:
            if document.suffix in SUFFIXES and (
                _is_text(document) or _is_by_trace(document) or document.has_row(_is_prediction)
            ):
                return True
        except OpsAssayError:
            continue
    return False


def import_predictions(
    source: Path, cases: Sequence[LabelledTrace], out: Path, form: str | None = None, solver: str | None = None
) -> PredictionReport:
    """Append the predictions in *source*, on the traces of *cases*, to ``answers.jsonl`` in the folder *out*.

    *form* says whether steps count from 0 or 1; a text file is Who&When's by default. *solver* names the technique.
    Predictions that cannot be read are listed as problems. Raises UserError where none could be read; then nothing is
    written.
    """
    if not source.exists():
        raise UserError(f"{source} is not there; name a file of predictions, or a folder of them.")
    report, lines = PredictionReport(), _AnswerLines(out)
    for path in list_files(source.resolve()):
        document = Document(path, source.resolve(), solver)
        if document.suffix not in SUFFIXES:
            continue
        try:
            first = _find_first_step(form, document)
            for place, read in _list_rows(document):
                try:
                    report.kept.append(lines.keep(*_read_prediction(place, read(), document, cases, first)))
                except (OpsAssayError, *CAUSED_BY_CONTENT) as error:
                    report.problems.append(sentence_about(document, error))
        except (OpsAssayError, *CAUSED_BY_CONTENT) as error:
            report.problems.append(sentence_about(document, error))
    if not report.kept:
        why = " ".join(report.problems[:3]) or f"it has no file of {', '.join(SUFFIXES)}."
        raise UserError(f"{source} holds no prediction about the traces at hand: {why}")
    lines.write()
    return report


class _AnswerLines:
    """The lines of a folder of answers, and lines to append; only `write` writes."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._known = {line.question: line for line in read_answers(out)} if (out / ANSWERS).exists() else {}
        self._new: list[AnswerLine] = []
        self._runs: Counter[tuple[str, str]] = Counter()

    def keep(self, source: str, case: LabelledTrace, line: AnswerLine) -> KeptPrediction:
        """Return *line* with its repeat number, to be written; UserError if *source* gave another answer before."""
        self._runs[line.trace, line.technique] += 1
        run = self._runs[line.trace, line.technique]
        repeat = (f"prediction {run} of {line.technique} on this trace: a repeat",) if run > 1 else ()
        numbered = line.model_copy(update={"run": run, "notes": (*line.notes, *repeat)})
        known = self._known.get(numbered.question)
        if known is None:
            self._new.append(numbered)
        elif (known.agent, known.step) != (line.agent, line.step):
            raise UserError(f"{source} gave another answer when it was imported before; import it into another folder.")
        return KeptPrediction(source, case, numbered, known=known is not None)

    def write(self) -> None:
        """Append the lines that are new to the file."""
        self._out.mkdir(parents=True, exist_ok=True)
        refusal = UserError(f"Another process is writing answers into {self._out}; wait for it, or name another -o.")
        with folder_lock(self._out, wait=False, refusal=refusal):
            for line in self._new:
                append_line(self._out / ANSWERS, line)


def _find_first_step(form: str | None, document: Document) -> int:
    """Return how the file numbers its first step, 0 or 1, by *form* or its format; raises UserError."""
    if form is not None:
        return PREDICTIONS[form]
    if _is_text(document):
        return PREDICTIONS["whoandwhen"]
    raise UserError(
        f"{document.name} does not say how it counts steps, from 0 as Who&When or from 1 as TraceElephant; say "
        "--form whoandwhen or --form traceelephant."
    )


def _is_text(document: Document) -> bool:
    """Whether *document* is text with answer blocks as Who&When's code prints them."""
    return document.suffix in (".txt", ".log", ".json") and _BLOCK.search(_require_text_of(document)) is not None


def _is_by_trace(document: Document) -> bool:
    """Return whether *document* is one JSON object with a prediction per trace name."""
    content = document.content if document.suffix == ".json" else None
    rows = list(content.values()) if isinstance(content, dict) else []
    return bool(rows) and all(isinstance(row, dict) and _is_prediction({**row, "trace": "x"}) for row in rows)


def _require_text_of(document: Document) -> str:
    """Return the document's text, "" when its content is no text."""
    return document.content if isinstance(document.content, str) else ""


def _is_prediction(row: Any) -> bool:
    """Whether *row* names a trace, an agent and a step."""
    return isinstance(row, dict) and all(first_of(row, keys) is not None for keys in (_TRACE, _AGENT, _STEP))


def _list_rows(document: Document) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield (place for messages, function that returns the row) of each prediction in *document*."""
    if _is_by_trace(document):
        for name, row in document.content.items():
            yield f"{document.name} {name}", partial(dict, row, trace=name)
        return
    if not _is_text(document):
        yield from document.rows()
        return
    for found in _BLOCK.finditer(_require_text_of(document)):
        yield f"{document.name} {found[1].strip()}", partial(dict, read_block(found[2]), trace=found[1].strip())


def read_block(text: str) -> dict[str, str]:
    """Return predicted_agent, predicted_step and reason as written in one answer block of Who&When."""
    return {name: said[1].strip() for name, pattern in _SAID.items() if (said := pattern.search(text))}


def _read_prediction(
    place: str, row: Any, document: Document, cases: Sequence[LabelledTrace], first: int
) -> tuple[str, LabelledTrace, AnswerLine]:
    """Return (place, trace, line) of the prediction *row*; *first* is the file's number of the first step, 0 or 1."""
    if not isinstance(row, dict):
        raise UserError(f"{place} is no object; expected a trace, an agent and a step.")
    said = first_of(row, _TRACE)
    name = str(said) if isinstance(said, int) else require_text(said, f"{place}: {_TRACE[0]}", "the file of a trace")
    case = _find_trace(name, row, document, cases)
    notes: list[str] = []
    agent, step = _read_agent(row, case, notes), _read_step(row, case, first, notes)
    technique = document.solver or first_of(row, _TECHNIQUE) or document.path.stem
    digest = hashlib.sha256(f"given\0{case.id}\0{technique}".encode()).hexdigest()[:32]
    model, reason = row.get("model"), first_of(row, _REASON)
    line = AnswerLine(
        trace=case.id, technique=str(technique), run=1, model=model if isinstance(model, str) else None, agent=agent,
        step=step, reason=str(reason or "")[:10_000], notes=merge_notes(notes), asked=digest,
    )  # fmt: skip
    return place, case, line


def _find_trace(name: str, row: Mapping[str, Any], document: Document, cases: Sequence[LabelledTrace]) -> LabelledTrace:
    """Return the trace called *name* (id, file or task id); of several, the one in the subset that row or file names."""
    bare = name.replace("\\", "/").strip("/").removesuffix(".json")
    found = [case for case in cases if bare in (case.id, case.trace.task_id)]
    found = found or [case for case in cases if case.id.endswith(f"/{bare}") or bare.endswith(f"/{case.id}")]
    subsets = {part.lower() for part in (*document.folders, document.path.stem, str(row.get("subset", "")))}
    of_subset = [case for case in found if any(case.subset.lower() in part for part in subsets if part)]
    chosen = found if len(found) == 1 else of_subset
    if not found:
        raise NotFoundError("labelled trace at hand", name, {case.id for case in cases})
    if len(chosen) != 1:
        ids = ", ".join(case.id for case in found[:5])
        raise UserError(
            f"{name!r} is the name of {len(found)} traces ({ids}); name its folder too, as in {found[0].id!r}."
        )
    return chosen[0]


def _read_agent(row: Mapping[str, Any], case: LabelledTrace, notes: list[str]) -> str | None:
    """Return the agent that *row* blames, None without one; a doubtful name adds a note."""
    said = first_of(dict(row), _AGENT)
    if not isinstance(said, str) or not said.strip():
        notes.append("it names no agent")
        return None
    known = case.trace.agents()
    if said.strip() not in known:
        near = nearest(said, known)
        notes.append(f"no agent of the trace is called {said[:80]!r}" + (f"; did you mean {near!r}?" if near else ""))
    return said.strip()


def _read_step(row: Mapping[str, Any], case: LabelledTrace, first: int, notes: list[str]) -> int | None:
    """Return the blamed step from 1 (the file counts from *first*), None without a single number; doubts add notes."""
    said = first_of(dict(row), _STEP)
    digits = [] if isinstance(said, bool) else re.findall(r"-?\d+(?:\.\d+)?", str(said if said is not None else ""))
    if len(digits) != 1 or not float(digits[0]).is_integer():
        notes.append("it names no step" if said is None else f"{str(said)[:60]!r} names no one step")
        return None
    if isinstance(said, str) and said.strip() != digits[0]:
        notes.append(f"{str(said)[:60]!r} is read as step {digits[0]}")
    number = int(float(digits[0]))
    step = number - first + 1
    if not 1 <= step <= len(case.trace.steps):
        notes.append(f"the trace has no step {number}; it has {len(case.trace.steps)}, the first being {first}")
    return step
