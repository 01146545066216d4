"""Pages of compliance runs: the decision on each cluster state, the deciding rule, and the submitted policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from opsassay.evals.compliance.clusters.kept import admissions_of, graded_task
from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache
from opsassay.evals.compliance.files.submitted import collected
from opsassay.evals.compliance.kyverno.documents import UnsupportedError
from opsassay.evals.compliance.kyverno.judge import judge_objects
from opsassay.evals.compliance.kyverno.policy import KyvernoPolicy, read_policies
from opsassay.evals.compliance.score import (
    KEPT,
    Admits,
    collect_worlds,
    judge_admission,
    judged_worlds,
    problem_of_files,
)
from opsassay.evals.compliance.tasks import DOMAIN, POLICY, ComplianceTask
from opsassay.evals.runner.grading import GradedRun
from opsassay.evals.runner.store import RunStore
from opsassay.evals.runner.tables import ResultTable
from opsassay.solvers.agents.contract import AnswerError
from opsassay.ui.reports import PageRequest, ShownTask, write_run_pages


def write_compliance_pages(request: PageRequest, written_to: Callable[[Path], None]) -> list[str]:
    """Write ``TASK-CELL.html`` for each counted run, tell *written_to* its path; return a line per missing page."""
    return write_run_pages(DOMAIN, shown_compliance, request, written_to)


def shown_compliance(store: RunStore, graded: GradedRun, shelf: type[EvidenceCache] = EvidenceCache) -> ShownTask:
    """Return the page data of a compliance run, its evidence read by the cache type *shelf*; raises OpsAssayError."""
    task = graded_task(store.root, graded.run)
    try:
        files = collected(graded.folder, task)
    except AnswerError:
        return ShownTask(task.goal)
    left = [(path, content.decode("utf-8", "replace")) for path, content in files.items()]
    if task.collector is not None:
        return _shown_collected(task, files, left, shelf(graded.folder / KEPT))
    tables: list[ResultTable] = []
    with suppress(UnsupportedError):  # its reason is among the grades
        tables.append(
            _worlds_table(
                task, task.applicable_policies(read_policies(files.items())), admissions_of(graded.run, graded.folder)
            )
        )
    return ShownTask(task.goal, tables=tables, files=left)


def _shown_collected(
    task: ComplianceTask, files: Mapping[str, bytes], facts: list[tuple[str, str]], shelf: EvidenceCache
) -> ShownTask:
    """Return the page data of a collector's run: *facts*, evidence by *shelf* and decision for each cluster state."""
    if problem_of_files(task, files) is not None:  # its reason is among the grades
        return ShownTask(task.goal, files=facts)
    worlds = collect_worlds(files, task, shelf)
    judged, mutated = judged_worlds(files[POLICY], worlds)
    rows = []
    for kind, outcomes in (("judged", judged), ("mutant", mutated)):
        for number, (world, (label, outcome)) in enumerate(zip(worlds, outcomes, strict=True), 1):
            evidence = world.evidence if kind == "judged" else world.mutant
            said = f"{outcome.kind}: {outcome.reason}" if outcome.reason else outcome.kind
            brought = evidence.problem or f"{len(evidence.data or b''):,} bytes"
            rows.append((kind, f"{number}", "compliant" if label else "violating", said, brought))
    table = ResultTable("Worlds", ("world", "number", "it is", "the policy said", "collected"), tuple(rows))
    first = worlds[0].evidence.data
    shown = [*facts, *([("evidence of the first world", first.decode("utf-8"))] if first else [])]
    return ShownTask(task.goal, tables=[table], files=shown)


def _worlds_table(task: ComplianceTask, policies: Sequence[KyvernoPolicy], admits: Admits | None) -> ResultTable:
    """Return a table of cluster states: label, whether *policies* let it in (by *admits*, None: our evaluator), why."""
    return ResultTable(
        "Worlds",
        ("world", "number", "it is", "it was", "objects", "kept out by"),
        tuple(_world_rows(task, policies, admits)),
    )


def _world_rows(
    task: ComplianceTask, policies: Sequence[KyvernoPolicy], admits: Admits | None
) -> Iterator[tuple[str, ...]]:
    """Yield (kind, number, label, admission, objects, refusing rules) per cluster state; as in `_worlds_table`."""
    for kind, worlds in (("judged", task.judged()), ("mutant", task.mutants())):
        for number, world in enumerate(worlds, 1):
            failed = [one for one in judge_objects(policies, world.objects) if one.result == "fail"]
            kept_out = [f"{one.object} by {one.policy}/{one.rule}" for one in failed if one.enforced]
            label = "compliant" if world.compliant else "violating"
            objects = ", ".join(f"{one['kind']}/{one['metadata']['name']}" for one in world.objects)
            is_in, bypass = judge_admission(policies, world, task.control, admits)
            end = f"let in: {bypass}" if bypass else "let in" if is_in else "kept out"
            yield kind, f"{number}", label, end, objects, ", ".join(kept_out) or "–"
