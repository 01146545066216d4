"""Anomaly tasks on a team's own costs: nothing is planted there, so the goal's definition determines the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from itertools import groupby, product
from statistics import median
from typing import Any, Literal

import polars as pl

from opsassay.core.errors import OperationError
from opsassay.evals.cost.anomaly.task import ANSWER_FIELDS, AnomalyTask
from opsassay.evals.cost.anomaly.truth import TrueAnomaly
from opsassay.evals.cost.focus.generate import CostTables
from opsassay.evals.cost.focus.schema import COSTS
from opsassay.evals.cost.insight.keys import statement_rows
from opsassay.evals.cost.insight.own_costs import OwnData
from opsassay.evals.cost.insight.question import PICO

OWN_ANOMALIES = "own-anomalies"
"""Name of the task."""
FEWEST_DAYS = 28
"""Least days of an export, so that each weekday occurs four times."""
PERCENTS = (15, 20, 30, 50, 75, 100, 150, 200, 300, 500)
"""Departures in percent; a task uses the first that makes some days, and at most one in `ONE_IN`, anomalous."""
ONE_IN = 10
_NEAR = Fraction(1, 1000)
"""No day may be so near to the departure, as a share of it, that rounding could decide."""
Cells = Mapping[tuple[str, date], tuple[Fraction, Fraction]]
"""(slice, day) to its (cost, usual cost), in 1e-12 of the currency."""


@dataclass(frozen=True)
class OwnAnomalies(AnomalyTask):
    """The anomaly task on a team's own *costs*: days on which a service category costs unusually much or little.

    A day is anomalous if it departs from the usual by more than *percent*. *mistakes*: misreadings with another answer.
    """

    costs: OwnData
    percent: int
    mistakes: tuple[str, ...] = ()

    ranked = False
    daily = True
    zone = "UTC"
    about = "Anomaly identification by day, in the costs of the team"

    @property
    def stratum(self) -> Literal["medium"]:
        """The difficulty of the task, always "medium"."""
        return "medium"

    @property
    def currency(self) -> str:
        """The code of the currency that all costs are in."""
        return self.costs.currency

    @property
    def oracles(self) -> tuple[str, ...]:
        """The names of the scripted solvers: "right", "constant", "hallucinated_column" and the misreadings."""
        return ("right", "constant", "hallucinated_column", *self.mistakes)

    @cached_property
    def data(self) -> CostTables:
        """The DuckDB and polars tables with the costs."""
        return self.costs.data

    @cached_property
    def slices(self) -> tuple[str, ...]:
        """The names of the service categories that the task covers, sorted."""
        return tuple(sorted(self.costs.categories))

    @cached_property
    def cells(self) -> Cells:
        """(slice, day) to (cost, median of its weekday); OperationError if DuckDB and polars differ."""
        by_sql = {
            (row["slice"], row["day"]): (Fraction(row["pico"]), Fraction(row["twice"], 2))
            for row in statement_rows(self.data, _cost_statement(self.slices, *self._days))
        }
        by_frame = self._cells_by_frame()
        if by_sql != by_frame:
            raise OperationError(f"The two keys of {self.name} differ")
        return by_sql

    @property
    def _days(self) -> tuple[date, date]:
        """The first and the last day of the costs, both included."""
        return self.costs.start.date(), (self.costs.end - timedelta(days=1)).date()

    def _cells_by_frame(self) -> Cells:
        """Return `cells` as computed by polars: (slice, day) to (cost, median of its weekday)."""
        first, last = self._days
        days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
        cost = {(slice_, day): Fraction(0) for slice_, day in product(self.slices, days)}
        for slice_, time, amount in self._daily_sums(credits_too=False).rows():
            cost[slice_, time.date()] += Fraction(amount) * PICO
        alike: dict[tuple[str, int], list[Fraction]] = {}
        for (slice_, day), value in cost.items():
            alike.setdefault((slice_, day.weekday()), []).append(value)
        return {key: (value, Fraction(median(alike[key[0], key[1].weekday()]))) for key, value in cost.items()}

    def _daily_sums(self, *, credits_too: bool) -> pl.DataFrame:
        """Return slice, time (midnight, UTC) and BilledCost summed over usage, or over all charges if *credits_too*."""
        usage = (pl.col("ChargeCategory") == "Usage") & pl.col("ChargeClass").is_null()
        rows = self.data.tables[COSTS].filter(pl.col("ServiceCategory").is_in(self.slices) & (usage | credits_too))
        return rows.group_by(
            pl.col("ServiceCategory").alias("slice"), pl.col("ChargePeriodStart").dt.truncate("1d").alias("time")
        ).agg(pl.col("BilledCost").sum())

    def series_read(self, *, credits_too: bool = False, convert: bool = True) -> Any:
        """Return time, slice, cost_usd (in own currency) per day, of usage or, *credits_too*, of all charges.

        *convert* is not used: all costs are in one currency.
        """
        del convert
        first, last = (datetime(one.year, one.month, one.day, tzinfo=UTC) for one in self._days)
        days = pl.datetime_range(first, last, "1d", time_unit="us", eager=True).alias("time").to_frame()
        every = days.join(pl.DataFrame({"slice": self.slices}), how="cross")
        return (
            every.join(self._daily_sums(credits_too=credits_too), on=["slice", "time"], how="left")
            .select("time", "slice", pl.col("BilledCost").cast(pl.Float64).fill_null(0.0).alias("cost_usd"))
            .sort("slice", "time")
        )

    @property
    def departure(self) -> float:
        """The share of the usual cost by which a day must differ from it to be an anomaly."""
        return self.percent / 100

    @cached_property
    def departing(self) -> list[tuple[str, date]]:
        """The sorted (slice, day) pairs whose cost differs by more than `percent` from the median of its weekday.

        Empty when any pair is so near that limit that rounding could decide: the question then has no sure answer.
        """
        found = []
        for key, (cost, usual) in self.cells.items():
            away, limit = abs(cost - usual), abs(usual) * self.percent / 100
            if limit and abs(away - limit) <= limit * _NEAR:
                return []
            found += [key] if away > limit else []
        return sorted(found)

    @cached_property
    def truth(self) -> tuple[TrueAnomaly, ...]:
        """The true anomalies, sorted by time: each a run of successive anomalous days of one slice."""
        numbered = enumerate(self.departing)
        runs = groupby(numbered, key=lambda one: (one[1][0], one[1][1].toordinal() - one[0]))
        found = [self._anomaly([key for _, key in run]) for _, run in runs]
        return tuple(sorted(found, key=lambda one: (one.start, one.slice)))

    def _anomaly(self, keys: list[tuple[str, date]]) -> TrueAnomaly:
        """Return one anomaly over the (slice, day) *keys*, successive days of one slice."""
        times = [datetime(day.year, day.month, day.day, tzinfo=UTC) for _, day in keys]
        cost, usual = (sum(self.cells[key][at] for key in keys) / PICO for at in (0, 1))
        points = frozenset((time, keys[0][0]) for time in times)
        kind: Literal["spike", "drop"] = "spike" if cost > usual else "drop"
        return TrueAnomaly(
            keys[0][0], times[0], times[-1] + self.step, kind, abs(float(cost)), float(cost - usual), points
        )

    def _with_fields(self, conventions: str) -> str:
        """Return the goal's question, the sentences *conventions* and the description of the answer's fields."""
        first, last = self._days
        return (
            f"Find the anomalies in the BilledCost from {first} to {last}, both days included, by day (ChargePeriodStart, "
            f"UTC) and slice. A slice is a ServiceCategory: {', '.join(self.slices)}.{conventions}"
            + ANSWER_FIELDS.format(slice="ServiceCategory", unit="day")
        )

    @property
    def goal(self) -> str:
        """The task's text for the agent: the question, which charges count, and the definition of an anomaly."""
        return self._with_fields(
            " Only rows with the ChargeCategory Usage that correct nothing (ChargeClass is NULL) count: credits, "
            f"refunds, taxes and purchases are no part of it. All amounts are {self.currency}. A day without such a "
            "row costs 0.\n"
            f"The cost of a slice is anomalous on each day on which it departs by more than {self.percent}%, upwards or "
            "downwards, from what is usual: the median of the slice's cost over all days with the same weekday (UTC), of "
            "an even number of days the mean of the middle two. Successive anomalous days of a slice are one anomaly.\n\n"
        )


