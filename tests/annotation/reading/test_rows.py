"""Rows by key and names as numbers, against plain dictionaries."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from opsassay.annotation.reading.names import coded, codes, distinct_pairs, join_names, known_names, stacked
from opsassay.annotation.reading.parents import Rows

KEYS = st.lists(st.one_of(st.integers(0, 40), st.integers(0, 2**64 - 1)), max_size=200)
NAMES = st.lists(st.one_of(st.none(), st.sampled_from(["", "a", "ab", "b", "é", "zz"])), max_size=30)


@given(KEYS, KEYS)
def test_the_first_row_of_a_key_is_found(keys, wanted):
    rows = Rows(np.array(keys, dtype=np.uint64))
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    assert rows.repeated.tolist() == [first[key] != row for row, key in enumerate(keys)]
    asked = [*wanted, *keys]
    assert rows.find(np.array(asked, dtype=np.uint64)).tolist() == [first.get(key, -1) for key in asked]


def test_keys_that_differ_in_their_upper_bits_alone_are_told_apart():
    keys = np.arange(3000, dtype=np.uint64) << np.uint64(52)
    distinct = {int(key): row for row, key in reversed(list(enumerate(keys)))}
    assert Rows(keys).find(keys).tolist() == [distinct[int(key)] for key in keys]


@given(NAMES, NAMES)
def test_codes_are_places_among_the_sorted_names(names, others):
    one, other = (pl.Series(each, dtype=pl.String) for each in (names, others))
    enum = coded(one, other)
    told = sorted({name for name in (*names, *others) if name is not None})
    assert known_names(enum).to_list() == told
    assert codes(enum).tolist() == [-1 if name is None else told.index(name) for name in names]
    both = stacked([coded(one), coded(other)])
    assert (both.to_list(), known_names(both).to_list()) == ([*names, *others], told)


@given(st.lists(st.tuples(st.integers(-1, 9), st.integers(-1, 9)), max_size=60))
def test_distinct_pairs(pairs):
    index, names = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))
    found = zip(*(each.tolist() for each in distinct_pairs(index, names)), strict=True)
    assert list(found) == sorted({pair for pair in pairs if min(pair) >= 0})


@given(st.lists(st.tuples(st.sampled_from(["a", "a::b", "c"]), st.sampled_from(["", "b", "b::c", "z"])), max_size=30))
def test_joined_names(pairs):
    first, second = (coded(pl.Series([pair[i] for pair in pairs], dtype=pl.String)) for i in (0, 1))
    both = join_names(first, "::", second)
    assert both.to_list() == [f"{a}::{b}" for a, b in pairs]
    assert known_names(both).to_list() == sorted({*both.to_list(), *first.to_list()})
