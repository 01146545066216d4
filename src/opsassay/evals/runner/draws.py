"""Random draws that are the same on every machine: integers from the raw stream of PCG64, which numpy keeps stable."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Draws:
    """A stream of random draws for one *purpose* from one *seed*; each purpose has its own.

    It is PCG64 started with the first 128 bits of SHA-256 of the seed and the words of the purpose, joined by NUL.
    """

    def __init__(self, seed: int, *purpose: str) -> None:
        text = "\0".join((str(seed), *purpose))
        self._stream = np.random.PCG64(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big"))

    def integers(self, count: int, low: int, high: int) -> NDArray[np.int64]:
        """Return *count* random integers from *low* to *high*, both included.

        Each is low + u mod (high - low + 1) with u the upper 53 bits of a raw draw.
        """
        raw: NDArray[np.uint64] = self._stream.random_raw(count)
        return (raw >> np.uint64(11)).astype(np.int64) % (high - low + 1) + low

    def integer(self, low: int, high: int) -> int:
        """Return one random integer from *low* to *high*, both included."""
        return int(self.integers(1, low, high)[0])

    def choice(self, choices: Sequence[T]) -> T:
        """Return a random one of *choices*."""
        return choices[self.integer(0, len(choices) - 1)]

    def sample(self, choices: Sequence[T], count: int) -> list[T]:
        """Return *count* random ones of *choices* without replacement, in the order drawn."""
        left = list(choices)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in range(count)]
