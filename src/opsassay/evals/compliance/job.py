"""One run of one solver on one compliance task: a workspace, what was handed in copied from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from opsassay.core.schema.run import Metric, RunStatus
from opsassay.evals.compliance.answers import collect, place
from opsassay.evals.compliance.grading import grade_run
from opsassay.evals.compliance.on_cluster.admission import ADMITTED, asking_kyverno
from opsassay.evals.compliance.on_cluster.place import ClusterPlace
from opsassay.evals.compliance.on_cluster.read_worlds import CLUSTER, ENGINE, ON, graded_task
from opsassay.evals.compliance.oracles import BASELINES, ORACLES, baseline
from opsassay.evals.compliance.tasks import EXAMPLES, ComplianceTask
from opsassay.evals.compliance.tool_session import ComplianceToolSession, desk_of, desk_specs
from opsassay.evals.runner.answering import AnswerJob, ended_without
from opsassay.evals.runner.attempt import AttemptOutcome
from opsassay.evals.runner.run import JobEnd
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.solvers.agents.contract import AnswerError
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.models.base import ToolSpec

CISO = "ciso"
WORK, DESK = "work", "desk"


@dataclass(frozen=True)
class ComplianceJob(AnswerJob):
    """One run of one solver on one compliance task."""

    kind_of_task = "compliance task"
    built_in = CISO
    baselines = BASELINES

    task: ComplianceTask
    place: ClusterPlace | None = None

    def run(self, store: RunStore, given_up: Callable[[], bool], say: Callable[[str], None]) -> JobEnd:
        """Have the task worked on, unless the store has its result, once its worlds have been where the plan says."""
        if self.place is not None and self.arm.knob(ON) == CLUSTER:
            self.place.bring(self.task, store.root, given_up, say)
        return super().run(store, given_up, say)

    @property
    def examples(self) -> int:
        """How many examples of each kind the agent is shown."""
        return int(self.arm.knob("examples") or EXAMPLES)

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools of the workspace, submit the last."""
        return desk_specs(self.task)

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Grade the run in *run_dir*, by the Kyverno of a cluster where the plan says so."""
        run = read_run(run_dir)
        task = graded_task(run_dir.resolve().parents[2], run)
        if self.place is None or self.arm.knob(ENGINE) != CLUSTER or run.status is not RunStatus.DONE:
            return grade_run(run_dir, task)
        with asking_kyverno(self.place, task, run_dir / ADMITTED) as admits:
            return grade_run(run_dir, task, admits)

    def solve(self, run_dir: Path, *, sealed: bool) -> AttemptOutcome:
        """Have the task worked on in a workspace, and copy what is asked for into *run_dir*."""
        meter = Meter(self.limits, self.settings.price)
        with TemporaryDirectory(prefix="opsassay-compliance-") as made:
            folder = Path(made)
            desk = desk_of(self.task, folder / DESK, run_dir, meter, self.examples)
            error = self._worked(desk, folder, run_dir, meter, sealed=sealed)
            has_desk = desk.is_submitted or self.command is None
            try:
                collect(folder / (DESK if has_desk else WORK), run_dir, self.task)
            except AnswerError as refused:
                return ended_without(error or str(refused), meter.hit, meter.spent())
        return AttemptOutcome(RunStatus.DONE, error, limits_hit=tuple(meter.hit), spent=meter.spent())

    def _worked(
        self, desk: ComplianceToolSession, folder: Path, run_dir: Path, meter: Meter, *, sealed: bool
    ) -> str | None:
        """Have the task worked on at *desk* or in *folder*; return what went wrong, as far as it is known."""
        if self.command is not None:
            from opsassay.evals.compliance.external_agents import work_outside

            return work_outside(self.command, self, desk, meter, folder, run_dir, sealed=sealed)
        if self.agent.name == self.built_in:
            from opsassay.evals.compliance.built_in import work_built_in

            return work_built_in(self, desk, meter, run_dir)
        oracle, name = self.oracle, self.agent.name
        left = baseline(name, self.task) if oracle is None else ORACLES[self.task.task_class][oracle][0](self.task)
        for path in desk.left():
            path.unlink()
        place(left.items(), folder / DESK)
        return None
