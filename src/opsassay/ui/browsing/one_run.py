"""The page of one run: its outcome, the reasons, the blamed step, its steps and actions, the end of its log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.metric_words import word
from opsassay.core.schema.run import Metric, MetricStatus, Verdict
from opsassay.core.schema.run_folder import ACTIONS, TRACE
from opsassay.core.untrusted import open_plain
from opsassay.evals.runner.ranking import why_not_ranked
from opsassay.evals.runner.store import LOG, read_diagnosis
from opsassay.scoring.void import void_words
from opsassay.ui.browsing.catalogue import StoredRun
from opsassay.ui.browsing.lines import page_of_lines, size_of
from opsassay.ui.browsing.rows import (
    ROWS,
    Shown,
    View,
    board_page,
    page_address,
    paging_of,
    run_page,
    run_row,
    solver_page,
    task_page,
)
from opsassay.ui.browsing.stored_incidents import page_of_task
from opsassay.ui.browsing.timeline import course_of, culprit_view_of
from opsassay.ui.browsing.truths import about_truth
from opsassay.ui.clock import Span
from opsassay.ui.glossary import format_value
from opsassay.ui.plain import plain
from opsassay.ui.step_rows import LARGEST_TRACE, step_row

LOG_BYTES = 8_000
"""Bytes of the end of a log that are shown."""
NEIGHBOURS = 8


def run_page_view(state: Shown, stored: StoredRun, number: int) -> View:
    """Return the page data of the run *stored*, with page *number* of its steps and actions."""
    verdict, row = state.verdicts.verdict_of(stored), run_row(state, stored)
    course = course_of(stored)
    span = course.clock.span if course.clock else None
    (steps, step_count), (actions, action_count) = (
        page_of_lines(stored.folder / name, number, ROWS) for name in (TRACE, ACTIONS)
    )
    culprit = culprit_view_of(stored) if row["outcome"] == "did not succeed" else None
    return {
        "answer": _run_sentence(row, verdict),
        "run": row,
        "facts": _list_facts(stored, row),
        "metrics": [_metric_item(name, metric) for name, metric in (verdict.metrics if verdict else {}).items()],
        "graded": verdict is not None,
        "claims": _list_claims(stored),
        "culprit": culprit and culprit | {"page": _page_of_step(stored, culprit["step"], number)},
        "clock": course.clock and course.clock.as_item(),
        "dips": [vars(dip) for dip in course.dips],
        "course_note": plain(course.note, 600),
        "steps": [step_row(step, span) for step in steps],
        "actions": [_action_item(line, span) for line in actions],
        "paging": paging_of(max(step_count, action_count), number, run_page(stored)),
        "log": _last_lines_of(stored.folder / LOG),
        "trace": f"traces/{stored.key}.html" if 0 < size_of(stored.folder / TRACE) <= LARGEST_TRACE else None,
        "truth": f"truth/{stored.key}.html",
        "truth_about": about_truth(stored.domain),
        "board": board_page(stored.domain),
        "incident": page_of_task(state, stored.domain, stored.run.item),
        "across": _related_pages(state, stored),
    }


def _page_of_step(stored: StoredRun, step: int, number: int) -> str | None:
    """Return the URL of the page of the run that shows *step*, None when that is page *number*."""
    page = (step - 1) // ROWS + 1
    return None if page == number else page_address(run_page(stored), page)


def _run_sentence(row: View, verdict: Verdict | None) -> str:
    """Return a sentence on the run: which solver had which outcome on which task, and why."""
    if row["outcome"] == "runs now":
        return f"{row['solver']} works on {row['task_name']} now."
    ended = {"not graded": "ended, and is not graded yet", "no result": "came to no result"}
    void = verdict and void_words(verdict.metrics)
    if void and row["outcome"] == "not applicable":
        return f"{row['solver']} is not graded on {row['task_name']}: {plain(void, 300)}."
    problem = row["problem"] or ("its process is gone" if row["status"] == "lost" else "")
    if not problem and verdict and row["outcome"] == "did not succeed":
        wrong = (metric.reason for metric in verdict.metrics.values() if metric.value == 0.0 and metric.reason)
        problem = plain(next(wrong, ""), 300).rstrip(".")
    why = f": {problem}" if problem else ""
    return f"{row['solver']} {ended.get(row['outcome'], row['outcome'])} on {row['task_name']}{why}."


def _list_facts(stored: StoredRun, row: View) -> list[tuple[str, str]]:
    """Return (name, text) of the facts that the run's page lists, empty ones left out."""
    run = stored.run
    ranked = "; ".join(why_not_ranked(run))
    facts = [
        ("Ended as", row["status"]),
        ("Started", row["started"]),
        ("Took", "" if row["seconds"] is None else f"{row['seconds']:,} s"),
        ("Spent", row["spent"]),
        ("System", run.system),
        ("Arm, seed, attempt", f"{run.arm}, {run.seed}, {run.attempt}"),
        ("Isolation", run.isolation.replace("_", " ")),
        (
            "May be ranked",
            f"no: {ranked}" if ranked else "yes" if row["counts"] else "no: another run of its cell counts",
        ),
        ("Limits that were hit", ", ".join(run.limits_hit)),
        ("Made with", ", ".join(f"{name} {version}" for name, version in sorted(run.versions.items()))),
        ("Notes", "\n".join(run.notes)),
        ("Folder", str(stored.folder)),
    ]
    return [(name, plain(text, 2_000)) for name, text in facts if text]


