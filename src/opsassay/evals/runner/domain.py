"""Domains: the interface of each kind of task, and their registry.

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
    """One kind of tasks, such as diagnosis: lists them, makes their runs, and grades these."""

    name: str

    def metrics(self) -> tuple[MetricDefinition, ...]:
        """Return the definitions of all metrics in verdicts of this domain, the most important first."""

    def succeeded(self, metrics: Mapping[str, Metric]) -> bool | None:
        """Return whether a run with *metrics* succeeded, for pass@k; None when it could not be judged."""

    def tasks(self, paths: Sequence[Path]) -> Iterator[Task]:
        """Yield the public descriptions of the packaged tasks and of those at *paths*."""

    def jobs(self, part: Mapping[str, Any], folder: Path, where: str) -> Sequence[PlannedRun]:
        """Return the runs of one section *part* of a plan file; relative paths in it start at *folder*.

        Raises ConfigError, which names the section by *where*, and errors of its tasks and agents.
        """

    def grade(self, stores: Stores, settings: GradeSettings) -> GradedRuns:
        """Grade all runs of this domain in *stores* by *settings*, from stored data alone, as `grade_each` does."""


def is_generated(domain: Domain) -> bool:
    """Return whether the tasks of *domain* are generated from a seed, be it published or secret."""
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
    """Return the registered domain called *name*; raises NotFoundError."""
    domain: Domain = DOMAINS.load(name)
    return domain


def outcome_of(domain: Domain, run: Run, metrics: Mapping[str, Metric]) -> bool | None:
    """Return whether *run* succeeded by its *metrics*; False when it gave no answer.

    None on a void case, and where nothing could be judged.
    """
    if is_void(metrics):
        return None
    return domain.succeeded(metrics) if run.status is RunStatus.DONE else False
