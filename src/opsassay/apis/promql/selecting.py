"""Which series a selector means.

Regular expressions match whole values. They are those of Rust's engine (through polars), which has RE2's syntax and, as
RE2, takes time in proportion to the text whatever the expression is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import polars as pl
import promql_parser as promql

from opsassay.apis.promql.values import PromqlError
from opsassay.apis.series import NAME, SeriesStore, Times

MOST_REGEX_CHARACTERS = 1000


def select(store: SeriesStore, selector: promql.VectorSelector) -> Times:
    """Return the numbers of the series of *store* that *selector* means; raises PromqlError for a wrong regex."""
    matchers = [(one.op, one.name, one.value) for one in selector.matchers.matchers]
    if selector.name is not None:
        matchers.append((promql.MatchOp.Equal, NAME, selector.name))
    names: Iterable[str] = store.by_name
    for op, label, value in matchers:
        if label == NAME:
            fits = _test(op, value, list(names))
            names = [name for name in names if fits(name)]
    numbers = [number for name in names for number in store.by_name[name].tolist()]
    for op, label, value in matchers:
        if label != NAME:
            present = [store.labels[number].get(label, "") for number in numbers]
            fits = _test(op, value, present)
            numbers = [number for number, one in zip(numbers, present, strict=True) if fits(one)]
    return np.array(numbers, dtype=np.int64)


def _test(op: promql.MatchOp, value: str, texts: list[str]) -> Callable[[str], bool]:
    """Return the test that a matcher is, for the *texts* alone."""
    if op == promql.MatchOp.Equal:
        return value.__eq__
    if op == promql.MatchOp.NotEqual:
        return value.__ne__
    matching = _matching(value, texts)
    if op == promql.MatchOp.Re:
        return matching.__contains__
    return lambda text: text not in matching


def _matching(regex: str, texts: list[str]) -> set[str]:
    distinct = pl.Series(sorted(set(texts)), dtype=pl.String)
    if len(regex) > MOST_REGEX_CHARACTERS:
        raise PromqlError(f"a regular expression may have {MOST_REGEX_CHARACTERS} characters here")
    try:
        pl.Series([""]).str.contains(regex)  # alone: "a)(b" would be one within the parentheses below
        return set(distinct.filter(distinct.str.contains(f"^(?s:{regex})$")))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise PromqlError(f'invalid parameter "query": parse error: {regex!r} is no regular expression') from error
