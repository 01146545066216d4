"""Pages of cost runs: the task, the cost over time with true and claimed anomalies, and every grade."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from opsassay.core.schema.cost import CostReading
from opsassay.core.schema.run import Run
from opsassay.core.schema.run_folder import COST, PHASES
from opsassay.core.schema.trajectory import Phase
from opsassay.evals.cost.anomaly.task import AnomalyTask
from opsassay.evals.cost.answers.contract import Claim, read_claims
from opsassay.evals.cost.insight.grading import answer_of
from opsassay.evals.cost.insight.keys import Question
from opsassay.evals.cost.live.score import read_lines, stored_optimum
from opsassay.evals.cost.live.tasks import TASKS, live_task
from opsassay.evals.cost.tasks import DOMAIN, CostTask, kept_task
from opsassay.evals.runner.grading import GradedRun
from opsassay.evals.runner.json_answers import ANSWER, read_object
from opsassay.evals.runner.store import RunStore
from opsassay.evals.runner.tables import ResultTable
from opsassay.solvers.agents.contract import AnswerError
from opsassay.ui.audit_svg import Axis, Figure, join, line, path, rect, text
from opsassay.ui.plain import plain
from opsassay.ui.reports import PageRequest, ShownTask, write_run_pages

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 1130.0, 150.0, 70.0, 10.0, 24.0
LABEL = 80.0
"""Greatest width of the label of a phase in pixels."""
POINTS_DRAWN = 800
"""Most points of a line; of more, the highest of each group is drawn, so that no spike is lost."""


def write_cost_pages(request: PageRequest, written_to: Callable[[Path], None]) -> list[str]:
    """Write ``TASK-CELL.html`` for each counted run, tell *written_to* its path; return a line per missing page."""
    return write_run_pages(DOMAIN, _read_shown_task, request, written_to)


def _read_shown_task(store: RunStore, graded: GradedRun) -> ShownTask:
    """Return the page data of *graded*, a run of *store* on a cost task."""
    return shown_cost(store, graded.folder, graded.run)


def shown_cost(store: RunStore, folder: Path, run: Run) -> ShownTask:
    """Return the page data of the cost *run* in *folder*, with the right answer; raises OpsAssayError."""
    if run.item in TASKS:
        return ShownTask(live_task(run.item).scenario.alert, [_live_figure(folder, run)])
    task = kept_task(store.root, run.item_hash)
    return ShownTask(task.body.goal, *_answer_figures(folder, task))


def _answer_figures(folder: Path, task: CostTask) -> tuple[list[Figure], list[ResultTable]]:
    """Return (figures, tables) of a run on cost data; without the run's answer when that is unreadable."""
    body = task.body
    if isinstance(body, Question):
        return [], _tables_of_rows(body, folder)
    claims: list[Claim] = []
    try:
        claims = read_claims(read_object((folder / ANSWER).read_bytes()), body.slices, ranked=body.ranked)
    except (OSError, AnswerError):
        claims = []
    figures = [_series_figure(body, slice_, claims) for slice_ in body.slices]
    planted = tuple(
        (
            one.slice,
            one.kind,
            _format_minute(one.start),
            _format_minute(one.end),
            f"{one.cost_usd:.2f}",
            f"{one.planted_usd:+.2f}",
        )
        for one in body.truth
    )
    columns = ("slice", "kind", "start", "end", f"cost, {body.currency}", f"change, {body.currency}")
    return figures, [ResultTable("The anomalies", columns, planted)]


def _tables_of_rows(question: Question, folder: Path) -> list[ResultTable]:
    """Return the rows of the run's answer, if it can be read, and of the right one, as tables."""
    fields = tuple(one.name for one in question.template.fields)
    right = answer_of(question.template, question.key)["rows"]
    tables = [ResultTable("The right answer", fields, tuple(tuple(row[f] for f in fields) for row in right))]
    try:
        given = read_object((folder / ANSWER).read_bytes())["rows"]
    except (OSError, AnswerError, KeyError):
        return tables
    return [ResultTable("The answer", fields, tuple(tuple(row.get(f) for f in fields) for row in given)), *tables]


def _format_minute(moment: datetime) -> str:
    """Return *moment* as text to the minute."""
    return moment.strftime("%Y-%m-%d %H:%M")


