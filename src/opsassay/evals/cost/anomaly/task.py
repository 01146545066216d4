"""Anomaly tasks: their goal, data and truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Any, Literal

from opsassay.evals.cost.anomaly.truth import TrueAnomaly, series, true_anomalies
from opsassay.evals.cost.focus.generate import CostData, CostTables, cost_data
from opsassay.evals.cost.focus.planting import DEPARTURE
from opsassay.evals.cost.focus.world import AREAS, Area, make_world

RANKED = frozenset({"levels", "currency", "seasons"})
"""Areas whose task also asks for the importance of each anomaly (Table 27, scenario 2)."""

_ORACLES = ("right", "constant", "hallucinated_column")
_ABOUT: Mapping[str, tuple[Literal["easy", "medium", "hard"], str]] = {
    "spikes": ("easy", "Anomaly identification; short spikes in a series with working hours and weekends"),
    "levels": ("medium", "Anomaly ranking; level shifts, an outage and a spike"),
    "drift": ("hard", "Anomaly identification by day; slow drifts"),
    "credits": ("medium", "Anomaly identification; credits hide some anomalies and look like others"),
    "currency": ("hard", "Anomaly ranking; an account moves to another currency, another counts in another unit"),
    "seasons": ("hard", "Anomaly ranking; a weekly batch job and a change of clocks are no anomalies"),
}


@dataclass(frozen=True)
class AnomalyTask:
    """The anomaly task of one area and one *seed*."""

    name: str
    seed: int

    @property
    def area(self) -> Area:
        """The provider, service and unit whose costs the task covers, with the step of its series."""
        return AREAS[self.name]

    @property
    def ranked(self) -> bool:
        """Whether each anomaly of the answer needs an importance."""
        return self.name in RANKED

    @property
    def about(self) -> str:
        """A phrase on what the task covers, for lists of tasks."""
        return _ABOUT[self.name][1]

    @property
    def stratum(self) -> Literal["easy", "medium", "hard"]:
        """The difficulty of the task."""
        return _ABOUT[self.name][0]

    @property
    def oracles(self) -> tuple[str, ...]:
        """The names of the scripted solvers: "right", "constant", "hallucinated_column" and misreadings."""
        from opsassay.evals.cost.anomaly.misreading import misreadings_of

        return (*_ORACLES, *misreadings_of(self))

    @property
    def currency(self) -> str:
        """The code of the currency of the task's costs."""
        return "USD"

    @property
    def departure(self) -> float:
        """The share of the usual cost by which a point must differ from it to be an anomaly."""
        return DEPARTURE

    @property
    def daily(self) -> bool:
        """Whether the points of the series are days; otherwise they are hours."""
        return self.area.daily

    @property
    def zone(self) -> str:
        """The time zone of the weekdays and hours by which points are compared."""
        return "UTC" if self.daily else self.area.zone

    @cached_property
    def data(self) -> CostTables:
        """The DuckDB and polars tables with the costs."""
        return self._seeded_data

    @cached_property
    def _seeded_data(self) -> CostData:
        """The generated cost data of the task's seed."""
        return cost_data(self.seed)

    @cached_property
    def slices(self) -> tuple[str, ...]:
        """The names of the sub-accounts that the task covers, sorted."""
        return tuple(sorted({one.account.sub_name for one in make_world(self.seed).resources if one.area == self.name}))

    @cached_property
    def truth(self) -> tuple[TrueAnomaly, ...]:
        """The anomalies that were planted into the task's costs, sorted by time."""
        return true_anomalies(self._seeded_data, self.name)

    @property
    def step(self) -> timedelta:
        """The time from one point of the series to the next: an hour or a day."""
        return timedelta(days=1) if self.daily else timedelta(hours=1)

    @cached_property
    def series(self) -> Any:
        """The cost series of the task, a data frame of time, slice and cost_usd."""
        return self.series_read()

    def series_read(self, *, credits_too: bool = False, convert: bool = True) -> Any:
        """Return `series` as a misreading has it: with credits if *credits_too*, without rates unless *convert*."""
        return series(self.data.tables, self.area, credits_too=credits_too, convert=convert)

    @cached_property
    def bounds(self) -> tuple[datetime, datetime]:
        """The time of the first point of the series, and one step after the last."""
        return self.series["time"].min(), self.series["time"].max() + self.step

    @property
    def goal(self) -> str:
        """The task's text for the agent: the question, which charges count, and the definition of an anomaly."""
        area = self.area
        unit, clock = ("day", "weekday") if area.daily else ("hour", "weekday and hour of the day")
        return self._with_fields(
            f" Only rows with the PricingUnit '{area.unit}' and the ChargeCategory Usage that correct "
            "nothing (ChargeClass is NULL) count: credits and refunds are no part of it. Amounts are USD: multiply by "
            "UsdPerUnit of the BillingCurrency (table exchange_rates).\n"
            f"The cost of a slice is anomalous in each {unit} in which it departs by more than {DEPARTURE:.0%}, upwards or "
            f"downwards, from what is usual: the median of the slice's cost over all {unit}s of the window with the same "
            f"{clock} ({self.zone}). Successive anomalous {unit}s of a slice are one anomaly.\n\n"
        )

    @property
    def terse_goal(self) -> str:
        """The task's text without its conventions: no definition of an anomaly, nor of the charges that count."""
        return self._with_fields("\n\n")

    def _with_fields(self, conventions: str) -> str:
        """Return the goal's question, the sentences *conventions* and the description of the answer's fields."""
        area, world = self.area, make_world(self.seed)
        unit = "day" if area.daily else "hour"
        last = (world.end - timedelta(days=1)).date()
        return (
            f"Find the anomalies in the BilledCost of the service '{area.service}' of {area.provider} from "
            f"{world.start.date()} to {last}, both days included, by {unit} (ChargePeriodStart, UTC) and slice. A slice is "
            f"a SubAccountName.{conventions}"
            + ANSWER_FIELDS.format(slice="SubAccountName", unit=unit)
            + (_IMPORTANCE.format(unit=unit) if self.ranked else "")
        )


ANSWER_FIELDS = (
    'Answer with one JSON object {{"anomalies": [...]}}, each entry with exactly these fields:\n'
    "- slice: text, the {slice}\n"
    "- start: text, the start of its first {unit} as 2024-09-01T05:00:00Z\n"
    "- end: text, the end of its last {unit}, exclusive\n"
)
_IMPORTANCE = (
    "- importance: number, C * D divided by the largest C * D of all anomalies, where C is the absolute sum of the cost of "
    "the anomaly's {unit}s in USD and D is their number\n"
)

ANOMALY_TASKS = {f"anomalies-{name}": partial(AnomalyTask, name) for name in AREAS}
"""Anomaly tasks by name, as functions of the seed."""
