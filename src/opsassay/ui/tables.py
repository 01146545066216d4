"""The grades table, the answers in detail, the footer of a case, and the table of solvers, as texts."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from opsassay.core.schema.diagnosis import Evidence
from opsassay.core.schema.metric_words import METRICS, word
from opsassay.core.schema.run import EvidenceResult, Metric, MetricStatus, RunStatus
from opsassay.core.text import number_text, plural
from opsassay.evals.diagnosis.results.repeats import SolverSummary, calmest, share_titles, shown_shares, success
from opsassay.evals.runner.ranking import why_not_ranked
from opsassay.scoring.figures import MeanFigure, percent
from opsassay.ui.glossary import BASELINES, SORTED_BY, format_value
from opsassay.ui.payload import AnswerPayload, CaseReport
from opsassay.ui.plain import plain, utc

View = dict[str, Any]
ROWS_SHOWN, RANKS_SHOWN = 20, 12


def solver_name(answer: AnswerPayload) -> str:
    """Return the display name of an answer: its solver, with arm (variant of the run) and seed unless the default."""
    run = answer.run
    arm = f" · {run.arm}" if run.arm != "default" else ""
    seed = f" · seed {run.seed}" if run.seed else ""
    return plain(f"{run.solver.label}{arm}{seed}", 120)


def is_baseline(answer: AnswerPayload) -> bool:
    """Return whether the answer's solver is a baseline, which shows the result without skill."""
    solver = answer.run.solver
    return solver.name in BASELINES or bool(solver.configuration.get("baseline"))


def solvers_right(answers: Sequence[AnswerPayload]) -> str:
    """Return "N of M": how many graded answers are right; a dash when none is graded.

    An answer is right if it names the roots, with fault kinds where these were asked for. Baselines and unranked runs
    are only counted after it.
    """
    judged = [(a, right) for a in answers if a.verdict and (right := success(a.verdict.metrics)) is not None]
    counted = [right for a, right in judged if not is_baseline(a) and not why_not_ranked(a.run)]
    apart = len(judged) - len(counted)
    if not judged:
        return "–"
    return f"{sum(counted)} of {len(counted)}" + (f", {apart} baselines or unranked apart" if apart else "")


def best_first(answers: Sequence[AnswerPayload]) -> list[AnswerPayload]:
    """Return *answers* sorted by the metrics in SORTED_BY, best first, then by name; ungraded ones last."""
    return sorted(answers, key=_sort_key)


def _sort_key(answer: AnswerPayload) -> tuple[Any, ...]:
    """Return a sort key: ranked answers first, then by metrics; baselines after others."""
    metrics = answer.verdict.metrics if answer.verdict else {}
    values = [_scored_value(metrics.get(name)) for name in SORTED_BY]
    unranked = bool(why_not_ranked(answer.run))
    return (unranked, *((value is None, -(value or 0.0)) for value in values), is_baseline(answer), solver_name(answer))


def grades_view(answers: Sequence[AnswerPayload]) -> View:
    """Return columns, rows and footnotes of the table solvers x metrics, rows in the order of *answers*."""
    present = {name for a in answers if a.verdict for name in a.verdict.metrics}
    columns = [m for m in METRICS if m in present] + sorted(present - METRICS.keys())
    notes: dict[str, int] = {}
    rows = [_grade_row(a, columns, notes) for a in answers]
    return {
        "columns": [
            {
                "name": plain(m, 80),
                "title": plain(word(m).title, 40),
                "unit": word(m).unit,
                "about": plain(word(m).about),
            }
            for m in columns
        ],
        "rows": rows,
        "notes": list(notes),
        "sortedBy": ", then ".join(word(m).title for m in SORTED_BY if m in present),
    }


def _scored_value(metric: Metric | None) -> float | None:
    """Return the metric's value if it was scored, else None."""
    return metric.value if metric and metric.status is MetricStatus.SCORED else None


def _grade_row(answer: AnswerPayload, columns: Sequence[str], notes: dict[str, int]) -> View:
    """Return the table row of *answer* with *columns*; *notes* maps reasons to footnote numbers and gets new ones."""
    metrics = answer.verdict.metrics if answer.verdict else {}
    return {
        "solver": solver_name(answer),
        "kind": answer.run.solver.kind,
        "baseline": is_baseline(answer),
        "unranked": _why_unranked(answer),
        "problem": _describe_problem(answer),
        "cells": [_metric_cell(name, metrics.get(name), notes) for name in columns],
    }


