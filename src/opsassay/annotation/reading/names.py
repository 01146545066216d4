"""Names as numbers: an Enum over the sorted names behaves like them, and takes a byte or two per row instead of sixteen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray


def coded(names: pl.Series, *further: pl.Series) -> pl.Series:
    """Return *names* as an Enum that knows the names in *further* too."""
    known = pl.concat([each.unique().cast(pl.String) for each in (names, *further)])
    return names.cast(pl.Enum(known.drop_nulls().unique().sort()))


def join_names(first: pl.Series, between: str, second: pl.Series) -> pl.Series:
    """Return "*first* *between* *second*" of each row of two Enums without nulls; it knows the names of *first* too."""
    heads, tails = known_names(first).to_list(), known_names(second).to_list()
    pairs = codes(first) * len(tails) + codes(second)
    distinct = pl.Series(pairs).unique().sort().to_numpy()
    names = [f"{heads[way // len(tails)]}{between}{tails[way % len(tails)]}" for way in distinct.tolist()]
    return pl.Series(names, dtype=pl.Enum(sorted({*names, *heads}))).gather(np.searchsorted(distinct, pairs))


def stacked(parts: Sequence[pl.Series]) -> pl.Series:
    """Return the Enums *parts* below each other, as one that knows the names of all."""
    names = pl.Enum(sorted({name for part in parts for name in known_names(part)}))
    return pl.concat([part.cast(names) for part in parts], rechunk=True)


def known_names(names: pl.Series) -> pl.Series:
    """Return all names that the Enum *names* knows, sorted: a name's place is its code."""
    assert isinstance(names.dtype, pl.Enum)
    return names.dtype.categories


def codes(names: pl.Series) -> NDArray[np.int64]:
    """Return the numbers of the Enum *names*, in the order of the names; -1 where there is none."""
    return names.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()


def distinct_pairs(index: NDArray[np.int64], names: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct pairs of *index* and *names* (`codes`), sorted, without those in which either is -1."""
    bits = int(names.max(initial=0)).bit_length()
    both = (index >= 0) & (names >= 0)
    pairs = np.sort((index[both] << bits) | names[both], kind="stable")  # calls are by time: mostly in order
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]  # np.unique takes ten times as long
    return pairs >> bits, pairs & ((1 << bits) - 1)
