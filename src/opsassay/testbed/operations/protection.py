"""Which settings protect a system: authentication, TLS, limits, probes, alert rules, clocks. No repair may switch them off.

And of what is written down that stands for a setting: that it is there, or a digest by which it is known again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from opsassay.core.draws import derived_secret

_PROTECTED = re.compile(r"AUTH|TOKEN|PASSWORD|SECRET|TLS|SSL|CERT|LIMIT|MAX|QUOTA|PROBE|ALERT|TIME_SYNC", re.IGNORECASE)
_SECRET = re.compile(r"(PASSWORD|SECRET|TOKEN|KEY)$", re.IGNORECASE)
_CREDENTIALS = re.compile(r"://[^/@\s]*:[^/@\s]+@")
EMPTIED = "emptied"
"""How often a store lost what it held, which no setting brings back; read like a setting of it."""
IS_SET = "set"
"""What is written down of a secret that has a value; a digest under the key of the reader follows where there is one."""


def is_protected(key: str) -> bool:
    """Tell by the name of a setting whether it protects something."""
    return _PROTECTED.search(key) is not None


def is_secret(written: str) -> bool:
    """Tell whether what is *written* down of a setting stands for a secret."""
    return written == IS_SET or written.startswith(f"{IS_SET} ")


def written_down(key: str, value: str, reader: str = "") -> str:
    """Return what is written down of a setting: its *value*; of a secret that it is set, and its digest under *reader*.

    The key *reader* is a secret of the process that reads settings and is kept nowhere, so that two readings of one trial
    can be compared and nothing can be guessed from them.
    """
    if not value or not (_SECRET.search(key) or _CREDENTIALS.search(value)):
        return value
    return f"{IS_SET} {derived_secret(reader, value)[:16]}" if reader else IS_SET


def protected_of(owner: str, settings: Mapping[str, str], reader: str = "") -> dict[str, str]:
    """Return those of the *settings* of *owner* that protect something, as ``OWNER KEY``, as they are `written_down`."""
    return {f"{owner} {key}": written_down(key, value, reader) for key, value in settings.items() if is_protected(key)}


def content_digest(content: str) -> str:
    """Return what tells *content* from any other, and not what it is."""
    return hashlib.sha256(content.encode()).hexdigest()[:16]
