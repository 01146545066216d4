"""TeamBackends: the addresses of a team's Prometheus, Loki, Tempo or Jaeger, and how their telemetry is read."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator

from opsassay.core.errors import UserError
from opsassay.core.schema.base import Written

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
"""Patterns of credentials: an authorization value, a JSON web token, user and password of a URL."""

_TABLES = ("metrics", "metrics_sum")


def _require_pattern(pattern: str) -> None:
    """Raise ValueError when *pattern* is no regular expression or fits the empty text."""
    try:
        fits_nothing = re.search(pattern, "") is not None
    except re.error as error:
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
    """The name and table that one metric of Prometheus gets."""

    name: str = Field(default="", description="its name in the datapack; as in Prometheus if empty")
    table: str = Field(default="", description="metrics (gauges) or metrics_sum (counters); by the rule if empty")

    @model_validator(mode="after")
    def _require_usable(self) -> MetricRule:
        if self.table not in {"", *_TABLES}:
            raise ValueError(f"a metric is in one of {', '.join(_TABLES)}")
        return self


class Redact(Written):
    """The parts of telemetry that are replaced by [redacted] before anything is written."""

    labels: tuple[str, ...] = Field(default=(), description="labels and attributes whose values go")
    headers: tuple[str, ...] = Field(default=HEADERS, description="headers whose values go, in attributes and bodies")
    texts: tuple[str, ...] = Field(default=TEXTS, description="regular expressions; what fits them goes, in any text")

    @model_validator(mode="after")
    def _require_usable(self) -> Redact:
        for pattern in self.texts:
            _require_pattern(pattern)
        return self


class ImportLimits(Written):
    """The limits on an import's requests to a backend."""

    requests_per_s: float = Field(default=500, gt=0, le=100_000, description="of each backend")
    at_once: int = Field(default=8, ge=1, le=64, description="requests that wait for an answer at the same time")
    total_bytes: int = Field(default=8 * 2**30, ge=1, description="of all answers, unpacked, in one go")
    answer_bytes: int = Field(default=16 * 2**20, ge=1024, le=2**30, description="of one answer, unpacked")
    entries: int = Field(default=5000, ge=1, le=1_000_000, description="log entries of one page")
    traces: int = Field(default=500, ge=1, le=100_000, description="traces of one search")
    timeout_s: float = Field(default=60, gt=0, description="for one answer")
    retry_s: float = Field(default=120, ge=0, description="for one request with all its retries")


_At = Annotated[Backend, BeforeValidator(_with_url)]


class TeamBackends(Written):
    """The backends, how their names become those of a datapack, what is redacted, and the limits."""

    prometheus: _At | None = None
    loki: _At | None = None
    tempo: _At | None = None
    jaeger: _At | None = None
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

    def require(self) -> None:
        """Raise UserError unless a backend is set, each has a URL, and only one of Tempo and Jaeger is set."""
        if not self.backends():
            raise UserError("No backend is named; give at least one of --prometheus, --loki, --tempo, --jaeger.")
        if nowhere := [name for name, one in self.backends().items() if not one.url]:
            raise UserError(f"{nowhere[0]} has no URL; give --{nowhere[0]} URL.")
        if self.tempo is not None and self.jaeger is not None:
            raise UserError("Tempo and Jaeger would give the same spans twice; name one of --tempo and --jaeger.")

    @property
    def span_unit_ns(self) -> int:
        """The resolution of span times in the backend, in ns: 1000 with Jaeger, else 1."""
        return 1 if self.jaeger is None else 1000
