"""The log of events, a hash chain: each event has the hash of its predecessor and a signature; also its verification.

The ed25519 public key is at ``/api/events/key``; with a copy of the chain's last hash, anybody can later verify that no
earlier event was changed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import Connection, func, insert, select, text

from opsassay.core.errors import UserError
from opsassay.core.schema.json_lines import whole_lines
from opsassay.server.database import EVENTS

FIRST = "0" * 64
"""The predecessor's hash of the first event."""
_LOCK = 0x0A55A901
KEY_FILE = "events.key"


@dataclass(frozen=True)
class Signer:
    """The private key with which a platform signs events."""

    key: Ed25519PrivateKey

    @classmethod
    def from_folder(cls, state: Path) -> Signer:
        """Return the signing key in the folder *state*; make it, readable by the owner only, if missing."""
        path = state / KEY_FILE
        try:
            return cls(Ed25519PrivateKey.from_private_bytes(path.read_bytes()))
        except FileNotFoundError:
            key = Ed25519PrivateKey.generate()
            path.touch(mode=0o600, exist_ok=False)
            path.write_bytes(key.private_bytes_raw())
            return cls(key)

    @property
    def public_hex(self) -> str:
        """The public key, in hexadecimal digits."""
        return self.key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw).hex()


@dataclass(frozen=True)
class ChainReport:
    """The result of a verification: number of good *events*, the last good hash (*end*), and the first *problem*."""

    events: int
    end: str
    problem: str | None = None


@contextmanager
def chained(connection: Connection, signer: Signer) -> Iterator[None]:
    """Append the events that the block passes to `append` to the signed chain, at its end and before the commit.

    The chain's lock is held only from then until the commit.
    """
    pending: list[tuple[str, str, str]] = []
    connection.execution_options(opsassay_events=pending)
    yield
    if pending:
        _write_events(connection, signer, pending)


def append(connection: Connection, kind: str, subject: str, body: Mapping[str, Any]) -> None:
    """Record an event of *kind* on *subject* (id, name) for `chained`, which writes it later; *body* is JSON data."""
    connection.get_execution_options()["opsassay_events"].append((kind, subject, _canonical_json(body)))


def _write_events(connection: Connection, signer: Signer, pending: Iterable[tuple[str, str, str]]) -> None:
    """Append *pending* (kind, subject, body) to the log, each with the hash of its predecessor and a signature."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    last = connection.execute(select(EVENTS.c.seq, EVENTS.c.hash).order_by(EVENTS.c.seq.desc()).limit(1)).first()
    before, previous = (last.seq, last.hash) if last else (0, FIRST)
    rows = []
    for seq, (kind, subject, body) in enumerate(pending, before + 1):
        event = {"seq": seq, "time_ns": time.time_ns(), "kind": kind, "subject": subject, "body": body}
        digest = hash_of(event, previous)
        signature = signer.key.sign(bytes.fromhex(digest)).hex()
        rows.append({**event, "previous": previous, "hash": digest, "signature": signature})
        previous = digest
    connection.execute(insert(EVENTS), rows)


def hash_of(event: Mapping[str, Any], previous: str) -> str:
    """Return the hash of *event* (seq, time_ns, kind, subject, body) and of its predecessor's hash *previous*."""
    fields = [previous, event["seq"], event["time_ns"], event["kind"], event["subject"], event["body"]]
    return hashlib.sha256(_canonical_json(fields).encode()).hexdigest()


def verify_chain(events: Iterable[Mapping[str, Any]], public_hex: str) -> ChainReport:
    """Check hashes, order and signatures of *events*, public key in hexadecimal; stop at the first wrong one."""
    key, previous, count = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_hex)), FIRST, 0
    for event in events:
        where = f"event {event['seq']}"
        if event["seq"] != count + 1:
            return ChainReport(count, previous, f"{where} follows event {count}: events between them are gone")
        if event["previous"] != previous or event["hash"] != hash_of(event, previous):
            return ChainReport(count, previous, f"{where} was changed: its hash is not that of what it says")
        try:
            key.verify(bytes.fromhex(event["signature"]), bytes.fromhex(event["hash"]))
        except (InvalidSignature, ValueError):
            return ChainReport(count, previous, f"{where} was not signed by this platform's key")
        count, previous = event["seq"], event["hash"]
    return ChainReport(count, previous)


def read_events(connection: Connection, after_seq: int = 0, most_events: int = 1000) -> list[dict[str, Any]]:
    """Return up to *most_events* events with numbers above *after_seq*, in order, as dicts."""
    rows = connection.execute(select(EVENTS).where(EVENTS.c.seq > after_seq).order_by(EVENTS.c.seq).limit(most_events))
    return [dict(row._mapping) for row in rows]  # noqa: SLF001 - the documented way to the columns by name


def last_event(connection: Connection) -> int:
    """Return the number of the last event in the database, 0 when there is none."""
    return int(connection.execute(select(func.coalesce(func.max(EVENTS.c.seq), 0))).scalar_one())


def _canonical_json(value: Any) -> str:
    """Return *value* as JSON with sorted keys, no spaces and ASCII characters only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


_FIELDS = frozenset({"seq", "time_ns", "kind", "subject", "body", "previous", "hash", "signature"})


def read_chain(path: Path) -> list[dict[str, Any]]:
    """Return the events in *path*, an index.jsonl or a response of /api/events; raises UserError."""
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


def verify_file(events: list[dict[str, Any]], key: str, end_hash: str | None) -> ChainReport:
    """Check *events* by the public *key* (hexadecimal), and that *end_hash*, if given, is in them; raises UserError."""
    try:
        if len(bytes.fromhex(key)) != 32:
            raise ValueError(key)
    except ValueError as error:
        raise UserError("The key has 64 hexadecimal digits; /api/events/key says it.") from error
    report = verify_chain(events, key)
    if report.problem is None and end_hash is not None and end_hash not in {event["hash"] for event in events}:
        return ChainReport(report.events, report.end, "the end that you know is not in this chain: it is another one")
    return report
