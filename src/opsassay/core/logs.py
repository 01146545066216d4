"""Structured logs of processes that run without a person: one JSON object a line, plain words on a terminal.

A line holds time, level, logger, process (its name in its system), system, event (what happened, in words), the fields of
the event, and with an unexpected error its traceback in the field ``error``. `configure` is called once in each process; a
library that logs in one where nobody did says nothing. The variable OPSASSAY_LOG sets the least level that is written:
debug, info (the default), warning or error.
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
"""The variable by which processes of a local system know it: its folder, named after it."""

FILE_BYTES = 2**20
"""The cap of a log that a process writes to a file of its own; twice that with the one before it."""


class Log:
    """Writes what happens in the module *name*: an event in words, and its fields by name."""

    def __init__(self, name: str) -> None:
        spec = getattr(sys.modules["__main__"], "__spec__", None) if name == "__main__" else None
        self._logger = logging.getLogger(spec.name if spec else name)

    def debug(self, event: str, **fields: Any) -> None:
        """Write *event* and *fields* as a log entry for people who look for a defect."""
        self._write_event(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Write *event* and *fields* as a log entry for operators."""
        self._write_event(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Write *event* and *fields* as a log entry of something wrong that does not end the work."""
        self._write_event(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Write *event* and *fields* as a log entry of a failure that ended some work."""
        self._write_event(logging.ERROR, event, fields)

    def exception(self, event: str, error: BaseException, **fields: Any) -> None:
        """Write an unexpected *error* with its traceback."""
        self._write_event(logging.ERROR, event, fields | {"error": "".join(traceback.format_exception(error)).rstrip()})

    def _write_event(self, level: int, event: str, fields: dict[str, Any]) -> None:
        """Log *event* with *fields* at *level*, if logging was set up."""
        if logging.root.handlers and self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields})


class JsonForm(logging.Formatter):
    """Writes a record as one line of JSON."""

    def __init__(self, process: str, system: str) -> None:
        super().__init__()
        self._whose = {"process": process, "system": system}

    def format(self, record: logging.LogRecord) -> str:
        """Return *record* as one line of JSON."""
        return json.dumps(self.entry(record), default=str)

    def entry(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the fields of *record* that its line of JSON holds."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = dict(getattr(record, "fields", {}))
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        head = {"time": at, "level": record.levelname.lower(), "logger": record.name, **self._whose}
        return {**head, "event": record.getMessage(), **{name: fields[name] for name in fields if name not in head}}


class ConsoleForm(JsonForm):
    """Writes a record for a person."""

    def format(self, record: logging.LogRecord) -> str:
        """Return *record* as a line for people: time, level, process, event and fields."""
        entry = self.entry(record)
        return f"{entry['time'][11:23]} {entry['level']:7} {entry['process']}: {in_words(entry)}"


def configure(process: str, system: str | None = None, file: str | None = None) -> None:
    """Set up the logs of this process, called *process*, on standard error; replaces what was set up before.

    Of other libraries warnings and errors are written. *system* defaults to the one of the environment. With a *file* lines
    go there instead: when it has FILE_BYTES, it becomes ``FILE.1`` and a new one begins.
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
    """Return the fields of *line* of a log; None for a line that another program wrote."""
    if not line.startswith('{"time": '):
        return None
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and {"time", "level", "event"} <= entry.keys() else None


def last_words(text: str) -> str:
    """Return the last line of the log *text* that is no log entry, as a failed process leaves it; '' without one."""
    return next((line for line in reversed(text.strip().splitlines()) if line and parsed(line) is None), "")


def readable(text: str) -> list[str]:
    """Return the lines of the log *text*, each JSON entry as a sentence."""
    words = (in_words(entry) if (entry := parsed(line)) else line for line in text.splitlines())
    return "\n".join(words).splitlines()


def in_words(entry: dict[str, Any]) -> str:
    """Return event and fields of a log *entry* as text, a traceback on lines of its own."""
    payload = ("time", "level", "logger", "process", "system", "event", "error")
    fields = " ".join(f"{name}={value}" for name, value in entry.items() if name not in payload)
    words = f"{entry['event']} ({fields})" if fields else str(entry["event"])
    return f"{words}\n{entry['error']}" if entry.get("error") else words
