"""Tables 2 and 3 of TraceElephant from kept answers: accuracy by system, technique and reference, and of ablations."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from opsassay.analysis.blame.answers import AnswerLine
from opsassay.core.errors import UserError
from opsassay.core.schema.trajectory import LabelledTrace
from opsassay.evals.runner.tables import ResultTable

from ..running import part_of
from .bench import scored
from .scores import Scored, summarise
from .settings import BenchSettings

WITH, WITHOUT = "with", "without"
AVERAGE = "all-avg"
NO_REFERENCE = "reference=false"


def published_tables(
    lines: Sequence[AnswerLine], cases: Sequence[LabelledTrace], settings: BenchSettings
) -> list[ResultTable]:
    """Return Tables 2 and 3 of *lines* about *cases*, each left out where nothing stands in it.

    Accuracies are means over traces of means over runs, in percent; the average is over systems, as the paper's is.
    Raises UserError where no line is about one of the traces.
    """
    by_id = {case.id: case for case in cases}
    known = [(line, scored(by_id[line.trace], line, settings)) for line in lines if line.trace in by_id]
    if not known:
        raise UserError("None of the answers is about the labelled traces; name the folder that was asked about.")
    tables = [_by_reference(known), _by_parts(known)]
    return [table for table in tables if table.rows]


def _by_reference(known: Sequence[tuple[AnswerLine, Scored]]) -> ResultTable:
    main = [(line, row) for line, row in known if line.arm in ("", NO_REFERENCE)]
    techniques = list(dict.fromkeys(line.technique for line, _ in main))
    systems = sorted({row.system for _, row in main})
    rows = []
    for system in (*systems, AVERAGE) if len(systems) > 1 else systems:
        for arm, reference in (("", WITH), (NO_REFERENCE, WITHOUT)):
            parts = [
                [row for line, row in main if (line.arm, line.technique) == (arm, technique)]
                for technique in techniques
            ]
            cells = [_cell(part, systems if system == AVERAGE else [system]) for part in parts]
            if any(cells):
                rows.append((system, reference, *cells))
    note = "agent / step, percent; the average is over systems, as the paper's is."
    return ResultTable("Agent and step accuracy", ("system", "reference", *techniques), tuple(rows), note, number=2)


def _by_parts(known: Sequence[tuple[AnswerLine, Scored]]) -> ResultTable:
    ablated = {line.technique for line, _ in known if line.arm not in ("", NO_REFERENCE)}
    arms = list(dict.fromkeys(line.arm for line, _ in known if line.technique in ablated and line.arm != NO_REFERENCE))
    rows = []
    for technique in sorted(ablated):
        for arm in sorted(arms):
            part = [row for line, row in known if (line.technique, line.arm) == (technique, arm)]
            if part:
                agent, step = _cell(part, sorted({row.system for row in part})).split(" / ")
                rows.append((technique, arm or "everything", agent, step))
    return ResultTable("With parts left out", ("technique", "shown", "agent", "step"), tuple(rows), number=3)


def _cell(rows: Sequence[Scored], systems: Sequence[str]) -> str:
    """Return agent / step accuracy, each the mean over *systems* of those that have an answer."""
    summaries = [summarise(own) for system in systems if (own := [row for row in rows if row.system == system])]
    counted = [one for one in summaries if one.n]
    if not counted:
        return ""
    return " / ".join(f"{100 * fmean(getattr(one, what).value for one in counted):.1f}" for what in ("agent", "step"))


if __name__ == "__main__":
    part_of("blame")
