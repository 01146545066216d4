"""Moves the cell of a live run through its states while the run records its phases."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from opsassay.core.schema.background import Background
from opsassay.core.schema.json_lines import whole_lines
from opsassay.core.schema.run_folder import PHASES
from opsassay.core.schema.trajectory import PhaseName
from opsassay.evals.runner.store import RunStore
from opsassay.server.benchmarks import Platform, begin_anew, move_cell
from opsassay.server.database import CELLS
from opsassay.server.states import BUNDLE, TransitionError

LOOK_S = 0.3
STATE_AFTER: Mapping[PhaseName, str] = {
    "deployed": "Provisioning",
    "baseline": "Provisioned",
    "triggered": "FaultInjecting",
    "agent_started": "Ready",
    "agent_ended": "Evaluating",
    "ended": "Terminating",
}
"""The bundle's state after each recorded phase of a run.

Deployment and warm-up are Provisioning; injecting and waiting for the fault FaultInjecting; the verifiers' readings after
the agent Evaluating; removal of the system Terminating.
"""
_ORDER = tuple(BUNDLE.following)


@dataclass
class PhaseReader:
    """Moves the bundle of *cell*, held by *worker*, to the state of the latest attempt of the run *hash_*.

    For a *hosted* (self-hosted) agent its relay reports Ready. Earlier attempts are ignored.
    """

    platform: Platform
    store: RunStore
    cell: str
    hash_: str
    worker: str
    hosted: bool = False
    _before: int = field(init=False)
    _seen: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self._before = len(self.store.attempts_of(self.hash_))

    def read_phases(self) -> None:
        """Read the phases that the run has newly recorded and move its cell to the matching state."""
        attempts = self.store.attempts_of(self.hash_)
        if len(attempts) <= self._before:
            return
        path = attempts[-1] / PHASES
        phases = list(whole_lines(path.read_bytes())) if path.exists() else []
        seen = len(attempts), len(phases)
        if seen != self._seen:
            again = self._seen is not None and self._seen[0] != len(attempts)
            with suppress(TransitionError):
                self._move_cell(phases[-1]["phase"] if phases else "deployed", again=again)
            self._seen = seen

    def _move_cell(self, phase: PhaseName, *, again: bool) -> None:
        """Move the cell, unless ended or lost, to the state of *phase*; *again* resets it for a new attempt."""
        desired = "FaultInjected" if self.hosted and phase == "agent_started" else STATE_AFTER[phase]
        with self.platform.writing() as connection:
            row = connection.execute(select(CELLS).where(CELLS.c.id == self.cell).with_for_update()).mappings().one()
            if row["worker"] != self.worker or row["bundle"] in BUNDLE.ends:
                return
            present = row["bundle"]
            if again:  # the attempt of before came to no result
                begin_anew(connection, self.cell)
                present = "Provisioning"
            if _ORDER.index(desired) > _ORDER.index(present):
                started = {"agent": "Executing"} if desired == "Ready" else {}
                move_cell(connection, self.cell, bundle=desired, **started)


class PhaseFollower(Background):
    """Background thread that calls *reader* every `LOOK_S` seconds during the block."""

    def __init__(self, reader: PhaseReader) -> None:
        super().__init__(f"phases-{reader.cell}")
        self._reader = reader

    def work(self) -> None:
        """Call `PhaseReader.read_phases` every `LOOK_S` seconds until the block ends."""
        while self.pause(LOOK_S):
            with suppress(SQLAlchemyError, OSError):  # a database that is being started again, a folder that is going
                self._reader.read_phases()
