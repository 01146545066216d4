"""Stored answers of attribution techniques: a line per question in ``answers.jsonl`` of a folder."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from opsassay.core.errors import UserError
from opsassay.core.schema.base import Noun
from opsassay.core.schema.json_lines import read_nouns
from opsassay.core.schema.trajectory import Attribution, Trace

Question = tuple[str, str, int]
"""(digest of all inputs of the question, technique, number of the run)."""
ANSWERS = "answers.jsonl"


class AnswerLine(Noun):
    """A technique's answer about a trace in one *run*.

    *asked* is the digest of all inputs, *arm* lists settings that differ from the default. *failed* says why the model
    gave no answer; *price* is in USD, None when unknown.
    """

    trace: str
    technique: str
    run: int
    model: str | None = None
    agent: str | None = None
    step: int | None = None
    reason: str = ""
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    price: float | None = None
    failed: str | None = None
    notes: tuple[str, ...] = ()
    asked: str = ""
    arm: str = Field(default="", exclude_if=lambda arm: not arm)

    @property
    def question(self) -> Question:
        """The key of the line: what was asked, technique and repeat number."""
        return self.asked, self.technique, self.run


def read_answers(folder: Path) -> list[AnswerLine]:
    """Return the last answer to each question from ``answers.jsonl`` in *folder*; raises UserError, DatapackError."""
    path = folder / ANSWERS
    if not path.exists():
        raise UserError(f"{folder} holds no {ANSWERS}; make it with `blame bench FOLDER -o {folder}`.")
    return list({line.question: line for line in read_nouns(path, AnswerLine)}.values())


def imported_answer(folder: Path, path: Path, trace: Trace, technique: str | None) -> Attribution:
    """Return the first answer in *folder* on *trace* (its task id or file *path*) by *technique* (None: any).

    The reason names the technique. Raises UserError if there is none.
    """
    names = {path.stem, f"{path.resolve().parent.name}/{path.stem}", trace.task_id}
    about = [line for line in read_answers(folder) if line.trace in names and line.failed is None]
    chosen = [line for line in about if technique in (None, line.technique)]
    if not chosen:
        others = ", ".join(sorted({line.technique for line in about})) or "none"
        raise UserError(f"{folder} has no answer about {path} of {technique or 'any technique'}; there are: {others}.")
    line = chosen[0]
    reason = f"{line.technique}: {line.reason}" if line.reason else line.technique
    return Attribution(agent_name=line.agent, step_id=line.step, reason=reason)
