"""Tokens that agents use instead of the real API key; they attribute each request to its session.

``DIR/tokens.jsonl`` stores their hashes only.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

from opsassay.core.schema.json_lines import append_object, read_json_lines
from opsassay.core.schema.locks import folder_lock
from opsassay.solvers.proxy.record import session_folder

TOKENS = "tokens.jsonl"


def issue_token(directory: Path, session: str) -> str:
    """Return a new token for *session*, its hash kept in *directory*; raises UserError for a name no file can have."""
    session_folder(directory, session)
    token = f"opsassay-{secrets.token_urlsafe(24)}"
    directory.mkdir(parents=True, exist_ok=True)
    with folder_lock(directory, name=".tokens.lock"):
        append_object(directory / TOKENS, {"sha256": _hash_token(token), "session": session}, durable=True)
    return token


class Tokens:
    """The tokens issued for *directory*, including those issued while the proxy runs."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / TOKENS
        self._sessions: dict[str, str] = {}
        self._by_token: dict[str, str] = {}
        self._read_ns = -1

    def session_of(self, token: str) -> str | None:
        """Return the session that *token* was issued for, None for an unknown token."""
        if token in self._by_token:
            return self._by_token[token]
        self._read_when_changed()
        session = self._sessions.get(_hash_token(token))
        if session is not None:
            self._by_token[token] = session
        return session

    def _read_when_changed(self) -> None:
        """Read the token file again if its modification time changed."""
        if not self._path.exists() or (changed_ns := self._path.stat().st_mtime_ns) == self._read_ns:
            return
        self._sessions = {entry["sha256"]: entry["session"] for entry in read_json_lines(self._path)}
        self._read_ns = changed_ns


def _hash_token(token: str) -> str:
    """Return the SHA-256 of *token* in hexadecimal."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