def _series_figure(task: AnomalyTask, slice_: str, claims: Iterable[Claim]) -> Figure:
    """Draw the cost of *slice_* over time, with planted anomalies behind and the claimed ones below."""
    rows = [(time, cost) for time, name, cost in task.series.rows() if name == slice_]
    start, end = task.bounds
    across = Axis(start.timestamp(), end.timestamp(), LEFT, WIDTH - 10)
    up = Axis(0.0, max(cost for _, cost in rows) * 1.05 or 1.0, HEIGHT - BOTTOM, TOP)
    planted = [
        _draw_span(across, one.start, one.end, TOP, HEIGHT - BOTTOM - TOP, "planted")
        for one in task.truth
        if one.slice == slice_
    ]
    claimed = [
        _draw_span(across, one.start, one.end, HEIGHT - BOTTOM + 1, 5, "claimed")
        for one in claims
        if one.slice == slice_
    ]
    curve = _draw_curve([(time.timestamp(), cost) for time, cost in rows], across, up)
    body = join([*planted, *_draw_frame(up), curve, *claimed, text(LEFT, HEIGHT - 4, _format_minute(start), "small muted"),
                 text(WIDTH - 10, HEIGHT - 4, _format_minute(end), "small muted", "end")])  # fmt: skip
    title = f"{slice_}: cost in {task.currency}, the anomalies (shaded) and what was claimed (below)"
    return Figure("series", plain(title, 200), WIDTH, HEIGHT, body)


def _live_figure(folder: Path, run: Run) -> Figure:
    """Draw the system's cost during the run, with budget, optimum and the time of the alert."""
    readings = read_lines(folder / COST, CostReading)
    phases = read_lines(folder / PHASES, Phase)
    times = [reading.time_ns / 1e9 for reading in readings] or [0.0, 1.0]
    across = Axis(times[0], max(times[-1], times[0] + 1), LEFT, WIDTH - 10)
    best = stored_optimum(run.item).hourly_usd
    up = Axis(0.0, max([best, *(reading.hourly_usd for reading in readings)]) * 1.1, HEIGHT - BOTTOM, TOP)
    curve = _draw_curve([(reading.time_ns / 1e9, reading.hourly_usd) for reading in readings], across, up)
    marks = [
        line(across.pixel_at(p.time_ns / 1e9), TOP, across.pixel_at(p.time_ns / 1e9), HEIGHT - BOTTOM, "rule")
        for p in phases
    ]
    names = [
        text(x + 2, TOP + 10 + 11 * row, p.phase.replace("_", " "), "small muted")
        for p, (x, row) in zip(phases, _label_rows([across.pixel_at(p.time_ns / 1e9) for p in phases]), strict=True)
    ]
    fired = [
        rect(across.pixel_at(reading.time_ns / 1e9), HEIGHT - BOTTOM + 1, 3, 5, "firing")
        for reading in readings
        if reading.firing
    ]
    budget = [reading.budget_usd for reading in readings if reading.budget_usd is not None]
    lines = [line(LEFT, up.pixel_at(best), WIDTH - 10, up.pixel_at(best), "optimum")]
    lines += [line(LEFT, up.pixel_at(budget[-1]), WIDTH - 10, up.pixel_at(budget[-1]), "budget")] if budget else []
    title = "Cost in USD per hour; dashed the last budget, dotted the optimum, below it when the alert fired"
    return Figure("live", title, WIDTH, HEIGHT, join([*_draw_frame(up), *marks, *names, *lines, curve, *fired]))


def _label_rows(positions: Sequence[float]) -> list[tuple[float, int]]:
    """Return (position, row) for each label; one that would overlap the label before it goes to the next row."""
    found: list[tuple[float, int]] = []
    for x in positions:
        close = bool(found) and x - found[-1][0] < LABEL
        found.append((x, found[-1][1] + 1 if close else 0))
    return found


def _draw_span(across: Axis, start: datetime, end: datetime, top: float, height: float, class_: str) -> Any:
    """Return a bar of CSS class *class_* from *start* to *end* on *across*, from pixel *top*, *height* pixels high."""
    left = across.pixel_at(start.timestamp())
    return rect(left, top, max(across.pixel_at(end.timestamp()) - left, 1.5), height, class_)


def _draw_frame(up: Axis) -> list[Any]:
    """Return the horizontal grid lines of the vertical axis *up* with their values."""
    ticks = up.ticks(3)
    lines = [line(LEFT, up.pixel_at(value), WIDTH - 10, up.pixel_at(value), "grid") for value in ticks]
    return [*lines, *(text(LEFT - 6, up.pixel_at(value) + 4, f"{value:.3g}", "small muted", "end") for value in ticks)]


def _draw_curve(points: Sequence[tuple[float, float]], across: Axis, up: Axis) -> Any:
    """Return a line through *points* (time, value) on axes *across* and *up*; of too many, the highest per group."""
    each = max(1, len(points) // POINTS_DRAWN)
    chosen = [max(points[n : n + each], key=lambda point: point[1]) for n in range(0, len(points), each)]
    steps = " ".join(
        f"{'L' if n else 'M'}{across.pixel_at(x):.1f},{up.pixel_at(y):.1f}" for n, (x, y) in enumerate(chosen)
    )
    return path(steps or "M0,0", "cost")
