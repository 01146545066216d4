"""The ledger's writer: truth side, one append-only file of JSON lines per process.

A line is written when a fault did something: ``kind`` is what (delay, error, packet_delay, wait), ``ns`` how much,
``trace_id`` and ``span_id`` where in the traces, ``callee`` for whom a caller waited; and when a caller gave up on a callee
(gave_up) that had no time to say what it was busy with, or was failed by one that gave up. No solver and no annotator
reads it; it is how both are checked.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

GAVE_UP = "gave_up"
LOAD_RECORD = "load.jsonl"
"""The load generator's own record lies in the same folder; it is no part of the ledger."""


class LedgerWriter:
    """Appends lines to *path* for the process *process*; a line is with the operating system when write returns.

    A line that cannot be written (a full disk) is *lost* and counted: the account has a gap, but the process goes on as it
    would without one.
    """

    def __init__(self, path: str, process: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._process = process
        self._torn = False
        self.lost = 0

    def write(self, kind: str, ids: Mapping[str, str] | None = None, *, ns: int = 0, **fields: Any) -> None:
        """Append a line: a fault's effect of *kind* (delay, error), with the span's *ids*, delay *ns*, and *fields*."""
        line = {"time_ns": time.time_ns(), "process": self._process, "kind": kind, "ns": ns, **(ids or {}), **fields}
        text = b"\n" * self._torn + json.dumps(line, separators=(",", ":")).encode() + b"\n"
        try:
            written = os.write(self._descriptor, text)
        except OSError:
            self.lost += 1
            return
        self._torn = written < len(text)  # the rest did not fit: the next line begins anew
        self.lost += self._torn
