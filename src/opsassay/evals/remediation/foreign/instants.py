"""Reads instants in foreign records: seconds since 1970 as a number, or RFC 3339 text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def instant_ns(value: Any) -> int:
    """Return *value* (seconds since 1970 or RFC 3339 text) as ns of UTC, without a zone as UTC. Raises ValueError."""
    try:
        ns = round(float(value) * 1e9)
    except (ValueError, OverflowError, TypeError):
        moment = datetime.fromisoformat(str(value).strip())
    else:
        if abs(ns) >= 2**63:
            raise ValueError(f"{value} is no instant of a clock")
        return ns
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e6) * 1000
