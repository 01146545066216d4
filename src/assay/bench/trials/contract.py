"""What performs a trial, and what it leaves in the run folder.

The matrix claims a run folder, writes run.json and calls one function, `perform` of ``assay/bench/trials/perform.py``.
It writes, each line as it happens::

    timeline.jsonl   by the observer, a process of its own, from before the trigger until after the agent
    phases.jsonl     `Phase`: deployed, baseline, triggered, agent_started, agent_ended, ended
    actions.jsonl    `Action`: every tool call that reached the system
    alerts.jsonl     `AlertReading`: every evaluation of the alert rules, also when nothing fires
    trace.jsonl      `TraceStep`: the steps of the agent
    diagnoses.jsonl  `OperatorDiagnosis`: what the agent says is the cause, as it says so; there for agents that are asked

It raises AssayError when the machinery failed (the attempt counts as failed). An agent that fails is a result, not an
error: it is recorded, and the verdict says what came of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field, model_validator

from assay.model.base import Noun, Written
from assay.model.scenario import Scenario
from assay.model.trajectory import Phase, PhaseName

TIMELINE, PHASES, ACTIONS, ALERTS, TRACE, DIAGNOSES = (
    "timeline.jsonl", "phases.jsonl", "actions.jsonl", "alerts.jsonl", "trace.jsonl", "diagnoses.jsonl",
)  # fmt: skip
REPORT = "agent.json"
"""What the agent's own end was: how it ended, and for a command whether it was sealed."""
Arm = Literal["baseline", "constrained"]
ORACLE = "oracle:"


class TrialAgent(Written):
    """Who repairs: ``oracle:NAME`` of the scenario, a built-in agent such as ``sre``, or an external *command*."""

    name: str = Field(min_length=1)
    command: tuple[str, ...] = Field(default=(), description="an external agent and its arguments")
    model: str | None = Field(default=None, description="model of a built-in agent")
    settings: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _a_name_alone(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given

    @property
    def oracle(self) -> str | None:
        """The name of the scenario's oracle that this is, None for an agent."""
        return self.name.removeprefix(ORACLE) if self.name.startswith(ORACLE) else None


class Perform(Protocol):
    """Deploys the scenario's system, lets it warm up, applies the trigger, lets *agent* in, records, and removes it."""

    def __call__(
        self,
        scenario: Scenario,
        agent: TrialAgent,
        arm: Arm,
        *,
        probes: bool,
        seed: int,
        run_dir: Path,
        cluster: Mapping[str, Any] | None = None,
    ) -> None:
        """Perform one trial into *run_dir*; without *probes* only the final committed probe is sent. Raises AssayError.

        *cluster* is which cluster a scenario for Kubernetes happens on.
        """
        ...


def append_line(path: Path, line: Noun) -> None:
    """Append *line* to the JSON lines file at *path* in one write."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line.model_dump_json().encode() + b"\n")
    finally:
        os.close(descriptor)


def mark_phase(run_dir: Path, phase: PhaseName) -> int:
    """Note in *run_dir* that *phase* has been reached, and return its time in ns of UTC."""
    now = time.time_ns()
    append_line(run_dir / PHASES, Phase(phase=phase, time_ns=now))
    return now
