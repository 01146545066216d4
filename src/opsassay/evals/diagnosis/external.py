"""An external agent's exam: its command runs sealed where the machine can, and what it leaves is read as its answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opsassay.core.errors import UserError
from opsassay.core.schema.run import RunStatus
from opsassay.core.untrusted import is_plain, read_plain
from opsassay.evals.diagnosis.answers import how_it_died
from opsassay.evals.diagnosis.views import Canary, opaque_view
from opsassay.evals.diagnosis.worker import INCIDENT_FOLDER
from opsassay.evals.runner.attempt import MAX_ANSWER_BYTES, AttemptOutcome, reading_what_was_left
from opsassay.evals.runner.commands import WORK_INSIDE
from opsassay.evals.runner.domain import at_hand
from opsassay.evals.runner.external_agents import APIS, ExternalAgent, ExternalTask, output_of, run_outside
from opsassay.evals.runner.store import LOG
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.contract import Answer, AnswerError, read_answer
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.mcp_server import DiagnosisToolSession
from opsassay.solvers.agents.prompts import task_prompt
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.tools import MAX_ROWS, TelemetryToolbox
from opsassay.solvers.sandbox import Ended
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.sql import LockedSql

if TYPE_CHECKING:
    from opsassay.telemetry.backends.serving import ApiServer

ANSWER = "answer.json"


def examine(
    agent: CommandAgent, incident: Datapack, run_dir: Path, meter: Meter, *, model: str | None, sealed: bool
) -> AttemptOutcome:
    """Return what came of the agent's exam on *incident*; trace, actions and the end of its output lie in *run_dir*."""
    bundle = IncidentBundle(incident, meter, AgentRecorder(run_dir), with_tools="mcp" in agent.file.needs)
    with at_hand(bundle) as desk:
        task = ExternalTask(
            bundle.folder / INCIDENT_FOLDER,
            lambda places: task_prompt(incident.incident, meter.limits, places),
            desk,
            further=lambda work, is_sealed: {"answer": f"{WORK_INSIDE if is_sealed else work}/{ANSWER}"},
            apis=bundle.apis() if APIS in agent.file.needs else None,
        )
        with reading_what_was_left():
            end = run_outside(ExternalAgent.of(agent, model), task, bundle.folder, run_dir, meter, sealed=sealed)
            if said := output_of(end):
                (run_dir / LOG).write_text(said + "\n", encoding="utf-8", errors="replace")
            outcome = _outcome(end, desk, bundle.folder / "work", bundle.services, bundle.canary, meter)
    return replace(outcome, notes=(*outcome.notes, *bundle.left))


class IncidentBundle:
    """One incident for one external agent: a copy in an opaque folder, with a false truth beside it."""

    folder: Path
    canary: Canary
    left: tuple[str, ...] = ()
    """What was not back at the baseline when all was removed."""

    def __init__(self, incident: Datapack, meter: Meter, recorder: AgentRecorder, *, with_tools: bool) -> None:
        self._incident, self._meter, self._recorder, self._with_tools = incident, meter, recorder, with_tools
        self._stack, self._made = ExitStack(), list[Path]()
        self.services = incident.services()

    def prepare(self) -> None:
        """Copy what is seen of the incident, and plant the canary."""
        self.folder = self._stack.enter_context(opaque_view(self._incident))
        self._made.append(self.folder)
        self.canary = Canary(self._incident.incident, self.services)
        self.canary.plant(self.folder)

    def start(self) -> None:
        """Do nothing: what broke was recorded."""

    def desk(self) -> DiagnosisToolSession | None:
        """Return the SQL tools with submit, None for an agent that asks for none."""
        if not self._with_tools:
            return None
        sql = LockedSql(self._incident, timeout_s=self._meter.limits.query_seconds, max_rows=MAX_ROWS)
        return DiagnosisToolSession(
            TelemetryToolbox(self._stack.enter_context(sql)), self._meter, self._recorder, self.services
        )

    def apis(self) -> ApiServer:
        """Return the server of backends' APIs over the copy, read now; raises DatapackError."""
        from opsassay.telemetry.backends.serving import ApiServer

        return ApiServer.over(Datapack.open(self.folder / INCIDENT_FOLDER))

    def reset(self) -> None:
        """Do nothing: the incident itself was never handed out."""

    def remove(self) -> None:
        """Remove the folder, and end the SQL worker."""
        self._stack.close()

    def verify(self) -> None:
        """Note a folder that is still there; the incident itself is known by its hash, which every grading looks at."""
        still = [folder for folder in self._made if folder.exists()]
        self.left = tuple(f"not back at the baseline: the folder {folder} is still there" for folder in still)


def _outcome(
    end: Ended, desk: DiagnosisToolSession | None, work: Path, services: Sequence[str], canary: Canary, meter: Meter
) -> AttemptOutcome:
    """Return the outcome: an answer that was submitted, else the file, else what was printed.

    One that was killed at its time has answered if its file holds a valid answer; what it printed until then is none.
    """
    killed = end.limit == "wall_clock_s"
    answer: Answer | None = desk.answer if desk else None
    status, error = RunStatus.DONE, None
    notes = tuple(f"not collected: {what}" for what in end.left_behind)
    if answer is None and not killed and end.exit_code != 0:
        status, error = RunStatus.FAILED, _died(end)
    elif answer is None:
        try:
            answer = read_answer(_written(work, "" if killed else end.stdout_tail), services)
        except AnswerError as problem:
            status, error = RunStatus.FAILED, f"no answer by the contract: {problem}"
            if killed:
                status, error = RunStatus.TIMEOUT, f"no answer after {meter.limits.seconds:g} s"
                notes += (f"{ANSWER}: {problem}",) if (work / ANSWER).exists() else ()
    flags = ("canary",) if answer is not None and canary.is_repeated_in(answer.diagnosis) else ()
    return AttemptOutcome(
        status, error, answer.diagnosis if answer else None, tuple(meter.hit), meter.spent(), flags, notes
    )


def _died(end: Ended) -> str:
    """Return how a command ended that gave no answer, with the last line of its error output."""
    if not end.started:
        return end.reason
    said = (end.stderr_tail.strip().splitlines() or [""])[-1][:300]
    died = f"the solver was killed by {end.signal}" if end.signal else end.reason
    if end.exit_code is not None and not end.signal:
        died = how_it_died(end.exit_code)
    return died + (f": {said}" if said else "")


def _written(work: Path, stdout: str) -> str | bytes:
    """Return what the agent gave as its answer; anything but a plain file of its own is none."""
    file = work / ANSWER
    if not is_plain(file):
        return stdout
    try:
        content = read_plain(file, MAX_ANSWER_BYTES)
    except UserError as error:
        raise AnswerError(f"the answer is larger than {MAX_ANSWER_BYTES} bytes") from error
    return content if content.strip() else stdout
