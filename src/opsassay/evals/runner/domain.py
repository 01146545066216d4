"""Domains: what is asked of each kind of task, and the registry in which they are found.

A `Domain` lists tasks, makes run specs of a part of a plan, and knows its metrics. A package adds one by the entry point
``opsassay.domains``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from opsassay.core.registry import Registry
from opsassay.core.schema.run import Metric, Run, RunStatus
from opsassay.core.schema.task import MetricDefinition, Task
from opsassay.evals.runner.run import PlannedRun
from opsassay.scoring.void import is_void

if TYPE_CHECKING:
    from opsassay.evals.runner.grading import GradedRuns, GradeSettings, Stores


class Domain(Protocol):
    """One kind of tasks."""

    name: str

    def metrics(self) -> tuple[MetricDefinition, ...]:
        """Return the definitions of the metrics that its results may have, the most important first."""

    def succeeded(self, metrics: Mapping[str, Metric]) -> bool | None:
        """Return whether a run succeeded, for pass@k; None when nothing could be judged."""

    def tasks(self, paths: Sequence[Path]) -> Iterator[Task]:
        """Yield the public descriptions of the tasks at *paths*, and of the packaged ones."""

    def jobs(self, part: Mapping[str, Any], folder: Path, where: str) -> Sequence[PlannedRun]:
        """Return the runs of one *part* of a plan, whose files are looked for in *folder*; all that is wrong is raised.

        Raises ConfigError, which names the part by *where*, and what makes its tasks and agents impossible.
        """

    def grade(self, stores: Stores, settings: GradeSettings) -> GradedRuns:
        """Grade the runs of this domain in *stores* from what the stores hold; `grade_each` does it run by run."""


def is_generated(domain: Domain) -> bool:
    """Return whether the tasks of *domain* are generated from seeds, one of which is published."""
    return bool(getattr(domain, "generated", False))


DOMAINS = Registry(
    "domain",
    "opsassay.domains",
    {
        "diagnosis": "opsassay.evals.diagnosis.domain:DIAGNOSIS",
        "sre": "opsassay.evals.remediation.domain:SRE_DOMAIN",
        "ciso": "opsassay.evals.compliance.domain:CISO_DOMAIN",
        "finops": "opsassay.evals.cost.domain:FINOPS_DOMAIN",
        "triage": "opsassay.evals.triage.domain:TRIAGE_DOMAIN",
    },
)


def domain_named(name: str) -> Domain:
    """Return the domain called *name*; raises NotFoundError."""
    domain: Domain = DOMAINS.load(name)
    return domain


def outcome_of(domain: Domain, run: Run, metrics: Mapping[str, Metric]) -> bool | None:
    """Return whether *run* succeeded by its *metrics*; False when it came to no answer.

    None on a void case, and where nothing could be judged.
    """
    if is_void(metrics):
        return None
    return domain.succeeded(metrics) if run.status is RunStatus.DONE else False
