"""The page of jobs, the processes that add runs to the stores: progress, estimated time, usage, cancelling."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from opsassay.core.errors import NotFoundError
from opsassay.core.text import plural
from opsassay.evals.runner.queue import JobsAtWork, cancel, jobs_of
from opsassay.evals.runner.store import FINISHED
from opsassay.ui.browsing.catalogue import StoredRun, slug
from opsassay.ui.browsing.rows import Shown, View, run_row, seconds_of, spent_words
from opsassay.ui.plain import plain, utc

BUDGETS = {
    "money_usd": "money_usd", "tokens": "tokens", "model_calls": "model_calls", "tool_calls": "tool_calls",
    "seconds": "seconds", "wall_clock_s": "seconds", "agent_timeout_s": "seconds",
}  # fmt: skip
"""Limits of a run that add up over runs, and the unit of usage that each limits."""


def jobs_view(state: Shown) -> View:
    """Return the page data of all jobs: the processes that make runs, with their progress."""
    found = [_job_item(state, store, key, work) for store, key, work in _list_jobs(state)]
    at_work = [job for job in found if job["state"] == "runs"]
    done, cells = (sum(job[name] for job in at_work) for name in ("done", "cells"))
    now = f"{plural(len(at_work), 'command')} at work: {done:,} of {cells:,} runs have a result." if at_work else ""
    running = [run_row(state, one) for one in state.catalogue.running[:50]]
    return {
        "answer": now or f"No command tells of its work here; {plural(len(state.catalogue.running), 'run')} go on.",
        "jobs": found,
        "may_cancel": state.allow_run,
        "running": running,
    }


def cancel_job(state: Shown, key: str) -> None:
    """Interrupt the job with the id *key*; raises NotFoundError, UserError."""
    for _, known, work in _list_jobs(state):
        if known == key:
            cancel(work)
            return
    raise NotFoundError("job", plain(key, 80), [], "It may have ended; reload the page.")


def _list_jobs(state: Shown) -> list[tuple[str, str, JobsAtWork]]:
    """Return (store name, id in URLs, job) of each job in the stores."""
    return [
        (store.name, f"{slug(store.name)}.{slug(path.stem)}", work)
        for store in state.catalogue.stores
        for path, work in jobs_of(Path(store.root))
    ]


def _job_item(state: Shown, store: str, key: str, work: JobsAtWork) -> View:
    """Return the page data of a job: runs done, time and usage so far, and an estimate of the rest."""
    cells = frozenset(work.cells)
    begun = [one for one in state.catalogue.runs if one.store == store and one.run.cell in cells]
    over = [one for one in begun if one.run.status in FINISHED]
    now = [one for one in over if one.run.ended_ns and one.run.ended_ns >= work.started_ns]
    done, spent = len({one.run.cell for one in over}), Counter[str]()
    for one in now:
        for name, value in one.run.spent.items():
            spent[name] += value  # type: ignore[assignment]
    left, alive = len(cells) - done, work.runs()
    took = [seconds for one in now if (seconds := seconds_of(one)) is not None]
    left_s = left * sum(took) / len(took) / max(1, work.workers) if took else None
    ahead = {name: value * left / len(now) for name, value in spent.items()} if now else {}
    return {
        "key": key,
        "store": plain(store, 60),
        "state": {True: "runs", False: "its process is gone", None: "runs on another machine"}[alive],
        "process": work.pid,
        "began": utc(work.started_ns),
        "for_s": round(time.time() - work.started_ns / 1e9),
        "workers": work.workers,
        "done": done,
        "cells": len(cells),
        "left_s": None if left_s is None else round(left_s),
        "left": "no run has ended yet" if left_s is None else f"about {_format_duration(left_s)} more",
        "spent": spent_words(spent),
        "ahead": spent_words(ahead),
        "budget": spent_words({name: value * left for name, value in _largest_limits(begun).items()}),
    }


def _largest_limits(begun: Sequence[StoredRun]) -> dict[str, float]:
    """Return the largest value of each limit among the runs *begun*, by unit of usage."""
    found: dict[str, float] = {}
    for one in begun:
        for name in one.run.limits.keys() & BUDGETS.keys():
            value = one.run.limits[name]
            found[BUDGETS[name]] = max(value, found.get(BUDGETS[name], value))
    return found


def _format_duration(seconds: float) -> str:
    """Return *seconds* as text in s, min or h."""
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
