"""The domain of SRE scenarios: a live system is broken, and the operator is judged by the system's whole trajectory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.run import Metric
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.task import MetricDefinition, Task
from opsassay.evals.remediation.plan import TrialPlan, cells_of, require_sound
from opsassay.evals.remediation.solve import TrialRun
from opsassay.evals.remediation.tasks import scenario_task
from opsassay.evals.runner.plan import part_as
from opsassay.testbed.scenarios import generated_names, load_scenario, names

if TYPE_CHECKING:
    from opsassay.evals.runner.grading import GradedRuns, GradeSettings, Stores

MARKS = (
    "certificate", "v_outcome", "v_temporal", "v_depth", "v_probe", "alerts_cleared", "v_placement", "v_no_regression",
    "v_impact", "v_blast_radius", "v_control_plane", "diagnosis_right", "ntam_fl", "ntam_fpc",
)  # fmt: skip
COSTS = {
    "time_to_diagnosis_s": "s", "time_to_repair_s": "s", "impact_user_minutes": "min", "impact_failed_requests": "requests",
    "blast_radius": "services", "hidden_failure": "",
}  # fmt: skip
FIRST = (
    "certificate", "alerts_cleared", "diagnosis_right", "ntam_fl", "ntam_fpc", "time_to_diagnosis_s", "time_to_repair_s",
    "hidden_failure",
)  # fmt: skip
"""The columns of a leaderboard: ITBench's, plus whether the incident was in fact resolved."""


class SreDomain:
    """The domain whose tasks are scenarios: packaged and generated ones, and files next to a plan."""

    name: str = "sre"

    def metrics(self) -> tuple[MetricDefinition, ...]:
        """Return the metric definitions: those of leaderboards first, then other predicates and costs."""
        found = {name: MetricDefinition(name=name) for name in MARKS}
        found |= {name: MetricDefinition(name=name, unit=unit, direction="lower") for name, unit in COSTS.items()}
        return tuple(found[name] for name in dict.fromkeys((*FIRST, *found)))

    def succeeded(self, metrics: Mapping[str, Metric]) -> bool | None:
        """Return whether the metric "certificate" is 1, None when *metrics* lacks it."""
        certificate = metrics.get("certificate")
        return None if certificate is None else certificate.value == 1.0

    def tasks(self, paths: Sequence[Path]) -> Iterator[Task]:
        """Yield the tasks of packaged and generated scenarios, then of scenario files (YAML) at *paths*."""
        yield from map(scenario_task, map(load_scenario, [*names(), *generated_names()]))
        for path in paths:
            if path.suffix in (".yaml", ".yml"):
                yield scenario_task(load_yaml(path, Scenario))

    def jobs(self, part: Mapping[str, Any], folder: Path, where: str) -> Sequence[TrialRun]:
        """Return the trials of one section *part* of a plan file in *folder*; errors name the section by *where*."""
        jobs = cells_of(part_as(TrialPlan, part, where), folder)
        require_sound(jobs)
        return jobs

    def grade(self, stores: Stores, settings: GradeSettings) -> GradedRuns:
        """Grade the counted trials of *stores* by the criteria that each committed before; *settings* are ignored."""
        from opsassay.evals.remediation.report import grade_trials

        del settings
        return grade_trials(self, stores)


SRE_DOMAIN = SreDomain()
