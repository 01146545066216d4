"""A script of this folder as a command: what it prints, which tables are asked for, and every error as one sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import click

from opsassay.cli.output import echo, print_json, print_tables, say
from opsassay.core.errors import OpsAssayError, UserError
from opsassay.evals.runner.tables import ResultTable


def run(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run *command* and return its exit code: 0 done, 1 failed, 2 wrong use or input."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        outcome: Any = command.main(args=words, standalone_mode=False)
    except click.MissingParameter as error:
        missing = error.param.human_readable_name if error.param else "more"
        echo(f"Error: {command.name} needs {missing}. {command.get_short_help_str(1000)}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OpsAssayError as error:
        echo(f"Error: {error}", err=True)
        return error.exit_code
    return outcome if isinstance(outcome, int) else 0


def part_of(name: str) -> NoReturn:
    """End a script that was run though it is a part of the command *name*, with one sentence."""
    echo(f"Error: this is a part of another command; run `python -m benchmarks.papers.{name}`.", err=True)
    sys.exit(2)


@dataclass(frozen=True)
class Numbered:
    """The *tables* of a paper by number: which are *refused* and why, what is *needed* where one is not there.

    *titles* are names of what has no number, with what its title begins with.
    """

    tables: Iterable[int]
    refused: Mapping[str, str] = field(default_factory=dict)
    needed: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)

    @property
    def option(self) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """The option by which tables are asked for."""
        known = click.Choice([*map(str, self.tables), *self.titles])
        return click.option("-t", "--table", "numbers", multiple=True, type=known, help="One table; repeat for more.")

    def chosen(self, found: Iterable[ResultTable], numbers: Sequence[str]) -> list[ResultTable]:
        """Return the tables of *found* that *numbers* ask for, all when there are none.

        Raises UserError for one that is refused, or that is not there.
        """
        tables = list(found)
        shown = []
        for number in numbers:
            if number in self.refused:
                raise UserError(f"Table {number} of the paper is not made: {self.refused[number]}.")
            title = self.titles.get(number, "\0")
            own = [one for one in tables if str(one.number) == number or one.title.startswith(title)]
            if not own:
                why = self.needed.get(number, "has nothing in it here")
                raise UserError(f"{'Table ' if number.isdigit() else ''}{number} {why}.")
            shown += own
        return shown if numbers else tables


def show_tables(name: str, tables: Sequence[ResultTable], problems: Mapping[str, str], *, as_json: bool) -> int:
    """Print *tables* of the command *name* and say the *problems*, by folder; return the exit code."""
    for folder, problem in problems.items():
        say(f"{folder}: {problem}")
    if as_json:
        print_json(name, [one.as_item() for one in tables], problems=dict(problems))
    else:
        print_tables(tables)
    return 1 if problems else 0
