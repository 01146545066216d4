"""The plan of cost tasks, as a person writes it in YAML: who answers what, on which seeds, how often."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from opsassay.bench.core.answering import MadePlan
from opsassay.bench.core.held_out import PUBLISHED_SEED
from opsassay.bench.domains.finops.live.setup import CLASS, TASKS
from opsassay.bench.domains.finops.tasks import CostTask, held_out, names
from opsassay.errors import NotFoundError


class CostPlan(MadePlan):
    """Who answers which tasks on cost data: the keys of a part of a plan with ``domain: finops``."""

    tasks: tuple[str, ...] = Field(
        default=("all",), min_length=1, description="names, a class (insight, anomaly, alert) or `all` on cost data"
    )

    def chosen(self, folder: Path) -> list[CostTask]:
        """Return the tasks of the plan; raises NotFoundError, and UserError for a secret that is none."""
        found: list[CostTask] = []
        for name in self._names():
            if self.published:
                found.append(CostTask(name=name, seed=PUBLISHED_SEED))
            if self.held_out is not None:
                found += held_out(name, folder / self.held_out.secret, self.held_out.count)
        return found

    def live(self) -> list[str]:
        """Return the live tasks of the plan: `all` means those on cost data, which need no system."""
        return [one for one in TASKS if one in self.tasks or CLASS in self.tasks]

    def _names(self) -> list[str]:
        known, classes = names(), ("insight", "anomaly")
        found: list[str] = []
        for name in self.tasks:
            if name not in {*known, *TASKS, *classes, CLASS, "all"}:
                raise NotFoundError("cost task", name, [*known, *TASKS, *classes, CLASS, "all"])
            is_anomaly = {one: one.startswith("anomalies-") for one in known}
            found += [one for one in known if name in {"all", one, "anomaly" if is_anomaly[one] else "insight"}]
        return list(dict.fromkeys(found))
