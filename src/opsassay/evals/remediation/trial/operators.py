"""The operator of a trial: a scripted oracle, the built-in SRE agent, or an external agent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from opsassay.core.errors import OperationError
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run_folder import DIAGNOSES, TRACE
from opsassay.core.schema.scenario import OracleStep, Scenario
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.trajectory import OperatorDiagnosis, Propagation, ToolCall, TraceStep
from opsassay.evals.remediation.controls.scripts import REPORT as REPORT_VERB
from opsassay.evals.remediation.controls.scripts import ControlScript, Script, script_of
from opsassay.evals.remediation.trial.contract import REPORT, TrialAgent, note_outcome
from opsassay.evals.runner.commands import refusal_to_seal
from opsassay.evals.runner.tool_servers import started_servers
from opsassay.solvers.agents.asking import Asker
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.agents.models.named import model_named
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.sre import SreAgent
from opsassay.solvers.agents.sre_prompts import DIAGNOSIS_REPORT
from opsassay.testbed.operations.tool_session import OperatorToolSession
from opsassay.testbed.scenarios import system_of


@dataclass(frozen=True)
class Assignment:
    """The task of an operator: its prompt, time limit, and the run folder for its records."""

    scenario: Scenario
    prompt: str
    timeout_s: float
    seed: int
    run_dir: Path


Operate = Callable[[TrialAgent, Assignment, OperatorToolSession], None]
"""Runs an agent on an assignment with the tools of a session."""

REPORT_DIAGNOSIS: ToolSpec = DIAGNOSIS_REPORT.model_copy(
    update={
        "description": "Hand in what you think is the cause, as soon as you know. It is graded, and so is how soon it "
        "came; a later one takes its place."
    }
)
"""The tool by which external operators report a diagnosis; the built-in agent ends its first part with it."""


NAMES_KEPT, NAME_KEPT, CONDITION_KEPT = 100, 200, 4_000
"""Limits on a recorded diagnosis: number of names, characters per name, characters of the condition."""


class Diagnoses:
    """Records the diagnoses of one trial; its file, even if empty, shows that a diagnosis was asked for."""

    def __init__(self, task: Assignment, session: OperatorToolSession) -> None:
        self._path = task.run_dir / DIAGNOSES
        self._path.touch()
        # a scenario may leave names open: what is said is put down as the scenario has it
        self._open = {str(session.fill(name)): name for name in task.scenario.true_causes()}

    def take(self, arguments: Mapping[str, Any]) -> None:
        """Append a diagnosis reported by the agent, its *arguments* already validated, to the record."""
        line = OperatorDiagnosis(
            time_ns=time.time_ns(),
            root_causes=tuple(self._open.get(name, name) for name in _shorten_names(arguments["root_causes"])),
            propagation=tuple(_shorten_names(arguments["propagation"])),
            condition=arguments["condition"][:CONDITION_KEPT],
            edges=tuple(self._edges(arguments.get("edges") or ())),
        )
        append_line(self._path, line)

    def _edges(self, items: Iterable[Any]) -> Iterator[Propagation]:
        """Yield the propagation edges among a model's unchecked *items* that name both ends."""
        for one in islice(items, NAMES_KEPT):
            if not isinstance(one, Mapping) or not all(isinstance(one.get(end), str) for end in ("source", "target")):
                continue
            source, target = (self._open.get(name, name) for name in _shorten_names((one["source"], one["target"])))
            words = {key: str(one.get(key, ""))[:CONDITION_KEPT] for key in ("condition", "effect")}
            yield Propagation(source=source, target=target, **words)


def _shorten_names(names: Iterable[Any]) -> list[str]:
    """Return the first `NAMES_KEPT` names, each cut to `NAME_KEPT` characters."""
    return [str(name)[:NAME_KEPT] for name in islice(names, NAMES_KEPT)]


REPLAYED = "replayed"
"""Name of the oracle that repeats the changes of a recorded trial."""
BEGUN_S = 0.2
"""Seconds that a script which leaves at once waits after its last call started, so that its arguments are checked."""


