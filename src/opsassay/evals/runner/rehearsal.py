"""Rehearsals: a trial of an agent with harmless tools, which checks the contract before a real run costs anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from opsassay.core.schema.run import Run, RunStatus
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.text import plural
from opsassay.evals.runner.store import LOG
from opsassay.solvers.agents.record import TRACE
from opsassay.solvers.proxy.formats.finding import read_one

SECONDS = 60.0
"""Default time limit of an agent in a rehearsal."""
_ISOLATION = {
    "sealed": "the agent was sealed; its runs may be ranked",
    "in_process": "an agent of this package; its tools are locked, its runs may be ranked",
    "unsealed": "the agent was NOT sealed; its runs are marked and never ranked",
}


@dataclass(frozen=True)
class Check:
    """One check of the contract: *passed*, with a sentence on it (*said*); *passed* None is only information."""

    name: str
    passed: bool | None
    said: str


@dataclass(frozen=True)
class Rehearsal:
    """The tools that an agent had, the checks, its isolation, and its usage."""

    tools: tuple[ToolSpec, ...]
    checks: tuple[Check, ...]
    isolation: str
    spent: Mapping[str, float]


@runtime_checkable
class CanRehearse(Protocol):
    """A run whose task can be rehearsed."""

    def rehearse(self, seconds: float | None) -> Rehearsal:
        """Run the agent for at most *seconds* (None: the run's limit) with harmless tools; return the checks."""


def check_end(run: Run, run_dir: Path) -> Check:
    """Return the check that *run* has an answer; if not, with its error and the last line of its log in *run_dir*."""
    if run.status is RunStatus.DONE:
        return Check("ended", passed=True, said="with an answer")
    log = run_dir / LOG
    last = (log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""])[-1] if log.exists() else ""
    said = f"{run.status.value}: {run.error}" + (f" (last said: {last[:200]})" if last else "")
    return Check("ended", passed=False, said=said)


def traced(run_dir: Path) -> Check:
    """Return the check that the run in *run_dir* left a trace, with the number of steps and tool calls."""
    if not (run_dir / TRACE).exists():
        return Check("trace", passed=False, said="there is none")
    steps = read_one(run_dir / TRACE).steps
    used = [call for step in steps for call in step.tool_logs]
    refused = [call for call in used if call.status == "error"]
    said = f"{plural(len(steps), 'step')}, {plural(len(used), 'tool call')}"
    if refused:
        said += f", {len(refused)} of them refused ({refused[0].tool}: {refused[0].output[:200]})"
    return Check("trace", passed=True, said=said)


def isolated(isolation: str) -> Check:
    """Return an informative check: *isolation* ("sealed", ...) in words, and whether such a run can be ranked."""
    return Check("isolation", None, _ISOLATION[isolation])


def check_usage(run: Run) -> list[Check]:
    """Return informative checks: the limits that the run hit, and its usage."""
    amounts = ", ".join(f"{name} {value:g}" for name, value in run.spent.items() if value)
    hit = [Check("limits", None, f"hit: {', '.join(run.limits_hit)}")] if run.limits_hit else []
    return [*hit, Check("spent", None, amounts or "nothing was counted")]
