"""Names as polars Enums over the sorted names: they compare like strings and take one or two bytes per row, not sixteen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray


def coded(names: pl.Series, *more_names: pl.Series) -> pl.Series:
    """Return *names* as a polars Enum; its categories also include those of *more_names*."""
    known = pl.concat([each.unique().cast(pl.String) for each in (names, *more_names)])
    return names.cast(pl.Enum(known.drop_nulls().unique().sort()))


def join_names(first: pl.Series, separator: str, second: pl.Series) -> pl.Series:
    """Return *first* + *separator* + *second* row by row, as an Enum whose categories include those of *first*."""
    heads, tails = known_names(first).to_list(), known_names(second).to_list()
    pairs = codes(first) * len(tails) + codes(second)
    distinct = pl.Series(pairs).unique().sort().to_numpy()
    names = [f"{heads[way // len(tails)]}{separator}{tails[way % len(tails)]}" for way in distinct.tolist()]
    return pl.Series(names, dtype=pl.Enum(sorted({*names, *heads}))).gather(np.searchsorted(distinct, pairs))


def stacked(parts: Sequence[pl.Series]) -> pl.Series:
    """Return the Enum series *parts* one after the other, as one Enum with the categories of all."""
    names = pl.Enum(sorted({name for part in parts for name in known_names(part)}))
    return pl.concat([part.cast(names) for part in parts], rechunk=True)


def known_names(names: pl.Series) -> pl.Series:
    """Return the categories of the Enum *names*, sorted: a category's position is its code."""
    assert isinstance(names.dtype, pl.Enum)
    return names.dtype.categories


def codes(names: pl.Series) -> NDArray[np.int64]:
    """Return the codes of the Enum *names*, in category order; -1 for null."""
    return names.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()


def distinct_pairs(index: NDArray[np.int64], names: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct (index, name code) pairs as two sorted arrays, without pairs that contain -1."""
    bits = int(names.max(initial=0)).bit_length()
    both = (index >= 0) & (names >= 0)
    pairs = np.sort((index[both] << bits) | names[both], kind="stable")  # calls are by time: mostly in order
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]  # np.unique takes ten times as long
    return pairs >> bits, pairs & ((1 << bits) - 1)
