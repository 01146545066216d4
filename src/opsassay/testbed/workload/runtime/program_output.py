"""What a program writes, as log records: JSON lines by their fields, other lines by the level that they name."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

LEVELS = {"TRACE": 1, "DEBUG": 5, "INFO": 9, "WARN": 13, "ERROR": 17, "FATAL": 21}
"""Severity numbers of OpenTelemetry's log data model."""
OTHER_NAMES = {
    "WARNING": "WARN", "ERR": "ERROR", "CRITICAL": "FATAL", "CRIT": "FATAL", "EMERG": "FATAL", "ALERT": "FATAL",
    "PANIC": "FATAL", "NOTICE": "INFO", "LOG": "INFO", "DBG": "DEBUG", "INF": "INFO", "WRN": "WARN",
}  # fmt: skip
LEVEL_FIELDS = ("level", "severity", "levelname", "lvl", "log.level", "severity_text")
BODY_FIELDS = ("msg", "message", "event", "body", "text")
TRACE_FIELDS = ("trace_id", "traceId", "traceID", "otelTraceID")
SPAN_FIELDS = ("span_id", "spanId", "spanID", "otelSpanID")
FAILURES = re.compile(r"^(Traceback \(most recent call last\)|panic: |Uncaught |[A-Za-z.]*(Error|Exception)\b[:\s])")
_WORD = re.compile(rf"\b({'|'.join([*LEVELS, *OTHER_NAMES])})\b")
_LEVEL_PREFIX_CHARS = 80


@dataclass(frozen=True)
class OutputLine:
    """One line: its severity *number* and *level*, its *body*, and the ids of its trace and span, 0 without them."""

    number: int
    level: str
    body: str
    trace_id: int = 0
    span_id: int = 0


def read_line(line: str) -> OutputLine:
    """Return level, text and trace ids of *line*, JSON or plain; without a level, ERROR if it looks like a failure."""
    fields = _parse_object(line)
    if fields is None:
        found = _WORD.search(line[:_LEVEL_PREFIX_CHARS])
        level = OTHER_NAMES.get(found[1], found[1]) if found else "ERROR" if FAILURES.match(line) else "INFO"
        return OutputLine(LEVELS[level], level, line)
    level = next((_level(fields[name]) for name in LEVEL_FIELDS if name in fields), "INFO")
    body = next((str(fields[name]) for name in BODY_FIELDS if name in fields), line)
    trace_id, span_id = (_parse_identifier(fields, names) for names in (TRACE_FIELDS, SPAN_FIELDS))
    return OutputLine(LEVELS[level], level, body, trace_id, span_id)


def _parse_object(line: str) -> dict[str, Any] | None:
    """Return the JSON object in *line*, None for anything else."""
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _level(value: Any) -> str:
    """Return the log level for *value*, a name or a number of pino or bunyan (10 is trace, 60 is fatal); else INFO."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        names = list(LEVELS)
        return names[min(max(int(value) // 10 - 1, 0), len(names) - 1)]
    name = str(value).upper()
    name = OTHER_NAMES.get(name, name)
    return name if name in LEVELS else "INFO"


def _parse_identifier(fields: dict[str, Any], names: tuple[str, ...]) -> int:
    """Return the first present field of *names* as a hexadecimal number, 0 without one or if it is not one."""
    text = next((str(fields[name]) for name in names if name in fields), "")
    try:
        return int(text, 16) if text else 0
    except ValueError:
        return 0
