"""The comparison of two solvers of a store: on all common tasks, and on one task on one time axis."""

from __future__ import annotations

from opsassay.core.errors import UserError
from opsassay.ui.browsing.catalogue import StoredRun, place_key, slug
from opsassay.ui.browsing.rows import (
    Shown,
    View,
    board_page,
    compare_page,
    outcome_of,
    run_page,
    solver_page,
    task_page,
    trials_page,
)
from opsassay.ui.browsing.stored_incidents import task_name
from opsassay.ui.browsing.timeline import RunTimeline, course_of, culprit_view_of
from opsassay.ui.compared import MOST_FLIPPED, compare_solvers
from opsassay.ui.plain import plain

FLIPPED_IN_FILES = 25
"""Most tasks with different results whose runs are compared on a page, per pair of solvers, in exported files."""


def compare_view(state: Shown, domain: str, solver: str, rival: str) -> View:
    """Return the page data that compares *solver* and *rival* of *domain*; raises UserError without a common task."""
    standing = state.verdicts.standing(state.catalogue, domain)
    missing = [plain(name, 120) for name in (solver, rival) if name not in standing.entries]
    if missing:
        raise UserError(
            f"{' and '.join(missing)} has no graded run; grade the store with `opsassay score run` and reload."
        )
    first, second = standing.entries[solver], standing.entries[rival]
    return {
        **compare_solvers(
            first,
            second,
            standing.board.metrics,
            lambda task: beside_page(domain, task, solver, rival),
            lambda task: task_name(state, domain, task),
            MOST_FLIPPED if state.live else FLIPPED_IN_FILES,
        ),
        "one": {"name": plain(solver, 120), "page": solver_page(domain, solver)},
        "two": {"name": plain(rival, 120), "page": solver_page(domain, rival)},
        "domain": plain(domain, 60),
        "board": board_page(domain),
        "trials": trials_page(domain),
    }


def beside_page(domain: str, task: str, solver: str, rival: str) -> str:
    """Return the URL of the page with the runs of *solver* and *rival* on *task*, the same for either order."""
    first, second = sorted((solver, rival))
    return f"beside/{place_key((domain, task))}.{slug(first)}.{slug(second)}.html"


def beside_view(state: Shown, domain: str, task: str, solvers: tuple[str, str]) -> View | None:
    """Return the page data of both *solvers*' runs of *task*, side by side; None when one has none."""
    runs = [_find_run(state, domain, task, solver) for solver in solvers]
    if runs[0] is None or runs[1] is None:
        return None
    chosen = [one for one in runs if one is not None]
    courses = [course_of(one) for one in chosen]
    longest = max((course.clock.span.seconds for course in courses if course.clock), default=0.0)
    sides = [
        _view_of_side(state, one, solver, course_of(one, longest)) for one, solver in zip(chosen, solvers, strict=True)
    ]
    name = task_name(state, domain, task)
    said = " and ".join(f"{side['solver']} {side['outcome']}" for side in sides)
    return {
        "answer": f"{said} on {name}.",
        "task": {"name": name, "page": task_page(domain, task)},
        "compare": compare_page(domain, *solvers),
        "sides": sides,
    }


def _find_run(state: Shown, domain: str, task: str, solver: str) -> StoredRun | None:
    """Return the run of *solver* on *task* that results count, else its latest; None without any."""
    of = state.catalogue.by_both.get((domain, task, solver), ())
    counting = state.catalogue.counting
    return next((one for one in of if one.key in counting), next(iter(of), None))


def _view_of_side(state: Shown, run: StoredRun, solver: str, timeline: RunTimeline) -> View:
    """Return the page data of one solver's run: outcome, timeline, blamed step."""
    outcome = outcome_of(state, run)
    return {
        "solver": plain(solver, 120),
        "solver_page": solver_page(run.domain, solver),
        "page": run_page(run),
        "outcome": outcome,
        "culprit": culprit_view_of(run) if outcome == "did not succeed" else None,
        "clock": timeline.clock and timeline.clock.as_item(),
        "dips": [vars(dip) for dip in timeline.dips],
        "note": plain(timeline.note, 600),
    }
