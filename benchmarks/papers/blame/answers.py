"""Answers of a comparison on disk: a line for each question as it ends, and one for each reply of the model on the way.

``answers.jsonl`` is what is read later; ``replies.jsonl`` is what a run that was killed goes on from: a question asks again
only what had no reply yet. Both belong to what was asked: a trace, a setting or a model that changed is asked anew.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from opsassay.analysis.blame.answers import ANSWERS, AnswerLine, Question
from opsassay.core.errors import UserError
from opsassay.core.schema.base import Noun
from opsassay.core.schema.json_lines import append_line, read_nouns
from opsassay.core.schema.locks import folder_lock
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.solvers.agents.limits import Price
from opsassay.solvers.agents.models.base import Message, Model, ModelError, Reply

from .paid import Spending, tokens_at_most
from .settings import BenchSettings

REPLIES = "replies.jsonl"


class ReplyLine(Noun):
    """The reply to call *number* of a question whose messages have the digest *messages*; None for a call that failed.

    *price* is what the call has cost, or may have cost, USD.
    """

    question: Question
    number: int
    messages: str
    reply: Reply | None
    price: float = 0.0


class AnswerLog:
    """The answers and replies in a folder, None to keep none; safe for threads, for one process at a time."""

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._answers: dict[Question, AnswerLine] = {}
        self._replies: dict[Question, dict[int, ReplyLine]] = defaultdict(dict)
        self.spent = 0.0
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        for path in (folder / ANSWERS, folder / REPLIES):
            _end_last_line(path)
        for answer in read_nouns(folder / ANSWERS, AnswerLine):
            self._answers[answer.question] = answer
        for reply in read_nouns(folder / REPLIES, ReplyLine):
            self.spent += reply.price
            if reply.reply is not None:
                self._replies[reply.question][reply.number] = reply

    def answer(self, question: Question) -> AnswerLine | None:
        """Return the answer to *question* that is there; a failed one is none."""
        found = self._answers.get(question)
        return None if found is None or found.failed else found

    def last(self, question: Question) -> AnswerLine | None:
        """Return what stands for *question*, a failure too."""
        return self._answers.get(question)

    def reply(self, question: Question, number: int, messages: str) -> Reply | None:
        """Return the reply to call *number* of *question*, None where there is none to these *messages*."""
        found = self._replies[question].get(number)
        return found.reply if found is not None and found.messages == messages else None

    def add(self, line: AnswerLine | ReplyLine) -> None:
        """Append *line*, so that it is on disk when this returns."""
        with self._lock:
            if isinstance(line, AnswerLine):
                self._answers[line.question] = line
            if self._folder is not None:
                append_line(self._folder / (ANSWERS if isinstance(line, AnswerLine) else REPLIES), line)


@contextmanager
def answer_log(folder: Path | None) -> Iterator[AnswerLog]:
    """Give the log in *folder*, held against other processes; raises UserError while one holds it, DatapackError."""
    if folder is None:
        yield AnswerLog(None)
        return
    folder.mkdir(parents=True, exist_ok=True)
    refusal = UserError(f"Another process is writing answers into {folder}; wait for it, or name another -o.")
    with folder_lock(folder, wait=False, refusal=refusal):
        yield AnswerLog(folder)


class LoggedModel:
    """Asks *model* what the *log* has no reply to for this *question*, within a *spending*, and keeps every reply.

    *price* is what tokens cost. A call that fails in passing is made again as often as the settings say; every try counts.
    """

    def __init__(
        self,
        model: Model,
        log: AnswerLog,
        question: Question,
        price: Price,
        spending: Spending,
        settings: BenchSettings,
    ) -> None:
        self._model, self._log, self._question = model, log, question
        self._price, self._spending, self._settings = price, spending, settings
        self._calls = 0

    @property
    def name(self) -> str:
        """What the model is called in results."""
        return self._model.name

    def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, temperature: float | None = None
    ) -> Reply:
        """Return the reply that is kept, or a new one.

        Raises ModelError, and BudgetReachedError for a call that could pass the budget.
        """
        self._calls += 1
        parts = "\0".join(part.canonical_json() for part in (*messages, *tools))
        asked = hashlib.sha256(f"{temperature}\0{parts}".encode("utf-8", "replace")).hexdigest()[:32]
        kept = self._log.reply(self._question, self._calls, asked)
        if kept is not None:
            return kept
        most = tokens_at_most(messages, tools)
        for tried in range(self._settings.retries + 1):
            try:
                with self._spending.reserved(self._most_usd(most, self._settings.answer_tokens)) as spent:
                    reply = self._asked(messages, tools, temperature, asked, most, spent)
            except ModelError as error:
                if not error.passing or tried == self._settings.retries:
                    raise
                time.sleep(error.pause_s if error.pause_s is not None else self._settings.pause_s * 2**tried)
            else:
                return reply
        raise AssertionError("a last try returns or raises")

    def _most_usd(self, asked: int, answered: int) -> float:
        """Return what *asked* and *answered* tokens cost at most: the question may have been written to a cache."""
        usage = {"input_tokens": asked, "output_tokens": answered}
        return max(self._price.cost_of(usage), self._price.cost_of({**usage, "cache_write_tokens": asked}))

    def _asked(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        temperature: float | None,
        asked: str,
        most: int,
        spent: list[float],
    ) -> Reply:
        try:
            reply = self._model.complete(messages, tools, temperature=temperature)
        except ModelError as error:
            if error.status is None:  # cut off or timed out: the question may have been charged
                spent.append(self._most_usd(most, 0))
                self._keep(asked, None, spent[0])
            raise
        spent.append(self._price.cost_of(reply.usage))
        self._keep(asked, reply, spent[0])
        return reply

    def _keep(self, asked: str, reply: Reply | None, price: float) -> None:
        line = ReplyLine(question=self._question, number=self._calls, messages=asked, reply=reply, price=price)
        self._log.add(line)


def _end_last_line(path: Path) -> None:
    """Cut off a last line that was torn, so that the next one does not stand behind half of it."""
    path.touch()
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)
