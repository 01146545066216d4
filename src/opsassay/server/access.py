"""Users with a role and a token, of which the database has the hash, and the tokens of single entries.

Tokens of entries are derived from the platform's key and not stored.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, insert, select, update

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.server.database import USERS
from opsassay.server.events import Signer
from opsassay.server.index import note

PREFIX = "ops_"
ROLES = ("admin", "owner", "author", "runner")
"""admin: everything; owner: own agents and their benchmarks; author: own task sets; runner: cells and their results."""
MOST_UPLOADS = 100
"""Most uploads per user, of agents and of versions of task sets each."""


class ForbiddenError(OpsAssayError):
    """The user may not have the object; the message does not tell whether it exists."""


@dataclass(frozen=True)
class User:
    """The user of a request."""

    id: str
    name: str
    role: str

    def require(self, *roles: str) -> None:
        """Raise ForbiddenError unless the user is an admin or has one of *roles*."""
        if self.role != "admin" and self.role not in roles:
            raise ForbiddenError(f"This needs a token of the role {' or '.join(roles) or 'admin'}.")

    def owns(self, owner_id: str) -> bool:
        """Return whether this user is *owner_id* or an admin, and so may see that owner's objects."""
        return self.role == "admin" or self.id == owner_id

    def require_uploads_left(self, count: int, what: str) -> None:
        """Raise UserError when this user is no admin and *count* uploads of *what* (a plural noun) reach the limit."""
        if self.role != "admin" and count >= MOST_UPLOADS:
            raise UserError(
                f"You have handed in {count} {what}, which are all that an owner may, for they are kept; use those, or "
                "ask its administrator."
            )


def new_id() -> str:
    """Return a new random id."""
    return secrets.token_hex(8)


def add_user(connection: Connection, state: Path, name: str, role: str, days: float | None = None) -> str:
    """Create a user, noted in the folder *state*; return a token, valid for *days* (None: always); raises UserError."""
    if role not in ROLES:
        raise UserError(f"There is no role {role!r}; choose one of {', '.join(ROLES)}.")
    if connection.execute(select(USERS.c.id).where(USERS.c.name == name)).first():
        raise UserError(f"There is a user {name!r} already; choose another name, or renew the token.")
    token = PREFIX + secrets.token_urlsafe(24)
    row = {"id": new_id(), "name": name, "role": role, "created_ns": time.time_ns(), **_make_token_row(token, days)}
    connection.execute(insert(USERS).values(**row))
    note(state, "users", [row])
    return token


def renew_token(connection: Connection, state: Path, name: str) -> str:
    """Replace the token of the user *name*, note that in the folder *state*, return the token; raises UserError."""
    token = PREFIX + secrets.token_urlsafe(24)
    changed = update(USERS).where(USERS.c.name == name).values(**_make_token_row(token, None)).returning(USERS)
    row = connection.execute(changed).mappings().first()
    if row is None:
        raise UserError(f"There is no user {name!r}.")
    note(state, "users", [dict(row)])
    return token


def user_of(connection: Connection, token: str) -> User | None:
    """Return the user with *token*; None for an unknown or expired token."""
    row = connection.execute(select(USERS).where(USERS.c.token_hash == _hash_token(token))).first()
    if row is None or (row.expires_ns is not None and row.expires_ns < time.time_ns()):
        return None
    return User(row.id, row.name, row.role)


def _make_token_row(token: str, days: float | None) -> dict[str, str | int | None]:
    """Return the columns token_hash and expires_ns for *token*, valid for *days*; None means for ever."""
    expires_ns = None if days is None else time.time_ns() + int(days * 86_400e9)
    return {"token_hash": _hash_token(token), "expires_ns": expires_ns}


def _hash_token(token: str) -> str:
    """Return the SHA-256 of *token* in hexadecimal."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def entry_token(signer: Signer, cell: str) -> str:
    """Return the token of the agent that works on *cell* (one task and seed of a benchmark), for nothing else."""
    return _derive_token(signer, "entry", cell)


def relay_token(signer: Signer, cell: str) -> str:
    """Return the token, made by *signer*, of the relay that carries messages about *cell* to its agent elsewhere."""
    return _derive_token(signer, "relay", cell)


def is_token(token: str, signer: Signer, kind: str, cell: str) -> bool:
    """Return whether *token* is what *signer* makes for *cell* as the token of *kind* ("entry" or "relay")."""
    return hmac.compare_digest(token.encode("utf-8", "surrogatepass"), _derive_token(signer, kind, cell).encode())


def _derive_token(signer: Signer, kind: str, cell: str) -> str:
    """Return the token of *kind* for *cell*, derived from the platform's signing key and not stored."""
    key = hashlib.sha256(b"opsassay entries\0" + signer.key.private_bytes_raw()).digest()
    return f"{kind}_{hmac.new(key, f'{kind}:{cell}'.encode(), hashlib.sha256).hexdigest()}"
