"""One run of one solver on one task on cost data: its tables in a folder of their own, its answer in the run folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from opsassay import __version__
from opsassay.agents.command import CommandAgent
from opsassay.agents.contract import AnswerError
from opsassay.agents.finops import SUBMIT
from opsassay.agents.limits import Limits, Meter
from opsassay.bench.core.attempt import AttemptOutcome, Isolation, attempt
from opsassay.bench.core.cell import Cell
from opsassay.bench.core.commands import refusal_to_seal
from opsassay.bench.core.mounts import require_apart
from opsassay.bench.core.plan import PlannedAgent
from opsassay.bench.core.processes import kill_sessions
from opsassay.bench.core.run import JobEnd
from opsassay.bench.core.store import RunStore, read_run
from opsassay.bench.domains.finops import oracles
from opsassay.bench.domains.finops.answers import ANSWER, read_object
from opsassay.bench.domains.finops.desk import CostDesk, cost_tables, desk_of, require_answer
from opsassay.bench.domains.finops.focus.draws import Draws
from opsassay.bench.domains.finops.grading import grade_answer
from opsassay.bench.domains.finops.plan import AnswerSettings
from opsassay.bench.domains.finops.tasks import CostTask, keep_body
from opsassay.errors import NotFoundError, UserError
from opsassay.model.run import Metric, RunStatus, Solver
from opsassay.model.task import Arm

ORACLE, FINOPS = "oracle:", "finops"


@dataclass(frozen=True)
class CostJob:
    """One run that is to be made: who answers (*agent*), which task, and the *seed* that stands for the repeat."""

    task: CostTask
    agent: PlannedAgent
    seed: int
    settings: AnswerSettings

    def __post_init__(self) -> None:
        name = self.agent.name
        if self.oracle is not None and self.oracle not in self.task.body.oracles:
            raise NotFoundError(f"oracle of {self.task.name}", self.oracle, self.task.body.oracles)
        if name == FINOPS and self.agent.model is None:
            raise UserError("The agent finops asks a model: give `model: NAME`, or `scripted:FILE` for a script.")
        if self.oracle is None and not self.agent.is_file and name not in {*oracles.BASELINES, FINOPS}:
            raise NotFoundError("agent of cost tasks", name, [*oracles.BASELINES, FINOPS, "oracle:right"])

    @property
    def oracle(self) -> str | None:
        """The name of the oracle that answers, None for anybody else."""
        return self.agent.name.removeprefix(ORACLE) if self.agent.name.startswith(ORACLE) else None

    @cached_property
    def command(self) -> CommandAgent | None:
        """The external agent that answers, None for anybody else."""
        return CommandAgent(Path(self.agent.name)) if self.agent.is_file else None

    @cached_property
    def limits(self) -> Limits:
        """The limits of the run: those of the plan go over the agent's own."""
        own = self.command.file.limits.model_dump(exclude_unset=True) if self.command else {}
        return Limits.model_validate({"seconds": 900.0, **own, **self.settings.limits})

    @property
    def task_name(self) -> str:
        """What the task is called."""
        return self.task.head.id

    @property
    def solver_name(self) -> str:
        """What the solver is called in results."""
        if self.command is not None:
            return self.command.name
        return f"{FINOPS} ({_model_label(self.agent.model)})" if self.agent.name == FINOPS else self.agent.name

    @cached_property
    def cell(self) -> Cell:
        """The cell that the run belongs to."""
        configuration: dict[str, Any] = {"limits": self.limits.model_dump(mode="json", exclude={"pause_s", "retries"})}
        if self.agent.model is not None:
            configuration |= {"model": _model_label(self.agent.model), "temperature": self.settings.temperature}
        solver = Solver(name=self.solver_name, kind="agent", configuration=configuration, version=__version__)
        total = hashlib.sha256(solver.digest().encode())
        if self.command is not None:
            total.update(self.command.source_hash.encode())
        kind, _, rest = (self.agent.model or "").partition(":")
        if kind == "scripted" and Path(rest).is_file():
            total.update(Path(rest).read_bytes())
        return Cell(self.task.head, solver, total.hexdigest(), Arm(), self.seed)

    def run(self, store: RunStore, given_up: Callable[[], bool], say: Callable[[str], None]) -> JobEnd:
        """Have the question answered, unless the store has its answer."""
        del say
        if self.command is not None:
            require_apart(self.command, [store.root])
        keep_body(store.root, self.task)
        sealed = self.command is not None and refusal_to_seal(self.settings.sealing) is None
        isolation: Isolation = "in_process"
        if self.command is not None:
            isolation = "sealed" if sealed else "unsealed"
        known = store.finished(self.cell.hash)
        run_dir = attempt(
            store, self.cell, lambda folder, _: self._solve(folder, sealed=sealed), isolation=isolation,
            limits={"seconds": self.limits.seconds}, can_be_sealed=sealed, given_up=given_up,
        )  # fmt: skip
        run = read_run(run_dir)
        message = run.status.value + (f": {run.error}" if run.error else "")
        return JobEnd(self, run_dir, run, message=message, known=run_dir == known)

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Grade the run in *run_dir*."""
        return grade_answer(run_dir, self.task)

    def end_all(self) -> None:
        """Kill what external agents started."""
        kill_sessions()

    def _solve(self, run_dir: Path, *, sealed: bool) -> AttemptOutcome:
        meter = Meter(self.limits, self.settings.price)
        with cost_tables(self.task) as folder, desk_of(self.task, folder, run_dir, meter) as desk:
            error = self._answered(desk, meter, folder, run_dir, sealed=sealed)
            if desk.answer is not None:
                text = json.dumps(desk.answer, indent=1, ensure_ascii=False)
                (run_dir / ANSWER).write_text(f"{text}\n", encoding="utf-8")
            spent = {**meter.spent(), "missed_names": float(desk.tools.misses)}
            status = RunStatus.DONE
            if desk.answer is None:
                status = RunStatus.TIMEOUT if "seconds" in meter.hit else RunStatus.FAILED
                error = f"no answer: {error or _last_error(desk)}"
            return AttemptOutcome(status, error, limits_hit=tuple(meter.hit), spent=spent)

    def _answered(self, desk: CostDesk, meter: Meter, folder: Path, run_dir: Path, *, sealed: bool) -> str | None:
        """Have the agent answer at *desk*; return why it did not, as far as it is known."""
        if self.oracle is not None:
            oracles.play(self.oracle, self.task, desk)
            return None
        if (baseline := oracles.BASELINES.get(self.agent.name)) is not None:
            answer = baseline(self.task.body, Draws(self.seed, "baseline", self.task.commitment))
            if answer is None:
                return "a detector has no answer to a question"
            desk.call(SUBMIT, answer)
            return None
        if self.command is not None:
            from opsassay.bench.domains.finops.outside import answer_outside

            return answer_outside(self.command, self, desk, meter, folder, run_dir, sealed=sealed)
        from opsassay.bench.domains.finops.built_in import answer_built_in

        return answer_built_in(self, desk, meter, run_dir)

    def take(self, desk: CostDesk, text: str | bytes) -> str | None:
        """Take the answer in *text*, if it is one; return why it is none."""
        try:
            given = read_object(text)
            require_answer(self.task, given)
        except AnswerError as error:
            return f"no answer by the contract: {error}"
        desk.answer = given
        return None


def _last_error(desk: CostDesk) -> str:
    errors = [call.output for call in desk.calls if call.status == "error"]
    return errors[-1].removeprefix("Error: ").splitlines()[0][:300] if errors else "it ended without one"


def _model_label(model: str | None) -> str:
    kind, _, rest = (model or "").partition(":")
    return f"{kind}:{Path(rest).name}" if kind in {"scripted", "replayed"} else model or ""
