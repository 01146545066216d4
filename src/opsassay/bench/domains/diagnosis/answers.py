"""What a worker process wrote as its answer: anything, of which only a valid Diagnosis is one."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opsassay.bench.core.attempt import MAX_ANSWER_BYTES
from opsassay.model.diagnosis import Diagnosis


def read_answer(path: Path) -> dict[str, Any] | str:
    """Return the object that a worker wrote, which may be anything, or why there is none."""
    if path.is_symlink() or not path.is_file():
        return "the solver ended without an answer"
    if path.stat().st_size > MAX_ANSWER_BYTES:
        return f"the answer is larger than {MAX_ANSWER_BYTES} bytes"
    try:
        answer = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return f"the answer is no JSON: {error}"
    return answer if isinstance(answer, dict) else "the answer is no object"


def diagnosed(answer: dict[str, Any] | str) -> tuple[Diagnosis | None, str | None]:
    """Return the diagnosis in what a worker *answer*, or why there is none: only a valid Diagnosis is an answer."""
    if isinstance(answer, str):
        return None, answer
    if "diagnosis" not in answer:
        return None, str(answer.get("error"))
    try:
        return Diagnosis.model_validate(answer["diagnosis"]), None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return None, f"the answer is not valid: {where}: {first['msg']}"


def how_it_died(code: int) -> str:
    """Return what an exit code of a solver that gave no answer says."""
    if code < 0:
        return f"the solver was killed by {signal.Signals(-code).name}"
    return f"the solver ended with exit code {code} and no answer"


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it holds the number {name}")
