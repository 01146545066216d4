"""The evidence of a collector: one JSON file, which is not trusted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from opsassay.core.errors import UserError
from opsassay.core.untrusted import finite, one_sentence, read_plain, require_depth
from opsassay.solvers.sandbox import Ended, SandboxLimits

EVIDENCE = "collected_data.json"
MAX_EVIDENCE = 4 * 2**20
LIMITS = SandboxLimits(
    wall_clock_s=60.0,
    memory_bytes=2**30,
    processes=128,
    work_bytes=64 * 2**20,
    collect_bytes=MAX_EVIDENCE + 2**16,
    file_bytes=16 * 2**20,
    output_bytes=16 * 2**10,
)
"""Limits of one run of a collector."""


@dataclass(frozen=True)
class CollectedEvidence:
    """The JSON text *data* collected on one cluster or host, or the *problem* why there is none."""

    data: bytes | None
    problem: str = ""


def collected_in(work: Path, end: Ended) -> CollectedEvidence:
    """Return the evidence in *work*, or the problem: the process *end* failed, or its file is missing or invalid."""
    if not end.started or end.limit or end.exit_code != 0:
        return CollectedEvidence(
            None, one_sentence(f"{end.reason}: {_error_line(end)}" if _error_line(end) else end.reason)
        )
    path = work / EVIDENCE
    if not path.is_file() or path.is_symlink():
        left = next((one for one in end.left_behind if one.startswith(f"{EVIDENCE}: ")), None)
        why = f"there is no {EVIDENCE}" if left is None else f"not taken: {left}"
        return CollectedEvidence(None, one_sentence(why))
    try:
        return parse_evidence(read_plain(path, MAX_EVIDENCE))
    except UserError as error:
        return CollectedEvidence(None, one_sentence(str(error).replace(f"{work}/", "")))


def parse_evidence(text: bytes) -> CollectedEvidence:
    """Return *text* as evidence when it is JSON within the size limits, else evidence without data and the problem."""
    try:
        read = text.decode("utf-8")
        require_depth(read)
        json.loads(read, parse_constant=_refuse_constant, parse_float=finite)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        return CollectedEvidence(None, one_sentence(f"{EVIDENCE} is no JSON: {str(error)[:200]}"))
    return CollectedEvidence(text)


def _refuse_constant(constant: str) -> None:
    """Raise ValueError for NaN and Infinity, which JSON does not have."""
    raise ValueError(f"{constant} is no value of JSON")


def _error_line(end: Ended) -> str:
    """Return the first output line of *end* that starts like an error, else the last line, '' without output."""
    lines = f"{end.stdout_tail}\n{end.stderr_tail}".strip().splitlines()
    errors = [line for line in lines if line.startswith(("[ERROR]", "ERROR", "fatal:"))]
    return (errors or lines[-1:] or [""])[0][:300]
