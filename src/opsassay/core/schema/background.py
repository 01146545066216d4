"""A thread that works in the background of a block, and is ended and joined with it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Background(ABC):
    """A thread called *name* that runs `work` during the block; the end of the block waits for it."""

    def __init__(self, name: str) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self.work, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def ended(self) -> bool:
        """Whether the ``with`` block of this background thread has ended."""
        return self._ended.is_set()

    def pause(self, seconds: float) -> bool:
        """Sleep for *seconds* or until the ``with`` block ends; return True while the block still runs."""
        return not self._ended.wait(seconds)

    @abstractmethod
    def work(self) -> None:
        """Run in the background thread; a subclass defines it, and returns once `ended` is True."""
