"""Whether the audit's intervals cover and its tests hold their size, and what it costs in time and memory.

Coverage is measured under the model that each interval assumes, and where it is known to fail; type I errors of the
interaction tests with independent and with paired successes. Speed is that of whole audits in processes of their own,
reports written, with peak resident memory. Run: ``python benchmarks/audit.py [--large]``; --large adds 100,000 cases of
20 methods on 50 systems.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opsassay.analysis.audit.audit import audit
from opsassay.analysis.audit.interaction import likelihood_ratio, wald
from opsassay.analysis.audit.matched import Matched
from opsassay.analysis.audit.permutation import permutation_p
from opsassay.analysis.audit.pooled import random_effects
from opsassay.analysis.audit.resampling import bootstrap_means, effect_intervals, percentile_intervals, permuted_means
from opsassay.analysis.audit.selection import leave_one_system_out
from opsassay.ui.audit_report import write_audit

Floats = NDArray[np.float64]
SIZES = np.array([136, 70, 78, 51, 26, 26, 8, 8, 125, 125, 125])
"""Cases per system of the paper."""

RUNS = 1000
PAPER_MEANS = np.array([0.16, 0.06, 0.11, 0.18, 0.15, 0.15, 0.25, 0.25, 0.73, 0.20, 0.16])
EFFECTS = np.array([0.03, -0.10, -0.09, -0.05, 0.08, -0.04, -0.12, -0.12, 0.02, -0.34, -0.30])


def paired_scores(
    draw: np.random.Generator, first: Floats, second: Floats, n: int, share: float
) -> tuple[Floats, Floats]:
    """Return 0/1 scores (systems x n) with the given means; *share* of cases are decided by the same uniform draw."""
    shape = (len(first), n)
    one, other = draw.random(shape), draw.random(shape)
    other = np.where(draw.random(shape) < share, one, other)
    return (one < first[:, None]).astype(float), (other < second[:, None]).astype(float)


def as_matched(first: list[Floats], second: list[Floats]) -> Matched:
    """Return the matched table of two methods from scores by system."""
    sizes = np.array([len(s) for s in first])
    names = tuple(f"s{i}" for i in range(len(sizes)))
    values = np.column_stack([np.concatenate(first), np.concatenate(second)])
    return Matched(("a", "b"), names, ("f",) * len(sizes), sizes, values)


def effect_coverage() -> None:
    """Coverage of the paired bootstrap interval of one system's effect."""
    print("\nPaired bootstrap interval of one system (percentile; 95% claimed), 1,000 systems each, 1,000 resamples")
    print("  cases   means .5/.4   means .2/.1   means .95/.9   (half of the cases decided alike)")
    for n in (8, 20, 50, 125, 400):
        cells = []
        for first, second in ((0.5, 0.4), (0.2, 0.1), (0.95, 0.9)):
            draw = np.random.default_rng([n, int(100 * first)])
            a, b = paired_scores(draw, np.full(RUNS, first), np.full(RUNS, second), n, 0.5)
            m = as_matched(list(a), list(b))
            low, high = effect_intervals(m, bootstrap_means(m, 1000), 0, 1)
            cells.append(_share((low <= first - second) & (high >= first - second)))
        print(f"  {n:5d}   {cells[0]:>11}   {cells[1]:>11}   {cells[2]:>12}")


def pooled_coverage() -> None:
    """Coverage of the HKSJ and of the prediction interval under the normal random-effects model."""
    print("\nRandom effects, variances known (95% claimed), 20,000 analyses each")
    print("      k   tau/se   HKSJ interval   prediction interval   Q rejects")
    for k in (3, 5, 11, 20, 50):
        for tau in (0.0, 0.5, 1.0, 3.0):
            draw = np.random.default_rng([k, int(10 * tau)])
            variance = draw.uniform(0.5, 1.5, (20_000, k))
            effect = tau * draw.standard_normal((20_000, k)) + np.sqrt(variance) * draw.standard_normal((20_000, k))
            found = random_effects(effect, variance)
            another = tau * draw.standard_normal(20_000)
            inside = _share((found.low <= 0) & (found.high >= 0))
            ahead = _share((found.prediction_low <= another) & (found.prediction_high >= another))
            print(f"  {k:5d}   {tau:6.1f}   {inside:>13}   {ahead:>19}   {_share(found.q_p < 0.05):>9}")


def macro_coverage(runs: int = 500) -> None:
    """Coverage of the bootstrap intervals of the mean over systems, of a contrast, and of the mean regret."""
    second = PAPER_MEANS - EFFECTS
    print(
        f"\nIntervals from the case bootstrap on the paper's 11 systems (95% claimed), {runs} tables, 1,000 resamples"
    )
    for name, means, sizes in (("sizes of the paper", second, SIZES), ("100 cases each", second, np.full(11, 100))):
        draw = np.random.default_rng(5)
        true = PAPER_MEANS - means
        rest = ((true * sizes).sum() - true * sizes) / (sizes.sum() - sizes)
        regret = leave_one_system_out(true, sizes).regret.mean()
        inside = np.zeros((runs, 3), dtype=bool)
        for i in range(runs):
            made = [paired_scores(draw, PAPER_MEANS[[s]], means[[s]], int(n), 0.5) for s, n in enumerate(sizes)]
            m = as_matched([a[0] for a, _ in made], [b[0] for _, b in made])
            boot = bootstrap_means(m, 1000, i)
            d = boot[:, :, 0] - boot[:, :, 1]
            against = d[:, 0] - ((d * sizes).sum(axis=1) - d[:, 0] * sizes[0]) / (sizes.sum() - sizes[0])
            for j, (drawn, truth) in enumerate(
                (
                    (d.mean(axis=1), true.mean()),
                    (against, true[0] - rest[0]),
                    (leave_one_system_out(d, sizes).regret.mean(axis=1), regret),
                )
            ):
                low, high = percentile_intervals(drawn, 0.95)
                inside[i, j] = low <= truth <= high
        shares = [_share(inside[:, j]) for j in range(3)]
        print(
            f"  {name:20s} mean over systems {shares[0]}, one system against the rest {shares[1]}, mean regret {shares[2]}"
        )