def _why_unranked(answer: AnswerPayload) -> str:
    """Return why the answer's run is not ranked, "" when it is."""
    return plain("; ".join(why_not_ranked(answer.run)), 200)


def _describe_problem(answer: AnswerPayload) -> str:
    """Return why the answer has no grade, "" when it has one."""
    if answer.run.status is not RunStatus.DONE:
        return plain(f"{answer.run.status.value}: {answer.run.error or 'no reason was recorded'}", 600)
    if answer.diagnosis is None:
        return "gave no diagnosis"
    return "" if answer.verdict else "not graded"


def _metric_cell(name: str, metric: Metric | None, notes: dict[str, int]) -> View:
    """Return the table cell of *metric*; the reason of a missing value gets a footnote number in *notes*."""
    if metric is None:
        return {"text": "–", "status": "absent", "sort": None}
    if (value := _scored_value(metric)) is not None:
        return {"text": format_value(value, word(name).unit), "status": "scored", "sort": value}
    reason = plain(metric.reason or "no reason was recorded", 600)
    note = notes.setdefault(reason, len(notes) + 1)
    text = "n/a" if metric.status is MetricStatus.NOT_APPLICABLE else "failed"
    return {"text": text, "status": metric.status.value, "sort": None, "reason": reason, "note": note}


def answer_view(answer: AnswerPayload) -> View:
    """Return the page data of an answer: claims, edges, ranking, evidence with query results, protocol."""
    run, diagnosis, verdict = answer.run, answer.diagnosis, answer.verdict
    results = {(e.sql, e.claim, e.about): e for e in verdict.evidence} if verdict else {}
    ended = f", {(run.ended_ns - run.started_ns) / 1e9:.2f} s" if run.ended_ns and run.started_ns else ""
    view: View = {
        "solver": solver_name(answer),
        "baseline": is_baseline(answer),
        "unranked": _why_unranked(answer),
        "problem": _describe_problem(answer),
        "ran": plain(f"{run.solver.kind}, attempt {run.attempt}, {run.isolation.replace('_', ' ')}{ended}", 200),
        "claims": [],
        "edges": [],
        "ranking": [],
        "notes": [],
        "protocol": [],
        "said": diagnosis is not None,
    }
    if diagnosis is None:
        return view
    top = max((abs(r.score) for r in diagnosis.ranking), default=0.0)
    view["claims"] = [
        {
            "service": plain(c.service, 400),
            "kind": c.fault_kind.value if c.fault_kind else "no fault kind named",
            "where": plain(f"{c.level} {c.component}", 200) if c.component else c.level,
            "evidence": [_evidence_view(e, c.service, results) for e in c.evidence],
        }
        for c in diagnosis.root_causes
    ]
    view["edges"] = [
        {
            "source": plain(e.source, 400),
            "target": plain(e.target, 400),
            "evidence": [_evidence_view(v, f"{e.source} -> {e.target}", results) for v in e.evidence],
        }
        for e in diagnosis.propagation
    ]
    view["ranking"] = [
        {
            "service": plain(r.service, 200),
            "score": number_text(r.score, 4),
            "share": abs(r.score) / top if top else 0.0,
        }
        for r in diagnosis.ranking[:RANKS_SHOWN]
    ]
    view["rankedInAll"] = len(diagnosis.ranking)
    view["notes"] = [plain(n) for n in diagnosis.notes]
    view["protocol"] = [(plain(k, 80), plain(v, 600)) for k, v in {**diagnosis.protocol}.items()]
    return view


def _evidence_view(evidence: Evidence, about: str, results: dict[tuple[str, str, str], EvidenceResult]) -> View:
    """Return an SQL statement as page data with its result for *about*; *results* are by (SQL, claim, about)."""
    said = (evidence.sql, evidence.claim)
    result = results.get((*said, about)) or results.get((*said, ""))  # of a verdict that does not say what it is about
    view: View = {
        "kind": evidence.kind,
        "sql": plain(evidence.sql),
        "claim": plain(evidence.claim),
        "status": "not run",
        "rows": [],
        "columns": [],
    }
    if result is None:
        return view
    hidden = len(result.rows) - ROWS_SHOWN
    return view | {
        "status": result.status,
        "message": plain(result.message, 600),
        "columns": [plain(c, 120) for c in result.columns],
        "rows": [[plain(v, 1000) for v in row] for row in result.rows[:ROWS_SHOWN]],
        "more": f"{plural(hidden, 'more row')} in the verdict" if hidden > 0 else "",
        "judged": _describe_grading(result),
    }


