"""A trial of the variant `recommend`: the agent only looks at one system and submits a plan, which a fresh copy executes.

The copy is judged, and its records are those of the run. The folder `asked` has the records of the first system.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsassay.core.errors import OperationError
from opsassay.core.schema.run_folder import ASKED, PLAN, TRACE
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.controls.scripts import Script, script_of
from opsassay.evals.remediation.environment import TrialEnvironment, require_alive
from opsassay.evals.remediation.trial.contract import REPORT, PromptArm, TrialAgent, mark_phase
from opsassay.evals.remediation.trial.external import LOG
from opsassay.evals.remediation.trial.operators import Assignment, run_operator
from opsassay.evals.remediation.trial.perform import work
from opsassay.evals.runner.run import open_session
from opsassay.telemetry.mask import Mask
from opsassay.testbed.operations.environment import environment_for
from opsassay.testbed.operations.recommending import SUBMIT, PlannedCall, RecommendToolSession
from opsassay.testbed.operations.tool_session import OperatorToolSession

TASK = f"""\
Your tools only look at the system. Recommend a repair: hand in a plan with `{SUBMIT}`, the calls of tools in their order,
each with its arguments. The plan is carried out as it stands on a fresh copy of the system with the same fault, and judged
by what happens there. Without a plan, or with an empty one, nothing is done."""
LONGEST_WAIT_S = 60.0
"""Longest wait of one call of the tool `wait`."""


class AskedEnvironment(TrialEnvironment):
    """The system at which the agent looks: its tools are read-only, and it need not settle."""

    def open_tools(self) -> RecommendToolSession:
        """Return a session with the read-only tools and the tool that submits the plan."""
        return RecommendToolSession(super().open_tools())

    def settle(self) -> None:
        """Undo the trigger; LostError if the system ended while the agent worked."""
        self._noisy.close()
        require_alive(self.live, self._session.watch)
        self._observed.close()
        self.live.settle()
        mark_phase(self._run_dir, "ended")


def perform(
    scenario: Scenario,
    agent: TrialAgent,
    arm: PromptArm,
    *,
    probes: bool,
    seed: int,
    run_dir: Path,
    cluster: Mapping[str, Any] | None = None,
    mask: Mask | None = None,
    rollback: bool = False,
    noise: bool = False,
    gate: Path | None = None,
) -> None:
    """Ask *agent* for a plan, then run the trial in which the plan is carried out. Raises OpsAssayError.

    The copy has the names, the load and the fault of the system that the agent saw, which is removed by then. The
    parameters are as for `perform` of an ordinary trial.
    """
    asked = run_dir / ASKED
    asked.mkdir()
    seen, copy = (environment_for(scenario, seed, folder, cluster) for folder in (asked, run_dir))
    copy.drawn_seed = seen.drawn_seed
    looked_at = AskedEnvironment(
        seen, scenario, asked, probes=probes, mask=mask, rollback=rollback, noise=noise, gate=gate
    )
    prompted = scenario.model_copy(update={"alert": f"{scenario.alert.strip()}\n\n{TASK}"})
    with open_session(looked_at) as session:
        work(looked_at, session, prompted, agent, arm, seed, asked, recommend)
        assert isinstance(session, RecommendToolSession)
        plan = session.plan
    for name in (TRACE, REPORT, LOG):
        if (asked / name).exists():
            (asked / name).rename(run_dir / name)
    steps = None if plan is None else [step.model_dump(mode="json") for step in plan]
    (run_dir / PLAN).write_text(json.dumps({"steps": steps}, indent=1) + "\n", encoding="utf-8")

    def carry_out(_: TrialAgent, task: Assignment, tools: OperatorToolSession) -> None:
        del task
        for step in plan or ():
            tools.call(step.tool, step.arguments)

    trial = TrialEnvironment(copy, scenario, run_dir, probes=probes, rollback=rollback, noise=noise)
    with open_session(trial) as session:
        work(trial, session, scenario, agent, arm, seed, run_dir, carry_out)


def recommend(agent: TrialAgent, task: Assignment, session: OperatorToolSession) -> None:
    """Let *agent* work out a plan for *task*; an oracle submits its steps. Raises OpsAssayError."""
    if (name := agent.oracle) is None:
        run_operator(agent, task, session)
        return
    steps = [step.model_dump() for step in plan_of_script(script_of(task.scenario, name))]
    if (call := session.call(SUBMIT, {"steps": steps})).status == "error":
        raise OperationError(f"The plan of oracle {name} of {task.scenario.id} was not taken: {call.output}")


def plan_of_script(script: Script) -> list[PlannedCall]:
    """Return the steps of *script* as planned tool calls; a wait becomes a call of the tool `wait`."""
    calls: list[PlannedCall] = []
    for step in script.steps:
        if step.verb is not None:
            calls.append(PlannedCall(tool=step.verb.replace(" ", "_"), arguments=step.arguments))
        left = step.wait_s
        while left > 0:
            calls.append(PlannedCall(tool="wait", arguments={"seconds": min(left, LONGEST_WAIT_S)}))
            left -= LONGEST_WAIT_S
    return calls
