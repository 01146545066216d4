"""The arguments of every tool, and their allowed values: names and plain values, nothing that is interpreted."""

from __future__ import annotations

import re
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from opsassay.core.errors import UserError
from opsassay.core.schema.base import Written

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,62}$")]
Key = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")]
Since = Annotated[float, Field(gt=0, le=900, description="how far back, seconds")]
_URL = re.compile(
    r"http://(?P<service>[a-z0-9][a-z0-9-]{0,62})(?::(?P<port>\d{1,5}))?(?P<path>/[A-Za-z0-9/_.~?=&-]{0,200})?"
)


class Ps(Written):
    """List all replicas (state, restarts, release, host, age) and the stores."""


class Describe(Written):
    """Tell about one service, store or host: replicas, who calls whom, settings, releases, limits."""

    target: Name


class Logs(Written):
    """Show the last lines that the processes of a service, replica or store wrote to their output."""

    target: Name
    lines: int = Field(default=50, ge=1, le=200)


class Restart(Written):
    """Restart the processes of a service, a store, or "all" services. All replicas at once, unless rolling is true."""

    target: Name
    replica: int | None = Field(default=None, ge=0, le=99, description="only this replica of the service")
    rolling: bool = Field(default=False, description="one after the other, each only when the one before is ready")


class Start(Written):
    """Start the processes of a service that do not run."""

    target: Name
    replica: int | None = Field(default=None, ge=0, le=99, description="only this replica of the service")


class Stop(Written):
    """Stop the processes of a service; they stay down until they are started."""

    target: Name
    replica: int | None = Field(default=None, ge=0, le=99, description="only this replica of the service")


class Scale(Written):
    """Run another number of replicas of a service."""

    service: Name
    replicas: int = Field(ge=0, le=12)


class ConfigGet(Written):
    """Show the settings of a service, store or host, or the records of the name server (target "names")."""

    target: Name


class ConfigSet(Written):
    """Change one setting. A service's processes read theirs when they start; stores, hosts and names change at once."""

    target: Name
    key: Key
    value: str = Field(max_length=200)


class ConfigUnset(Written):
    """Remove one setting of a service, or one record of the name server."""

    target: Name
    key: Key


class ReleaseVersion(Written):
    """Deploy a version of a service, or roll back to one; replicas that run it already are left alone."""

    service: Name
    version: Name
    replica: int | None = Field(default=None, ge=0, le=99, description="only this replica")
    rolling: bool = Field(default=True, description="one after the other; false: all at once")


class KillProcess(Written):
    """End a side process of a service or store, by its name, wherever it runs; `describe` lists them."""

    target: Name
    process: Name


class FirewallList(Written):
    """List the firewall rules between services."""


class FirewallDelete(Written):
    """Delete one firewall rule."""

    rule: Name


class ExecCurl(Written):
    """Send one HTTP request from inside a replica to a service of the system, as http://SERVICE:8080/PATH."""

    source: Name = Field(description="service or replica to send it from")
    url: str = Field(max_length=300)
    method: Literal["GET", "POST", "PUT", "DELETE", "PATCH"] = "GET"
    timeout_s: float = Field(default=5.0, gt=0, le=10)


class Alerts(Written):
    """Show the alerts that fire now."""


class Metrics(Written):
    """Show a metric of the last minutes, one line per series, or the names of all metrics when none is given."""

    metric: str | None = Field(default=None, max_length=100)
    service: Name | None = None
    since_s: Since = 60.0


class Traces(Written):
    """Show recent requests that a service handled, and what they called; the slowest first, or failed ones only."""

    service: Name
    since_s: Since = 30.0
    failed: bool = False
    limit: int = Field(default=5, ge=1, le=20)


class SearchLogs(Written):
    """Search the log records of the system: by service, level, and a regular expression in the message."""

    service: Name | None = None
    level: Literal["DEBUG", "INFO", "WARN", "ERROR"] | None = None
    pattern: str = Field(default="", max_length=200)
    since_s: Since = 60.0
    limit: int = Field(default=50, ge=1, le=200)


class Wait(Written):
    """Wait, for instance to see whether alerts stay cleared."""

    seconds: float = Field(gt=0, le=60)


class Summarise(Written):
    """Summarise the recent telemetry: per service requests, failures and latency, and the commonest errors."""

    since_s: Since = 30.0


class CallTopology(Written):
    """Show which services called which in recent traces, how often, and how many of those calls failed."""

    service: Name | None = Field(default=None, description="only calls from or to this service")
    since_s: Since = 60.0


class Url(NamedTuple):
    """The parts of an accepted URL."""

    service: str
    port: int
    path: str


def parse_url(text: str) -> Url:
    """Return (service, port or 8080, path) of *text*, ``http://SERVICE:PORT/PATH``; raises UserError for other URLs."""
    match = _URL.fullmatch(text)
    if match is None:
        raise UserError(f"{text[:80]!r} is no URL for this system; write http://SERVICE:8080/PATH.")
    return Url(match["service"], int(match["port"] or 8080), match["path"] or "/")
