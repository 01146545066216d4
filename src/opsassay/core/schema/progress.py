"""Progress: how a long piece of work says what it does. Whoever shows it decides what becomes of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """What hears of pieces of work, each by its name; from whatever thread it is done in."""

    def started(self, name: str, expected_s: float = 0.0) -> None:
        """Report that the work *name* begins; it is expected to take *expected_s* seconds, 0 where that is unknown."""

    def advanced(self, name: str, message: str) -> None:
        """Report in *message* how far the work *name* is."""

    def finished(self, name: str, message: str, usage: Mapping[str, float] | None = None) -> None:
        """Report in *message* how the work *name* ended, and its *usage* (resource to amount)."""


class ProgressLines:
    """Progress as lines of text, each handed to *say*: what was said so far, and how every piece of work ended."""

    def __init__(self, say: Callable[[str], object] = lambda _: None) -> None:
        self._say = say

    def started(self, name: str, expected_s: float = 0.0) -> None:
        """Write nothing; only results get a line."""

    def advanced(self, name: str, message: str) -> None:
        """Write *message* as a line."""
        self._say(f"{name}: {message}")

    def finished(self, name: str, message: str, usage: Mapping[str, float] | None = None) -> None:
        """Write *message* as the last line of the work *name*."""
        del usage
        self._say(f"{name}: {message}")


SILENT = ProgressLines()
"""Progress that nobody hears of."""


@contextmanager
def piece(progress: Progress, name: str, expected_s: float = 0.0) -> Iterator[None]:
    """Report to *progress* that the work *name* starts with the block, and that it is finished when the block ends well."""
    progress.started(name, expected_s)
    yield
    progress.finished(name, "done")