def _metric_item(name: str, metric: Metric) -> View:
    """Return the page data of a metric: title, value in words, reason and judge."""
    about = word(name)
    value = {MetricStatus.NOT_APPLICABLE: "not applicable", MetricStatus.FAILED: "failed"}.get(metric.status, "–")
    return {
        "name": plain(name, 80),
        "title": plain(about.title.replace("_", " "), 80),
        "about": plain(about.about.replace("_", " "), 300),
        "value": metric.value,
        "words": value if metric.value is None else format_value(metric.value, about.unit),
        "status": metric.status.value,
        "reason": plain(metric.reason, 600),
        "judge": plain(metric.judge, 200),
    }


def _list_claims(stored: StoredRun) -> list[str] | None:
    """Return each claimed root cause as text, [] for "nothing is wrong"; None without a diagnosis."""
    with suppress(OpsAssayError, OSError):
        diagnosis = read_diagnosis(stored.folder)
        if diagnosis is not None:
            found = [(c.component or c.service, c.fault_kind) for c in diagnosis.root_causes]
            return [plain(place, 200) + (f": {kind.value}" if kind else "") for place, kind in found]
    return None


def _action_item(line: Mapping[str, Any], span: Span | None) -> View:
    """Return the page data of an action, a line of actions.jsonl; its time is relative to *span*."""
    started, ended = line.get("started_ns"), line.get("ended_ns")
    took = (ended - started) / 1e9 if isinstance(started, int) and isinstance(ended, int) else None
    return {
        "at_s": span.seconds_of(started) if span and isinstance(started, int) else None,
        "took_s": None if took is None else round(took, 2),
        "tool": plain(line.get("tool", ""), 80),
        "arguments": plain(line.get("arguments", ""), 300),
        "status": plain(line.get("status", line.get("error", "")), 80),
        "changes": bool(line.get("mutating")),
        "output": plain(line.get("output", ""), 300),
    }


def _last_lines_of(path: Path) -> str:
    """Return the last `LOG_BYTES` bytes of a log as text, "" when it cannot be read."""
    with suppress(OpsAssayError, OSError), open_plain(path) as log:
        size = os.fstat(log.fileno()).st_size
        log.seek(max(0, size - LOG_BYTES))
        text = log.read(LOG_BYTES).decode("utf-8", "replace")
        return plain(text.replace("\r\n", "\n"), LOG_BYTES)
    return ""


def _related_pages(state: Shown, stored: StoredRun) -> View:
    """Return the URLs of the task, the solver, other solvers' runs, and the solver's run before and after."""
    catalogue, solver = state.catalogue, state.catalogue.solver_of(stored)
    of_task = catalogue.by_task[stored.domain, stored.run.item]
    others = list(islice((other for other in of_task if other.key != stored.key), NEIGHBOURS))
    return {
        "task_page": task_page(stored.domain, stored.run.item),
        "solver_page": solver_page(stored.domain, solver),
        "same_task": [run_row(state, other) for other in others],
        "same_task_more": max(0, len(of_task) - 1 - len(others)),
        **{name: run_row(state, other) if other else None for name, other in catalogue.neighbours(stored).items()},
    }
