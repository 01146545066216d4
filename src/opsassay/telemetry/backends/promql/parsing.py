"""Parses PromQL, with limits before the parser and a check of the supported subset after it.

The parser is promql-parser, a wheel of the Rust crate of that name. It knows the whole grammar and all types, so
unsupported and invalid queries get different errors. Literals are encoded before it (`literals.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import promql_parser as promql

from opsassay.telemetry.backends.literals import code_literals, decode_literals
from opsassay.telemetry.backends.promql.elementwise import ELEMENTWISE
from opsassay.telemetry.backends.promql.operators import ARITHMETIC, COMPARISON, SETS
from opsassay.telemetry.backends.promql.values import PromqlError

MOST_QUERY_CHARACTERS = 4096
MOST_DEPTH = 64
"""Most levels of nested expressions."""

_NAMED = re.compile(r"^\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*\{")

FUNCTIONS = frozenset(
    {
        "rate", "irate", "increase", "delta", "avg_over_time", "min_over_time", "max_over_time", "sum_over_time",
        "count_over_time", "last_over_time", "stddev_over_time", "stdvar_over_time", "quantile_over_time",
        "present_over_time", "absent_over_time", "changes", "resets", "idelta", "deriv", "predict_linear", "label_replace",
        "label_join",
        "time", "timestamp", "pi", "vector", "scalar", "absent", "sort", "sort_desc", "histogram_quantile", *ELEMENTWISE,
    }
)  # fmt: skip
AGGREGATIONS = frozenset(
    {"sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "quantile", "topk", "bottomk", "count_values"}
)
OPERATORS = frozenset({*ARITHMETIC, *COMPARISON, *SETS})


@lru_cache(maxsize=512)
def parse(text: str) -> promql.Expr:
    """Parse the PromQL expression *text*; raises PromqlError when it is wrong, too large or not supported."""
    if len(text) > MOST_QUERY_CHARACTERS:
        raise _invalid_query(f"the query has more than {MOST_QUERY_CHARACTERS} characters")
    try:
        found = promql.parse(code_literals(text))
        _require_subset(found)
    except (ValueError, OverflowError) as error:
        raise _invalid_query(f"parse error: {decode_literals(str(error))}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust: x[1e300] is one with promql-parser 0.12
            raise
        raise _invalid_query(f"parse error: {error}") from error
    return found


def parse_selector(text: str) -> promql.VectorSelector:
    """Parse the series selector *text* of ``match[]``; raises PromqlError."""
    found = parse(_NAMED.sub(r'{__name__="\1",', text))
    if not isinstance(found, promql.VectorSelector) or found.offset is not None or found.at is not None:
        raise PromqlError(f'invalid parameter "match[]": {text[:200]!r} is no series selector')
    return found


def _require_subset(root: promql.Expr) -> None:
    """Raise PromqlError when any part of *root* is not supported here, or is nested too deeply."""
    left = [(root, 1)]
    while left:
        expression, depth = left.pop()
        if depth > MOST_DEPTH:
            raise _invalid_query(f"expressions may stand {MOST_DEPTH} deep within one another here")
        _require_durations(expression)
        if (what := _unsupported_feature(expression)) is not None:
            raise _invalid_query(f"{what} is outside the subset of PromQL that is evaluated here")
        left += [(inner, depth + 1) for inner in _inner_expressions(expression)]


def _require_durations(expression: promql.Expr) -> None:
    """Raise OverflowError for a range or an offset that is too large for a timedelta."""
    match expression:
        case promql.VectorSelector():
            _ = expression.offset
        case promql.MatrixSelector():
            _ = expression.range
        case promql.SubqueryExpr():
            _ = expression.range, expression.step, expression.offset


def _unsupported_feature(expression: promql.Expr) -> str | None:
    """Return the unsupported feature in *expression* itself, its operands apart, for a message; None if there is none."""
    match expression:
        case promql.VectorSelector() if expression.matchers.or_matchers:
            return "'or' between matchers"
        case promql.Call() if expression.func.name not in FUNCTIONS:
            return f"the function {expression.func.name}()"
        case promql.AggregateExpr() if str(expression.op) not in AGGREGATIONS:
            return f"the aggregation {expression.op}()"
        case promql.BinaryExpr() if str(expression.op) not in OPERATORS:
            return f"the operator {expression.op}"
        case promql.BinaryExpr() if expression.modifier is not None and _has_fill_values(expression.modifier):
            return "the modifier fill"
    return None


def _has_fill_values(modifier: promql.BinModifier) -> bool:
    """Return whether *modifier* has fill values for series that are missing on one side."""
    filled = modifier.fill_values
    return filled.lhs is not None or filled.rhs is not None


def _inner_expressions(expression: promql.Expr) -> Iterator[promql.Expr]:
    """Yield the direct operands and arguments of *expression*."""
    match expression:
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            yield expression.expr
        case promql.MatrixSelector():
            yield expression.vector_selector
        case promql.AggregateExpr():
            yield expression.expr
            if expression.param is not None:
                yield expression.param
        case promql.BinaryExpr():
            yield expression.lhs
            yield expression.rhs
        case promql.Call():
            yield from expression.args


def _invalid_query(message: str) -> PromqlError:
    """Return the PromqlError for an invalid query; *message* says what is wrong."""
    return PromqlError(f'invalid parameter "query": {message}')
