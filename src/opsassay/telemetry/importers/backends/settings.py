"""incident.yaml: where a past incident is, how its names become those of a datapack, what is redacted, the limits."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import polars as pl
from pydantic import BeforeValidator, Field, model_validator

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.faults import CATALOGUE, FaultKind
from opsassay.core.schema.incident import Window
from opsassay.core.untrusted import read_plain

NAMES = ("prometheus", "loki", "tempo", "jaeger")
SERVICE_LABELS = ("service_name", "service", "app", "job")
DROPPED_LABELS = (
    "job", "endpoint", "metrics_path", "prometheus", "prometheus_replica", "replica", "cluster", "otel_scope_name",
    "otel_scope_version",
)  # fmt: skip
HEADERS = ("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-auth-token")
TEXTS = (
    r"(?i)\b(?:bearer|basic)\s+[a-z0-9._~+/-]{8,}=*",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r"://[^/\s:@]+:[^/\s@]+@",
)
"""What looks like a credential: authorization in any text, a JSON web token, user and password of a URL."""

_TABLES = ("metrics", "metrics_sum")
_MOST_TEXT_BYTES = 2**20


def _require_pattern(pattern: str) -> None:
    """Raise ValueError when *pattern* is no regular expression or fits the empty text."""
    try:
        fits_nothing = bool(pl.Series([""]).str.contains(pattern)[0])
        re.compile(pattern)
    except (pl.exceptions.PolarsError, re.error) as error:
        raise ValueError(f"{pattern!r} is no regular expression") from error
    if fits_nothing:
        raise ValueError(f"{pattern!r} fits the empty text, and so everything")


def _with_url(data: Any) -> Any:
    """Return {"url": *data*} for a text, anything else as it is."""
    return {"url": data} if isinstance(data, str) else data


class Backend(Written):
    """One backend. Its token is in the environment: OPSASSAY_PROMETHEUS_TOKEN, and so on."""

    url: str = Field(
        default="", description="http(s)://HOST:PORT/PATH, below which the API is; without user, password and query"
    )
    tenant: str = Field(default="", description="X-Scope-OrgID of backends with many tenants")
    select: str = Field(default="", description='matchers of series or streams: namespace="shop"')
    leave_out: tuple[str, ...] = Field(default=(), description="regular expressions of metrics that are not read")
    services: tuple[str, ...] = Field(default=(), description="Jaeger: services whose traces are read; all if empty")

    @model_validator(mode="after")
    def _require_usable(self) -> Backend:
        try:
            parts = urlsplit(self.url)
            known = not self.url or (parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0)
        except ValueError:
            known = False
        if not known:
            raise ValueError("this is no URL of a backend; write one such as http://localhost:9090")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("a URL with user, password or query is refused; put the token into the environment")
        for pattern in self.leave_out:
            _require_pattern(pattern)
        return self


class MetricRule(Written):
    """What one metric of Prometheus becomes."""

    name: str = Field(default="", description="its name in the datapack; as in Prometheus if empty")
    table: str = Field(default="", description="metrics (gauges) or metrics_sum (counters); by the rule if empty")

    @model_validator(mode="after")
    def _require_usable(self) -> MetricRule:
        if self.table not in {"", *_TABLES}:
            raise ValueError(f"a metric is in one of {', '.join(_TABLES)}")
        return self


class Redact(Written):
    """What is replaced by [redacted] before anything is written."""

    labels: tuple[str, ...] = Field(default=(), description="labels and attributes whose values go")
    headers: tuple[str, ...] = Field(default=HEADERS, description="headers whose values go, in attributes and bodies")
    texts: tuple[str, ...] = Field(default=TEXTS, description="regular expressions; what fits them goes, in any text")

    @model_validator(mode="after")
    def _require_usable(self) -> Redact:
        for pattern in self.texts:
            _require_pattern(pattern)
        return self


class ImportLimits(Written):
    """What an import may ask of a backend."""

    requests_per_s: float = Field(default=500, gt=0, le=100_000, description="of each backend")
    at_once: int = Field(default=8, ge=1, le=64, description="requests that wait for an answer at the same time")
    total_bytes: int = Field(default=8 * 2**30, ge=1, description="of all answers, unpacked, in one go")
    answer_bytes: int = Field(default=16 * 2**20, ge=1024, le=2**30, description="of one answer, unpacked")
    entries: int = Field(default=5000, ge=1, le=1_000_000, description="log entries of one page")
    traces: int = Field(default=500, ge=1, le=100_000, description="traces of one search")
    timeout_s: float = Field(default=60, gt=0, description="for one answer")
    retry_s: float = Field(default=120, ge=0, description="for one request with all its retries")


def _parse_window_text(value: Any) -> Any:
    """Return the window that a text describes, anything else as it is."""
    return parse_window(value) if isinstance(value, str) else value


_Span = Annotated[Window, BeforeValidator(_parse_window_text)]
_At = Annotated[Backend, BeforeValidator(_with_url)]


class PastIncident(Written):
    """incident.yaml."""

    system: str = Field(default="system", description="what the system is called in the datapack")
    prometheus: _At | None = None
    loki: _At | None = None
    tempo: _At | None = None
    jaeger: _At | None = None
    normal: _Span | None = Field(default=None, description="FROM..TO, ISO 8601, before the incident")
    abnormal: _Span | None = Field(default=None, description="FROM..TO, ISO 8601, while it lasts")
    root: str | None = Field(default=None, description="SERVICE or SERVICE:KIND, as the team states it; not verified")
    postmortem: Path | None = Field(default=None, description="a text that is kept with the truth")
    service: tuple[str, ...] = Field(default=SERVICE_LABELS, description="labels; the first that is there is the name")
    services: dict[str, str] = Field(default_factory=dict, description="names of services: as found, as they shall be")
    metrics: dict[str, MetricRule] = Field(default_factory=dict, description="metrics whose rule is another")
    drop_labels: tuple[str, ...] = Field(default=DROPPED_LABELS, description="labels that tell no two series apart")
    redact: Redact = Redact()
    limits: ImportLimits = ImportLimits()

    @model_validator(mode="before")
    @classmethod
    def _wrap_single_label(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("service"), str):
            return value | {"service": (value["service"],)}
        return value

    def backends(self) -> dict[str, Backend]:
        """Return the backends that are set, by name."""
        return {name: one for name in NAMES if (one := getattr(self, name)) is not None}

    def windows(self) -> dict[str, Window]:
        """Return both windows by period; raises UserError when one is missing or they overlap."""
        if self.normal is None or self.abnormal is None:
            missing = "normal" if self.normal is None else "abnormal"
            raise UserError(f"The {missing} window is missing; give --{missing} FROM..TO.")
        if self.normal.start_ns < self.abnormal.end_ns and self.abnormal.start_ns < self.normal.end_ns:
            raise UserError("The windows --normal and --abnormal overlap; let one end where the other begins.")
        return {"normal": self.normal, "abnormal": self.abnormal}

    def require(self) -> None:
        """Raise UserError when these settings leave nothing to read."""
        if not self.backends():
            raise UserError("No backend is named; give at least one of --prometheus, --loki, --tempo, --jaeger.")
        if nowhere := [name for name, one in self.backends().items() if not one.url]:
            raise UserError(f"{nowhere[0]} has no URL; give --{nowhere[0]} URL.")
        if self.tempo is not None and self.jaeger is not None:
            raise UserError("Tempo and Jaeger would give the same spans twice; name one of --tempo and --jaeger.")
        self.windows()
        self.postmortem_text()
        if self.root is not None:
            read_root(self.root)

    def postmortem_text(self) -> str | None:
        """Return the text of the postmortem, None without one; raises UserError for a file that cannot be read."""
        if self.postmortem is None:
            return None
        try:
            return read_plain(self.postmortem, _MOST_TEXT_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{self.postmortem} cannot be read as a text in UTF-8; check the path.") from error


def parse_window(text: str) -> Window:
    """Parse FROM..TO, two times in ISO 8601 (UTC without a zone); raises ValueError."""
    first, dots, last = text.partition("..")
    try:
        start_ns, end_ns = time_ns(first), time_ns(last)
    except ValueError:
        dots = ""
    if not dots:
        raise ValueError(f"{text!r} is no window; write FROM..TO, as in 2026-03-01T10:00:00Z..2026-03-01T10:30:00Z")
    if end_ns <= start_ns:
        raise ValueError(f"{text!r} ends before it begins")
    if end_ns - start_ns < 10**9:
        raise ValueError(f"{text!r} is shorter than a second")
    return Window(start_ns=start_ns, end_ns=end_ns)


def read_root(text: str) -> tuple[str, str | None]:
    """Parse *text*, SERVICE or SERVICE:KIND; return service and fault type, None without a KIND.

    KIND is an observable kind or a type of the catalogue. Raises UserError.
    """
    service, colon, kind = text.rpartition(":")
    if not colon and text:
        return text, None
    if not service or not kind:
        raise UserError(f"--root {text}: expected SERVICE or SERVICE:KIND, as in orders:http_slow.")
    if kind in CATALOGUE:
        return service, kind
    for row in CATALOGUE.values():
        if row.kind == kind:
            return service, row.name
    raise NotFoundError("fault kind", kind, [*(one.value for one in FaultKind), *CATALOGUE])


def time_ns(text: str) -> int:
    """Parse the ISO time *text* and return ns since 1970, with all nine decimals; raises ValueError."""
    moment = datetime.fromisoformat(text.strip())
    whole = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    fraction = re.search(r"[.,](\d{1,9})", text)
    return int(whole.replace(microsecond=0).timestamp()) * 10**9 + (int(fraction[1].ljust(9, "0")) if fraction else 0)
