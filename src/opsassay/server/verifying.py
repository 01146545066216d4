"""Checking a copy of the chain of events, by anybody who has it and the public key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opsassay.core.errors import UserError
from opsassay.core.schema.json_lines import whole_lines
from opsassay.server.events import ChainReport, verify_chain

_FIELDS = frozenset({"seq", "time_ns", "kind", "subject", "body", "previous", "hash", "signature"})


def read_chain(path: Path) -> list[dict[str, Any]]:
    """Return the events in *path*, index.jsonl of a platform's folder or an answer of /api/events; raises UserError."""
    content = path.read_bytes()
    found: list[Any]
    try:
        answer = json.loads(content)
        found = answer["items"] if isinstance(answer, dict) and isinstance(answer.get("items"), list) else []
    except ValueError:
        lines = list(whole_lines(content))
        found = [line.get("row") for line in lines if isinstance(line, dict) and line.get("table") == "events"]
    if not found or not all(isinstance(one, dict) and one.keys() >= _FIELDS for one in found):
        raise UserError(f"{path} holds no events; give a platform's index.jsonl, or an answer of /api/events.")
    return list({one["seq"]: one for one in found}.values())


def verify_file(events: list[dict[str, Any]], key: str, end: str | None) -> ChainReport:
    """Check *events* against the public *key*, and that *end*, if one is known, is among their hashes; raises UserError."""
    try:
        if len(bytes.fromhex(key)) != 32:
            raise ValueError(key)
    except ValueError as error:
        raise UserError("The key has 64 hexadecimal digits; /api/events/key says it.") from error
    report = verify_chain(events, key)
    if report.problem is None and end is not None and end not in {event["hash"] for event in events}:
        return ChainReport(report.events, report.end, "the end that you know is not in this chain: it is another one")
    return report
