"""Log records of export requests as columns of a datapack's logs."""

from __future__ import annotations

from typing import Any

import polars as pl

from opsassay.telemetry.otlp.columns import Resources, hexadecimal, text, times
from opsassay.telemetry.schema import SCHEMA
from opsassay.telemetry.severity import level_of


class LogColumns:
    """Collects export requests of logs into batches of the datapack schema."""

    def __init__(self) -> None:
        self._resources = Resources("logs")
        self._clear_rows()

    def _clear_rows(self) -> None:
        """Drop all collected rows."""
        self.rows = 0
        self._resource: list[int] = []
        self._times: list[int] = []
        self._trace_ids: list[bytes] = []
        self._span_ids: list[bytes] = []
        self._levels: list[str] = []
        self._messages: list[str] = []

    def add(self, request: Any, received_ns: int) -> None:
        """Add every record of an ExportLogsServiceRequest; one without any time gets *received_ns* (ns of UTC)."""
        for group in request.resource_logs:
            number = self._resources.number(group.resource)
            for scope in group.scope_logs:
                records = list(scope.log_records)
                self.rows += len(records)
                self._resource += [number] * len(records)
                self._times += [r.time_unix_nano or r.observed_time_unix_nano or received_ns for r in records]
                self._trace_ids += [record.trace_id for record in records]
                self._span_ids += [record.span_id for record in records]
                self._levels += [level_of(r.severity_number, r.severity_text) for r in records]
                self._messages += [text(record.body) or "" for record in records]

    def take(self) -> pl.DataFrame:
        """Return the collected records as a logs table, and drop them here."""
        own = {
            "time": times(self._times),
            "trace_id": hexadecimal(self._trace_ids),
            "span_id": hexadecimal(self._span_ids),
            "level": pl.Series(self._levels, dtype=pl.String()),
            "message": pl.Series(self._messages, dtype=pl.String()),
            **self._resources.source_columns(self._resource),
        }
        self._clear_rows()
        return pl.DataFrame({name: own[name] for name in SCHEMA["logs"]})