def _describe_grading(result: EvidenceResult) -> str:
    """Return how the statement was graded, as text: vacuous, relevant or not, its bound, the judge's opinion."""
    opinion = {None: "", True: "; the judge: supported", False: "; the judge: not supported"}[result.supported]
    opinion += f" ({result.opinion})" if opinion and result.opinion else ""
    if result.vacuous is None and result.bound is None:
        return plain(opinion.removeprefix("; "), 400)
    said = ["vacuous" if result.vacuous else "relevant" if result.relevant else "not relevant"]
    said += [] if result.bound is None else [f"bound {result.bound:.2f}"]
    return plain(", ".join(said) + (f": {result.finding}" if result.finding else "") + opinion, 400)


def footer_rows(case: CaseReport) -> list[tuple[str, str]]:
    """Return (name, value) rows on the page's inputs: versions, hashes, schema versions, thresholds."""
    incident, note = case.incident, case.annotation
    rows: list[tuple[str, str]] = [
        ("OpsAssay", version("opsassay")),
        ("Incident", f"{incident.id}, schema {incident.schema_version}"),
        ("Content hash", incident.content_hash or "not recorded"),
        ("Recorded", utc(incident.normal.start_ns)),
    ]
    rows += [(f"Provenance: {k}", plain(v)) for k, v in incident.provenance.items()]
    if case.truth:
        rows.append(("Truth", f"schema {case.truth.schema_version}, sha256 {case.truth.digest()}"))
    if note:
        rows.append(("Causal graph", f"schema {note.graph.schema_version}, sha256 {note.graph.digest()}"))
        rows += [(f"Threshold: {k}", plain(v)) for k, v in note.thresholds.items()]
        if note.false_alarm_rate is not None:
            rows.append(("False alarm rate", f"{note.false_alarm_rate:.4g}"))
    for profile in sorted({a.verdict.profile for a in case.answers if a.verdict}):
        rows.append(("Grading profile", profile))
    for answer in case.answers:
        run = answer.run
        versions = ", ".join(f"{k} {v}" for k, v in sorted(run.versions.items()))
        rows.append(
            (
                f"Run: {solver_name(answer)}",
                f"cell {run.cell}, solver {run.solver_hash}" + (f", {versions}" if versions else ""),
            )
        )
    return [(plain(name, 200), plain(text, 600)) for name, text in rows]


COLUMNS = ("Solver", "Runs", "Cases")
"""Columns before the shares of cases with a fault."""

CALM_COLUMNS = ("Solver", "Said that nothing is wrong (n)")
"""Columns of the table of cases without a fault."""


def solvers_view(summaries: Sequence[SolverSummary]) -> dict[str, Any]:
    """Return the table of solvers: head, rows with pass@k, and why a solver is not ranked.

    Cases without a fault have a table of their own under ``calm``, None where there are none.
    """
    ks = sorted({k for summary in summaries for k in summary.pass_at})
    columns = [
        *COLUMNS,
        *(f"{title} (n)" for title in share_titles()),
        *(f"pass@{k}" for k in ks),
        "Right answers took",
        "Ranked",
    ]
    calm = [[plain(s.solver, 120), _format_share(s.calm)] for s in calmest(summaries)]
    return {
        "columns": columns,
        "rows": [_format_row(summary, ks) for summary in summaries],
        "calm": {"columns": list(CALM_COLUMNS), "rows": calm} if calm else None,
    }


def _format_row(summary: SolverSummary, ks: Sequence[int]) -> list[str]:
    """Return the cells of *summary* in the order of the table's columns; *ks* are the k of pass@k."""
    took = summary.answer_time
    return [
        plain(summary.solver, 120),
        ", ".join(f"{number} {status}" for status, number in summary.statuses.items()),
        f"{summary.cases} ({summary.void} void)" if summary.void else str(summary.cases),
        *(_format_share(share) for share in shown_shares(summary)),
        *(percent(summary.pass_at.get(k)) or "–" for k in ks),
        "–" if took.seconds is None else f"{took.seconds:.1f} s (n = {took.successes})",
        plain("no: " + "; ".join(summary.not_ranked)) if summary.not_ranked else "yes",
    ]


def _format_share(share: MeanFigure | None) -> str:
    """Return *share* with its n as text, a dash for None."""
    return "–" if share is None else share.text_with_n
