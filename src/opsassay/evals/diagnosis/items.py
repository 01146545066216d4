"""Incidents as tasks: what was recorded, by the hash of all that is handed out of it."""

from __future__ import annotations

from dataclasses import dataclass

from opsassay.core.schema.incident import Incident
from opsassay.core.schema.task import Task
from opsassay.telemetry.content import content_hash
from opsassay.telemetry.datapack import Datapack


@dataclass(frozen=True)
class IncidentItem:
    """An incident with the hash of all that is handed out of it; made once for all runs on it."""

    datapack: Datapack
    content_hash: str

    @classmethod
    def of(cls, datapack: Datapack) -> IncidentItem:
        """Return the item that *datapack* is; raises DatapackError."""
        return cls(datapack, content_hash(datapack.path))

    @property
    def incident(self) -> Incident:
        """The description of the incident."""
        return self.datapack.incident

    @property
    def task(self) -> Task:
        """The head of the task: nothing in it tells of the truth."""
        incident = self.incident
        return Task(
            id=incident.id,
            domain="diagnosis",
            name=incident.id,
            description=incident.description,
            stratum=incident.system,
            system=incident.system,
            goal="Name the root causes, how the failure spread, and the evidence for each.",
            commitment=self.content_hash,
        )
