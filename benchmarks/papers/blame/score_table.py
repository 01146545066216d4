"""Stored answers as the score table that `opsassay audit` reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from opsassay.analysis.blame.answers import AnswerLine, read_answers
from opsassay.core.errors import UserError
from opsassay.core.schema.trajectory import LabelledTrace
from opsassay.telemetry.content import whole_file

from ..running import part_of
from .bench import scored
from .scores import Scored
from .settings import BenchSettings

BlameMetric = Literal["agent", "step", "near"]
_FIELDS: dict[BlameMetric, str] = {"agent": "agent", "step": "step", "near": "step_within"}


def score_table(
    folder: Path, cases: Sequence[LabelledTrace], metric: BlameMetric, settings: BenchSettings | None = None
) -> pl.DataFrame:
    """Return the answers in *folder* beside the labels of *cases*, one row per trace and technique, runs averaged.

    Columns: family (the subset), system, case (the trace), method (the technique, with its model where there are several,
    and its arm: settings that are not by default), score in [0, 1], null where every run failed, predicted and expected
    (agents, or steps), steps (of the trace). The most frequent answer of the runs is the predicted one. Raises UserError
    where no answer is of *cases*.
    """
    answers = read_answers(folder)
    by_id, models = {case.id: case for case in cases}, {line.model for line in answers if line.model}
    cells: dict[tuple[str, str], list[AnswerLine]] = {}
    for line in answers:
        if line.trace in by_id:
            method = f"{line.technique} ({line.model})" if line.model and len(models) > 1 else line.technique
            method += f" [{line.arm}]" if line.arm else ""
            cells.setdefault((line.trace, method), []).append(line)
    if not cells:
        raise UserError(
            f"None of the answers in {folder} is about the labelled traces; name the folder that was asked about."
        )
    rows = [
        _row(by_id[id_], method, lines, metric, settings or BenchSettings()) for (id_, method), lines in cells.items()
    ]
    return pl.DataFrame(rows).sort("family", "system", "case", "method")


def write_score_table(table: pl.DataFrame, path: Path) -> None:
    """Write *table* as CSV, whole."""
    with whole_file(path) as partial:
        table.write_csv(partial)


def _row(
    case: LabelledTrace, method: str, lines: Sequence[AnswerLine], metric: BlameMetric, settings: BenchSettings
) -> dict[str, object]:
    answered = [line for line in lines if line.failed is None]
    hits = [_hit(scored(case, line, settings), metric) for line in answered]
    said = Counter(_label(line.agent, line.step, metric) for line in answered)
    return {
        "family": case.subset,
        "system": case.trace.system_name or case.subset,
        "case": case.id,
        "method": method,
        "score": sum(hits) / len(hits) if hits else None,
        "predicted": said.most_common(1)[0][0] if said else "",
        "expected": _label(case.label.agent_name, case.label.step_id, metric),
        "steps": len(case.trace.steps),
    }


def _hit(row: Scored, metric: BlameMetric) -> bool:
    return bool(getattr(row, _FIELDS[metric]))


def _label(agent: str | None, step: int | None, metric: BlameMetric) -> str:
    return (agent if metric == "agent" else None if step is None else str(step)) or "none"


if __name__ == "__main__":
    part_of("blame")
