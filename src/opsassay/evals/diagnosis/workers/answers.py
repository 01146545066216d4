"""Reads and validates the answer file of a worker process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opsassay.core.errors import UserError
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.validation_errors import problem
from opsassay.core.untrusted import is_plain, read_json, read_plain
from opsassay.evals.runner.run import MAX_ANSWER_BYTES
from opsassay.solvers.sandbox import signal_name


def read_worker_answer(path: Path) -> dict[str, Any] | str:
    """Return the JSON object, not yet validated, in a worker's answer file *path*, or the reason why there is none."""
    if not is_plain(path):
        return "the solver ended without an answer"
    try:
        answer = read_json(read_plain(path, MAX_ANSWER_BYTES))
    except UserError:
        return f"the answer is larger than {MAX_ANSWER_BYTES} bytes"
    except ValueError as error:
        return f"the answer is no JSON: {error}"
    return answer if isinstance(answer, dict) else "the answer is no object"


def diagnosed(answer: dict[str, Any] | str) -> tuple[Diagnosis | None, str | None]:
    """Return (diagnosis, None) if *answer*, from `read_worker_answer`, is valid, else (None, the reason)."""
    if isinstance(answer, str):
        return None, answer
    if "diagnosis" not in answer:
        return None, str(answer.get("error"))
    try:
        return Diagnosis.model_validate(answer["diagnosis"]), None
    except RecursionError:
        return None, "the answer is nested too deeply"
    except ValidationError as error:
        return None, f"the answer is not valid: {problem(error)}"


def how_it_died(code: int) -> str:
    """Return a phrase on how a worker without an answer ended, by its exit *code* (negative: signal)."""
    if code < 0:
        return f"the solver was killed by {signal_name(-code)}"
    return f"the solver ended with exit code {code} and no answer"
