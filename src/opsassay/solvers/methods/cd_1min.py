"""CD-1min: it blames the service whose metric changed by the largest percentage at the start of the abnormal period."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.faults import FaultKind
from opsassay.solvers.methods.base import ranked, stated
from opsassay.solvers.methods.claims import KIND_PROTOCOL, KINDS, claim_of_signal
from opsassay.solvers.methods.matrix import COLUMN_SET, IMPUTATION, METRIC_TO_SERVICE, Matrix, own_step_ns, readings
from opsassay.solvers.methods.parameters import Count, NotNegative, Positive
from opsassay.solvers.methods.propagation import PROTOCOL
from opsassay.solvers.methods.signals import bin_width_ns
from opsassay.telemetry.datapack import Datapack


@dataclass(frozen=True)
class Cd1Min:
    """Rank services by the largest percentage change of a column that passes both thresholds, *z* and *change_percent*."""

    z: NotNegative = 3.0
    """Least |z| over both periods together (Table 11: z3)."""

    change_percent: NotNegative = 5.0
    """Least change in percent (Table 11: pct5)."""

    window_steps: Count = 10
    """Steps before and after the boundary that are compared (Table 11: win10)."""

    step_s: Positive = 60.0
    """Width of a bin in seconds; at most a tenth of the normal period."""

    name: ClassVar[str] = "cd-1min"
    source: ClassVar[str] = "CD-1min adapter of the leaderboard audit, section 4.1 and Table 11"
    cost: ClassVar[str] = "one pass over all readings"
    fault_kinds: ClassVar[tuple[FaultKind, ...]] = KINDS

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The thresholds by name."""
        return asdict(self)

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Blame the service of the metric with the largest percentage change that passes both thresholds."""
        shortest = bin_width_ns(view, at_most_s=self.step_s, at_least_bins=self.window_steps)
        table = readings(view, max(shortest, own_step_ns(view)))
        change, passes = self._changes(table.normal, table.abnormal)
        scores = np.where(passes, np.abs(change), 0.0)
        ranking = ranked(dict.fromkeys(view.candidates(), 0.0) | table.by_service(scores))
        protocol = stated(
            baseline_window=f"the last {self.window_steps} steps of the normal period; z over the whole case window",
            column_set=f"{COLUMN_SET}; means of {table.step_s:g} s bins",
            imputation=IMPUTATION,
            zero_variance="z = 0, so the column never passes; a change from 0 is taken against the deviation",
            metric_to_service=METRIC_TO_SERVICE,
            claim_threshold=f"|z| above {self.z:g} and a change above {self.change_percent:g} %",
            fault_kind=KIND_PROTOCOL,
            propagation=PROTOCOL,
        )
        if not ranking or not ranking[0].score:
            return claim_of_signal(view, ranking, None, 0.0, protocol)
        place = table.top_signal(ranking[0].service, scores)
        note = f"{table.signals[place]} of {ranking[0].service} changed by {change[place]:.0f} %{_describe_gap(view)}"
        return claim_of_signal(view, ranking, table.signals[place], float(change[place]), protocol, note)

    def _changes(self, normal: Matrix, abnormal: Matrix) -> tuple[Matrix, NDArray[np.bool_]]:
        """Return per column the change in percent across the boundary, and whether it passes both thresholds.

        change_j = 100 (after_j - before_j) / |before_j|, *before* and *after* being means of the last and the first
        `window_steps` bins (bins x columns in the column's unit); a column passes with max over t of
        |abnormal_tj - mean_j| / sd_j above `z`, mean and sd (ddof 0) over both periods, and |change_j| above
        `change_percent`. Source: the leaderboard audit, section 4.1 and Table 11.
        """
        before, after = normal[-self.window_steps :].mean(axis=0), abnormal[: self.window_steps].mean(axis=0)
        case = np.vstack([normal, abnormal])
        mean, deviation = case.mean(axis=0), case.std(axis=0)
        varies = deviation > 1e-9 * np.abs(mean)
        z = np.where(varies, np.abs(abnormal - mean).max(axis=0) / np.where(varies, deviation, 1.0), 0.0)
        base = np.where(np.abs(before) > 0, np.abs(before), np.where(varies, deviation, 1.0))
        change: Matrix = 100 * (after - before) / base
        return change, (z > self.z) & (np.abs(change) > self.change_percent)


def _describe_gap(view: Datapack) -> str:
    """Return a clause on the time between the normal and the abnormal period, '' when they adjoin."""
    apart_s = (view.incident.abnormal.start_ns - view.incident.normal.end_ns) / 1e9
    if apart_s == 0:
        return ""
    return f"; {abs(apart_s):,.0f} s lie between the periods, so that the change is not one across a boundary"
