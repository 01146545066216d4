"""Baselines of RCAEval that the package does not have: RCD, epsilon-diagnosis, and CIRCA on a skeleton by PC.

They are methods of a file: ``opsassay run diagnose INCIDENTS -m benchmarks/papers/rcaeval_methods.py:Rcd`` (or
EpsilonDiagnosis, CircaPc). All look at the readings of the reference protocol (docs/methods.md), rank services by their
best column, and claim nothing: their papers do not say from when on nothing is wrong. CircaPc needs ``pip install
causal-learn``; PC tests every pair of columns given others, so the columns with the largest |z| are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.solvers.methods.base import numbers_of, ranked, stated
from opsassay.solvers.methods.matrix import (
    COLUMN_SET,
    IMPUTATION,
    METRIC_TO_SERVICE,
    Matrix,
    Readings,
    readings,
    z_scores,
)
from opsassay.solvers.methods.parameters import Count, Share
from opsassay.telemetry.datapack import Datapack

Ints = NDArray[np.int64]


def answer(view: Datapack, table: Readings, scores: Matrix, **choices: str) -> Diagnosis:
    """Return the ranking of services by their best column's *scores*, with the protocol that *choices* complete."""
    ranking = ranked(dict.fromkeys(view.candidates(), 0.0) | table.by_service(scores))
    whole = {
        "baseline_window": "the whole normal period", "column_set": f"{COLUMN_SET}; means of {table.step_s:g} s bins",
        "imputation": IMPUTATION, "metric_to_service": METRIC_TO_SERVICE, "claim_threshold": "it claims nothing",
        "fault_kind": "none", **choices,
    }  # fmt: skip
    return Diagnosis(ranking=ranking, protocol=stated(**whole))


@dataclass(frozen=True)
class EpsilonDiagnosis:
    """Rank services by how a metric's abnormal readings correlate with its own normal ones, above what chance gives.

    The square of the correlation of equally many readings before and after the boundary; a column counts where it passes
    the 1 - alpha quantile of those of two normal columns whose readings are drawn anew (Shan et al., WWW 2019, as PyRCA
    has it; there the quantile of the k-th draw is taken for the k-th column, here that of all draws for every column).
    """

    alpha: Share = 0.05
    draws: Count = 200
    seed: int = 0

    name: ClassVar[str] = "epsilon-diagnosis"
    source: ClassVar[str] = "epsilon-Diagnosis (WWW 2019), by PyRCA, which RCAEval calls"
    cost: ClassVar[str] = "a correlation matrix per draw"

    @property
    def configuration(self) -> Mapping[str, Any]:
        """Return level, draws and seed."""
        return {"names_fault_kinds": False, **numbers_of(self)}

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Return the ranking by squared correlation."""
        table = readings(view)
        length = min(len(table.normal), len(table.abnormal))
        normal, abnormal = table.normal[-length:], table.abnormal[:length]
        scores = squared_correlations(normal, abnormal)
        limit = chance_level(normal, self.alpha, self.draws, np.random.default_rng(self.seed))
        return answer(
            view, table, np.where(scores > limit, scores, 0.0), zero_variance="correlation 0",
            baseline_window=f"the last {length} bins of the normal period, against the first {length} of the abnormal one",
            quantile=f"{limit:.3f}: 1 - {self.alpha:g} of {self.draws} draws, seed {self.seed}",
        )  # fmt: skip


def squared_correlations(one: Matrix, other: Matrix) -> Matrix:
    """Return r^2 of every column of *one* with the same column of *other*, 0 where one of them does not vary."""
    a, b = one - one.mean(axis=0), other - other.mean(axis=0)
    whole = (a**2).sum(axis=0) * (b**2).sum(axis=0)
    found: Matrix = np.where(whole > 0, (a * b).sum(axis=0) ** 2 / np.where(whole > 0, whole, 1), 0.0)
    return found


def chance_level(normal: Matrix, alpha: float, draws: int, draw: np.random.Generator) -> float:
    """Return the 1 - *alpha* quantile of r^2 between different columns whose readings are drawn with replacement."""
    rows, columns = normal.shape
    if columns < 2 or rows < 2:
        return 0.0
    above = np.triu_indices(columns, 1)
    found = []
    for _ in range(draws):
        drawn = np.take_along_axis(normal, draw.integers(0, rows, normal.shape), axis=0)
        centred = drawn - drawn.mean(axis=0)
        length = np.sqrt((centred**2).sum(axis=0))
        unit = centred / np.where(length > 0, length, 1)
        found.append(((unit.T @ unit) ** 2)[above])
    return float(np.quantile(np.concatenate(found), 1 - alpha))


@dataclass(frozen=True)
class Rcd:
    """Rank services by when a column turns out to depend on which period it is of, whatever else is held.

    RCD (Ikram et al., NeurIPS 2022): the period is a node F; columns, in *bins* levels by k-means, are dealt into groups of
    *gamma*; in each those stay that no subset of the others separates from F by a chi-squared test, at the lowest of
    rising levels that leaves one; again until no more than *gamma* are left, which are ranked by the level at which, and
    the p with which, they stay. The readings decide, then the deal: *seed* is that of its draws.
    """

    gamma: Count = 5
    bins: Count = 5
    seed: int = 0

    name: ClassVar[str] = "rcd"
    source: ClassVar[str] = "RCD (NeurIPS 2022), as in RCAEval: localised, two phases"
    cost: ClassVar[str] = "chi-squared tests in groups of five columns: seconds"

    @property
    def configuration(self) -> Mapping[str, Any]:
        """Return group size, levels and seed."""
        return {"names_fault_kinds": False, **numbers_of(self)}

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Return the ranking: 1 for the first column that is left, 1/2 for the second, and so on."""
        table = readings(view)
        order = rcd_ranking(table.normal, table.abnormal, self.gamma, self.bins, np.random.default_rng(self.seed))
        scores = np.zeros(len(table.signals))
        scores[list(order)] = 1 / np.arange(1, len(order) + 1)
        return answer(
            view, table, scores, zero_variance="columns that are constant in either period are left out",
            levels=f"{self.bins} by k-means", groups=f"{self.gamma} columns, dealt with seed {self.seed}",
        )  # fmt: skip


