"""Two annotators' audit of a suite's labels: their verdicts, and how far these agree (OpenRCA 2.0, E.1)."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from opsassay.core.errors import DatapackError, UserError
from opsassay.core.schema.base import Artefact
from opsassay.core.schema.causal_graph import CausalGraph
from opsassay.core.schema.json_lines import append_line

CRITERIA = ("temporal", "structural", "causal")
"""The criteria for every edge: cause precedes effect, a relation admits the mechanism, consequence and not coincidence."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")


class CaseVerdict(Artefact):
    """The objections of *annotator* to the label of *case*.

    Stage 1 flags *nodes*, stage 2 *edges* with the criteria that fail, stage 3 names *missing* parts.
    """

    case: str
    annotator: str
    nodes: tuple[str, ...] = ()
    edges: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    missing: tuple[str, ...] = ()
    note: str = ""

    @property
    def agree(self) -> bool:
        """Whether the annotator agrees with the label: no objection at any stage."""
        return not (self.nodes or self.edges or self.missing)


@dataclass(frozen=True)
class KindAgreement:
    """How far two annotators agree on the cases that both judged.

    *raw*: share of equal verdicts. *kappa*: Cohen's, None where undefined. *valid*: cases that both accept. *table*:
    rows are the first annotator's verdicts, columns the second's (accept, object).
    """

    annotators: tuple[str, str]
    cases: int
    raw: float
    kappa: float | None
    valid: int
    table: tuple[tuple[int, int], tuple[int, int]]
    disagreements: tuple[dict[str, Any], ...]


def edge_name(graph: CausalGraph, index: int) -> str:
    """Return the name, "source -> target", by which verdicts refer to the edge of *graph* at *index*."""
    edge = graph.edges[index]
    return f"{edge.source} -> {edge.target}"


def sample(ids: Sequence[str], count: int | None, seed: int) -> list[str]:
    """Return *count* of *ids* (None: all), drawn at random without replacement, sorted; the same for the same *seed*."""
    if count is None or count >= len(ids):
        return sorted(ids)
    return sorted(random.Random(seed).sample(sorted(ids), count))  # noqa: S311 - a draw that both can repeat


def audit_file(suite: Path, annotator: str) -> Path:
    """Return the path of *annotator*'s verdicts in *suite*; raises UserError for a name that is unfit for a file."""
    if not _NAME.fullmatch(annotator):
        raise UserError(f"{annotator!r} cannot name an annotator: use up to 40 letters, digits, dots and dashes.")
    return suite / "audit" / f"{annotator}.jsonl"


def save_verdict(suite: Path, verdict: CaseVerdict) -> None:
    """Append *verdict* to its annotator's file; on reading, the last one on a case counts."""
    file = audit_file(suite, verdict.annotator)
    file.parent.mkdir(parents=True, exist_ok=True)
    append_line(file, verdict)


def read_verdicts(suite: Path, annotator: str) -> dict[str, CaseVerdict]:
    """Return case id to the last verdict of *annotator*, {} without a file; DatapackError for a damaged file."""
    file = audit_file(suite, annotator)
    if not file.exists():
        return {}
    whole, _, _ = file.read_text(encoding="utf-8").rpartition("\n")
    verdicts = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            verdict = CaseVerdict.model_validate(json.loads(line))
        except ValueError as error:
            raise DatapackError(f"{file}:{number} is not a verdict; correct or remove the line.") from error
        verdicts[verdict.case] = verdict
    return verdicts


def annotators(suite: Path) -> list[str]:
    """Return the names of the annotators with stored verdicts on *suite*, sorted."""
    return sorted(file.stem for file in (suite / "audit").glob("*.jsonl"))


def agreement(suite: Path) -> KindAgreement:
    """Return how far the two annotators of *suite* agree; UserError unless it has exactly two with cases in common."""
    names = annotators(suite)
    if len(names) != 2:
        raise UserError(
            f"{suite} was judged by {len(names)} annotators ({', '.join(names) or 'nobody'}); agreement needs two: "
            f"`opsassay incident audit-labels {suite} -a NAME` for each."
        )
    first, second = (read_verdicts(suite, name) for name in names)
    both = sorted(first.keys() & second.keys())
    if not both:
        raise UserError(f"{names[0]} and {names[1]} judged no case in common; let both judge the same sample.")
    table = np.zeros((2, 2), dtype=int)
    for case in both:
        table[int(not first[case].agree), int(not second[case].agree)] += 1
    differing = [case for case in both if first[case].agree != second[case].agree]
    return KindAgreement(
        annotators=(names[0], names[1]),
        cases=len(both),
        raw=float(np.trace(table) / len(both)),
        kappa=cohens_kappa(table),
        valid=int(table[0, 0]),
        table=((int(table[0, 0]), int(table[0, 1])), (int(table[1, 0]), int(table[1, 1]))),
        disagreements=tuple(
            {
                "case": case,
                **{name: _verdict_as_json(by[case]) for name, by in zip(names, (first, second), strict=True)},
            }
            for case in differing
        ),
    )


def cohens_kappa(table: np.ndarray) -> float | None:
    """Return Cohen's kappa of a square confusion table; None (undefined) when all answers are the same."""
    total = table.sum()
    observed, expected = np.trace(table) / total, table.sum(axis=0) @ table.sum(axis=1) / total**2
    return None if expected == 1 else float((observed - expected) / (1 - expected))


def _verdict_as_json(verdict: CaseVerdict) -> dict[str, Any]:
    """Return *verdict* as an item of JSON."""
    return verdict.model_dump(mode="json", include={"nodes", "edges", "missing", "note"}) | {"agree": verdict.agree}
