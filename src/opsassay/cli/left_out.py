"""Messages on runs and incidents that an export leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opsassay.cli.output import say


def first_left_out(left_out: Sequence[tuple[Path, str]]) -> str:
    """Return " (PATH: REASON)" for the first entry of *left_out*, '' when it is empty."""
    return f" ({left_out[0][0]}: {left_out[0][1]})" if left_out else ""


def say_left_out(left_out: Sequence[tuple[Path, str]]) -> None:
    """Print "left out PATH: REASON" on stderr for each entry of *left_out*."""
    for path, why in left_out:
        say(f"opsassay: left out {path}: {why}.")
