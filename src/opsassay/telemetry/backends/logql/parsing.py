"""Parses the supported subset of LogQL: selectors, line and label filters, counts over ranges, aggregations."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from opsassay.core.errors import UserError
from opsassay.telemetry.backends.literals import DOUBLE, RAW
from opsassay.telemetry.backends.matching import Matcher, RegexError, compile_regex
from opsassay.telemetry.backends.requests import duration_ns
from opsassay.telemetry.backends.tokens import MOST_DEEP, TokenReader

RANGES = ("count_over_time", "rate", "bytes_over_time", "bytes_rate")
AGGREGATIONS = ("sum", "avg", "min", "max", "count", "topk", "bottomk")

_LONGEST_NS = 2**60
_TOKEN = re.compile(
    rf"""(?P<space>\s+|\#[^\n]*)
      | (?P<text>{DOUBLE}|{RAW})
      | (?P<duration>(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h|d|w|y))+)
      | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)
      | (?P<word>[a-zA-Z_][a-zA-Z0-9_]*)
      | (?P<sign>\|=|\|~|\|>|!>|!=|!~|=~|==|>=|<=|[|={{}}()\[\],<>+\-*/%^])""",
    re.VERBOSE,
)


class LogqlError(UserError):
    """An invalid query; *status* is the HTTP status, and the message is Loki's."""

    def __init__(self, message: str, status: int = 400) -> None:
        self.status = status
        super().__init__(message)


class LineFilter(NamedTuple):
    """A filter *op* of lines: they contain any of *values* (``|=``), none (``!=``), match any (``|~``) or none (``!~``)."""

    op: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class LogQuery:
    """The entries that match all of: the stream *selector*, the line filters *lines*, the label filters *labels*."""

    selector: tuple[Matcher, ...]
    lines: tuple[LineFilter, ...] = ()
    labels: tuple[Matcher, ...] = ()


@dataclass(frozen=True)
class RangeCount:
    """The *function* of the entries of *logs* in the *range_ns* that end *offset_ns* before each step."""

    function: str
    logs: LogQuery
    range_ns: int
    offset_ns: int = 0


@dataclass(frozen=True)
class Aggregated:
    """*op* over the series of *inner*, grouped by the labels *names* (*by*) or by all others; *limit* is the k of topk."""

    op: str
    inner: MetricQuery
    names: tuple[str, ...] = ()
    by: bool = True
    limit: int | None = None


@dataclass(frozen=True)
class VectorLiteral:
    """A vector of one series without labels, from ``vector(1)``."""

    value: float


MetricQuery = RangeCount | Aggregated | VectorLiteral
_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
}  # fmt: skip
_OPERATORS = (*_ARITHMETIC, "/", "%", "^", "==", "!=", ">", "<", ">=", "<=", "and", "or", "unless")


def parse(text: str) -> LogQuery | MetricQuery:
    """Parse the LogQL query *text*; raises LogqlError in Loki's words for a wrong query or one that is not supported."""
    return _LogqlReader(text).read_query()


def parse_selector(text: str) -> tuple[Matcher, ...]:
    """Return the matchers of the LogQL selector *text* (of ``match[]``); raises LogqlError."""
    found = parse(text)
    if not isinstance(found, LogQuery) or found.lines or found.labels:
        raise LogqlError(f"parse error: only label matchers are allowed in {text[:200]}")
    return found.selector