def type_one_errors(runs: int = 1200) -> None:
    """How often the interaction tests reject when the log odds of two methods differ by the same in all systems."""
    error = 100 * (0.05 * 0.95 / runs) ** 0.5
    print(
        f"\nInteraction tests when there is none (5% claimed), {runs} tables of 11 systems, standard error {error:.1f}%"
    )
    print("  cases             successes     ratio test   Wald by case   permutation of cases")
    odds = np.log(PAPER_MEANS / (1 - PAPER_MEANS))
    for name, sizes in (("100 each", np.full(11, 100)), ("as in the paper", SIZES)):
        for pairing, share in (("independent", 0.0), ("half alike", 0.5)):
            draw = np.random.default_rng(9)
            rejected = np.zeros((runs, 3))
            for i in range(runs):
                first = 1 / (1 + np.exp(-odds))
                second = 1 / (1 + np.exp(-(odds + 0.4)))
                made = [paired_scores(draw, first[[s]], second[[s]], int(n), share) for s, n in enumerate(sizes)]
                m = as_matched([a[0] for a, _ in made], [b[0] for _, b in made])
                rejected[i, 0] = _rejects(likelihood_ratio(m.means, m.sizes).p)
                rejected[i, 1] = _rejects(wald(m, (0, 1)).test.p)
                if i < runs // 3:
                    rejected[i, 2] = _rejects(_permutation_null(draw, sizes, share))
            cells = [_share(rejected[:, 0]), _share(rejected[:, 1]), _share(rejected[: runs // 3, 2])]
            print(f"  {name:15s}   {pairing:11s}   {cells[0]:>10}   {cells[1]:>12}   {cells[2]:>20}")


def _permutation_null(draw: np.random.Generator, sizes: NDArray[np.int64], share: float) -> float | None:
    """Return the permutation p-value of a table under its own null: the same paired differences in all systems."""
    made = [paired_scores(draw, np.array([0.35]), np.array([0.45]), int(n), share) for n in sizes]
    m = as_matched([a[0] for a, _ in made], [b[0] for _, b in made])
    permuted = permuted_means(m, 199, int(draw.integers(1 << 30)))
    return permutation_p(m.means[:, 0] - m.means[:, 1], permuted[:, :, 0] - permuted[:, :, 1], m.sizes)


def _rejects(p: float | None) -> bool:
    return p is not None and p <= 0.05


def _share(values: NDArray[np.bool_] | Floats) -> str:
    return f"{100 * float(np.mean(values)):.1f}%"


def scores(cases: int, methods: int, systems: int) -> pl.DataFrame:
    """Return a long table of random 0/1 scores."""
    draw = np.random.default_rng(1)
    system = np.sort(draw.integers(0, systems, cases))
    ease, chance = draw.random(cases), draw.uniform(0.1, 0.7, (systems, methods))
    values = 0.5 * draw.random((cases, methods)) + 0.5 * ease[:, None] < chance[system]
    row = np.repeat(np.arange(cases), methods)
    return pl.DataFrame(
        {
            "family": pl.Series(system[row] % 5).cast(pl.String),
            "system": pl.Series(system[row]).cast(pl.String),
            "case": pl.Series(row).cast(pl.String),
            "method": pl.Series(np.tile(np.arange(methods), cases)).cast(pl.String),
            "score": values.ravel().astype(float),
        }
    )


def one_audit(cases: int, methods: int, systems: int) -> None:
    """Audit a random table in this process and print seconds and peak memory as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.csv"
        scores(cases, methods, systems).write_csv(path)
        started, spent = time.perf_counter(), time.process_time()
        write_audit(audit(pl.read_csv(path, infer_schema=False)), Path(folder) / "out")
        seconds, cpu = time.perf_counter() - started, time.process_time() - spent
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak_mb": peak_mb}))


def speed(*, large: bool) -> None:
    """Whole audits, read from CSV and written as a report, each in a process of its own; start-up counted apart."""
    print("\nWhole audits: CSV in, report, tables and figures out")
    print("    cases  methods  systems   seconds   CPU s   with start-up   peak MB")
    sizes = [(778, 4, 11), (10_000, 4, 11), (100_000, 4, 11), (1_000_000, 4, 11)]
    for cases, methods, systems in sizes + ([(100_000, 20, 50)] if large else []):
        started = time.perf_counter()
        command = [sys.executable, __file__, "one", str(cases), str(methods), str(systems)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        wall = time.perf_counter() - started
        told = json.loads(done.stdout.splitlines()[-1])
        cost = f"{told['seconds']:7.1f}   {told['cpu']:5.1f}   {wall:13.1f}   {told['peak_mb']:7.0f}"
        print(f"  {cases:7,d}  {methods:7d}  {systems:7d}   {cost}")


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if sys.argv[1:2] == ["one"]:
        one_audit(*(int(value) for value in sys.argv[2:5]))
        return
    speed(large="--large" in sys.argv)
    effect_coverage()
    pooled_coverage()
    macro_coverage()
    type_one_errors()


if __name__ == "__main__":
    main()
