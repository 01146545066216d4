"""The logs of a datapack as Loki's streams: labels, structured metadata, and lines with times in nanoseconds.

As in Loki's intake of OTLP logs, service, level and Kubernetes names are labels of the stream, by which it is selected;
other attributes of an entry, such as ``trace_id``, are its structured metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from opsassay.telemetry.backends.matching import Matcher
from opsassay.telemetry.backends.naming import apart, otlp_label_name
from opsassay.telemetry.backends.promql.values import Present
from opsassay.telemetry.backends.series import Labels, Times
from opsassay.telemetry.backends.views import View

_NO_LABELS = {"time", "message", "period"}
_KEY, _NUMBER, _DETECTED = "label:", "number:", "detected_level"
_LEVELS = ("trace", "debug", "info", "warn", "error", "critical", "fatal")


@dataclass(frozen=True)
class LogStore:
    """All entries in order of time: *ns*, *lines*, and *owners*, the row of *sets* with the labels of each entry.

    *sets* has a column for each label, null where it is absent; *stream_names* are those that are labels of the stream.
    """

    sets: pl.DataFrame
    stream_names: frozenset[str]
    owners: Times
    ns: Times
    lines: pl.Series

    def labels(self, row: int) -> Labels:
        """Return the labels, structured metadata included, of the label set at *row* of the table `sets`."""
        return _labels_of_row(self.sets.row(row, named=True))

    def streams(self, rows: Times) -> list[Labels]:
        """Return the distinct stream labels of the label sets at *rows* of the table `sets`."""
        return self.grouped(rows, self.stream_names)[0]

    def grouped(self, set_rows: Times, names: Collection[str]) -> tuple[list[Labels], Times]:
        """Group *set_rows*, rows of `sets`, by the labels *names*; return (labels of each group, group of each row)."""
        kept = [name for name in self.sets.columns if name in names]
        if not kept:
            return [{}] if len(set_rows) else [], np.zeros(len(set_rows), dtype=np.int64)
        rows = self.sets.select(kept)[set_rows]
        distinct = rows.unique(maintain_order=True).with_row_index(_NUMBER)
        numbers = rows.join(distinct, on=kept, how="left", nulls_equal=True, maintain_order="left")[_NUMBER]
        return [_labels_of_row(row) for row in distinct.drop(_NUMBER).iter_rows(named=True)], numbers.to_numpy().astype(
            np.int64
        )

    def fitting(self, matchers: Iterable[Matcher], *, of_stream: bool) -> Present:
        """Return which rows of `sets` match all *matchers*, by stream labels alone with *of_stream*; raises RegexError."""
        fits = np.ones(self.sets.height, dtype=bool)
        for matcher in matchers:
            fits &= self._test_texts(matcher.name, matcher.test, of_stream=of_stream)
        return fits

    def _test_texts(
        self, name: str, make_test: Callable[[Iterable[str]], Callable[[str], bool]], *, of_stream: bool
    ) -> Present:
        """Return for each row of `sets` whether its label *name* passes the test that *make_test* returns.

        With *of_stream*, labels that are not of the stream count as missing.
        """
        if name not in self.sets.columns or (of_stream and name not in self.stream_names):
            return np.full(self.sets.height, make_test([""])(""))
        texts = self.sets[name].fill_null("")
        test = make_test(distinct := texts.unique().to_list())
        return texts.is_in([text for text in distinct if test(text)]).to_numpy().astype(bool)

    def between(self, start_ns: int, end_ns: int) -> slice:
        """Return the slice of the log entries with times in [*start_ns*, *end_ns*)."""
        low, high = np.searchsorted(self.ns, np.array([start_ns, end_ns], dtype=np.int64), side="left").tolist()
        return slice(low, max(low, high))


def read_logs(view: View) -> LogStore:
    """Return the log tables of *view* as a store of Loki's streams; raises DatapackError when a table is damaged."""
    frame = view.rows("logs")
    schema = frame.collect_schema()
    columns = [name for name in schema.names() if name not in _NO_LABELS and not schema[name].is_nested()]
    named = dict(zip(columns, apart(otlp_label_name(column) for column in columns), strict=True))
    keys = [f"{_KEY}{name}" for name in named.values()]
    selected = frame.select(
        pl.col("time").dt.epoch("ns").alias("ns"),
        pl.col("message").fill_null("").alias("line"),
        *(_text_or_null(column).alias(f"{_KEY}{name}") for column, name in named.items()),
    )
    rows = view.collect(selected, "logs").drop_nulls(["ns"]).sort("ns", maintain_order=True)
    if _DETECTED not in named.values():
        rows = rows.with_columns(_detected_level().alias(f"{_KEY}{_DETECTED}"))
        keys.append(f"{_KEY}{_DETECTED}")
    sets = rows.select(keys).unique(maintain_order=True).with_row_index("set")
    owners = rows.join(sets, on=keys, how="left", nulls_equal=True, maintain_order="left")["set"]
    return LogStore(
        sets.select(pl.col(key).alias(key.removeprefix(_KEY)) for key in keys),
        frozenset(name for column, name in named.items() if _names_stream(column)),
        owners.to_numpy().astype(np.int64),
        rows["ns"].to_numpy().astype(np.int64),
        rows["line"],
    )


def _detected_level() -> pl.Expr:
    """Return the expression for Loki's label ``detected_level``: the entry's level in Loki's spelling, else "unknown"."""
    level = (
        pl.col(f"{_KEY}level").str.to_lowercase().replace({"warning": "warn", "err": "error", "information": "info"})
    )
    return pl.when(level.is_in(_LEVELS)).then(level).otherwise(pl.lit("unknown"))


def _labels_of_row(row: Mapping[str, str | None]) -> Labels:
    """Return the label set in *row*: its columns with a text, sorted by name."""
    return {name: value for name, value in sorted(row.items()) if value}


def _text_or_null(column: str) -> pl.Expr:
    """Return the expression for *column* as text, null for ''."""
    text = pl.col(column).cast(pl.String, strict=False)
    return pl.when(text != "").then(text)


def _names_stream(column: str) -> bool:
    """Return whether Loki makes the table's *column* a label of streams, not structured metadata."""
    return column in {"service_name", "level"} or column.startswith("attr.k8s.")