class _LogqlReader(TokenReader):
    """Reads one query from its first token to its last."""

    def __init__(self, text: str) -> None:
        super().__init__(text, _TOKEN, LogqlError, "")

    def read_query(self) -> LogQuery | MetricQuery:
        """Parse the whole query; raises LogqlError with the line and column of the first wrong token."""
        found = self._read_log_query() if self.sees("{") else self._read_metric_query(0)
        while isinstance(found, VectorLiteral) and self.sees(
            *_ARITHMETIC
        ):  # vector(1)+vector(1): Grafana asks whether we live
            op, other = self.step(), self._read_metric_query(0)
            if not isinstance(other, VectorLiteral):
                self.fail(op.at, f"{op.text} between vectors is not served here, but between vector() alone")
            found = VectorLiteral(_ARITHMETIC[op.text](found.value, other.value))
        if not isinstance(found, LogQuery) and self.sees(*_OPERATORS):
            self.fail(
                self.peek().at, f"{self.peek().text} is not served here; there are no operators, but between vector()"
            )
        if self.sees("|>", "!>", "or", "and", "by", "without"):
            self.fail(self.peek().at, f"{self.peek().text} is not served here")
        if self.peek().kind:
            self.unexpected("the end of the query")
        return found

    def _read_metric_query(self, depth: int) -> MetricQuery:
        """Parse a range aggregation, an aggregation of one, or vector(); *depth* counts the aggregations around it."""
        if self.peek().kind == "number":
            self.fail(self.peek().at, "numbers alone are not served here")
        if depth > MOST_DEEP:
            self.fail(self.peek().at, "the query is nested too deeply")
        if self.sees("("):
            self.step()
            if self.sees("{"):
                self.fail(self.peek().at, "parentheses around a query of logs are not served here")
            inner = self._read_metric_query(depth + 1)
            self.sign(")")
            return inner
        name = self.take("word", "a stream selector, a function or an aggregation")
        if name.text in RANGES:
            return self._read_range(name.text)
        if name.text == "vector":
            self.sign("(")
            value = float(self.take("number", "a number").text)
            self.sign(")")
            return VectorLiteral(value)
        if name.text not in AGGREGATIONS:
            self.fail(name.at, f"{name.text} is not served here; there are {', '.join((*RANGES, *AGGREGATIONS))}")
        modifier = self._read_grouping()
        self.sign("(")
        limit = None
        if name.text in {"topk", "bottomk"}:
            number = self.take("number", "a number")
            if not number.text.isdigit():
                self.fail(number.at, f"unexpected {number.text}, expecting a whole number")
            limit = int(number.text[:9])
            self.sign(",")
        inner = self._read_metric_query(depth + 1)
        self.sign(")")
        names, by = modifier or self._read_grouping() or ((), True)
        return Aggregated(name.text, inner, names, by, limit)

    def _read_grouping(self) -> tuple[tuple[str, ...], bool] | None:
        """Parse "by (labels)" or "without (labels)" into (labels, whether it is "by"); None when neither follows."""
        if not (self.sees("by") or self.sees("without")):
            return None
        by = self.take("word", "by or without").text == "by"
        self.sign("(")
        names: list[str] = []
        while not self.sees(")"):
            names.append(self.take("word", "a label").text)
            if not self.sees(")"):
                self.sign(",")
        self.sign(")")
        return tuple(names), by

    def _read_range(self, function: str) -> RangeCount:
        """Parse "(log query[range] offset duration)" after the name *function*; filters may also follow the range."""
        self.sign("(")
        logs = self._read_log_query()
        self.sign("[")
        range_ns = self._read_duration()
        self.sign("]")
        offset_ns = 0
        if self.sees("offset"):
            self.step()
            offset_ns = self._read_duration()
        if not logs.lines and not logs.labels:
            logs = self._read_filters(logs.selector)
        self.sign(")")
        return RangeCount(function, logs, range_ns, offset_ns)

    def _read_log_query(self) -> LogQuery:
        """Parse {matchers}, then any line filters and label filters."""
        return self._read_filters(self._read_selector())

    def _read_filters(self, selector: tuple[Matcher, ...]) -> LogQuery:
        """Parse line and label filters, joined by nothing, "and" or a comma; return *selector* with them as a query."""
        lines: list[LineFilter] = []
        labels: list[Matcher] = []
        while self.sees("|=", "|~", "!=", "!~", "|"):
            op = self.step().text
            if op == "|":
                labels.append(self._label_filter())
                while self.sees("and", ","):
                    self.step()
                    labels.append(self._label_filter())
            else:
                values = [self._read_value(regex=op.endswith("~"))]
                while self.sees("or"):
                    self.step()
                    values.append(self._read_value(regex=op.endswith("~")))
                lines.append(LineFilter(op, tuple(values)))
        return LogQuery(selector, tuple(lines), tuple(labels))

    def _read_selector(self) -> tuple[Matcher, ...]:
        """Parse {matchers}; raises LogqlError when every matcher fits an empty label."""
        self.sign("{")
        found: list[Matcher] = []
        while not self.sees("}"):
            found.append(self._read_matcher())
            if not self.sees("}"):
                self.sign(",")
        self.sign("}")
        if all(matcher.test([""])("") for matcher in found if matcher.op in {"=", "=~"}):
            raise LogqlError(
                "parse error : queries require at least one regexp or equality matcher that does not have an "
                'empty-compatible value. For instance, app=~".*" does not meet this requirement, but app=~".+" will'
            )
        return tuple(found)

    def _label_filter(self) -> Matcher:
        """Parse one label filter after "|"; raises LogqlError for any other pipeline stage."""
        token = self.peek()
        if self.sees("(") or (token.kind == "word" and self.peek(1).text not in {"=", "!=", "=~", "!~"}):
            self.fail(token.at, f"| {token.text} is not served here; there are line filters and filters of labels")
        return self._read_matcher()

    def _read_matcher(self) -> Matcher:
        """Parse one label matcher of a selector, such as app="cart"."""
        name = self.take("word", "a label").text
        token = self.take("sign", "=, !=, =~ or !~")
        if token.text not in {"=", "!=", "=~", "!~"}:
            self.fail(token.at, f"unexpected {token.text}, expecting =, !=, =~ or !~")
        return Matcher(name, token.text, self._read_value(regex=token.text.endswith("~")))

    def _read_value(self, *, regex: bool) -> str:
        """Parse a quoted text; raises LogqlError when *regex* and it is no regular expression."""
        if self.sees("ip"):
            self.fail(self.peek().at, "ip() is not served here")
        token = self.take("text", "a text in quotes")
        value = self.unquoted(token)
        if regex:
            try:
                compile_regex(value)
            except RegexError as error:
                raise LogqlError(f"parse error at {self.place(token.at)}: error parsing regexp: {error}") from error
        return value

    def _read_duration(self) -> int:
        """Parse a duration; return it in ns."""
        token = self.take("duration", "a duration")
        found = duration_ns(token.text, days=True)
        if not 0 < found <= _LONGEST_NS:
            self.fail(token.at, "a duration has to be greater than 0 and 36 years at most")
        return found