START, LOCAL_START, STEP = 0.001, 0.01, 0.1
"""Levels of the tests: the last phase begins at the first, groups at the second; both rise by the third, up to 1."""


def rcd_ranking(normal: Matrix, abnormal: Matrix, gamma: int, bins: int, draw: np.random.Generator) -> list[int]:
    """Return the columns that RCD is left with, most suspect first."""
    varies = [i for i in range(normal.shape[1]) if np.ptp(normal[:, i]) > 0 and np.ptp(abnormal[:, i]) > 0]
    period = np.repeat(np.array([0, 1], dtype=np.int64), [len(normal), len(abnormal)])
    levels = {i: _levels(np.concatenate([normal[:, i], abnormal[:, i]]), bins) for i in varies}
    left = varies
    while len(left) > gamma:
        dealt = draw.permutation(left).tolist()
        groups = [dealt[at : at + gamma] for at in range(0, len(dealt), gamma)]
        kept = [one for group in groups for one in _children(group, levels, period, LOCAL_START, least=1)]
        if not kept or len(kept) == len(left):
            break
        left = kept
    return _children(left, levels, period, START, least=len(left))


def _levels(values: Matrix, bins: int) -> Ints:
    """Return which of at most *bins* clusters of k-means each of *values* is in."""
    from sklearn.cluster import KMeans

    distinct = np.unique(values)
    if len(distinct) <= bins:
        return np.searchsorted(distinct, values).astype(np.int64)
    edges = np.linspace(values.min(), values.max(), bins + 1)
    begin = (edges[1:] + edges[:-1])[:, None] / 2
    found: Ints = KMeans(bins, init=begin, n_init=1).fit_predict(values[:, None]).astype(np.int64)
    return found


def _children(columns: Sequence[int], levels: Mapping[int, Ints], period: Ints, start: float, least: int) -> list[int]:
    """Return columns next to F in the order in which rising levels add them, each level's by p, until *least* are there."""
    found: list[int] = []
    for alpha in np.arange(start, 1, STEP):
        kept = {one: p for one, p in _next_to_period(columns, levels, period, float(alpha)) if one not in found}
        found += sorted(kept, key=lambda one: (kept[one], one))
        if len(found) >= least:
            break
    return found


def _next_to_period(
    columns: Sequence[int], levels: Mapping[int, Ints], period: Ints, alpha: float
) -> Iterator[tuple[int, float]]:
    """Yield the columns that no subset of the others next to F makes independent of it, with their largest p."""
    worst = dict.fromkeys(columns, 0.0)
    for depth in range(len(columns)):
        for one in list(worst):
            others = [other for other in worst if other != one]
            for given in combinations(others, depth):
                p = chi_squared_p(levels[one], period, [levels[other] for other in given])
                if p > alpha:
                    del worst[one]
                    break
                worst[one] = max(worst[one], p)
    yield from worst.items()


