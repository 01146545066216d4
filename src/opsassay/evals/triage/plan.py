"""The plan of alert storms, as written in YAML: which solvers, on storms of which incidents, how often."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from opsassay.core.draws import derived_random
from opsassay.core.errors import UserError
from opsassay.core.text import plural
from opsassay.evals.runner.generated_tasks import PlanOfAgents
from opsassay.evals.triage.alerts.problems import faults_of
from opsassay.evals.triage.tasks import Storm, make_storm, why_unfit
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.tree import Case, resolve

NOISE = 6


class TriagePlan(PlanOfAgents):
    """The keys of a plan's part with ``domain: triage``."""

    incidents: tuple[str, ...] = Field(min_length=1, description="folders of annotated incidents, next to the plan")
    together: int = Field(
        default=1, ge=1, le=10, description="incidents of one system that are laid together in a storm"
    )
    storms: int = Field(
        default=1, ge=1, le=1000, description="storms of each recording, or of all that are laid together"
    )
    noise: int = Field(default=NOISE, ge=0, le=100, description="services with an alert that belongs to no problem")

    def chosen(self, folder: Path) -> list[tuple[Storm, Datapack | None]]:
        """Return the planned storms, each with its telemetry if it is of one incident, else None; raises UserError.

        Incidents that allow no storm are left out; the first reason is raised when none is left.
        """
        read = [case for name in self.incidents for case in resolve(folder / name)]
        reasons = [why_unfit(case) for case in read]
        cases = [case for case, reason in zip(read, reasons, strict=True) if reason is None]
        if not cases:
            raise UserError(next(filter(None, reasons), f"There are no incidents in {', '.join(self.incidents)}."))
        if self.together == 1:
            drawn = [[case] for case in cases for _ in range(self.storms)]
        else:
            drawn = [self._draw(cases, number) for number in range(self.storms)]
        made = [make_storm(of, self.noise, number) for number, of in enumerate(drawn)]
        return [(storm, of[0].datapack if len(of) == 1 else None) for storm, of in zip(made, drawn, strict=True)]

    def _draw(self, cases: Sequence[Case], number: int) -> list[Case]:
        """Return the random incidents of storm *number*: of one system, with different faults; raises UserError."""
        draw = derived_random("storms", str(number))
        of: dict[str, list[Case]] = {}
        for case in draw.sample(cases, len(cases)):
            there = of.setdefault(case.datapack.incident.system, [])
            if not any(faults_of(case) & faults_of(other) for other in there):
                there.append(case)
        enough = sorted(name for name, some in of.items() if len(some) >= self.together)
        if not enough:
            most = max(map(len, of.values()), default=0)
            raise UserError(
                f"together is {self.together}, and no system has more than {plural(most, 'incident')} of different faults "
                f"with a known cascade in {', '.join(self.incidents)}; give a smaller number, or record more."
            )
        return of[draw.choice(enough)][: self.together]
