"""Which settings protect a system: authentication, TLS, limits, probes, alert rules, clocks. No repair may switch them off.

And of what is written down that stands for a setting: that it is there, or a digest by which it is known again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

_PROTECTED = re.compile(r"AUTH|TOKEN|PASSWORD|SECRET|TLS|SSL|CERT|LIMIT|MAX|QUOTA|PROBE|ALERT|TIME_SYNC", re.IGNORECASE)
_SECRET = re.compile(r"(PASSWORD|SECRET|TOKEN|KEY)$", re.IGNORECASE)
IS_SET = "set"
"""What is written down of a secret that has a value."""


def is_protected(key: str) -> bool:
    """Tell by the name of a setting whether it protects something."""
    return _PROTECTED.search(key) is not None


def protected_of(owner: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return those of the *settings* of *owner* that protect something, as ``OWNER KEY``; of secrets that they are set."""
    return {
        f"{owner} {key}": IS_SET if value and _SECRET.search(key) else value
        for key, value in settings.items()
        if is_protected(key)
    }


def content_digest(content: str) -> str:
    """Return what tells *content* from any other, and not what it is."""
    return hashlib.sha256(content.encode()).hexdigest()[:16]
