"""Structured logs of background processes: one JSON object per line, plain text on a terminal.

A line has time, level, logger, process, system, event (in words), the event's fields, and in ``error`` the traceback of an
unexpected error. Each process calls `configure` once; without it nothing is logged. The variable OPSASSAY_LOG sets the
lowest level that is written: debug, info (the default), warning or error.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

LEVELS = ("debug", "info", "warning", "error")
ROOT = "opsassay"
SYSTEM = "OPSASSAY_SYSTEM"
"""The environment variable with the folder of the local system that a process belongs to."""

FILE_BYTES = 2**20
"""Bytes at which a process's log file is renamed and begun again; the file before it stays."""


class Log:
    """Writes log entries of the module *name*: an event in words, and its fields by name."""

    def __init__(self, name: str) -> None:
        spec = getattr(sys.modules["__main__"], "__spec__", None) if name == "__main__" else None
        self._logger = logging.getLogger(spec.name if spec else name)

    def debug(self, event: str, **fields: Any) -> None:
        """Write a log entry of level debug: the text *event* and its *fields*."""
        self._write_event(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Write a log entry of level info: the text *event* and its *fields*."""
        self._write_event(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Write a log entry of level warning, for a problem that does not end the work: *event* and its *fields*."""
        self._write_event(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Write a log entry of level error, for a failure that ended some work: *event* and its *fields*."""
        self._write_event(logging.ERROR, event, fields)

    def exception(self, event: str, error: BaseException, **fields: Any) -> None:
        """Write a log entry of level error for an unexpected *error*, with its traceback in the field "error"."""
        self._write_event(logging.ERROR, event, fields | {"error": "".join(traceback.format_exception(error)).rstrip()})

    def _write_event(self, level: int, event: str, fields: dict[str, Any]) -> None:
        """Write *event* and *fields* at *level* of `logging`; nothing before `configure` was called."""
        if logging.root.handlers and self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields})


class JsonForm(logging.Formatter):
    """Formats a log record as one line of JSON."""

    def __init__(self, process: str, system: str) -> None:
        super().__init__()
        self._whose = {"process": process, "system": system}

    def format(self, record: logging.LogRecord) -> str:
        """Return *record* as one line of JSON."""
        return json.dumps(self.entry(record), default=str)

    def entry(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return *record* as a mapping: time (ISO, UTC), level, logger, process and system, event, then its own fields."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = dict(getattr(record, "fields", {}))
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        head = {"time": at, "level": record.levelname.lower(), "logger": record.name, **self._whose}
        return {**head, "event": record.getMessage(), **{name: fields[name] for name in fields if name not in head}}


class ConsoleForm(JsonForm):
    """Formats a log record as text for a person."""

    def format(self, record: logging.LogRecord) -> str:
        """Return *record* as a line of text for a terminal: time, level, process, event and fields."""
        entry = self.entry(record)
        return f"{entry['time'][11:23]} {entry['level']:7} {entry['process']}: {in_words(entry)}"


def configure(process: str, system: str | None = None, file: str | None = None) -> None:
    """Log from now on to standard error, or to *file*, under the name *process*; earlier handlers are removed.

    The level is OPSASSAY_LOG (default info), for other libraries warning. Lines are JSON, on a terminal plain text.
    *system* is the name of the system in each line, by default that of the environment. At FILE_BYTES a *file* is
    renamed to ``FILE.1`` and begun again.
    """
    system = os.path.basename(os.environ.get(SYSTEM, "")) if system is None else system  # noqa: PTH119 - no pathlib here
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if file is not None:
        from logging.handlers import RotatingFileHandler

        handler = RotatingFileHandler(file, maxBytes=FILE_BYTES, backupCount=1)
    handler.setFormatter((ConsoleForm if file is None and sys.stderr.isatty() else JsonForm)(process, system))
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.WARNING)
    level = os.environ.get("OPSASSAY_LOG", "info").lower()
    logging.getLogger(ROOT).setLevel((level if level in LEVELS else "info").upper())
    if level not in LEVELS:
        Log(__name__).warning("OPSASSAY_LOG names no level", given=level, levels=", ".join(LEVELS))


def parsed(line: str) -> dict[str, Any] | None:
    """Return the JSON object in *line* if it is a log entry of ours; None for a line that another program wrote."""
    if not line.startswith('{"time": '):
        return None
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and {"time", "level", "event"} <= entry.keys() else None


def last_words(text: str) -> str:
    """Return the last line of the log *text* that is no entry of `Log`, such as the error of a dead process; '' without."""
    return next((line for line in reversed(text.strip().splitlines()) if line and parsed(line) is None), "")


def readable(text: str) -> list[str]:
    """Return the lines of the log *text*, with each JSON entry turned into plain text by `in_words`."""
    words = (in_words(entry) if (entry := parsed(line)) else line for line in text.splitlines())
    return "\n".join(words).splitlines()


def in_words(entry: dict[str, Any]) -> str:
    """Return a log *entry* as "event (field=value ...)", followed by its traceback, if any, on lines of its own."""
    payload = ("time", "level", "logger", "process", "system", "event", "error")
    fields = " ".join(f"{name}={value}" for name, value in entry.items() if name not in payload)
    words = f"{entry['event']} ({fields})" if fields else str(entry["event"])
    return f"{words}\n{entry['error']}" if entry.get("error") else words
