"""The command line: one file per command, imported when it is called, and the handling of every error.

`tree` names every command and its module, `groups` makes click groups of them.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from opsassay import __version__
from opsassay.cli.groups import CommandGroup
from opsassay.cli.output import echo
from opsassay.cli.tree import COMMANDS, command_in
from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.extras import extra_for, install_hint
from opsassay.core.untrusted import safe_text

__all__ = ["COMMANDS", "cli", "main", "run"]

_PARTIAL = re.compile(r"\.([^/]+)\.[0-9a-f]{8}\.partial$")
"""The suffix of a temporary path of `telemetry.content` that replaces the final one when complete."""

_OF_THE_PLACE = frozenset({
    errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR,
    errno.ENXIO, errno.EPERM, errno.EROFS,
})  # fmt: skip
"""Error numbers of a path that trying again does not correct, unlike a full disk."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_LONG_WORD = re.compile(r"\S{300,}")


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="opsassay")
def cli() -> None:
    """Grade agents and algorithms that operate live systems: the answer, the path, the side effects."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line (default: that of this process) and exit: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both undo everything on the way out
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line (default: that of this process); return the exit code. Errors become a sentence on stderr."""
    words = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        _require_text(words)
        outcome: Any = cli.main(args=words, prog_name="opsassay", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (click.exceptions.Abort, KeyboardInterrupt) as interruption:
        echo("Interrupted; everything that was started has been stopped.", err=True)
        _echo_notes(interruption.__cause__ or interruption)  # click wraps what interrupted it
        return 130
    except ModuleNotFoundError as error:
        return _print_error(_explain_missing_package(error, words), words)
    except (click.ClickException, click.exceptions.Exit, OpsAssayError, OSError) as error:
        return _print_error(error, words)
    except RuntimeError as error:  # Path.resolve, until Python 3.13, of a circle of links
        if not isinstance(error.__context__, OSError):
            raise
        return _print_error(error.__context__, words)
    return outcome if isinstance(outcome, int) else 0


def _require_text(words: Sequence[str]) -> None:
    """Raise UserError when one of the command line's *words* is not UTF-8, since words are written into files."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UserError(f"{word!r} is not UTF-8 text; rename it, or type it in a terminal of UTF-8.") from None


def _explain_missing_package(error: ModuleNotFoundError, arguments: list[str]) -> UserError:
    """Return the UserError that names the pip extra with the missing package; re-raises *error* if no extra has it."""
    command, package = command_in(arguments), str(error.name)
    extra = extra_for(package, command)
    if extra is None:
        raise error
    return UserError(
        f"`opsassay {command}` needs the package {package.partition('.')[0]}, which is not installed; "
        f"{install_hint(extra)}."
    )


def _print_error(error: Exception, words: Sequence[str]) -> int:
    """Print the message of *error*; return the exit code, 2 when the disk refused a path in the command's *words*."""
    refused = _is_refused_path(error, words)
    if isinstance(error, click.ClickException):
        vars(error)["message"] = _one_line(error.message)
        error.show()
    elif isinstance(error, OpsAssayError):
        echo(f"Error: {_one_line(str(error)) if isinstance(error, UserError) else error}", err=True)
    elif isinstance(error, OSError):
        full = error.errno in _FULL
        file = error.filename2 if full and error.filename2 else error.filename  # a copy names where it reads first
        asked = _PARTIAL.sub(r"\1", os.fsdecode(file or ""))  # the user did not ask for the file next to it
        if full and not asked:
            asked = _fullest_folder(words)
        where = f" ({_one_line(asked)})" if asked else ""
        way_out = "name another place, or change this one" if refused else "free the cause and try again"
        echo(f"Error: {error.strerror or error}{where}; {way_out}.", err=True)
    _echo_notes(error)
    return UserError.exit_code if refused else getattr(error, "exit_code", 1)


def _one_line(text: str) -> str:
    """Return *text* on one line, control characters escaped and the middle of long words left out."""
    return _LONG_WORD.sub(lambda word: f"{word[0][:60]}…{word[0][-60:]}", safe_text(text.replace("\n", "\\n")))


def _is_refused_path(error: Exception, words: Sequence[str]) -> bool:
    """Return whether *error* is an OSError about a path that the command's *words* name, or about one next to it."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if (
        not isinstance(cause, OSError)
        or cause.errno not in _OF_THE_PLACE
        or not isinstance(cause.filename, str | bytes)
    ):
        return False
    path = Path(os.fsdecode(cause.filename)).absolute()
    given = [word.rpartition("=")[2] for word in words]
    return any(word in path.parts for word in given) or any(
        path.parent == one.parent or path.is_relative_to(one) or one.is_relative_to(path)
        for one in (Path(word).absolute() for word in given)
    )


def _fullest_folder(words: Sequence[str]) -> str:
    """Return "FOLDER: N bytes are free" for the fullest disk among the working, temporary and named folders in *words*."""
    import shutil
    import tempfile

    given = (Path(word.rpartition("=")[2]).absolute() for word in words)
    places = [
        Path.cwd(),
        Path(tempfile.gettempdir()),
        *(next(p for p in (one, *one.parents) if p.exists()) for one in given),
    ]
    free = {place: shutil.disk_usage(place).free for place in places}
    least = min(reversed(places), key=free.__getitem__)
    return f"{least}: {free[least]:,} bytes are free"


def _echo_notes(error: BaseException) -> None:
    """Print the notes of *error* (BaseException.add_note) on stderr, one a line."""
    for note in getattr(error, "__notes__", ()):
        echo(note, err=True)
