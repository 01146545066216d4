"""The tables of a results page: all cases with a fault, then by system, fault kind and label, then fault-free cases.

Outcome metrics are over all cases that are not void; path metrics over attributed ones only. Every figure has its n and
its 95 % interval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.incident import Fault, Label, Truth
from opsassay.core.schema.metric_words import word
from opsassay.core.schema.run import MetricStatus, Verdict
from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.aggregate import GROUNDED_SHARE, estimate, summarise
from opsassay.scoring.metrics import further_metrics
from opsassay.scoring.void import void_items, void_note
from opsassay.telemetry.tree import Case

OUTCOME = ("any_service", "exact_match", "f1", "acc_at_1", "acc_at_3")
GROUNDING = (
    "path_reachability", "ungrounded", GROUNDED_SHARE, "node_f1", "edge_f1", "sql_exec", "evidence_relevant", "ntam_fl",
    "ntam_fpc",
)  # fmt: skip
GROUPED = ("any_service", "acc_at_1")
"""Metrics of the tables by system, kind and label."""

UNANSWERED = "runs without an answer"

NO_SKILL = ("constant", "chance")
"""Baselines that every results page must include."""


@dataclass(frozen=True)
class _Group:
    """The groups of an incident in the tables: *kind* is None and *disturbance* set where nothing was broken."""

    system: str
    label: str
    kind: str | None
    disturbance: str


def _make_table(
    title: str, note: str, columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...], keys: tuple[str, ...] = ()
) -> ResultTable:
    """Return a table of texts with the heading *title* and a *note*; *keys* are the names of its columns in JSON."""
    return ResultTable(title, columns, rows, note, keys=keys)


def _titles_of_metrics(metrics: Iterable[str]) -> tuple[str, ...]:
    """Return the column title of each of *metrics*."""
    return tuple(word(metric).title for metric in metrics)


def _json_names(metrics: Iterable[str]) -> tuple[str, ...]:
    """Return each of *metrics* in backticks, the name of its column in JSON."""
    return tuple(f"`{metric}`" for metric in metrics)


def results_tables(
    verdicts: Sequence[Verdict], cases: Iterable[Case], not_ranked: Mapping[str, str]
) -> list[ResultTable]:
    """Return the tables of a results page over *verdicts*; raises UserError if no incident's truth is known.

    *not_ranked* has the reason by solver; these solvers come last in each table.
    """
    groups = {case.datapack.incident.id: _group_of_case(case, case.truth) for case in cases if case.truth is not None}
    known = [verdict for verdict in verdicts if verdict.item in groups]
    if not known:
        raise UserError(
            "There is nothing to make tables of: none of the runs is on an incident whose truth is at hand."
        )
    seen = {verdict.item for verdict in known}
    groups = {item: group for item, group in groups.items() if item in seen}
    broken = [verdict for verdict in known if groups[verdict.item].kind is not None]
    calm = [verdict for verdict in known if groups[verdict.item].kind is None]
    names = _Names({verdict.solver for verdict in known}, not_ranked)
    return [
        _incidents_table(groups.values()),
        *(_tables_with_fault(broken, groups, names) if broken else ()),
        *([_table_without_fault(calm, groups, names)] if calm else ()),
    ]


@dataclass(frozen=True)
class _Names:
    """The solvers of a page, *not_ranked* with the reason, and their order and labels."""

    solvers: set[str]
    not_ranked: Mapping[str, str]

    def sorted_solvers(self) -> list[str]:
        """Return the solvers sorted by name: ranked first, then baselines without skill, then not ranked."""
        return sorted(self.solvers, key=lambda name: (name in self.not_ranked, name in NO_SKILL, name))

    def solver_label(self, solver: str) -> str:
        """Return the solver's name in backticks, with the reason if it is not ranked."""
        reason = self.not_ranked.get(solver)
        return f"`{solver}`" + (f" (not ranked: {reason})" if reason else "")


def _group_of_case(case: Case, truth: Truth) -> _Group:
    """Return the groups of *case* in the tables: system, cascade label, fault kind, fault-free disturbance."""
    label = case.annotation.label.value if case.annotation else "not annotated"
    calm = truth.faults[0] if truth.broken is False else None
    disturbance = str(calm.parameters.get("disturbance", "quiet")) if calm else ""
    kinds = {_name_kind(fault) for fault, _, _ in truth.affected()} or {"unknown"}  # public data may name none
    kind = None if calm else next(iter(kinds)) if len(kinds) == 1 else "several"
    return _Group(truth.system, label, kind, disturbance)


def _name_kind(fault: Fault) -> str:
    """Return the kind of *fault*, its type when the catalogue does not have that."""
    try:
        return fault.kind.value if fault.kind else "unknown"
    except NotFoundError:  # public data has types of its own
        return fault.type


def _incidents_table(groups: Iterable[_Group]) -> ResultTable:
    """Return a table with the number of incidents per system and label; fault-free ones per disturbance."""
    counts: Counter[tuple[str, str]] = Counter()
    for group in groups:
        calm = f"nothing broken, {group.disturbance.replace('_', ' ')} ({group.label})"
        row = calm if group.kind is None else group.label
        counts[row, group.system] += 1
    systems = sorted({system for _, system in counts})
    order = [label.value for label in Label]
    names = sorted({row for row, _ in counts}, key=lambda row: (order.index(row) if row in order else len(order), row))
    rows = [(name, *(counts[name, s] for s in systems), sum(counts[name, s] for s in systems)) for name in names]
    total = ("all", *(sum(counts[n, s] for n in names) for s in systems), sum(counts.values()))
    return _make_table(
        "Incidents",
        "By the label of `opsassay incident annotate`; it stands in brackets where nothing was broken.",
        ("label", *systems, "all"),
        tuple(tuple(map(str, row)) for row in (*rows, total)),
    )


