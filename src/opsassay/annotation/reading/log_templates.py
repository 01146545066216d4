"""The log statements that services write in a request: which one usually follows which, and where that changed.

A statement is identified by its place in the code, where the log has it, else by its words without variable parts. Its
habit is the statement, or the end, that usually follows it within a span. A method that throws or returns another value
breaks the habit; so do its callers, but later in the same request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from pydantic import Field

from opsassay.annotation.reading.calls import Calls
from opsassay.annotation.reading.tails import beta_binomial_at_least
from opsassay.annotation.reading.windows import PERIOD
from opsassay.core.schema.base import Written
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.severity import ERROR_LEVELS


class StatementThresholds(Written):
    """Limits from which on a habit (the usual statement after a log statement) counts as broken."""

    usual: float = Field(
        default=0.95, gt=0, le=1, description="share of the baseline that makes what follows a statement its habit"
    )
    chance: float = Field(
        default=0.005,
        gt=0,
        lt=1,
        description="probability of the breaks, times the number of habits, that is no chance",
    )
    least_spans: int = Field(default=5, ge=1, description="spans of the baseline that a habit needs")
    lasting: float = Field(
        default=0.8, ge=0, le=1, description="share of spans that break, from the first to the last that does"
    )
    prior_spans: float = Field(default=20.0, gt=0, description="weight of how often habits break elsewhere, in spans")
    least_rate: float = Field(default=0.01, gt=0, lt=1, description="how often a habit breaks at least for no reason")


_WRAPPED = r'"(?:log|message|msg)"\s*:\s*"((?:[^"\\]|\\.)*)"'
"""Matches the log line inside the JSON of a container runtime or a JSON logger."""
_KEY = r'"(?:log|message|msg)"'
_NESTED = 3
_TEXT = pl.col("text")

_PLACE = (
    r"([\w.$\[\]/-]+\.(?:py|java|kt|scala|go|js|ts|cs|rb|rs|php|cc|cpp):\d+"  # file:line
    r"|[A-Za-z_][\w.$\[\]/-]*#\d+)"  # logger#line
)
_PLACE_COLUMNS = (("attr.code.file.path", "attr.code.line.number"), ("attr.code.filepath", "attr.code.lineno"))

_VALUES = (
    (r"(?i)\b(?:trace|span|request|correlation)[_ -]?id\b\W{1,4}[\w-]+", ""),  # who asks, not what is said
    (r"[0-9a-fA-F-]*[0-9][\w.:-]*|[\w-]+[0-9][\w-]*", ""),  # numbers, times, ids: words with a digit
    (r"[:=：]\s*[^\[\]]*", ""),  # what follows a colon or an equals sign
    (r"\[[^\[\]]*\]\]", "]"),  # a list inside brackets
)

END = "(ends)"
"""The pseudo-statement that follows the last statement of a span."""

_EVENT = ["service", "period", "trace", "broke_ns"]
_HABIT = ["service", "statement", "usual"]
_COLUMNS = [*_HABIT, "period", "trace", "at_ns", "kept", "broke_ns"]


@dataclass(frozen=True)
class BrokenHabit:
    """After *statement*, *service* wrote *usual* in the share *before* of its spans, and only in *now* during the fault."""

    service: str
    statement: str
    usual: str
    before: float
    now: float


@dataclass(frozen=True, eq=False)
class Statements:
    """The log statements of the services in *pack*, read on first use; only spans in *calls* count."""

    pack: Datapack
    calls: Calls
    limits: StatementThresholds

    def broken(self, service: str) -> BrokenHabit | None:
        """Return the usual log line that *service*, by itself, most clearly stopped writing; None without one.

        Spans of requests in which another service stopped a usual line, or blamed a third, earlier are left out, since
        that may be the cause.
        """
        events = pl.concat(
            [
                self._significant_breaks.select(_EVENT),
                self._log_lines.filter("blames").select(*_EVENT[:3], "time_ns").rename({"time_ns": "broke_ns"}),
            ]
        )
        others = events.filter(pl.col("service") != service)
        earlier = others.group_by("period", "trace").agg(first_ns=pl.col("broke_ns").min())
        own = self._followed.filter(pl.col("service") == service).join(earlier, on=["period", "trace"], how="left")
        led = (pl.col("first_ns") < pl.col("broke_ns")).fill_null(value=False)
        found = _broken_habits(own.filter(~led), {service: self._usual_share(service)}, self.limits)
        found = found.sort("p", "statement", "usual")
        if not found.height:
            return None
        row = found.row(0, named=True)
        return BrokenHabit(service, row["statement"], row["usual"], row["before"], row["now"])

    @cached_property
    def _log_lines(self) -> pl.DataFrame:
        """The log lines with a trace, as `_read_log_lines` returns them."""
        return _read_log_lines(self.pack)

    @cached_property
    def _followed(self) -> pl.DataFrame:
        """One row per span or request and usual log line of it: whether that line was written; columns _COLUMNS."""
        served = self.calls.entries.select("period", "trace", "node", "end_ns", pl.col("service").cast(pl.String))
        ends = served.group_by("service", "period", "trace").agg(pl.col("end_ns").max())
        request = ["period", "trace", "service"]
        lines = self._log_lines.join(ends, on=request, how="inner")
        misled = _uninformative_requests(lines, served.select(request).unique(), self.limits.usual)
        lines = lines.join(misled, on=request, how="anti")
        rows = pl.concat(
            [_habits_in_spans(lines), _habits_in_requests(lines, served.join(misled, on=request, how="anti"))]
        )
        normal = rows.filter(pl.col("period") == "normal").group_by(_HABIT).agg(pl.col("kept").mean())
        habits = normal.filter(pl.col("kept") >= self.limits.usual).select(_HABIT)
        return rows.join(habits, on=_HABIT, how="semi").sort(_COLUMNS)

    @cached_property
    def _broken_shares(self) -> dict[str, float]:
        """Service to the share of its spans in the fault window that lack a log line such spans usually have."""
        now = self._followed.filter(pl.col("period") == "abnormal")
        return dict(now.group_by("service").agg(1 - pl.col("kept").mean()).iter_rows())

    def _usual_share(self, service: str) -> float:
        """Return the median, over all services but *service*, of the share of spans without a usual log line."""
        return float(np.median([share for name, share in self._broken_shares.items() if name != service] or [0.0]))

    @cached_property
    def _significant_breaks(self) -> pl.DataFrame:
        """The rows of `_followed` whose usual log line is missing more often than by chance."""
        now = self._followed.filter((pl.col("period") == "abnormal") & ~pl.col("kept"))
        services = self._followed.get_column("service").drop_nulls().unique()
        shares = {service: self._usual_share(service) for service in services}
        return now.join(_broken_habits(self._followed, shares, self.limits), on=_HABIT, how="semi")


def _read_log_lines(pack: Datapack) -> pl.DataFrame:
    """Return the log lines with a trace: service, period, trace (hash), span, time_ns, error, blames, statement.

    *blames*: the line is an error that names another service.
    """
    logs = pack.both("logs")
    columns = set(logs.collect_schema().names())
    located = [
        pl.concat_str(pl.col(file), pl.lit("#"), pl.col(line).cast(pl.String))
        for file, line in _PLACE_COLUMNS
        if {file, line} <= columns
    ]
    rows = logs.filter(pl.col("trace_id").fill_null("") != "").select(
        pl.col("period").cast(PERIOD),
        "message",
        service=pl.col("service_name"),
        trace=pl.col("trace_id").hash(1),
        span=pl.col("span_id").fill_null(""),
        time_ns=pl.col("time").dt.epoch("ns"),
        error=pl.col("level").is_in(ERROR_LEVELS).fill_null(value=False),
        statement=pl.coalesce(*located, pl.lit(None, dtype=pl.String)),
    )
    lines = pack.collect(rows, "logs")
    # An expression would run every regular expression on every line: each is for few, and they are slow.
    message, statement = _unwrapped(lines.get_column("message")), lines.get_column("statement")
    statement = _replace(statement, statement.is_null(), message, _TEXT.str.slice(0, 300).str.extract(_PLACE))
    text = _TEXT
    for pattern, instead in _VALUES:
        text = text.str.replace_all(pattern, instead)
    statement = _replace(statement, statement.is_null(), message, text.str.slice(0, 200))
    error, service = lines.get_column("error"), lines.get_column("service")
    names = _TEXT.str.extract_many(pack.services(), leftmost=True).list.unique().list.len()
    others = names > _TEXT.str.contains(pl.lit(service.filter(error)), literal=True).cast(pl.UInt32)
    return lines.drop("message").with_columns(statement=statement, blames=_replace(error, error, message, others))


def _unwrapped(message: pl.Series) -> pl.Series:
    """Return each message without what a container runtime or a JSON logger wraps around it."""
    inner = _TEXT.str.extract(_WRAPPED)
    message = _replace(message, message.str.contains(_KEY), message, pl.coalesce(inner, _TEXT))
    nested = _TEXT.str.replace_all(r'\\(["\\])', "$1").str.extract(_WRAPPED)
    for _ in range(_NESTED - 1):
        message = _replace(message, message.str.starts_with("{"), message, pl.coalesce(nested, _TEXT))
    return message


def _replace(values: pl.Series, rows: pl.Series, texts: pl.Series, change: pl.Expr) -> pl.Series:
    """Return *values*, replaced where *rows* is true by *change*, an expression over the column _TEXT from *texts*."""
    at = rows.arg_true()
    changed = texts.gather(at).to_frame("text").select(change).to_series()
    return values.clone().scatter(at, changed) if at.len() else values


def _uninformative_requests(lines: pl.DataFrame, requests: pl.DataFrame, usual_share: float) -> pl.DataFrame:
    """Return the *requests* that cannot show which log lines are usual: period, trace, service.

    They are those of the baseline that logged an error, unless at least *usual_share* of the service's do; later ones
    that blame another service; and later ones without an error where all logged one before.
    """
    normal, request = pl.col("period") == "normal", requests.columns
    errors = lines.filter("error").select(*request, "statement", "blames").unique([*request, "statement"])
    served = requests.filter(normal).group_by("service").len("all")
    always = (
        errors.filter(normal)
        .group_by("service", "statement")
        .len()
        .join(served, on="service")
        .filter(pl.col("len") >= usual_share * pl.col("all"))
        .select("service", "statement")
    )
    odd = errors.filter(normal).join(always, on=["service", "statement"], how="anti")
    blaming = errors.filter(~normal & pl.col("blames"))
    cured = requests.filter(~normal).join(always, on="service").join(errors, on=[*request, "statement"], how="anti")
    return pl.concat([part.select(request) for part in (odd, blaming, cured)]).unique()


def _habits_in_spans(lines: pl.DataFrame) -> pl.DataFrame:
    """Return for each statement in a span whether its usual next statement (or END) followed: columns _COLUMNS."""
    span = ["service", "period", "trace", "span"]
    following = pl.col("statement", "time_ns", "error").shift(-1).over(span).name.prefix("next_")
    pairs = lines.sort("time_ns", maintain_order=True).with_columns(following)
    pairs = pairs.with_columns(follows=pl.col("next_statement").fill_null(END))
    usual = (
        pairs.filter((pl.col("period") == "normal") & ~pl.col("next_error").fill_null(value=False))
        .group_by("service", "statement", usual="follows")
        .len()
        .sort("len", "usual", descending=[True, False])
        .unique(["service", "statement"], keep="first", maintain_order=True)
        .drop("len")
    )
    return (
        pairs.join(usual, on=["service", "statement"], how="inner")
        .group_by(*span, "statement", "usual")
        .agg(
            at_ns=pl.col("time_ns").min(),
            kept=(pl.col("follows") == pl.col("usual")).all(),
            broke_ns=pl.coalesce("next_time_ns", "end_ns").filter(pl.col("follows") != pl.col("usual")).min(),
        )
        .select(_COLUMNS)
    )


def _habits_in_requests(lines: pl.DataFrame, served: pl.DataFrame) -> pl.DataFrame:
    """Return a row per request and statement that its operation usually logs: whether it did; columns _COLUMNS."""
    request = ["service", "period", "trace"]
    requests = served.group_by(*request, "node").agg(broke_ns=pl.col("end_ns").max(), at_ns=pl.col("end_ns").min())
    logged = lines.filter(~pl.col("error")).select(*request, usual="statement").unique()
    before = requests.filter(pl.col("period") == "normal").join(logged, on=request, how="inner")
    asked = requests.join(before.select("service", "node", "usual").unique(), on=["service", "node"], how="inner")
    kept = logged.with_columns(kept=pl.lit(value=True))
    asked = asked.join(kept, on=[*request, "usual"], how="left").with_columns(
        pl.col("kept").fill_null(value=False), statement=pl.col("node").cast(pl.String)
    )
    return asked.with_columns(broke_ns=pl.when(~pl.col("kept")).then("broke_ns")).select(_COLUMNS)


def _broken_habits(
    followed: pl.DataFrame, usual_share: Mapping[str, float], limits: StatementThresholds
) -> pl.DataFrame:
    """Return the usual log lines missing more often than by chance: _HABIT, before, now (shares written), p.

    *usual_share* is service to how often such lines are missing at other services.
    """
    normal = pl.col("period") == "normal"
    at = pl.col("at_ns")
    broken = ~normal & ~pl.col("kept")
    meanwhile = ~normal & at.is_between(at.filter(broken).min(), at.filter(broken).max())
    table = (
        followed.filter(pl.col("service").is_in(list(usual_share)))
        .group_by(_HABIT)
        .agg(
            n0=normal.sum(),
            k0=(normal & pl.col("kept")).sum(),
            n=(~normal).sum(),
            k=(~normal & pl.col("kept")).sum(),
            lasting=1 - pl.col("kept").filter(meanwhile).mean(),
        )
        .filter((pl.col("n0") >= limits.least_spans) & (pl.col("n") > 0))
        .sort(_HABIT)
    )
    n0, k0, n, k = (table.get_column(c).to_numpy().astype(float) for c in ("n0", "k0", "n", "k"))
    rate = np.array([max(usual_share[service], limits.least_rate) for service in table.get_column("service")])
    prior = limits.prior_spans
    chance = beta_binomial_at_least(n - k, n, n0 - k0 + prior * rate, k0 + prior * (1 - rate))
    shares = {"before": pl.col("k0") / pl.col("n0"), "now": pl.col("k") / pl.col("n")}
    beyond = (pl.col("p") * pl.len().over("service") < limits.chance) & (pl.col("lasting") >= limits.lasting)
    return table.with_columns(**shares, p=pl.Series(chance, dtype=pl.Float64)).filter(beyond)
