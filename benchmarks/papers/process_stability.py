"""Whether rankings of solvers by how they got there are more stable over systems than those by whether they were right.

Run: ``python -m benchmarks.papers.process_stability STORE [--outcome METRIC]... [--process METRIC]...`` over graded
diagnosis runs, or over one score table a metric: ``METRIC=SCORES.csv``. For each metric: Kendall's W of the rankings that
systems give (1: all alike, 0: none, tied ranks corrected), the mean tau-b of two systems, how many pairs of solvers change
places between systems, leave-one-system-out reversals, and the median I2. Intervals are percentiles over resampled cases.
The last table compares both kinds: mean W of process metrics less that of outcome metrics. Metrics are resampled apart,
so the interval of the difference is, if anything, too wide.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from opsassay.analysis.audit.effects import TIE, paired_effects
from opsassay.analysis.audit.matched import Matched, match
from opsassay.analysis.audit.pooled import random_effects
from opsassay.analysis.audit.resampling import bootstrap_means
from opsassay.analysis.audit.selection import leave_one_system_out
from opsassay.analysis.audit.settings import AuditSettings
from opsassay.cli.output import json_option, say
from opsassay.cli.score_input import scores_of
from opsassay.core.errors import UserError
from opsassay.evals.runner.tables import ResultTable

from .running import run, show_tables

OUTCOMES = ("exact_match", "f1", "any_service", "acc_at_1", "acc_at_3")
PROCESSES = ("path_reachability", "node_f1", "edge_f1")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stability:
    """How alike the systems of *matched* rank its methods: *w* with its percentiles, *drawn* its resampled values."""

    kind: str
    metric: str
    matched: Matched
    w: float
    drawn: Floats

    @property
    def interval(self) -> tuple[float, float]:
        """95% percentiles of *w*."""
        low, high = np.nanpercentile(self.drawn, (2.5, 97.5))
        return float(low), float(high)


def stability_of(kind: str, metric: str, matched: Matched, settings: AuditSettings) -> Stability:
    """Return how stable the ranking by *metric* is; raises UserError for fewer than two systems or methods."""
    if len(matched.systems) < 2:
        raise UserError(f"{metric}: one system ranks nothing apart; it takes two.")
    drawn = concordance(bootstrap_means(matched, settings.resamples, settings.seed))
    return Stability(kind, metric, matched, float(concordance(matched.means[None])[0]), drawn)


def concordance(means: Floats) -> Floats:
    """Return Kendall's W of each of B tables of *means* (B x S x M), with the correction for ties (Kendall 1948).

    W = (12 sum of (R - mean R)^2) / (S^2 (M^3 - M) - S T), R the sums of ranks, T the sum of t^3 - t over tied groups of
    all systems; NaN where every system ties all methods.
    """
    from scipy.stats import rankdata

    systems, methods = means.shape[1:]
    rounded = np.round(means, 12)
    ranks = rankdata(rounded, axis=2)
    sums = ranks.sum(axis=1)
    spread = 12 * ((sums - sums.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    alike = (np.abs(rounded[..., :, None] - rounded[..., None, :]) <= TIE).sum(axis=3)
    ties = (alike**2 - 1).sum(axis=(1, 2))  # each of t tied methods counts t^2 - 1, together t^3 - t
    whole = systems**2 * (methods**3 - methods) - systems * ties
    return np.where(whole > 0, spread / np.where(whole > 0, whole, 1), np.nan)


def stability_tables(found: Sequence[Stability], level: float = 0.95) -> list[ResultTable]:
    """Return a row for each metric, and the comparison of both kinds."""
    rows = tuple(_row(one, level) for one in found)
    columns = (
        "kind", "metric", "solvers", "systems", "cases", "W", "95%", "mean tau-b", "pairs that change places",
        "LOSO reversals", "median I2 %",
    )  # fmt: skip
    return [ResultTable("Stability of rankings over systems", columns, rows), _compared(found)]


def _row(one: Stability, level: float) -> tuple[object, ...]:
    from scipy.stats import kendalltau

    m = one.matched
    taus = [
        kendalltau(m.means[a], m.means[b]).statistic
        for a in range(len(m.systems))
        for b in range(a + 1, len(m.systems))
    ]
    known = [tau for tau in taus if np.isfinite(tau)]
    effects = [paired_effects(m, a, b, 1) for a, b in m.pairs()]
    turned = sum(bool((e.effect > TIE).any() and (e.effect < -TIE).any()) for e in effects)
    reversals = sum(leave_one_system_out(e.effect, m.sizes).summary().reversals for e in effects)
    i2 = [float(random_effects(e.effect, e.variance, level).i2) for e in effects]
    low, high = one.interval
    return (
        one.kind, one.metric, len(m.methods), len(m.systems), m.cases, f"{one.w:.3f}", f"[{low:.3f}, {high:.3f}]",
        f"{np.mean(known):.3f}" if known else None, f"{turned}/{len(effects)}",
        f"{reversals}/{len(effects) * len(m.systems)}",
        f"{100 * np.median(i2):.1f}",
    )  # fmt: skip


def _compared(found: Sequence[Stability]) -> ResultTable:
    columns = ("W of process metrics", "W of outcome metrics", "difference", "95%", "process is more stable")
    of_kind = {kind: [one for one in found if one.kind == kind] for kind in ("process", "outcome")}
    if not all(of_kind.values()):
        return ResultTable("Process against outcome", columns, ())
    means = {kind: float(np.nanmean([one.w for one in own])) for kind, own in of_kind.items()}
    drawn = {kind: np.nanmean(np.stack([one.drawn for one in own]), axis=0) for kind, own in of_kind.items()}
    low, high = np.nanpercentile(drawn["process"] - drawn["outcome"], (2.5, 97.5))
    verdict = "yes" if low > 0 else "no" if high < 0 else "not shown"
    cells = (*(f"{means[kind]:.3f}" for kind in ("process", "outcome")), f"{means['process'] - means['outcome']:+.3f}")
    note = "Means over the metrics of each kind, which are resampled apart."
    return ResultTable("Process against outcome", columns, ((*cells, f"[{low:+.3f}, {high:+.3f}]", verdict),), note)


def _places(stores: Iterable[str], metrics: Sequence[str]) -> dict[str, Path]:
    """Return where the scores by each metric are; raises UserError for what is neither a store nor METRIC=FILE."""
    found: dict[str, Path] = {}
    for word in stores:
        name, sign, file = word.partition("=")
        if sign and name in metrics:
            found[name] = Path(file)
        elif Path(word).is_dir():
            found |= dict.fromkeys(metrics, Path(word))
        else:
            raise UserError(f"{word} is no folder of graded runs, and no METRIC=FILE of {', '.join(metrics)}.")
    return found


@click.command("process_stability")
@click.argument("stores", nargs=-1, required=True)
@click.option("--outcome", "outcomes", multiple=True, default=OUTCOMES, show_default=True, help="A metric of answers.")
@click.option("--process", "processes", multiple=True, default=PROCESSES, show_default=True, help="A metric of paths.")
@click.option("--resamples", type=click.IntRange(min=100), default=2000, show_default=True, help="Bootstrap samples.")
@json_option
@click.pass_context
def command(
    context: click.Context, stores: tuple[str, ...], outcomes: tuple[str, ...], processes: tuple[str, ...], resamples: int,
    *, as_json: bool,
) -> None:  # fmt: skip
    """Compare how stable rankings by outcome and by process metrics are over the systems of STORES."""
    settings = AuditSettings(resamples=resamples)
    kinds: Mapping[str, str] = dict.fromkeys(outcomes, "outcome") | dict.fromkeys(processes, "process")
    found = []
    for metric, place in _places(stores, tuple(kinds)).items():
        try:
            matched = match(scores_of([place], settings, metric)[0].table, settings, f"{place}, {metric}").matched
            found.append(stability_of(kinds[metric], metric, matched, settings))
        except UserError as error:
            say(f"opsassay: left out: {metric}: {error}")
    if not found:
        raise UserError(
            "No metric could be ranked; each takes two solvers that are scored on every case of two systems."
        )
    context.exit(show_tables("process_stability", stability_tables(found), {}, as_json=as_json))


if __name__ == "__main__":
    sys.exit(run(command))
