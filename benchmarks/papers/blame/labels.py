"""How labels are distributed, and how far predictions are: what Figures 4 to 7 of TraceElephant show, as tables.

Kinds of agents are read from their names, thirds are of the steps of a trace. A technique whose most frequent answer is the
answer to nearly everything has collapsed, whatever its accuracy says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from opsassay.analysis.blame.answers import AnswerLine
from opsassay.analysis.blame.combined import agent_type
from opsassay.core.errors import UserError
from opsassay.core.schema.trajectory import LabelledTrace
from opsassay.evals.runner.tables import ResultTable, percent

from ..running import part_of
from .bench import scored
from .scores import breakdown, third
from .settings import BenchSettings

THIRDS = ("early", "middle", "late")
_NAMED = 8
"""Agents that are named one by one; the others are one row."""


def label_tables(cases: Sequence[LabelledTrace], lines: Iterable[AnswerLine] = ()) -> list[ResultTable]:
    """Return the distributions of the labels of *cases*; with *lines* accuracy by the same groups, and modal answers.

    Raises UserError where no line is about one of the traces.
    """
    systems = {name: [one for one in cases if _system(one) == name] for name in sorted({_system(one) for one in cases})}
    tables = [_agents(systems), _steps(systems)]
    listed = list(lines)
    if not listed:
        return tables
    by_id = {case.id: case for case in cases}
    known = [line for line in listed if line.trace in by_id and line.failed is None]
    if not known:
        raise UserError("None of the answers is about the labelled traces; name the folder that was asked about.")
    return [*tables, _accuracy(known, by_id), _modal(known, by_id)]


def _system(case: LabelledTrace) -> str:
    return case.trace.system_name or case.subset


def _agents(systems: dict[str, list[LabelledTrace]]) -> ResultTable:
    rows = []
    for system, cases in systems.items():
        counted = Counter(case.label.agent_name or "" for case in cases).most_common()
        rows += [(system, name, agent_type(name), n, percent(n / len(cases))) for name, n in counted[:_NAMED]]
        if rest := sum(n for _, n in counted[_NAMED:]):
            rows.append((system, f"{len(counted) - _NAMED} others", "", rest, percent(rest / len(cases))))
    columns = ("system", "responsible agent", "kind", "traces", "share")
    return ResultTable("Figure 4. Responsible agents", columns, tuple(rows))


def _steps(systems: dict[str, list[LabelledTrace]]) -> ResultTable:
    rows = []
    for system, cases in systems.items():
        steps = [(case.label.step_id or 1, len(case.trace.steps)) for case in cases]
        thirds = Counter(third(step, of) for step, of in steps)
        rows.append(
            (system, len(cases), *(percent(thirds[one] / len(cases)) for one in THIRDS),
             f"{median(step for step, _ in steps):g} of {median(of for _, of in steps):g}")
        )  # fmt: skip
    columns = ("system", "traces", *THIRDS, "median step, of median length")
    return ResultTable("Figure 6. Decisive steps", columns, tuple(rows))


def _accuracy(lines: Sequence[AnswerLine], by_id: dict[str, LabelledTrace]) -> ResultTable:
    """Return agent accuracy by kind of the responsible agent, and step accuracy by third of the decisive step."""
    kinds = sorted({agent_type(case.label.agent_name or "") for case in by_id.values()})
    rows = []
    for technique, own in _by_technique(lines).items():
        answers = [scored(by_id[line.trace], line, BenchSettings()) for line in own]
        of_kind, of_third = breakdown(answers, "agent_type"), breakdown(answers, "third")
        rows.append(
            (technique, *(percent(of_kind[one].agent.value) if one in of_kind else None for one in kinds),
             *(percent(of_third[one].step.value) if one in of_third else None for one in THIRDS))
        )  # fmt: skip
    columns = ("technique", *(f"agent, {one}" for one in kinds), *(f"step, {one}" for one in THIRDS))
    return ResultTable("Figures 5 and 7. Accuracy by agent and step", columns, tuple(rows))


def _modal(lines: Sequence[AnswerLine], by_id: dict[str, LabelledTrace]) -> ResultTable:
    """Return the most frequent answer of each technique beside the most frequent label; no answer is one, too."""
    rows = []
    for technique, own in {"labels": (), **_by_technique(lines)}.items():
        said: list[tuple[str | None, int | None]] = [(line.agent, line.step) for line in own] or [
            (case.label.agent_name, case.label.step_id) for case in by_id.values()
        ]
        cells: list[str | None] = []
        for values in zip(*said, strict=True):
            (value, count), *_ = Counter(values).most_common(1)
            cells += ["none" if value is None else str(value), percent(count / len(said))]
        rows.append((technique, len(said), *cells))
    columns = ("technique", "answers", "modal agent", "share of it", "modal step", "its share")
    return ResultTable("Modal answers", columns, tuple(rows))


def _by_technique(lines: Sequence[AnswerLine]) -> dict[str, list[AnswerLine]]:
    found: dict[str, list[AnswerLine]] = {}
    for line in lines:
        found.setdefault(f"{line.technique} [{line.arm}]" if line.arm else line.technique, []).append(line)
    return found


if __name__ == "__main__":
    part_of("blame")
