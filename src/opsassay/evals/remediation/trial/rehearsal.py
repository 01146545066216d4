"""A rehearsal of a trial: the agent calls the tools of its scenario, without any system behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from opsassay.core.schema.base import Written
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.trajectory import Action
from opsassay.core.text import plural
from opsassay.evals.remediation.trial.contract import REPORT, PromptArm, TrialAgent
from opsassay.evals.remediation.trial.operators import REPORT_DIAGNOSIS, Assignment, run_operator
from opsassay.evals.runner.rehearsal import SECONDS, Check, Rehearsal, isolated, traced
from opsassay.testbed.operations.telemetry_view import LOOKS
from opsassay.testbed.operations.tool_session import Done, OperatorToolSession, Tool
from opsassay.testbed.operations.tools import operator_tools
from opsassay.testbed.scenarios import system_of
from opsassay.testbed.substrates.kubernetes.access.tools import TOOLS as CLUSTER_TOOLS

ANSWER = "A rehearsal: this call is sound, and nothing runs behind it."


class RehearsalToolSession(OperatorToolSession):
    """Tools that validate their arguments and do nothing; *actions* records the calls."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.actions: list[Action] = []
        super().__init__(tools, self.actions.append)

    def carry_out(self, tool: Tool, request: Written) -> Done:
        """Return the fixed answer that every tool call gets; nothing is changed."""
        del tool, request
        return Done(ANSWER)


def tools_of(scenario: Scenario) -> Mapping[str, Tool]:
    """Return the tools that an agent of *scenario* may call, by name."""
    if scenario.cluster is None:
        return operator_tools(system_of(scenario))
    absent = {*(() if scenario.cluster.node_tool else ("node",)), *(LOOKS if scenario.cluster.silent else ())}
    return {name: tool for name, tool in CLUSTER_TOOLS.items() if name not in absent}


def rehearse(
    scenario: Scenario, agent: TrialAgent, arm: PromptArm, tools: Mapping[str, Tool], seconds: float | None
) -> Rehearsal:
    """Run *agent*, prompted by *arm*, with harmless *tools* for *seconds* (None: `SECONDS`); return the checks."""
    session = RehearsalToolSession(tools)
    with TemporaryDirectory(prefix="opsassay-", ignore_cleanup_errors=True) as made:
        run_dir = Path(made)
        task = Assignment(scenario, scenario.prompt(arm), seconds or SECONDS, 0, run_dir)
        run_operator(agent, task, session)
        report = json.loads((run_dir / REPORT).read_text(encoding="utf-8")) if (run_dir / REPORT).exists() else {}
        trace = traced(run_dir)
    specs, checks = session.specs(), [_check_tool_use(session), trace]
    if not agent.is_outside:
        return Rehearsal(specs, (*checks, isolated("in_process")), "in_process", {})
    isolation = "sealed" if report["sealed"] else "unsealed"
    checks = [Check("ended", report["ended"].endswith(" 0"), report["ended"]), *checks, isolated(isolation)]
    if report["limits_hit"]:
        checks.append(Check("limits", None, f"hit: {', '.join(report['limits_hit'])}"))
    return Rehearsal((*specs, REPORT_DIAGNOSIS), tuple(checks), isolation, report["spent"])


def _check_tool_use(session: RehearsalToolSession) -> Check:
    """Return the check that the agent called a tool; an agent that calls none is recorded as idle in a trial."""
    refused = [action for action in session.actions if action.status != "ok"]
    if not session.actions:
        return Check("tools", passed=False, said="none was called; in a trial it would be noted as idle")
    said = f"{plural(len(session.actions), 'call')}, all sound"
    if refused:
        said = f"{len(refused)} of {plural(len(session.actions), 'call')} refused: {refused[0].output[:200]}"
    return Check("tools", not refused, said)