def chi_squared_p(one: Ints, other: Ints, given: Sequence[Ints]) -> float:
    """Return the p of Pearson's chi-squared test that *one* and *other* are independent in every stratum of *given*.

    Statistics and degrees of freedom of the strata add up; rows and columns without a count take no part. 1 without any.
    """
    from scipy.stats import chi2

    stratum = np.zeros(len(one), dtype=np.int64)
    for column in given:
        stratum = np.unique(stratum * (int(column.max()) + 1) + column, return_inverse=True)[1].astype(np.int64)
    statistic, freedom = 0.0, 0
    for value in range(int(stratum.max()) + 1):
        at = stratum == value
        counts = np.zeros((int(one.max()) + 1, int(other.max()) + 1))
        np.add.at(counts, (one[at], other[at]), 1)
        counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
        expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
        statistic += float(((counts - expected) ** 2 / expected).sum())
        freedom += (counts.shape[0] - 1) * (counts.shape[1] - 1)
    return float(chi2.sf(statistic, freedom)) if freedom else 1.0


@dataclass(frozen=True)
class CircaPc:
    """Rank services by the largest residual of a column on its parents in a skeleton that PC finds.

    The regression hypothesis test of CIRCA (KDD 2022) as RCAEval and the leaderboard audit run it: the graph is not the
    structure of calls but that of PC (Fisher's z, level *alpha*) over the readings of both periods; an edge without a
    direction counts both ways. Least squares, fitted to the normal period; no descendant adjustment. RCAEval turns the
    graph round before it (findings/rcaeval-circa-turned-round.sh); here a column is regressed on its causes.
    """

    alpha: Share = 0.05
    most_columns: Count = 40

    name: ClassVar[str] = "circa-pc"
    source: ClassVar[str] = (
        "CIRCA (KDD 2022) on a skeleton by PC, as RCAEval and the leaderboard audit (appendix F) run it"
    )
    cost: ClassVar[str] = "independence tests of every pair of columns: seconds for 40, days for hundreds"

    @property
    def configuration(self) -> Mapping[str, Any]:
        """Return the level of the tests, and how many columns are kept."""
        return {"names_fault_kinds": False, **numbers_of(self)}

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Return the ranking by residual."""
        table = readings(view)
        z = np.abs(z_scores(table.normal, table.abnormal)).max(axis=0, initial=0.0)
        moving = [int(i) for i in np.argsort(-z, kind="stable") if np.ptp(table.normal[:, i]) > 0]
        kept = sorted(moving[: self.most_columns])
        both = np.vstack([table.normal, table.abnormal])[:, kept]
        found = residuals(both, len(table.normal), pc_parents(both, self.alpha))
        scores = np.zeros(len(table.signals))
        scores[kept] = np.abs(found).max(axis=0, initial=0.0)
        return answer(
            view, table, scores, zero_variance="columns that are constant in the normal period are left out",
            graph=f"PC, Fisher's z at {self.alpha:g}, over the {len(kept)} of {len(moving)} columns with the largest |z|",
        )  # fmt: skip


def pc_parents(both: Matrix, alpha: float) -> list[list[int]]:
    """Return the parents of each column of *both* (bins x columns) in the graph that PC finds; see `CircaPc`."""
    from causallearn.search.ConstraintBased.PC import pc

    if both.shape[1] < 2:
        return [[] for _ in range(both.shape[1])]
    draw = np.random.default_rng(0)  # columns that are the same up to a factor make its covariance singular
    jittered = both + draw.normal(0, 1e-6, both.shape) * both.std(axis=0)
    graph = pc(jittered, alpha=alpha, show_progress=False).G.graph
    everything = range(len(graph))
    return [[cause for cause in everything if cause != one and _points(graph, cause, one)] for one in everything]


def _points(graph: Ints, cause: int, effect: int) -> bool:
    """Return whether *graph*, as causal-learn has it, has an edge from *cause* to *effect*, or one without a direction."""
    return bool(graph[effect, cause] == 1 or graph[effect, cause] == graph[cause, effect] == -1)


def residuals(both: Matrix, rows: int, parents: Sequence[Sequence[int]]) -> Matrix:
    """Return z of the residuals after the first *rows* bins, to which each column's regression on *parents* is fitted."""
    out = np.zeros((len(both) - rows, both.shape[1]))
    for column, causes in enumerate(parents):
        design = np.column_stack([both[:, list(causes)], np.ones(len(both))])
        fitted = np.linalg.lstsq(design[:rows], both[:rows, column], rcond=None)[0]
        residual = (both[:, column] - design @ fitted)[:, None]
        out[:, column] = z_scores(residual[:rows], residual[rows:])[:, 0]
    return out


if __name__ == "__main__":
    sys.stderr.write("Error: methods are run by `opsassay run diagnose INCIDENTS -m FILE:Rcd`, FILE being this one.\n")
    sys.exit(2)
