"""The command line: one thin file per command, imported when it is called, and one place where every error ends."""

from __future__ import annotations

import errno
import importlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from opsassay import __version__
from opsassay.cli.output import echo
from opsassay.core.errors import OpsAssayError, UserError, nearest
from opsassay.core.extras import extra_for, install_hint

_PARTIAL = re.compile(r"\.([^/]+)\.[0-9a-f]{8}\.partial$")
"""The end of a path that is written to until it is whole, as `telemetry.content` names it."""

_OF_THE_PLACE = frozenset({
    errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EROFS
})  # fmt: skip
"""What the disk says of a place however often it is tried; a full disk is none of them."""

COMMANDS = {
    "demo": "Break a real system, explain the cascade, grade every method, write a report.",
    "new": "Write a working example of an agent, a method, a scenario or a plan.",
    "schema": "Print the JSON Schema of a file that people write, for editors.",
    "up": "Start a system and leave it running.",
    "down": "Stop running systems.",
    "logs": "Show what the processes of a running system have logged.",
    "status": "Show running systems and this machine's isolation levels; clear what was left behind.",
    "render": "Print a system as Kubernetes manifests.",
    "faults": "List the 31 fault types and what this machine can inject.",
    "inject": "Inject one fault into a running system, and undo it.",
    "record": "Record one incident as a datapack, with its truth apart.",
    "campaign": "Record many incidents from a plan, resumable.",
    "import": "Bring public data into a tree of datapacks.",
    "itbench-ciso": "Show what the evaluators of ITBench's public compliance examples accept wrongly.",
    "itbench-sre": "Match answers in ITBench's form with ITBench's ground truth.",
    "export": "Write incidents, tasks and runs for other tools.",
    "fetch": "Bring a published suite here, checked.",
    "annotate": "Find the true cascade of each incident and its label.",
    "curate": "Make a stratified, checksummed suite of annotated incidents.",
    "audit-labels": "Let two annotators judge a suite's cascades, blind, and measure their agreement.",
    "methods": "List the methods with source and cost.",
    "diagnose": "Run methods or an agent on incidents.",
    "agents": "List the agents; check one against the contract without a real model's cost.",
    "apis": "Serve an incident by APIs of observability backends.",
    "tasks": "List every task: scenarios that ship, incidents of suites.",
    "run": "Run agents over a suite, or a plan of any tasks: repeats, resume, limits, grades.",
    "grade": "Grade runs against the truth.",
    "table": "Print the result tables of a store of runs.",
    "board": "Rank the solvers of stores of runs, with shared ranks and intervals.",
    "regrade": "Grade runs again under changed conventions: a what-if.",
    "scenarios": "List the remediation scenarios; validate one.",
    "trials": "Run agents on remediation scenarios and judge the whole trajectory.",
    "discover": "Search for faults that fool a verifier.",
    "audit": "Report which scores may be trusted for which system.",
    "compare": "Compare two score tables or stores of runs, fit for a CI gate.",
    "report": "Write a self-contained HTML report of runs.",
    "view": "Show the runs of stores in the browser while they go on, or as files.",
    "serve": "Run the platform: boards, agents and benchmarks for a team, with an API.",
    "worker": "Run cells of the platform's benchmarks, on any machine.",
    "verify-events": "Check that nothing in a platform's chain of events was changed.",
    "proxy": "Record, replay and edit what agents say to models; make traces of it.",
    "blame": "Say which agent made a run fail, and at which step.",
}
"""Every command with its one line; the module of the same name holds it."""


class Lazy(click.Group):
    """A group whose commands are imported only when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands in the order in which a failure travels."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"opsassay.cli.{cmd_name.replace('-', '_')}_command")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that *args* name, or say which one may have been meant."""
        if args and args[0] not in COMMANDS:
            near = nearest(args[0], COMMANDS)
            ctx.fail(
                f"There is no command {args[0]!r}"
                + (f"; did you mean {near!r}?" if near else "; see `opsassay --help`.")
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the command list without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="opsassay")
def cli() -> None:
    """Grade agents and algorithms that operate live systems: the answer, the path, the side effects."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong use, input or place, 130 interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both undo everything on the way out
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code. Every error becomes one sentence on standard error."""
    words = arguments or sys.argv[1:]
    try:
        outcome: Any = cli.main(args=arguments, prog_name="opsassay", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (click.exceptions.Abort, KeyboardInterrupt) as interruption:
        echo("Interrupted; everything that was started has been stopped.", err=True)
        _echo_notes(interruption.__cause__ or interruption)  # click wraps what interrupted it
        return 130
    except ModuleNotFoundError as error:
        return _explain(_missing(error, words), words)
    except (click.ClickException, click.exceptions.Exit, OpsAssayError, OSError) as error:
        return _explain(error, words)
    return outcome if isinstance(outcome, int) else 0


def _missing(error: ModuleNotFoundError, arguments: list[str]) -> UserError:
    """Return the sentence about a package that an extra brings; raises *error* again for any other."""
    command, package = next(iter(arguments), ""), str(error.name)
    extra = extra_for(package, command)
    if extra is None:
        raise error
    return UserError(
        f"`opsassay {command}` needs the package {package.partition('.')[0]}, which is not installed; "
        f"{install_hint(extra)}."
    )


def _explain(error: Exception, words: Sequence[str]) -> int:
    """Print what *error* has to say and return its exit code: 2 where the disk refuses a place that *words* name."""
    refused = _refused_place(error, words)
    if isinstance(error, click.ClickException):
        error.show()
    elif isinstance(error, OpsAssayError):
        echo(f"Error: {error}", err=True)
    elif isinstance(error, OSError):
        asked = _PARTIAL.sub(r"\1", os.fsdecode(error.filename or ""))  # nobody asked for the file beside it
        where = f" ({asked})" if asked else ""
        way_out = "name another place, or change this one" if refused else "free the cause and try again"
        echo(f"Error: {error.strerror or error}{where}; {way_out}.", err=True)
    _echo_notes(error)
    return UserError.exit_code if refused else getattr(error, "exit_code", 1)


def _refused_place(error: Exception, words: Sequence[str]) -> bool:
    """Return whether *error* is, or comes from, the disk's refusal of a path that *words* name, or of one next to it."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if (
        not isinstance(cause, OSError)
        or cause.errno not in _OF_THE_PLACE
        or not isinstance(cause.filename, str | bytes)
    ):
        return False
    path = Path(os.fsdecode(cause.filename)).absolute()
    given = (Path(word.rpartition("=")[2]).absolute() for word in words)
    return any(path.parent == one.parent or path.is_relative_to(one) or one.is_relative_to(path) for one in given)


def _echo_notes(error: BaseException) -> None:
    for note in getattr(error, "__notes__", ()):
        echo(note, err=True)
