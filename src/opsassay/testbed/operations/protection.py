"""The settings that protect a system, which no repair may remove: authentication, TLS, limits, probes, alert rules, clocks.

Settings are recorded here too: secrets as digests.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from opsassay.core.draws import derived_secret
from opsassay.core.schema.system import Service
from opsassay.testbed.workload.runtime.settings import Settings, SettingsError

_PROTECTED = re.compile(r"AUTH|TOKEN|PASSWORD|SECRET|TLS|SSL|CERT|LIMIT|MAX|QUOTA|PROBE|ALERT|TIME_SYNC", re.IGNORECASE)
_SECRET = re.compile(r"(PASSWORD|SECRET|TOKEN|KEY)$", re.IGNORECASE)
_CREDENTIALS = re.compile(r"://[^/@\s]*:[^/@\s]+@")
EMPTIED = "emptied"
"""Name, among the settings, of the number of times that a store lost or evicted data."""
PROCESS, RUNS = "process", "runs"
"""Name, among the settings, of a side process of a service or store (with its own name), and its value."""
IS_SET = "set"
"""The recorded value of a secret; a digest under the reader's key follows where there is one."""


def is_protected(key: str) -> bool:
    """Return whether the setting *key* protects the system (authentication, limits and so on), by its name."""
    return _PROTECTED.search(key) is not None


def is_secret(stored_value: str) -> bool:
    """Return whether *stored_value* is what `written_down` stores in place of a secret."""
    return stored_value == IS_SET or stored_value.startswith(f"{IS_SET} ")


def written_down(key: str, value: str, digest_key: str = "") -> str:
    """Return *value* of the setting *key* as it may be stored; a secret becomes a digest, keyed by *digest_key*.

    *digest_key* is a secret of the present process and is never stored: two readings of one trial can be compared,
    and nothing can be guessed from them.
    """
    if not value or not (_SECRET.search(key) or _CREDENTIALS.search(value)):
        return value
    return f"{IS_SET} {derived_secret(digest_key, value)[:16]}" if digest_key else IS_SET


def protected_of(owner: str, settings: Mapping[str, str], digest_key: str = "") -> dict[str, str]:
    """Return {"OWNER KEY": value} of those *settings* of *owner* that protect; secrets are digests by *digest_key*."""
    return {
        f"{owner} {key}": written_down(key, value, digest_key) for key, value in settings.items() if is_protected(key)
    }


def without_defaults(settings: Mapping[str, str], service: Service) -> dict[str, str]:
    """Return the *settings* of *service* without those that equal the runtime's default.

    Settings that the runtime does not read stay, and so do all of services that run another program.
    """
    if not service.operations and not service.consumes:
        return dict(settings)
    usual = _what_is_read({}, service)
    return {
        key: value
        for key, value in settings.items()
        if _what_is_read({key: value}, service) != usual or _what_is_read({key: "-"}, service) == usual
    }


def _what_is_read(settings: Mapping[str, str], service: Service) -> object:
    """Return (pool size, keep-alive, calls, features) that *service* gets from *settings*; None if they are invalid."""
    read = Settings(settings)
    try:
        calls = [
            (read.upstream(step.callee), read.retries(step.retries), read.timeout_s(step.timeout_s))
            for step in service.steps()
            if step.callee is not None
        ]
        return read.pool(service.pool), read.keep_alive(), calls, read.features()
    except SettingsError:
        return None


def content_digest(content: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of *content*."""
    return hashlib.sha256(content.encode()).hexdigest()[:16]
