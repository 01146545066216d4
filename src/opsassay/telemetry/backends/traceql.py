"""TraceQL: one set of conditions on a span, joined by ``&&`` and ``||``, parsed into a filter on a table of spans."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import polars as pl

from opsassay.core.errors import UserError
from opsassay.telemetry.backends.literals import DOUBLE, RAW
from opsassay.telemetry.backends.matching import RegexError, compile_regex, holds_whole
from opsassay.telemetry.backends.requests import duration_ns
from opsassay.telemetry.backends.spans import SCOPES, TAG, attribute_columns
from opsassay.telemetry.backends.tokens import MOST_DEEP, Token, TokenReader

INTRINSICS = ("duration", "kind", "name", "rootName", "rootServiceName", "status", "traceDuration")
STATUS = {"error": "ERROR", "ok": "OK", "unset": None}
KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")

_SCOPED = {
    "span:duration": "duration", "span:kind": "kind", "span:name": "name", "span:status": "status",
    "trace:duration": "traceDuration", "trace:rootName": "rootName", "trace:rootService": "rootServiceName",
}  # fmt: skip
_ORDERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
_ARITHMETIC = ("+", "-", "*", "/", "%", "^")
_TOKEN = re.compile(
    rf"""(?P<space>\s+)
      | (?P<quoted>[a-z]*\.{DOUBLE})
      | (?P<text>{DOUBLE}|{RAW})
      | (?P<duration>(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+)
      | (?P<number>-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>\.?[a-zA-Z_][a-zA-Z0-9_.:/-]*)
      | (?P<sign>&&|\|\||!=|=~|!~|>=|<=|[{{}}()=<>|!&~+*/^%-])""",
    re.VERBOSE,
)


class TraceqlError(UserError):
    """An invalid query; the message is Tempo's."""


def read_traceql(text: str, columns: Mapping[str, pl.DataType]) -> pl.Expr:
    """Return the TraceQL query *text* as a filter on a table of spans with *columns* (to types); raises TraceqlError."""
    return _TraceqlReader(text, columns).read_query()


class _TraceqlReader(TokenReader):
    """Reads one query from its first token to its last."""

    def __init__(self, text: str, columns: Mapping[str, pl.DataType]) -> None:
        super().__init__(text, _TOKEN, TraceqlError, "invalid TraceQL query: ")
        self._columns = columns

    def read_query(self) -> pl.Expr:
        """Parse the whole query, "{ conditions }", into an expression over columns of spans; raises TraceqlError."""
        if self.sees("("):
            self.fail(0, "parentheses around sets of spans are not served here; there is one set of conditions")
        self.sign("{")
        found = pl.lit(value=True) if self.sees("}") else self._any_of(0)
        self.sign("}")
        if (token := self.peek()).kind:
            self.fail(token.at, f"{token.text} after a set of spans is not served here; there is one set of conditions")
        return found

    def _any_of(self, depth: int) -> pl.Expr:
        """Parse terms joined by ``||`` into one filter; *depth* counts the parentheses around them."""
        if depth > MOST_DEEP:
            self.fail(0, "the query is nested too deeply")
        return self._join_terms(
            "||", lambda: self._join_terms("&&", lambda: self._read_term(depth), operator.and_), operator.or_
        )

    def _join_terms(self, sign: str, read: Callable[[], pl.Expr], join: Callable[[Any, Any], Any]) -> pl.Expr:
        """Parse terms with *read* while *sign* follows, and combine their filters by *join*."""
        found = [read()]
        while self.sees(sign):
            self.step()
            found.append(read())
        return reduce(join, found)

    def _read_term(self, depth: int) -> pl.Expr:
        """Parse a condition, with "!" or in parentheses too, into a filter; *depth* counts the parentheses around it."""
        if self.sees("("):
            self.step()
            inner = self._any_of(depth + 1)
            self.sign(")")
            return inner
        if self.sees("!"):
            self.step()
            return ~self._read_term(depth + 1)
        if self.peek().kind in {"number", "duration", "text"} or self.sees("-"):
            self.fail(self.peek().at, "a value or a sign before a field is not served here; write the field first")
        name = self.step() if self.peek().kind == "quoted" else self.take("name", "a field")
        if name.text in {"true", "false"} and self.sees("}", "&&", "||", ")"):
            return pl.lit(value=name.text == "true")
        if self.sees("}", "&&", "||", ")"):
            self.fail(name.at, f"{name.text} without a comparison is not served here; write {name.text} = true")
        op = self.take("sign", "a comparison")
        if op.text in _ARITHMETIC:
            self.fail(op.at, "arithmetic is not served here")
        if op.text not in {*_ORDERS, "=~", "!~"}:
            self.fail(op.at, f"unexpected {op.text}, expecting a comparison")
        found = self._compare_field(name, op.text).fill_null(value=False)
        if self.sees(*_ARITHMETIC):
            self.fail(self.peek().at, "arithmetic is not served here")
        return found

    def _compare_field(self, name: Token, op: str) -> pl.Expr:
        """Parse the value after "*name* *op*" and return that condition on a span."""
        value = self.step()
        field = _SCOPED.get(name.text, name.text)
        match field:
            case "duration" | "traceDuration":
                column = "duration_ns" if field == "duration" else "trace_ns"
                return self._compare_order(pl.col(column), op, self._read_nanoseconds(value))
            case "status" | "kind":
                return self._compare_enumerated(field, op, value)
            case "name" | "rootName" | "rootServiceName":
                column = {"name": "operation", "rootName": "root_name", "rootServiceName": "root_service"}[field]
                return self._compare_literal(pl.col(column), pl.String(), op, value)
        return self._compare_attribute(name, op, value)

    def _compare_attribute(self, name: Token, op: str, value: Token) -> pl.Expr:
        """Return the condition "attribute *name* *op* *value*"; without a scope in *name*, any scope counts."""
        scope, dot, key = name.text.partition(".")
        if not dot or not key or scope not in SCOPES:
            self.fail(name.at, f"{name.text} is no field that is served here; write .KEY, span.KEY or resource.KEY")
        if name.kind == "quoted":
            key = self.unquoted(Token("text", key, name.at))
        columns = attribute_columns(scope, key, self._columns)
        if value.text == "nil" and value.kind == "name" and op in {"=", "!="}:
            absent = pl.all_horizontal([pl.lit(value=True), *(pl.col(column).is_null() for column in columns)])
            return absent if op == "=" else ~absent
        tests = [self._compare_literal(pl.col(column), self._columns[column], op, value) for column in columns]
        return pl.any_horizontal([pl.lit(value=False), *tests]) if tests else self._match_nothing(op, value)

    def _match_nothing(self, op: str, value: Token) -> pl.Expr:
        """Return a filter that no span passes; raises TraceqlError unless *value* is a literal."""
        self._compare_literal(pl.lit(None, pl.String()), pl.String(), op, value)
        return pl.lit(value=False)

    def _compare_literal(self, column: pl.Expr, type_: pl.DataType, op: str, value: Token) -> pl.Expr:
        """Return the comparison of *column*, of *type_*, with the literal *value*; false for other types, as in Tempo."""
        if value.kind == "text":
            text = self.unquoted(value)
            if op.endswith("~"):
                return self._match_regex(column, type_, op, text)
            return self._compare_order(column, op, text) if isinstance(type_, pl.String) else pl.lit(value=False)
        literal: float | bool
        if value.kind == "name" and value.text in {"true", "false"}:
            literal, comparable = value.text == "true", isinstance(type_, pl.Boolean)
        elif value.kind in {"number", "duration"}:
            literal = float(value.text) if value.kind == "number" else self._read_nanoseconds(value)
            comparable = type_.is_numeric()
        else:
            self.fail(value.at, f"unexpected {value.text or 'end of the query'}, expecting a value")
        return self._compare_order(column, op, literal) if comparable else pl.lit(value=False)

    def _match_regex(self, column: pl.Expr, type_: pl.DataType, op: str, regex: str) -> pl.Expr:
        """Return the condition that all of *column*'s text matches *regex* (*op* "=~"), or does not ("!~")."""
        try:
            compile_regex(regex)
        except RegexError as error:
            raise TraceqlError(f"invalid TraceQL query: {error}") from error
        if not isinstance(type_, pl.String):
            return pl.lit(value=False)
        found = column.map_batches(lambda texts: holds_whole(regex, texts), return_dtype=pl.Boolean)
        return found if op == "=~" else ~found

    def _compare_enumerated(self, field: str, op: str, value: Token) -> pl.Expr:
        """Return the condition on *field*, status or kind; raises TraceqlError for an unknown value or operator."""
        known = list(STATUS) if field == "status" else KINDS
        if value.kind != "name" or value.text not in known or op not in {"=", "!="}:
            self.fail(value.at, f"{field} is compared by = or != with one of {', '.join(known)}")
        if field == "status":
            column, named = pl.col(f"{TAG}otel.status_code"), STATUS[value.text]
        else:
            column, named = pl.col(f"{TAG}span.kind"), value.text
        is_so = column.is_null() if named in {None, "unspecified"} else (column == named).fill_null(value=False)
        return is_so if op == "=" else ~is_so

    def _compare_order(self, column: pl.Expr, op: str, value: float | str | bool) -> pl.Expr:
        """Return the condition *column* *op* *value*; raises TraceqlError for a regex operator."""
        if op not in _ORDERS:
            raise TraceqlError(f"invalid TraceQL query: {op} compares texts in quotes alone")
        found: pl.Expr = _ORDERS[op](column, pl.lit(value))
        return found

    def _read_nanoseconds(self, value: Token) -> int:
        """Return the token *value*, a duration or a plain number of ns, in ns; raises TraceqlError for others."""
        if value.kind == "number":
            return round(float(value.text))
        if value.kind != "duration":
            self.fail(value.at, f"unexpected {value.text or 'end of the query'}, expecting a duration")
        return duration_ns(value.text)
