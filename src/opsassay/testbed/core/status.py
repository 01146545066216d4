"""The status of a running system, as its substrate reports it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from opsassay.core.schema.base import Noun


class SystemStatus(Noun):
    """The status of one system at one moment; a substrate leaves out what it does not know.

    *phase* is ready, starting, stopping, ``starting or stopping``, or cleared: then its owner had been killed, and what it
    left was removed (*processes_ended*, *faults_undone*, *reason*).
    """

    name: str
    phase: str
    system: str | None = Field(default=None, description="name of the application")
    isolation: str = Field(default="", description="isolation level, or the name of a substrate that has none")
    namespace: str | None = Field(default=None, description="what its telemetry calls the place that it runs in")
    machine: dict[str, Any] = Field(default_factory=lambda: {"abilities": {}}, description="what the kernel lends")
    pid: int | None = Field(default=None, description="process that looks after it")
    replicas: int | None = None
    ready: int | None = Field(default=None, description="ready replicas")
    not_ready: tuple[str, ...] = ()
    pids: dict[str, int | None] = Field(default_factory=dict, description="process of each replica")
    fault: str | None = Field(default=None, description="what is being injected")
    receiver: str | None = Field(default=None, description="URL of the telemetry receiver")
    stores: dict[str, tuple[str, int]] = Field(default_factory=dict, description="address and port of each store")
    probe_paths: dict[str, str] = Field(
        default_factory=dict, description="path of a harmless request, by entry service"
    )
    endpoints: dict[str, list[str]] = Field(default_factory=dict, description="where users reach each entry service")
    backends: dict[str, list[str]] = Field(default_factory=dict, description="ready backends of each entry service")
    probe: dict[str, Any] | None = Field(default=None, description="where a probe has to be to reach backends")
    rate_rps: float | None = Field(default=None, description="load, requests per second")
    unexpected_exits: tuple[dict[str, Any], ...] = Field(
        default=(), description="processes that ended by a signal that nobody here sent"
    )
    cores: int | None = Field(default=None, description="cores of the place, where it is not this machine")
    context: str | None = Field(default=None, description="the cluster")
    reason: str | None = Field(default=None, description="why it is in this phase")
    processes_ended: int | None = None
    faults_undone: tuple[str, ...] = ()

    def payload(self) -> dict[str, Any]:
        """Return the status as a JSON object; its keys depend on the substrate."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)
