"""Incidents without a fault: the parts that all substrates share."""

from __future__ import annotations

from opsassay.core.schema.incident import PlannedFault
from opsassay.testbed.catalogue.measures import callers_of
from opsassay.testbed.injection.under_test import SystemUnderTest


class Quiet:
    """The disturbance that does nothing."""

    def __init__(self, system: SystemUnderTest, plan: PlannedFault) -> None: ...

    async def apply(self) -> None:
        """Do nothing: this incident has no fault."""

    async def undo(self) -> None:
        """Do nothing: this incident has no fault."""


def least_missed(system: SystemUnderTest) -> str:
    """Return the service whose restart harms least: with several replicas, else with the fewest callers."""
    described = system.system

    def missed(service: str) -> tuple[bool, int, str]:
        """Return the sort key of *service*: whether it has one replica, how many use it, and its name."""
        users = len(callers_of(described, service)) + (service in described.entries())
        return described.services[service].replicas == 1, users, service

    return min(described.services, key=missed)
