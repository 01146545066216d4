"""Progress: reports the states of long work to an object that shows or drops them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Receives reports on pieces of work, each by its name, from any thread."""

    def started(self, name: str, expected_s: float = 0.0) -> None:
        """Report that the work *name* begins and should take about *expected_s* seconds, 0 when that is unknown."""

    def advanced(self, name: str, message: str) -> None:
        """Report the current state of the work *name* in *message*."""

    def finished(self, name: str, message: str, usage: Mapping[str, float] | None = None) -> None:
        """Report that the work *name* ended: its result as *message*, and its resource *usage* (resource to amount)."""


class ProgressLines:
    """Passes progress to *say* as lines of text: each new state, and the result of every piece of work."""

    def __init__(self, say: Callable[[str], object] = lambda _: None) -> None:
        self._say = say

    def started(self, name: str, expected_s: float = 0.0) -> None:
        """Write nothing; only later states and results get a line."""

    def advanced(self, name: str, message: str) -> None:
        """Write the line "*name*: *message*"."""
        self._say(f"{name}: {message}")

    def finished(self, name: str, message: str, usage: Mapping[str, float] | None = None) -> None:
        """Write the line "*name*: *message*"; *usage* is not written."""
        del usage
        self._say(f"{name}: {message}")


SILENT = ProgressLines()
"""Progress that is dropped."""


@contextmanager
def piece(progress: Progress, name: str, expected_s: float = 0.0) -> Iterator[None]:
    """Report the ``with`` block as the work *name*: started, about *expected_s* seconds long, finished unless it raises."""
    progress.started(name, expected_s)
    yield
    progress.finished(name, "done")
