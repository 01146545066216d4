"""A script of this folder as a command: what it prints, and every error of OpsAssay as one sentence."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from opsassay.cli.output import echo
from opsassay.core.errors import OpsAssayError


def run(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run *command* and return its exit code: 0 done, 1 failed, 2 wrong use or input."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        outcome: Any = command.main(args=words, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OpsAssayError as error:
        echo(f"Error: {error}", err=True)
        return error.exit_code
    return outcome if isinstance(outcome, int) else 0
