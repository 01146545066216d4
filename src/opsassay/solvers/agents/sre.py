"""The SRE agent of ITBench (C.5): a diagnosis agent that only reads, then a mitigation agent that acts and checks.

A call is linted before it runs; the model reconsiders a call that the linter or the system refuses. A request of its
own summarises a long output.
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
        """Return the tools' specifications; *changing* False leaves out those that change the system."""


@dataclass
class Report:
    """The JSON objects that the two agents submitted, each None when an agent submitted nothing, and *notes*."""

    diagnosis: dict[str, Any] | None = None
    mitigation: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)


class SreAgent:
    """Diagnoses, then mitigates, with *tools*, asking through *asker*; *names* are the valid targets of a call.

    *diagnosed* is called with the diagnosis as soon as it is submitted.
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
        """Diagnose, then mitigate the system of the text *alert*; return both reports, with notes on an early end."""
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
        """Let *agent* work on *task*; return the arguments of its call of *final*, else add a note to *report*: None."""
        talk = Conversation(self._asker, self._tools, (*tools, final), final.name, self._names)
        handed_in = talk.hold(agent, prompt, task)
        if handed_in is None:
            report.notes.append(f"{agent}: no report after {TURNS} turns")
        return handed_in
