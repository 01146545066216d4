"""The desired state of a pod while a fault lasts: replaced as a whole, with an end after which it is empty."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from opsassay.core.schema.base import Noun

AGENT_PORT = 9090
"""Where the agent of a pod takes its desired state; no service leads there."""
KEY_HEADER = "X-Endpoint-Key"

Lookup = Literal["fail", "stray"]


class Pressure(Noun):
    """A companion process in the pod's container: *role* is the runtime's, *parameters* are what it is given."""

    id: str
    role: Literal["burner", "allocator"]
    parameters: dict[str, Any]


class DesiredState(Noun):
    """The desired state of a pod until the wall clock says *until* (seconds); the next one replaces it.

    *hooks* and *watch* are the runtime's, *names* says which look-ups fail or lead astray, *rate_rps* is what the load
    generator sends instead of its own rate.
    """

    until: float = 0.0
    hooks: tuple[dict[str, Any], ...] = ()
    watch: tuple[str, ...] = ()
    names: dict[str, Lookup] = Field(default_factory=dict)
    pressure: tuple[Pressure, ...] = ()
    rate_rps: float | None = None
