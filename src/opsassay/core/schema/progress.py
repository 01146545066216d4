"""Progress: how a long piece of work says what it does. Whoever shows it decides what becomes of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """What hears of pieces of work, each by its name; from whatever thread it is done in."""

    def started(self, name: str, expected_s: float = 0.0) -> None:
        """Tell that a piece of work begins, which is expected to take *expected_s* seconds; 0 where nobody knows."""

    def advanced(self, name: str, message: str) -> None:
        """Tell what has become of it so far."""

    def finished(self, name: str, message: str, spent: Mapping[str, float] | None = None) -> None:
        """Tell how it ended, and what it spent."""


class ProgressLines:
    """Progress as lines of text, each handed to *say*: what was said so far, and how every piece of work ended."""

    def __init__(self, say: Callable[[str], object] = lambda _: None) -> None:
        self._say = say

    def started(self, name: str, expected_s: float = 0.0) -> None:
        """Say nothing: a line is for what came of it."""

    def advanced(self, name: str, message: str) -> None:
        """Say a line."""
        self._say(f"{name}: {message}")

    def finished(self, name: str, message: str, spent: Mapping[str, float] | None = None) -> None:
        """Say the last line."""
        del spent
        self._say(f"{name}: {message}")


SILENT = ProgressLines()
"""Progress that nobody hears of."""


@contextmanager
def piece(progress: Progress, name: str, expected_s: float = 0.0) -> Iterator[None]:
    """Tell *progress* that the block is the piece of work *name*, and that it is done when the block ends well."""
    progress.started(name, expected_s)
    yield
    progress.finished(name, "done")
