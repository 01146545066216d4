"""The domain of recorded incidents: who broke, how it spread, and the evidence, from telemetry alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from opsassay.core.errors import ConfigError
from opsassay.core.schema.base import Written
from opsassay.core.schema.run import Metric
from opsassay.core.schema.task import MetricDefinition, Task
from opsassay.evals.diagnosis.agent_runs import Setup
from opsassay.evals.diagnosis.exams import IncidentJob, RunSettings, open_suite, plan
from opsassay.evals.diagnosis.items import IncidentItem
from opsassay.evals.diagnosis.method_setups import MethodSetup
from opsassay.evals.diagnosis.oracles import NAMES
from opsassay.evals.diagnosis.solvers import is_asked_method, methods_of, solvers_named
from opsassay.evals.diagnosis.sweeps import AskedMethod, asked_method
from opsassay.evals.runner.plan import PlannedAgent, part_as
from opsassay.scoring import metrics as known
from opsassay.telemetry.tree import resolve

if TYPE_CHECKING:
    from opsassay.evals.runner.grading import GradedRuns, GradeSettings, Stores

LESS = frozenset({"ungrounded", "evidence_vacuous"})
"""Shares of which less is better."""


class PlannedSolver(PlannedAgent):
    """A solver of a plan; a method may have *parameters*, of which a list of values is a sweep."""

    parameters: dict[str, Any] = Field(default_factory=dict)

    def solvers(self, folder: Path, settings: RunSettings) -> list[MethodSetup | Setup | str]:
        """Return the agent or oracle, or every variant of the method; files are those of *folder*.

        Raises ConfigError for parameters of what is no method, and as `solvers_named` and `methods_of`.
        """
        asked = asked_method(self.name)
        if is_asked_method(self.name):
            return [*methods_of([AskedMethod(asked.name, asked.values, (self.parameters,))], folder)]
        if self.parameters:
            raise ConfigError(f"agents: {self.name} is no method, and methods alone have parameters.")
        name = str(folder / self.name) if self.is_file else self.name
        return solvers_named([name], self.model, settings, [])


class IncidentPlan(Written):
    """Which solvers are run on which incidents."""

    incidents: tuple[str, ...] = Field(min_length=1, description="suites or folders of incidents, beside the plan")
    agents: tuple[PlannedSolver, ...] = Field(min_length=1, description="agents, agent.yaml files, methods, or oracles")
    repeats: int = Field(default=1, ge=1)
    settings: RunSettings = Field(default=RunSettings(), description="as -c of opsassay run")


class DiagnosisDomain:
    """Incidents of suites and folders."""

    name: str = "diagnosis"

    def metrics(self) -> tuple[MetricDefinition, ...]:
        """Return every metric of a verdict, right names first."""
        shares = (name for name in known.ALL if name not in known.TIME)
        found = (MetricDefinition(name=n, direction="lower" if n in LESS else "higher") for n in shares)
        return (*found, *(MetricDefinition(name=n, unit="s", direction="lower") for n in known.TIME))

    def succeeded(self, metrics: Mapping[str, Metric]) -> bool | None:
        """Return whether the answer is an exact match, or names the right service where kinds are not named."""
        from opsassay.evals.diagnosis.repeats import success

        return success(metrics) if metrics else None

    def tasks(self, paths: Sequence[Path]) -> Iterator[Task]:
        """Yield the incidents at *paths*, with oracles where the truth is at hand; none ship."""
        for path in paths:
            if path.is_dir():
                for case in resolve(path):
                    known = NAMES if case.truth is not None else ()
                    yield IncidentItem.of(case.datapack).task.model_copy(update={"oracles": known})

    def jobs(self, part: Mapping[str, Any], folder: Path, where: str) -> Sequence[IncidentJob]:
        """Return the runs of one part of a plan."""
        planned = part_as(IncidentPlan, part, where)
        settings = planned.settings
        opened = [one for name in planned.incidents for one in open_suite(folder / name)]
        solvers = [solver for one in planned.agents for solver in one.solvers(folder, settings)]
        return plan(opened, solvers, planned.repeats, settings)

    def grade(self, stores: Stores, settings: GradeSettings) -> GradedRuns:
        """Grade against the truth of the incidents; raises as `grade_incidents`."""
        from opsassay.evals.diagnosis.graded import grade_incidents

        return grade_incidents(self, stores, settings)


DIAGNOSIS = DiagnosisDomain()