def _cost_statement(slices: tuple[str, ...], first: date, last: date) -> str:
    """Return the DuckDB statement for slice, day, cost in 1e-12 and twice its weekday's median, *first* to *last* day."""
    names = ", ".join(f"('{one.replace(chr(39), chr(39) * 2)}')" for one in slices)
    return f"""WITH charges AS (
      SELECT ServiceCategory AS slice, CAST(timezone('UTC', ChargePeriodStart) AS DATE) AS day,
             sum(CAST(replace(CAST(BilledCost AS VARCHAR), '.', '') AS HUGEINT)) AS pico
      FROM costs WHERE ChargeCategory = 'Usage' AND ChargeClass IS NULL GROUP BY ALL),
    days AS (SELECT CAST(unnest(generate_series(DATE '{first}', DATE '{last}', INTERVAL 1 DAY)) AS DATE) AS day),
    grid AS (SELECT slice, day, CAST(coalesce(pico, 0) AS HUGEINT) AS pico
             FROM days CROSS JOIN (VALUES {names}) AS named(slice) LEFT JOIN charges USING (slice, day)),
    usual AS (SELECT slice, isodow(day) AS weekday, list_sort(list(pico)) AS sorted FROM grid GROUP BY ALL)
    SELECT grid.slice, day, pico, sorted[(len(sorted) + 1) // 2] + sorted[len(sorted) // 2 + 1] AS twice
    FROM grid JOIN usual ON grid.slice = usual.slice AND isodow(grid.day) = usual.weekday"""


def own_anomalies(costs: OwnData, seed: int) -> OwnAnomalies | str:
    """Return the anomaly task of *seed* on a team's own *costs*, or a sentence why these costs do not allow one."""
    from opsassay.evals.cost.anomaly.misreading import MISREADINGS, true_claims

    if (days := (costs.end - costs.start).days) < FEWEST_DAYS:
        return f"the export covers {days} days, and it needs {FEWEST_DAYS}"
    tried = [OwnAnomalies(OWN_ANOMALIES, seed, costs, percent) for percent in PERCENTS]
    if not costs.categories or not any(cost for cost, _ in tried[0].cells.values()):
        return "no service category has charges for usage"
    asked = next((one for one in tried if 0 < len(one.departing) * ONE_IN <= len(one.cells)), None)
    if asked is None:
        return "no departure makes some days anomalous, and no more than one in ten"
    right, mistakes = set(true_claims(asked)), ("off_by_a_day", "everything", "credits_counted")
    return replace(asked, mistakes=tuple(one for one in mistakes if set(MISREADINGS[one][1](asked)) != right))
