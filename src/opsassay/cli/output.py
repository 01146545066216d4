"""Output of commands: tables and JSON on standard output, progress on standard error; shared options."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.tree import RENAMED
from opsassay.core.text import number_text
from opsassay.core.untrusted import safe_text

if TYPE_CHECKING:
    from rich.progress import Progress

    from opsassay.evals.runner.store import RunStore
    from opsassay.evals.runner.tables import ResultTable

SCHEMA_VERSION = 1
LARGEST = 1e9
"""The largest value of a window, rate or limit: a billion seconds are 31 years."""

TYPED = "opsassay.typed"
"""Key of a click context's `meta` with (former name as typed, present name) of the command."""


class NumberRange(click.FloatRange):
    """A number within bounds, finite and at most `LARGEST`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return *value* as a float within the bounds; anything else is a usage error that names them."""
        number: float = super().convert(value, param, ctx)
        if not abs(number) <= LARGEST:
            self.fail(f"{value} is no number that can be used; give one of at most {LARGEST:,.0f}.", param, ctx)
        return number


def window_options(default_s: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds --normal and --abnormal to a command: window lengths in seconds, default *default_s*."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in ("abnormal", "normal"):
            says = f"{name.capitalize()} window, s."
            command = click.option(
                f"--{name}", f"{name}_s", type=NumberRange(min=2), default=default_s, show_default=True, help=says
            )(command)
        return command

    return add


isolation_option = click.option(
    "--isolation",
    type=click.Choice(["auto", "namespaced", "plain"]),
    default="auto",
    show_default=True,
    callback=lambda _context, _option, value: None if value == "auto" else value,
    help="Isolation level of the system; auto is the best that this machine has.",
)


def _require_receiver_url(_context: click.Context, _option: click.Parameter, url: str | None) -> str | None:
    """Return *url* unchanged (a click callback); raises UserError unless it is the http(s) URL of an OTLP receiver."""
    from opsassay.telemetry.otlp.forwarding import require_url

    return None if url is None else require_url(url)


otlp_option = click.option(
    "--otlp",
    metavar="URL",
    callback=_require_receiver_url,
    help="OTLP/HTTP receiver that all is sent to, such as http://localhost:4318.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")


@contextmanager
def runs_sent(store: RunStore, url: str | None) -> Iterator[Callable[[], None]]:
    """Send the block's runs in *store* to the OTLP *url*, if any; yield a function that sends their grades later."""
    if url is None:
        yield lambda: None
        return
    from opsassay.evals.runner.run_push import RunPush

    with RunPush(store, url, lambda problem: say(f"opsassay: {problem}")) as push:
        yield push.push_grades


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print *text* to stdout, or to stderr with *err*, with control characters escaped; *nl* ends the line."""
    click.echo(safe_text(str(text)), err=err, nl=nl)


def print_json(command: str, items: Sequence[dict[str, Any]], **further: Any) -> None:
    """Print the JSON output of *command*: an object with command, schema_version, the keys *further*, and items."""
    payload = {"command": _name_as_typed(command), "schema_version": SCHEMA_VERSION, **further, "items": list(items)}
    click.echo(json.dumps(payload, indent=1, allow_nan=False, default=str))


def _name_as_typed(command: str) -> str:
    """Return *command* under its former name if the user typed that one, else unchanged."""
    context = click.get_current_context(silent=True)
    old, new = context.meta.get(TYPED, ("", "")) if context else ("", "")
    if not old or not f"{command} ".startswith(f"{new} "):
        return command
    group = old.partition(" ")[0]
    return (group if RENAMED.get(group) == new else old) + command.removeprefix(new)


class _Output(click.Path):
    """A path to write to; dangling links, and files or devices where a folder must be, are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return *value* as a path to write to; a dangling link or a wrong kind of file on the way is a usage error."""
        path = Path(os.fsdecode(value))
        kind = "file" if self.file_okay else "folder"
        if not os.fspath(value):
            self.fail(f"an empty text names no {kind}; give a path.", param, ctx)
        for above in (path, *path.absolute().parents):
            if above.is_symlink() and not above.exists():
                self.fail(f"{above} is a link that leads nowhere; choose another {kind}.", param, ctx)
            if above.exists() and not (above.is_file() if above is path and self.file_okay else above.is_dir()):
                odd = "a directory" if above.is_dir() else "no ordinary file"
                what = "a file" if above is not path or not self.file_okay else odd
                self.fail(f"{above} is {what}; choose another {kind}.", param, ctx)
        return Path(os.fsdecode(super().convert(value, param, ctx)))


class NewFile(_Output):
    """The path of a file to write, in an existing folder."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return *value* as the path of a file to write; its folder has to exist, else it is a usage error."""
        path = super().convert(value, param, ctx)
        if not path.absolute().parent.is_dir():
            self.fail(f"there is no folder {path.parent}; make it, or name another place.", param, ctx)
        return path


FILE = _Output(dir_okay=False, path_type=Path)
"""The path of a file to write; its folder is made if missing."""


class _Folder(_Output):
    """A folder to write to, made if missing; not one among the files of a run store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return *value* as a folder to write to; one among a run store's own files is a usage error."""
        path = super().convert(value, param, ctx)
        real = Path(os.path.realpath(path))
        for above in (real, *real.parents):
            if above.name in KEPT_BY_STORES and (above.parent / "attempts.jsonl").exists():
                self.fail(
                    f"{path} lies in the {above.name} of the store {above.parent}; choose another folder.", param, ctx
                )
        return path


KEPT_BY_STORES = ("incidents", "truth", "runs")
FOLDER = _Folder(file_okay=False, path_type=Path)
"""The path of a folder that need not exist."""


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print *rows* under *columns* and *title*; None shows as a dash, numbers are formatted by the caller.

    The width is that of the terminal or of COLUMNS, else 120 characters.
    """
    from rich.console import Console

    from opsassay.cli.tables import print_rows

    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    print_rows(Console(width=None if known else 120, highlight=False), title, columns, rows)


def print_tables(tables: Iterable[ResultTable]) -> None:
    """Print *tables* without their empty columns, each followed by its statistical tests."""
    for table in tables:
        shown, number = table.filled(), "" if table.number is None else f"Table {table.number}. "
        print_table(f"{number}{shown.title}", shown.columns, shown.rows)
        for name, value in shown.statistics.items():
            echo(f"{name.replace('_', ' ')}: {'not defined' if value is None else number_text(value)}")


def say(message: str) -> None:
    """Print *message* on standard error."""
    echo(message, err=True)


class Stages:
    """The progress of a command in stages, one at a time: bars on a terminal, a line per stage elsewhere."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._task: Any = None
        self._stage = ""
        self._ticking: threading.Event | None = None

    def started(self, name: str, expected_s: float = 0.0) -> None:
        """End the current stage and show the stage *name*; its bar fills in *expected_s* seconds, 0 for unknown."""
        if name == self._stage:
            return
        self.finish()
        self._stage = name
        if self._progress is None:
            say(f"opsassay: {name}" + (f" ({expected_s:.0f} s)" if expected_s >= 1 else ""))
            return
        self._task = self._progress.add_task(name, total=expected_s or None)
        if expected_s:
            self._ticking = threading.Event()
            threading.Thread(
                target=self._advance_until, args=(self._task, expected_s, self._ticking), daemon=True
            ).start()

    def advanced(self, name: str, message: str) -> None:
        """Print "*name*: *message*" as a line above the progress bars."""
        said = f"opsassay: {name}: {message}"
        if self._progress is None:
            say(said)
        else:  # above the bars: what is written past them stands behind the last one
            self._progress.console.print(safe_text(said), markup=False, highlight=False, soft_wrap=True)

    def finished(self, name: str, message: str, spent: Mapping[str, float] | None = None) -> None:
        """End the stage *name* if it is the current one; *message* and *spent* are not shown."""
        del message, spent
        if name == self._stage:
            self.finish()

    def finish(self) -> None:
        """End the current stage, if any: its bar is full and no longer moves."""
        if self._ticking:
            self._ticking.set()
            self._ticking = None
        if self._progress is not None and self._task is not None:
            task = self._progress.tasks[self._task]
            self._progress.update(self._task, total=task.total or 1.0, completed=task.total or 1.0)
            self._task = None
        self._stage = ""

    def _advance_until(self, task: Any, seconds: float, ended: threading.Event) -> None:
        """Move the bar of *task* by the clock, up to *seconds* in all, until *ended* is set; runs in a thread."""
        started = time.monotonic()
        while self._progress is not None and not ended.wait(0.2):
            self._progress.update(task, completed=min(time.monotonic() - started, seconds))


@contextmanager
def stages() -> Iterator[Stages]:
    """Yield the progress display for the stages of a command, on stderr."""
    if not sys.stderr.isatty():
        yield Stages(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<28}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        shown = Stages(progress)
        yield shown
        shown.finish()


def cases_apart(cases: Path | None, output: Path | None) -> str:
    """Return " --cases CASES" for a suggested command when *cases* is a folder other than the store *output*, else ''."""
    return f" --cases {cases}" if cases is not None and output is not None and output != cases else ""
