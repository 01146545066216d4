"""A live table of runs on a terminal; elsewhere a plain line for every run that ended."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

from opsassay.cli.output import say

if TYPE_CHECKING:
    from opsassay.bench.exams import Job, Made

_SHOWN = 8


class RunTable:
    """What runs now and what has ended; safe to be told by several threads."""

    def __init__(self, total: int) -> None:
        self._total, self._lock = total, threading.Lock()
        self._running: dict[int, tuple[Job, float]] = {}
        self._ended: list[tuple[str, str, str]] = []
        self._statuses: Counter[str] = Counter()
        self._tokens, self._money = 0.0, 0.0
        self.live: Live | None = None

    def began(self, job: Job) -> None:
        """Tell that a run begins."""
        with self._lock:
            self._running[id(job)] = (job, time.monotonic())
        self._refresh()

    def ended(self, made: Made) -> None:
        """Tell what became of a run."""
        status, said = summary_of(made)
        with self._lock:
            self._running.pop(id(made.job), None)
            self._statuses[status] += 1
            self._ended.append((made.job.case.name, made.job.label, said))
            if made.run is not None:
                spent = made.run.spent
                self._tokens += spent.get("input_tokens", 0) + spent.get("output_tokens", 0)
                self._money += spent.get("money_usd", 0)
        if self.live is None:
            say(f"opsassay: {len(self._ended)}/{self._total} {made.job.case.name}: {made.job.label}: {said}")
        self._refresh()

    def __rich__(self) -> Table:
        """Return the table as it stands now."""
        with self._lock:
            counts = ", ".join(f"{count} {status}" for status, count in sorted(self._statuses.items()))
            spent = f", {self._tokens:,.0f} tokens" + (f", USD {self._money:.2f}" if self._money else "")
            title = f"Runs {len(self._ended)}/{self._total}" + (f" ({counts}{spent})" if counts else "")
            table = Table(title=title, title_justify="left", header_style="bold", expand=True)
            for column in ("incident", "solver", "state"):
                table.add_column(column, overflow="ellipsis", no_wrap=True)
            for case, solver, said in self._ended[-_SHOWN:]:
                table.add_row(case, solver, said)
            for job, since in list(self._running.values())[:_SHOWN]:
                table.add_row(job.case.name, job.label, f"running, {time.monotonic() - since:.0f} s", style="cyan")
        return table

    def _refresh(self) -> None:
        if self.live is not None:
            self.live.refresh()


@contextmanager
def run_table(total: int) -> Iterator[RunTable]:
    """Give a table for *total* runs on standard error, live when that is a terminal."""
    table = RunTable(total)
    if not sys.stderr.isatty():
        yield table
        return
    with Live(table, console=Console(stderr=True), refresh_per_second=2, get_renderable=table.__rich__) as live:
        table.live = live
        yield table


def summary_of(made: Made) -> tuple[str, str]:
    """Return the status of a run and what to say of it in a line."""
    if made.run is None:
        return "not run", str(made.error)
    run = made.run
    limits = f" (limits hit: {', '.join(run.limits_hit)})" if run.limits_hit else ""
    flags = f" [{', '.join(run.flags)}]" if run.flags else ""
    return run.status.value, run.status.value + (f": {run.error}" if run.error else "") + limits + flags
