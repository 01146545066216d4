"""How often measured inevitability names the planted step, and how often its intervals hold the true chance.

``python benchmarks/inevitability.py [FAILURES]``: outcomes are drawn, no system runs. A failure has 2 to 40 steps, fails by
one chance of 5% to 60% before one of them, and always after it. Printed: the share of failures whose step is named, the
share of intervals of chances below 1 that hold the chance, and the runs that one failure takes.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from statistics import fmean

from opsassay.analysis.blame.inevitability import measure_inevitability


def continued(chances: list[float], seed: int) -> Callable[[int], bool]:
    """Return continuations that fail after k steps with the chance *chances*[k]."""
    of = random.Random(seed)
    return lambda prefix: of.random() < chances[prefix]


def planted(seed: int) -> tuple[int, list[float]]:
    """Return the step after which a failure is inevitable, and the chance of failing after each number of steps."""
    of = random.Random(seed)
    steps = of.randint(2, 40)
    at, before = of.randint(1, steps), of.uniform(0.05, 0.6)
    return at, [before] * at + [1.0] * (steps - at + 1)


def measured(failures: int) -> tuple[float, list[bool], list[int]]:
    """Return the share of named steps, whether each interval holds its chance, and the runs of each failure."""
    named, held, spent = list[bool](), list[bool](), list[int]()
    for seed in range(failures):
        at, chances = planted(seed)
        found = measure_inevitability(len(chances) - 1, continued(chances, seed), runs=10, budget=200)
        named.append(found.step == at)
        spent.append(found.spent)
        below = [one for one in found.prefixes if chances[one.steps] < 1]
        held += [one.interval[0] <= chances[one.steps] <= one.interval[1] for one in below]
    return fmean(named), held, spent


if __name__ == "__main__":
    share, intervals, runs = measured(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
    print(f"named: {share:.1%}; intervals: {fmean(intervals):.1%} of {len(intervals)}; runs: {fmean(runs):.0f}")
