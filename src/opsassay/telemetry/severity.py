"""The severity level of a log line, from its severity number or its text."""

from __future__ import annotations

import re

import polars as pl

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
"""Levels of the severity numbers 1 to 24, four each (OpenTelemetry logs data model, "Field: SeverityNumber")."""

_ERRORS = {
    **dict.fromkeys(("ERR", "SEVERE", "E", "50"), "ERROR"),
    **dict.fromkeys(("CRITICAL", "CRIT", "ALERT", "EMERG", "EMERGENCY", "PANIC", "DPANIC", "F", "60"), "FATAL"),
}
"""Words for errors in syslog, journald, java.util.logging, glog and zap, and numbers of pino and bunyan."""

_OTHER_WORDS = {
    **_ERRORS,
    **dict.fromkeys(("WARNING", "W", "40"), "WARN"),
    **dict.fromkeys(("INFORMATION", "INFORMATIONAL", "NOTICE", "I", "30"), "INFO"),
    **dict.fromkeys(("FINE", "FINER", "D", "20"), "DEBUG"),
    **dict.fromkeys(("FINEST", "VERBOSE", "10"), "TRACE"),
}
"""Words and numbers for all levels, those of .NET too."""

ERROR_LEVELS = ("ERROR", "FATAL", *_ERRORS)
"""Levels, in capital letters, of a log line that reports a failure."""

_AROUND = r"^[\s\[(<]*(?:SEVERITY_NUMBER_)?(?:(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)[234]?|(.*?))[\s\])>:]*$"
"""A level in capital letters with brackets around it, or as OpenTelemetry names the numbers (ERROR2)."""

WORD = r"(?i)\b(TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL|SEVERE)\b"
"""A level in the message of a line without one; "err", "alert" and "panic" are left out, as common words."""


def level_of(number: int, text: str) -> str:
    """Return the level (INFO, WARN, ...) for the OTLP severity *number* 1 to 24, else for the severity *text*."""
    word = re.sub(_AROUND, r"\1\2", text.upper())
    return LEVELS[(number - 1) // 4] if 1 <= number <= 24 else _OTHER_WORDS.get(word, word)


def levels(number: pl.Expr, text: pl.Expr) -> pl.Expr:
    """Return `level_of` as an expression over columns of severity numbers (as text) and texts; INFO if neither is known."""
    fours = (number.cast(pl.Int64, strict=False) - 1) // 4
    word = text.str.to_uppercase().str.replace(_AROUND, "${1}${2}").replace({"": None, **_OTHER_WORDS})
    return pl.coalesce(
        fours.replace_strict(dict(enumerate(LEVELS)), default=None, return_dtype=pl.String()), word, pl.lit("INFO")
    )
