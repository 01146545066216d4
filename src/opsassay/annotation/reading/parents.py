"""A hash table from keys to row numbers over whole arrays: half the time and a fraction of the memory of a join."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Index = NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: the upper bits of key * _GOLDEN are the key's slot (Knuth, TAOCP 6.4)."""


class Rows:
    """A hash table from each of *keys* to its first row; *repeated* flags the later rows with the same key.

    Collisions are resolved by linear probing; in each round all unplaced keys move one slot.
    """

    def __init__(self, keys: Keys) -> None:
        bits = keys.size.bit_length() + 1  # at most half of the places are taken
        self._keys = keys
        self._shift, self._last = np.uint64(64 - bits), (1 << bits) - 1
        self._table = np.full(1 << bits, -1, dtype=np.int32)
        self.repeated = np.zeros(keys.size, dtype=np.bool_)
        rows, place = np.arange(keys.size, dtype=np.int32), self._find_slots(keys)
        free: Index = np.arange(keys.size)  # which of *rows* find their place free: all at first
        while rows.size:
            # The last assignment stays: that of the first row.
            self._table[place.take(free)[::-1]] = rows.take(free)[::-1]
            there = self._table.take(place)
            left = np.flatnonzero(there != rows)
            rows, place, there = rows.take(left), place.take(left), there.take(left)
            same = keys.take(there) == keys.take(rows)
            self.repeated[rows[same]] = True
            rows, place = rows[~same], (place[~same] + 1) & self._last
            free = np.flatnonzero(self._table.take(place) < 0)

    def _find_slots(self, keys: Keys) -> Index:
        """Return for each key its first slot in the hash table."""
        return ((keys * _GOLDEN) >> self._shift).astype(np.int64)

    def find(self, keys: Keys) -> Index:
        """Return for each of *keys* the first row that has it in the table's own keys, -1 for none."""
        if not self._keys.size:
            return np.full(keys.shape, -1, dtype=np.int64)
        place = self._find_slots(keys)
        found = self._table.take(place)
        at = np.flatnonzero((found >= 0) & (self._keys.take(found) != keys))
        place = place.take(at)
        while at.size:
            place = (place + 1) & self._last
            found[at] = there = self._table.take(place)
            on = (there >= 0) & (self._keys.take(there) != keys.take(at))
            at, place = at[on], place[on]
        return found.astype(np.int64)