def run_operator(agent: TrialAgent, task: Assignment, session: OperatorToolSession) -> None:
    """Run *agent* on *task* in *session*; its own failure is a result; OpsAssayError for other failures.

    The MCP servers whose tools it has see an empty folder, and are sandboxed where possible.
    """
    if (name := agent.oracle) is not None:
        play(script_of(task.scenario, name), name, task, session)
        return
    sealed = refusal_to_seal(agent.sealing) is None
    with TemporaryDirectory(prefix="opsassay-op-", ignore_cleanup_errors=True) as made:
        (view := Path(made) / "view").mkdir()
        with started_servers(agent.servers, view, Path(made), task.timeout_s, sealed=sealed) as servers:
            session.join(servers)
            if agent.is_outside:
                from opsassay.evals.remediation.trial.external import operate

                operate(agent, task, session)
            else:
                run_sre(agent, task, session, sealed=sealed if servers else None)
    for server in servers:
        if server.gone:
            note_outcome(task.run_dir, "tools_gone", server.gone)


def play(oracle: Script, name: str, task: Assignment, session: OperatorToolSession) -> None:
    """Make the tool calls of *oracle*, called *name*, and trace them; OperationError when a tool refuses one.

    In a replay a change may be refused, as in the record or because it needs an omitted one. A script that *leaves*
    does not wait for its last call.
    """
    for number, step in enumerate(oracle.steps, 1):
        began_ns = time.time_ns()
        leaves = isinstance(oracle, ControlScript) and oracle.leaves and number == len(oracle.steps)
        carry_out = _start_call if leaves else _call_of_step
        calls = (carry_out(step, task, number, session),) if step.verb is not None else ()
        append_line(
            task.run_dir / TRACE,
            TraceStep(
                step_id=number,
                agent_id=f"oracle-{name}",
                agent_name=f"oracle:{name}",
                input_context=task.prompt if number == 1 else "",
                output_content=oracle.description if number == 1 else "",
                tool_logs=calls,
                started_at=began_ns,
                ended_at=time.time_ns(),
                kind="tool" if calls else "plain",
            ),
        )
        for call in calls:
            if call.status == "error" and name != REPLAYED:
                raise OperationError(f"Step {number} of oracle {name} of {task.scenario.id} failed: {call.output}")
        time.sleep(step.wait_s)


def _call_of_step(step: OracleStep, task: Assignment, number: int, session: OperatorToolSession) -> ToolCall:
    """Carry out *step*, the script's step *number*: a reported diagnosis or a tool call; return the call."""
    tool, arguments = (step.verb or "").replace(" ", "_"), session.fill(step.arguments)
    if step.verb == REPORT_VERB:
        Diagnoses(task, session).take(arguments)
        return ToolCall(tool=tool, arguments=arguments, output="Taken.")
    return session.call(tool, arguments, number)


def _start_call(step: OracleStep, task: Assignment, number: int, session: OperatorToolSession) -> ToolCall:
    """Start the call of *step* in a thread that may outlast the script; return the call without its output."""
    calls = session.call_count
    threading.Thread(target=_call_of_step, args=(step, task, number, session), name="left", daemon=True).start()
    while session.call_count == calls:
        time.sleep(0.01)
    time.sleep(BEGUN_S)
    tool = (step.verb or "").replace(" ", "_")
    return ToolCall(tool=tool, arguments=session.fill(step.arguments), output="", status="unanswered")


def run_sre(agent: TrialAgent, task: Assignment, session: OperatorToolSession, *, sealed: bool | None = None) -> None:
    """Run the built-in SRE agent; its report goes to the run folder. Raises UserError for an unknown model.

    *sealed*: whether its MCP servers are sandboxed; None without servers.
    """
    assert agent.model is not None
    limits = Limits(seconds=task.timeout_s, **agent.settings)
    asker = Asker(model_named(agent.model, timeout_s=task.timeout_s), Meter(limits), AgentRecorder(task.run_dir))
    system = system_of(task.scenario)
    names = [*system.services, *system.stores, *system.hosts]
    report = SreAgent(asker, session, names, Diagnoses(task, session).take).run(task.prompt)
    summary: dict[str, Any] = {
        "diagnosis": report.diagnosis,
        "mitigation": report.mitigation,
        "notes": report.notes,
        "spent": asker.meter.spent(),
        "limits_hit": asker.meter.hit,
        **({"sealed": False} if sealed is False else {}),
    }
    (task.run_dir / REPORT).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
