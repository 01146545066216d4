"""The settings of one process, as its operators wrote them: texts by name, read when the process starts.

``UPSTREAM_<SERVICE>`` (name:port) is where calls to a service go, ``<STORE>_PASSWORD`` how a database lets the service in,
``POOL_SIZE`` how many connections it keeps, ``TOKEN_SECRET`` signs calls, and with ``TOKEN_MAX_AGE_S`` only signed ones of
that age are let in. ``CALL_RETRIES`` and ``CALL_TIMEOUT_S`` say how often and for how long a call is tried, whatever the
code says, ``KEEP_ALIVE`` (off) that each has a connection of its own. ``PREVIEW_PORT`` has a preview run in the same pod,
which listens on that port. ``FEATURE_<NAME>`` switches code on that is not ready (`FEATURES`), as feature flags do. Any
other name means what the service makes of it. A value is a text and stays one: nothing is expanded.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

SERVICE_PORT = 8080
"""The port by which services are configured to find one another; where a process listens is reported by its SRV record."""
MOST_RETRIES = 20
PREVIEW_PORT = "PREVIEW_PORT"
TOKEN_HEADER = "x-access-token"  # noqa: S105 - the name of a header
_UPSTREAM = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]{0,62}):(\d{1,5})")


class Feature(NamedTuple):
    """What a feature does: the *hook* of the runtime that it is, and the parameter that its value is, in this range."""

    hook: str
    parameter: str
    least: float
    most: float
    further: Mapping[str, Any] = {}


FEATURES: Mapping[str, Feature] = {
    "FEATURE_STRICT_INPUT": Feature("raise_in_method", "share", 1, 1, {"exception": "IllegalStateException"}),
    "FEATURE_ADMISSION": Feature("abort_request", "code", 400, 599),
    "FEATURE_COMPRESSION": Feature("replace_body", "share", 1, 1, {"body_type": "random"}),
    "FEATURE_AUDIT": Feature("delay_request", "delay_ms", 1, 60_000),
    "FEATURE_EAGER_CLEANUP": Feature("collect_garbage", "threads", 1, 1),
    "FEATURE_PREFETCH": Feature("keep_busy", "cpu_count", 1, 4),
    "FEATURE_LOCAL_CACHE": Feature("grow_heap", "size_mb", 16, 4096),
    "FEATURE_FILE_WATCH": Feature("hold_files", "per_s", 1, 1000),
    "FEATURE_SIGN_ONCE": Feature("sign_once", "share", 1, 1),
}
"""Settings that switch unready code on. None of them can make a request succeed that would fail without it: they only
refuse, break, delay and exhaust, so that no operator can have a broken service look well by one."""


class SettingsError(Exception):
    """A process cannot run with its settings; the message is what it says before it ends."""


class Settings:
    """Reads *values*; where calls cross a relay (*relayed*) no port but a service's own leads anywhere."""

    def __init__(self, values: Mapping[str, str] | None = None, *, relayed: bool = True) -> None:
        self.values, self.relayed = dict(values or {}), relayed
        self._signed_ns: int | None = None

    def require(self, names: Iterable[str]) -> None:
        """Raise SettingsError when one of *names* is missing or blank, or a known setting has an invalid value."""
        for name in names:
            if not self.values.get(name, "").strip():
                raise SettingsError(f"required setting {name} is missing")
        _ = self.pool(1), self._max_age_s, self.features(), self.retries(0), self.timeout_s(1), self.keep_alive()
        self.preview_port()

    def upstream(self, service: str) -> tuple[str, int | None]:
        """Return (host name, port) for calls to *service* by UPSTREAM_SERVICE; port None: the one that DNS gives."""
        value = self.values.get(f"UPSTREAM_{_constant_name(service)}")
        if value is None:
            return service, None
        match = _UPSTREAM.fullmatch(value.strip())
        if match is None:
            return value.strip()[:63] or "-", None
        port = int(match[2])
        if port > 65_535:
            return value.strip()[:63], None
        return match[1], None if port == SERVICE_PORT else port

    def password(self, store: str) -> str | None:
        """Return the password for the database *store*, None if it is not set."""
        return self.values.get(f"{_constant_name(store)}_PASSWORD")

    def pool(self, default: int) -> int:
        """Return the connections to hold to each callee and store, *default* if not set; raises SettingsError."""
        try:
            return max(1, min(int(self.values.get("POOL_SIZE", default)), 64))
        except ValueError as error:
            raise SettingsError(f"POOL_SIZE must be a whole number, not {self.values['POOL_SIZE']!r}") from error

    def retries(self, default: int) -> int:
        """Return how often a failed call is repeated, *default* if not set; raises SettingsError."""
        value = self.values.get("CALL_RETRIES", str(default))
        if not value.isascii() or not value.isdigit() or int(value) > MOST_RETRIES:
            raise SettingsError(f"CALL_RETRIES must be a whole number up to {MOST_RETRIES}, not {value!r}")
        return int(value)

    def timeout_s(self, default: float) -> float:
        """Return the timeout in s of one attempt of a call, *default* if not set; raises SettingsError."""
        try:
            return max(0.01, min(float(self.values.get("CALL_TIMEOUT_S", default)), 60.0))
        except ValueError as error:
            raise SettingsError(f"CALL_TIMEOUT_S must be a number, not {self.values['CALL_TIMEOUT_S']!r}") from error

    def keep_alive(self) -> bool:
        """Return whether connections to other services are kept for further calls (KEEP_ALIVE); raises SettingsError."""
        value = self.values.get("KEEP_ALIVE", "on").strip()
        if value not in ("on", "off"):
            raise SettingsError(f"KEEP_ALIVE must be on or off, not {value!r}")
        return value == "on"

    def preview_port(self) -> int | None:
        """Return the port of the preview in the same pod, None for no preview (PREVIEW_PORT); raises SettingsError."""
        value = self.values.get(PREVIEW_PORT, "").strip()
        if value and not (value.isascii() and value.isdigit() and 1024 <= int(value) <= 65_535):
            raise SettingsError(f"{PREVIEW_PORT} must be a port from 1024 to 65535, not {value!r}")
        return int(value) if value else None

    def features(self) -> list[dict[str, Any]]:
        """Return the switched-on features as faults inside the process {type, parameters}; raises SettingsError."""
        return [
            {
                "type": feature.hook,
                "parameters": {**feature.further, feature.parameter: self._read_number(name, feature)},
            }
            for name, feature in FEATURES.items()
            if self.values.get(name, "").strip()
        ]

    def _read_number(self, name: str, feature: Feature) -> int:
        """Return the setting *name* as a whole number within the bounds of *feature*; raises SettingsError."""
        value = self.values[name].strip()
        if not value.isascii() or not value.isdigit() or not feature.least <= int(value) <= feature.most:
            raise SettingsError(f"{name} must be a whole number from {feature.least:g} to {feature.most:g}")
        return int(value)

    def token(self, now_ns: int) -> dict[str, str]:
        """Return the header that signs a call at *now_ns* (UTC), {} without a secret.

        FEATURE_SIGN_ONCE repeats the first signature, which expires.
        """
        if self.values.get("FEATURE_SIGN_ONCE", "").strip():
            now_ns = self._signed_ns = self._signed_ns or now_ns
        secret = self.values.get("TOKEN_SECRET")
        return {} if secret is None else {TOKEN_HEADER: f"{now_ns}.{_sign_text(secret, str(now_ns))}"}

    def objection(self, token: str | None, now_ns: int) -> str | None:
        """Return why a call with *token* is rejected at *now_ns* (UTC), None when it is accepted."""
        if (limit_s := self._max_age_s) is None:
            return None
        issued, _, signature = (token or "").partition(".")
        if not issued.isdigit() or not hmac.compare_digest(
            signature.encode(), _sign_text(self.values.get("TOKEN_SECRET", ""), issued).encode()
        ):
            return "token is missing or not signed by us"
        age_s = (now_ns - int(issued)) / 1e9
        if abs(age_s) <= limit_s:
            return None
        return f"token expired {age_s - limit_s:.1f} s ago" if age_s > 0 else f"token is valid only in {-age_s:.1f} s"

    @property
    def _max_age_s(self) -> float | None:
        """The age in s at which tokens expire, None if they are not checked; raises SettingsError."""
        value = self.values.get("TOKEN_MAX_AGE_S")
        try:
            return None if value is None else float(value)
        except ValueError as error:
            raise SettingsError(f"TOKEN_MAX_AGE_S must be a number, not {value!r}") from error


def _constant_name(name: str) -> str:
    """Return *name* in the form of an environment variable: "a-b.c" gives "A_B_C"."""
    return name.upper().replace("-", "_").replace(".", "_")


def _sign_text(secret: str, text: str) -> str:
    """Return the first 16 hexadecimal digits of the HMAC of *text* with *secret*."""
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()[:16]
