"""The progress of runs: a live table on a terminal, elsewhere a line for every run that ended."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from opsassay.cli.output import say
from opsassay.core.untrusted import safe_text

_SHOWN = 8


class RunTable:
    """The progress of *total* runs, running and ended; thread-safe."""

    def __init__(self, total: int) -> None:
        self._total, self._lock = total, threading.Lock()
        self._running: dict[str, float] = {}
        self._ended: list[tuple[str, str]] = []
        self._statuses: Counter[str] = Counter()
        self._tokens, self._money = 0.0, 0.0
        self.live: Live | None = None

    def started(self, name: str, expected_s: float = 0.0) -> None:
        """Show the run *name* as running; *expected_s* is not used."""
        del expected_s
        with self._lock:
            self._running[name] = time.monotonic()
        self._refresh_table()

    def advanced(self, name: str, message: str) -> None:
        """Print *message* on the run *name* as a line, unless the live table is shown."""
        if self.live is None:
            say(f"opsassay: {name}: {message}")

    def finished(self, name: str, message: str, spent: Mapping[str, float] | None = None) -> None:
        """Show the run *name* as ended with *message*, and add *spent* (tokens, money_usd) to the totals."""
        with self._lock:
            self._running.pop(name, None)
            self._statuses[re.split(r"[:;(\[]", message, maxsplit=1)[0].strip()] += 1
            self._ended.append((name, message))
            self._tokens += sum((spent or {}).get(kind, 0) for kind in ("input_tokens", "output_tokens"))
            self._money += (spent or {}).get("money_usd", 0)
        if self.live is None:
            say(f"opsassay: {name}: {message}")
        self._refresh_table()

    def __rich__(self) -> Table:
        """Return the table as it stands now."""
        with self._lock:
            counts = ", ".join(f"{count} {status}" for status, count in sorted(self._statuses.items()))
            spent = f", {self._tokens:,.0f} tokens" + (f", USD {self._money:.2f}" if self._money else "")
            title = f"Runs {len(self._ended)}/{self._total}" + (f" ({counts}{spent})" if counts else "")
            table = Table(title=title, title_justify="left", header_style="bold", expand=True)
            for column in ("run", "state"):
                table.add_column(column, overflow="ellipsis", no_wrap=True)
            for name, message in self._ended[-_SHOWN:]:
                table.add_row(Text(safe_text(name)), Text(safe_text(message)))
            for name, since in list(self._running.items())[:_SHOWN]:
                table.add_row(Text(safe_text(name)), f"running, {time.monotonic() - since:.0f} s", style="cyan")
        return table

    def _refresh_table(self) -> None:
        """Redraw the live table, if there is one."""
        if self.live is not None:
            self.live.refresh()


@contextmanager
def run_table(total: int) -> Iterator[RunTable]:
    """Yield the progress display for *total* runs on stderr: a live table on a terminal, else plain lines."""
    table = RunTable(total)
    if not sys.stderr.isatty():
        yield table
        return
    with Live(table, console=Console(stderr=True), refresh_per_second=2, get_renderable=table.__rich__) as live:
        table.live = live
        yield table
