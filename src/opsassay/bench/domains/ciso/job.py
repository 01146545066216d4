"""One run of one solver on one compliance task: a workspace of its own, from which its policies are copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from opsassay.agents.contract import AnswerError
from opsassay.agents.limits import Meter
from opsassay.bench.core.answering import AnswerJob, ended_without
from opsassay.bench.core.attempt import AttemptOutcome
from opsassay.bench.core.commands import WORK_INSIDE
from opsassay.bench.core.outside import OutsideAgent, OutsideTask, output_of, run_outside
from opsassay.bench.core.run import JobEnd
from opsassay.bench.core.store import LOG, RunStore, read_run
from opsassay.bench.domains.ciso.answers import collect, place
from opsassay.bench.domains.ciso.grading import grade_run
from opsassay.bench.domains.ciso.on_cluster.admission import ADMITTED, asking_kyverno
from opsassay.bench.domains.ciso.on_cluster.place import ClusterPlace
from opsassay.bench.domains.ciso.on_cluster.read_worlds import CLUSTER, ENGINE, ON, graded_task
from opsassay.bench.domains.ciso.oracles import BASELINES, ORACLES, baseline
from opsassay.bench.domains.ciso.repository import FOLDER
from opsassay.bench.domains.ciso.tasks import ComplianceTask
from opsassay.model.run import Metric, RunStatus

WORK, VIEW = "work", "view"


@dataclass(frozen=True)
class ComplianceJob(AnswerJob):
    """One run of one solver on one compliance task."""

    kind_of_task = "compliance task"
    baselines = BASELINES

    task: ComplianceTask
    place: ClusterPlace | None = None

    def run(self, store: RunStore, given_up: Callable[[], bool], say: Callable[[str], None]) -> JobEnd:
        """Have the task worked on, unless the store has its result, once its worlds have been where the plan says."""
        if self.place is not None and self.arm.knob(ON) == CLUSTER:
            self.place.bring(self.task, store.root, given_up, say)
        return super().run(store, given_up, say)

    def evaluate(self, run_dir: Path) -> Mapping[str, Metric]:
        """Grade the run in *run_dir*, by the Kyverno of a cluster where the plan says so."""
        run = read_run(run_dir)
        task = graded_task(run_dir.resolve().parents[2], run)
        if self.place is None or self.arm.knob(ENGINE) != CLUSTER or run.status is not RunStatus.DONE:
            return grade_run(run_dir, task)
        with asking_kyverno(self.place, task, run_dir / ADMITTED) as admits:
            return grade_run(run_dir, task, admits)

    def solve(self, run_dir: Path, *, sealed: bool) -> AttemptOutcome:
        """Have the policies written in a workspace, and copy them into *run_dir*."""
        meter = Meter(self.limits, self.settings.price)
        with TemporaryDirectory(prefix="opsassay-compliance-") as folder:
            error = self._worked(Path(folder), run_dir, meter, sealed=sealed)
            try:
                collect(Path(folder) / WORK, run_dir, self.task)
            except AnswerError as refused:
                return ended_without(error or str(refused), meter.hit, meter.spent())
        return AttemptOutcome(RunStatus.DONE, error, limits_hit=tuple(meter.hit), spent=meter.spent())

    def _worked(self, folder: Path, run_dir: Path, meter: Meter, *, sealed: bool) -> str | None:
        """Have the agent work in *folder*; return what went wrong, as far as it is known."""
        if self.command is None:
            oracle, name = self.oracle, self.agent.name
            left = baseline(name, self.task) if oracle is None else ORACLES[self.task.task_class][oracle][0](self.task)
            place(left.items(), folder / WORK)
            return None
        place(self.task.files().items(), folder / VIEW)
        task = OutsideTask(
            folder / VIEW,
            lambda places: _prompt(self.task, places),
            further=lambda work, is_sealed: {"answer": f"{WORK_INSIDE if is_sealed else work}/{FOLDER}"},
        )
        end = run_outside(OutsideAgent.of(self.command, self.agent.model), task, folder, run_dir, meter, sealed=sealed)
        if said := output_of(end):
            (run_dir / LOG).write_text(said + "\n", encoding="utf-8", errors="replace")
        return end.reason if not end.started or end.limit or end.exit_code != 0 else None


def _prompt(task: ComplianceTask, places: Mapping[str, str]) -> str:
    return (
        f"{task.goal}\nExamples of what complies and of what violates, and the policies that are there already, are in "
        f"{places['view']}.\nYour workspace is {places['work']}: leave all policies in {places['answer']}/, those that you "
        "do not change too.\n"
    )
