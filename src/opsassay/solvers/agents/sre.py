"""The SRE agent of ITBench (C.5): a diagnosis agent that only looks, then a mitigation agent that plans, acts and checks.

The two work in sequence. A call is linted before it is carried out; what the linter or the system objects to goes back to
the model, which reflects and tries again. Long outputs are summarised by a request of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from opsassay.core.schema.tool_session import ToolSession, ToolSpec
from opsassay.solvers.agents.asking import Asker, LimitError
from opsassay.solvers.agents.conversing import TURNS, Conversation
from opsassay.solvers.agents.models.base import ModelError
from opsassay.solvers.agents.sre_prompts import (
    DIAGNOSE,
    DIAGNOSIS_REPORT,
    MITIGATE,
    MITIGATION_REPORT,
    begin_mitigation,
)

DIAGNOSIS, MITIGATION = "diagnosis", "mitigation"


class OperatorTools(ToolSession, Protocol):
    """The tools of an operator."""

    def specs(self, *, changing: bool = True) -> Sequence[ToolSpec]:
        """Return the tools' specifications, without those that change the system unless *changing*."""


@dataclass
class Report:
    """What the two agents handed in: JSON objects, None where one ended without."""

    diagnosis: dict[str, Any] | None = None
    mitigation: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)


class SreAgent:
    """Diagnoses, then mitigates, with *tools*, asking through *asker*; *names* are those that a call may aim at.

    *diagnosed* is called with the diagnosis at the moment when it is handed in.
    """

    name = "sre"
    source = "ITBench (arXiv 2502.05352), C.5: two agents in sequence, linters, reflection, summariser"

    def __init__(
        self,
        asker: Asker,
        tools: OperatorTools,
        names: Collection[str] = (),
        diagnosed: Callable[[Mapping[str, Any]], object] = lambda _: None,
    ) -> None:
        self._asker, self._tools, self._names, self._diagnosed = asker, tools, names, diagnosed

    def run(self, alert: str) -> Report:
        """Diagnose, then mitigate *alert*; return both reports, with notes on a limit or failure that ended it."""
        report = Report()
        try:
            looking = self._tools.specs(changing=False)
            report.diagnosis = self._converse(DIAGNOSIS, DIAGNOSE, alert, looking, DIAGNOSIS_REPORT, report)
            if report.diagnosis is not None:
                self._diagnosed(report.diagnosis)
            acting = self._tools.specs(changing=True)
            task = begin_mitigation(alert, report.diagnosis)
            report.mitigation = self._converse(MITIGATION, MITIGATE, task, acting, MITIGATION_REPORT, report)
        except LimitError as error:
            report.notes.append(str(error))
        except ModelError as error:
            report.notes.append(f"the model gave no answer: {error}")
        return report

    def _converse(
        self, agent: str, prompt: str, task: str, tools: Sequence[ToolSpec], final: ToolSpec, report: Report
    ) -> dict[str, Any] | None:
        """Let *agent* work on *task*; return the arguments of its call of *final*, else None and a note in *report*."""
        talk = Conversation(self._asker, self._tools, (*tools, final), final.name, self._names)
        handed_in = talk.hold(agent, prompt, task)
        if handed_in is None:
            report.notes.append(f"{agent}: no report after {TURNS} turns")
        return handed_in
