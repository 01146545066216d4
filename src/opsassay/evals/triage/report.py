"""The tables of alert storms: every metric of every solver, by how many problems a storm has."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from opsassay.core.text import plural
from opsassay.evals.runner.grading import GradedRuns
from opsassay.evals.runner.results import by_solver
from opsassay.evals.runner.tables import ResultTable
from opsassay.evals.triage.score import LEFT_OUT, METRICS, definitions
from opsassay.evals.triage.tasks import Storm


@dataclass(frozen=True)
class GradedStorms(GradedRuns):
    """Graded runs of alert storms."""

    def results(self) -> list[ResultTable]:
        """Return a table per number of problems in a storm: the mean of each metric by solver."""
        of: dict[int, list[tuple[object, ...]]] = {}
        problems = {
            one.run.item_hash: len(Storm.read_kept(one.folder.parents[2], one.run.item_hash).problems)
            for one in self.counted
        }
        for solver, rows in sorted(by_solver(self.rows()).items()):
            for count in sorted(set(problems.values())):
                some = [row for row in rows if row.run is not None and problems[row.run.item_hash] == count]
                values = ([m.value for row in some if (m := row.metrics.get(name)) and m.value is not None]
                          for name in (*METRICS, LEFT_OUT))  # fmt: skip
                if some:
                    of.setdefault(count, []).append(
                        (solver, len(some), *(f"{fmean(v):.2f}" if v else None for v in values))
                    )
        columns = ("solver", "runs", *(one.title for one in definitions()))
        return [ResultTable(f"Storms of {plural(n, 'problem')}", columns, tuple(rows)) for n, rows in of.items()]
