"""Random draws whose results a solver can see: pod names, load, windows, ids.

They derive from a secret of the recording or trial, stored with the truth, and never from a plan, a seed or a fault. The
same secret gives the same draws.
"""

from __future__ import annotations

import hashlib
import hmac
import random
import secrets

_BYTES = 16


def new_secret() -> str:
    """Return a new random secret of 128 bits, as 32 hexadecimal digits."""
    return secrets.token_hex(_BYTES)


def derived_secret(secret: str, purpose: str) -> str:
    """Return a secret derived one-way from *secret* and the label *purpose* (HMAC-SHA256), in hexadecimal."""
    return hmac.digest(secret.encode(), purpose.encode(), hashlib.sha256)[:_BYTES].hex()


def derived_seed(secret: str, purpose: str) -> int:
    """Return a seed of 128 bits for random draws, derived from *secret* and the label *purpose*."""
    return int(derived_secret(secret, purpose), 16)


def derived_random(secret: str, purpose: str) -> random.Random:
    """Return a random generator seeded with `derived_seed` of *secret* and the label *purpose*."""
    return random.Random(derived_seed(secret, purpose))  # noqa: S311 - its seed is a secret
