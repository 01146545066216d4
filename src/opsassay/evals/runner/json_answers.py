"""Answers that consist of one JSON object: their reader, and a run in which a solver submits one.

Any other content is an error in one sentence and never repaired; so is a key that occurs twice in an object.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from opsassay.core.schema.trajectory import ToolCall
from opsassay.evals.runner.commands import WORK_INSIDE
from opsassay.evals.runner.generated_run import FolderEnvironment, GeneratedRun
from opsassay.evals.runner.generated_tasks import GeneratedTask
from opsassay.evals.runner.run import MAX_ANSWER_BYTES
from opsassay.solvers.agents.contract import AnswerError
from opsassay.solvers.agents.tool_sessions import SUBMIT, CountedToolSession
from opsassay.solvers.sandbox import Ended

MAX_BYTES = 4 * 2**20
ANSWER = "answer.json"
"""File name of an answer in a run folder."""


def read_object(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in *text*; raises AnswerError for any other content."""
    if len(text) > MAX_BYTES:
        raise AnswerError(f"the answer is larger than {MAX_BYTES} bytes; give one JSON object by the contract")
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if not plain.strip():
        raise AnswerError("the answer is empty; give one JSON object by the contract")
    try:
        given = json.loads(
            plain.strip().removeprefix("\ufeff"),
            parse_constant=_refuse_constant,
            object_pairs_hook=_require_unique_keys,
        )
    except RecursionError as error:
        raise AnswerError("the answer is nested too deeply; give one JSON object by the contract") from error
    except ValueError as error:
        raise AnswerError(f"the answer is no JSON: {error}; give one JSON object and nothing else") from error
    if not isinstance(given, dict):
        raise AnswerError("the answer is no JSON object; give one by the contract")
    return given


def _refuse_constant(constant: str) -> Any:
    """Raise AnswerError for NaN and Infinity."""
    raise AnswerError(f"{constant} is no number of JSON; leave a row out whose number is not defined")


def _require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return *pairs* as a dict; raises AnswerError for a duplicate key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for n, (name, _) in enumerate(pairs) if name in dict(pairs[:n]))
        raise AnswerError(f"{twice!r} stands twice in one object; give one value for each field")
    return found


class JsonToolSession(CountedToolSession):
    """A session whose submit tool takes one JSON object; the last valid *answer* counts."""

    answer: dict[str, Any] | None = None

    @abstractmethod
    def require(self, answer: Mapping[str, Any]) -> None:
        """Raise AnswerError when *answer* does not have the form that the task requires."""

    def problem_of(self, answer: Mapping[str, Any]) -> str | None:
        """Return a sentence on how *answer* differs from the required form, None when it is valid."""
        try:
            self.require(read_object(json.dumps(dict(answer), ensure_ascii=False)))
        except AnswerError as error:
            return f"not an answer by the contract: {error}."
        return None

    def submitted(self, answer: dict[str, Any]) -> ToolCall:
        """Store *answer* if it is valid; return the tool call, with an error if it is not."""
        if (problem := self.problem_of(answer)) is not None:
            return ToolCall(tool=SUBMIT, arguments=answer, output=f"Error: {problem}", status="error")
        self.answer = answer
        return ToolCall(tool=SUBMIT, arguments=answer, output="Taken.")


S = TypeVar("S", bound=JsonToolSession)
G = TypeVar("G", bound=GeneratedTask)


class JsonRun(GeneratedRun[G, S]):
    """A run whose answer is one JSON object: submitted by tool, else in the agent's file, else printed."""

    def answer_place(self, work: Path, *, sealed: bool) -> str:
        """Return the path, in the sandbox if *sealed*, of the file that the external agent must write."""
        return f"{WORK_INSIDE if sealed else work}/{ANSWER}"

    def take(self, end: Ended, work: Path, session: S) -> str | None:
        """Submit the agent's answer (by tool, its file in *work* or its output); return why it has none, or None."""
        if session.answer is not None:
            return None
        if not end.started or (end.limit is None and end.exit_code != 0):
            return end.reason
        file = work / ANSWER
        if file.is_file() and not file.is_symlink():
            if file.stat().st_size > MAX_ANSWER_BYTES:
                return f"the answer is larger than {MAX_ANSWER_BYTES} bytes"
            return self._take_text(session, file.read_bytes())
        return end.reason if end.limit else self._take_text(session, end.stdout_tail)

    def _take_text(self, session: S, text: str | bytes) -> str | None:
        """Submit the JSON object in *text*; return why it is no valid answer, None when it is."""
        try:
            given = read_object(text)
            session.require(given)
        except AnswerError as error:
            return f"no answer by the contract: {error}"
        session.answer = given
        return None

    def collect(self, environment: FolderEnvironment[S], session: S) -> str | None:
        """Write the submitted answer into the run folder; return why there is none, else None."""
        if session.answer is None:
            return session.last_error()
        text = json.dumps(session.answer, indent=1, ensure_ascii=False)
        (environment.run_dir / ANSWER).write_text(f"{text}\n", encoding="utf-8")
        return None
