"""The incident.yaml of a recording: its windows, alerts, description, and the root causes that its team states.

It is in the folder of OTLP files. Stated root causes are not verified; `annotate` tells whether telemetry supports them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.backends import SERVICE_LABELS
from opsassay.core.schema.base import Written
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.incident import Alert, Fault, Incident, RootLabel, Truth, Window
from opsassay.core.schema.validation_errors import reason
from opsassay.core.untrusted import read_plain
from opsassay.telemetry.importers.backends.settings import parse_window, read_root, time_ns

STATED_FILE = "incident.yaml"
STATED = "the root was stated when the incident was imported; nothing verified it"
LEVELS = ("service", "pod", "container", "function", "span")
_MOST_BYTES = 8 * 2**20


def _as_window(value: Any) -> Any:
    """Parse a window that is written as text; return any other *value* unchanged (a pydantic validator)."""
    return parse_window(value) if isinstance(value, str) else value


def _as_ns(value: Any) -> Any:
    """Return *value*, ns since 1970 or a time in ISO 8601, in ns since 1970; raises ValueError."""
    if type(value) is int:
        return value
    try:
        return time_ns(str(value))  # YAML makes times of its own of texts without quotes
    except ValueError as error:
        raise ValueError(f"{value!r} is no time in ISO 8601, as in 2026-03-01T10:30:00Z") from error


def _as_root(value: Any) -> Any:
    """Parse a root cause that is written as text into {service, kind}; return any other *value* unchanged."""
    if not isinstance(value, str):
        return value
    service, type_ = read_root(value)
    return {"service": service, "kind": type_}


Moment = Annotated[int, BeforeValidator(_as_ns, json_schema_input_type=str)]
Span = Annotated[Window, BeforeValidator(_as_window, json_schema_input_type=str)]


class StatedRoot(Written):
    """A root cause as a team states it, at every level that it knows; SERVICE or SERVICE:KIND says the same in one text."""

    service: str = Field(description="name of the service, as the telemetry has it")
    kind: str | None = Field(default=None, description="an observable kind, such as http_slow, or a fault type")
    pod: str | None = Field(default=None, description="name of the pod")
    container: str | None = Field(default=None, description="name of the container")
    function: str | None = Field(default=None, description="name of the function")
    span: str | None = Field(default=None, description="name of the span")

    @field_validator("kind")
    @classmethod
    def _read_kind(cls, kind: str | None) -> str | None:
        """Return the fault type that *kind* names; raises ValueError for an unknown one."""
        try:
            return kind and read_root(f"service:{kind}")[1]
        except NotFoundError as error:
            raise ValueError(str(error)) from error

    def label(self) -> RootLabel:
        """Return this root cause as a label: its names at each level, such as service and pod."""
        return RootLabel(**{level: (name,) for level in LEVELS if (name := getattr(self, level))})


class StatedAlert(Written):
    """An alert that fired during the incident."""

    time: Moment = Field(description="when it fired, ISO 8601; UTC without a zone")
    service: str = Field(description="the service that it is about")
    message: str = Field(default="", description="what it said")
    signal: str = Field(default="alert", description="error_rate, latency_p99_ms and others")
    value: float = Field(default=1.0, description="the signal's value, in its unit")
    threshold: float = Field(default=0.0, description="the rule's threshold, in the same unit")

    def alert(self) -> Alert:
        """Return this alert as part of an incident, the form that solvers see."""
        return Alert(
            time_ns=self.time, service=self.service, signal=self.signal, value=self.value, threshold=self.threshold,
            message=self.message or f"{self.signal} of {self.service}",
        )  # fmt: skip


class StatedIncident(Written):
    """incident.yaml in a folder of OTLP files; every key may be left out."""

    system: str | None = Field(default=None, description="what the system is called; the folder's name if left out")
    description: str = Field(default="", description="what a solver gets to read; it may not name the fault")
    boundary: Moment | None = Field(default=None, description="when the normal window ends, of files in one folder")
    normal: Span | None = Field(default=None, description="FROM..TO, ISO 8601; rows outside are left out")
    abnormal: Span | None = Field(default=None, description="FROM..TO, ISO 8601")
    alerts: tuple[StatedAlert, ...] = Field(default=(), description="alerts that fired, for solvers")
    root: tuple[Annotated[StatedRoot, BeforeValidator(_as_root, json_schema_input_type=str | StatedRoot)], ...] = Field(
        default=(), description="the root causes: SERVICE, SERVICE:KIND, or names by level"
    )

    @field_validator("root", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        """Return a single text or mapping as a list of one, anything else unchanged."""
        return [value] if isinstance(value, str | dict) else value

    @model_validator(mode="after")
    def _require_windows(self) -> Self:
        """Raise ValueError for one window without the other, and for windows together with a boundary."""
        if (self.normal is None) != (self.abnormal is None):
            raise ValueError("normal and abnormal are two windows of one incident; give both or none")
        if self.boundary is not None and self.normal is not None:
            raise ValueError("boundary and windows both say where the incident begins; leave out one")
        return self

    @property
    def windows(self) -> dict[str, Window]:
        """The stated windows by period; {} unless both are stated."""
        if self.normal is None or self.abnormal is None:
            return {}
        return {"normal": self.normal, "abnormal": self.abnormal}

    def truth(self, incident: Incident) -> Truth | None:
        """Return the truth of *incident* as incident.yaml states it; None when it states no root cause."""
        if not self.root:
            return None
        window = incident.abnormal
        faults = tuple(
            Fault(type=one.kind, service=one.service, start_ns=window.start_ns, end_ns=window.end_ns)
            for one in self.root
            if one.kind is not None
        )
        labels = tuple(one.label() for one in self.root)
        said = ", ".join(one.service for one in self.root)
        return Truth(
            id=incident.id,
            system=incident.system,
            faults=faults,
            roots=labels,
            stated=True,
            notes=(f"{said}: {STATED}",),
        )


def read_stated(folder: Path) -> StatedIncident:
    """Return incident.yaml in *folder*, all values unset when it is missing; raises ConfigError with file and line."""
    path = folder / STATED_FILE
    return load_yaml(path, StatedIncident) if path.exists() else StatedIncident()


def read_alerts(path: Path) -> tuple[StatedAlert, ...]:
    """Return the alerts in *path*: a list as in incident.yaml, or a response of Prometheus or Alertmanager, YAML or JSON.

    An alert of theirs without a service is left out. Raises UserError for a file of another form.
    """
    import yaml

    try:
        text = read_plain(path, _MOST_BYTES).decode("utf-8", errors="replace")
        given = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"--alerts {path}: neither YAML nor JSON ({str(error)[:100]}).") from error
    data = given.get("data", given) if isinstance(given, dict) else given
    listed = data.get("alerts") if isinstance(data, dict) else data
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise UserError(f"--alerts {path}: expected a list of alerts, or an answer of /api/v1/alerts.")
    try:
        return tuple(StatedAlert.model_validate(one) for one in map(_plain_alert, listed) if one is not None)
    except ValidationError as error:
        raise UserError(f"--alerts {path}: {reason(error)}.") from error


def _plain_alert(alert: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return Prometheus' or Alertmanager's *alert* as in incident.yaml, others unchanged; None without a service."""
    labels = alert.get("labels")
    if not isinstance(labels, dict):
        return alert
    service = next((labels[name] for name in SERVICE_LABELS if labels.get(name)), None)
    said = alert.get("annotations") or {}
    text = said.get("summary") or said.get("description") or labels.get("alertname") or ""
    at = alert.get("activeAt") or alert.get("startsAt")
    return None if service is None else {"time": at, "service": service, "message": str(text)}