def _tables_with_fault(
    verdicts: Sequence[Verdict], groups: Mapping[str, _Group], names: _Names
) -> Iterable[ResultTable]:
    """Yield the tables of *verdicts* on cases with a fault: all, then per system, fault kind and label."""
    by = {
        "kind": {item: group.kind or "" for item, group in groups.items()},
        "label": {item: group.label for item, group in groups.items()},
    }
    added = [name for name in further_metrics() if any(name in v.metrics for v in verdicts)]
    of_packages = " Those that packages add are means in their own unit." if added else ""
    parts = (
        summarise(verdicts, {"label": by["label"]}, (*OUTCOME, *added, *GROUNDING)),
        summarise(verdicts, {"kind": by["kind"]}, GROUPED),
    )
    rows = (row for part in parts for row in part.iter_rows(named=True))
    cells = {(r["solver"], r["scope"], r["group"], r["metric"]): r for r in rows}
    failed = Counter(v.solver for v in verdicts if v.metrics["any_service"].status is MetricStatus.FAILED)
    solvers = names.sorted_solvers()
    void = void_note(len(void_items(verdicts)), len({verdict.item for verdict in verdicts}))
    yield _make_table(
        "All injected cases",
        "Outcome metrics: means over cases, in percent, with 95 % interval (n)."
        + of_packages
        + (f" {void}" if void else ""),
        ("solver", *_titles_of_metrics((*OUTCOME, *added)), UNANSWERED),
        tuple(
            (
                names.solver_label(s),
                *(_format_cell(cells.get((s, "all", "", m))) for m in (*OUTCOME, *added)),
                str(failed[s]),
            )
            for s in solvers
        ),
        ("solver", *_json_names((*OUTCOME, *added)), UNANSWERED),
    )
    systems = sorted({verdict.system for verdict in verdicts})
    for metric in GROUPED:
        yield _make_table(
            f"Per system, {word(metric).title}",
            "The last column weights every system alike.",
            ("solver", *systems, "mean of systems"),
            tuple(
                (
                    names.solver_label(s),
                    *(_format_cell(cells.get((s, "system", system, metric))) for system in systems),
                    _format_cell(cells.get((s, "macro", "", metric))),
                )
                for s in solvers
            ),
        )
    for scope, title in (("kind", "fault kind"), ("label", "label of the annotation")):
        values = sorted({group for _, in_scope, group, _ in cells if in_scope == scope})
        size = Counter(by[scope][item] for item in {verdict.item for verdict in verdicts})
        for metric in GROUPED:
            yield _make_table(
                f"Per {title}, {word(metric).title}",
                "Means and 95 % intervals, with n where that is not the number of cases of the row.",
                (title, "cases", *map(names.solver_label, solvers)),
                tuple(
                    (v, str(size[v]), *(_format_cell_of(cells.get((s, scope, v, metric)), size[v]) for s in solvers))
                    for v in values
                ),
            )
    attributed = [(s, "label", Label.ATTRIBUTED.value) for s in solvers]
    yield _make_table(
        "Grounding, on attributed cases",
        f"The cascade is verified in these alone. {word('ungrounded').title}: the right name, and no way to the symptom.",
        ("solver", *_titles_of_metrics(GROUNDING)),
        tuple(
            (names.solver_label(key[0]), *(_format_cell(cells.get((*key, metric))) for metric in GROUNDING))
            for key in attributed
        ),
        ("solver", *_json_names(GROUNDING)),
    )


def _table_without_fault(verdicts: Sequence[Verdict], groups: Mapping[str, _Group], names: _Names) -> ResultTable:
    """Return the table of the share of *verdicts* on fault-free cases that say "nothing is wrong", by solver."""
    disturbances = {item: group.disturbance for item, group in groups.items()}
    summary = summarise(verdicts, {"disturbance": disturbances}, ("exact_match",))
    cells = {(r["solver"], r["scope"], r["group"]): r for r in summary.iter_rows(named=True)}
    values = sorted({group for _, scope, group in cells if scope == "disturbance"})
    failed = Counter(v.solver for v in verdicts if v.metrics["exact_match"].status is MetricStatus.FAILED)
    return _make_table(
        "Nothing was broken",
        "Cases in which the answer was that nothing is wrong, which is right.",
        ("solver", "all", *(value.replace("_", " ") for value in values), UNANSWERED),
        tuple(
            (
                names.solver_label(s),
                _format_cell(cells.get((s, "all", ""))),
                *(_format_cell(cells.get((s, "disturbance", v))) for v in values),
                str(failed[s]),
            )
            for s in names.sorted_solvers()
        ),
    )


def _format_cell(row: Mapping[str, Any] | None) -> str:
    """Return the mean in a summary *row* as "15.4% [6.2, 33.5] (26)", with 95% interval and n; "n/a" for None."""
    found = estimate(row)
    return found.text_with_n if found else "n/a"


def _format_cell_of(row: Mapping[str, Any] | None, size: int) -> str:
    """Return the mean in a summary *row* as "15.4% [6.2, 33.5]"; its n is added when it differs from *size*."""
    found = estimate(row)
    return "n/a" if found is None else found.text if found.n == size else found.text_with_n
