"""Tokens for one entry alone: they follow from the platform's key, so that nothing has to be kept of them."""

from __future__ import annotations

import hashlib
import hmac

from opsassay.server.events import Signer


def entry_token(signer: Signer, cell: str) -> str:
    """Return what the agent of *cell* shows to work on it and on nothing else."""
    return _token(signer, "entry", cell)


def relay_token(signer: Signer, cell: str) -> str:
    """Return what the relay of *cell* shows."""
    return _token(signer, "relay", cell)


def is_token(given: str, signer: Signer, kind: str, cell: str) -> bool:
    """Return whether *given* is the token of that kind for *cell*."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), _token(signer, kind, cell).encode())


def _token(signer: Signer, kind: str, cell: str) -> str:
    key = hashlib.sha256(b"opsassay entries\0" + signer.key.private_bytes_raw()).digest()
    return f"{kind}_{hmac.new(key, f'{kind}:{cell}'.encode(), hashlib.sha256).hexdigest()}"
