"""Figures over repeated runs and over incidents: pass@k, mean times over successes, complexity (ITBench, C.6.3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opsassay.core.errors import UserError


def pass_at_k(runs: int, successes: int, k: int) -> float:
    """Return the unbiased estimate of a success in *k* tries, 1 - C(n-c, k) / C(n, k): n *runs*, c *successes*.

    Raises UserError when there are fewer than *k* runs: nothing is known of k tries then.
    """
    if not 1 <= k <= runs:
        raise UserError(f"pass@{k} needs at least {max(k, 1)} runs of every case, not {runs}; repeat the runs.")
    return 1 - math.comb(runs - successes, k) / math.comb(runs, k)


def mean_pass_at_k(outcomes: Mapping[str, Sequence[bool]], k: int) -> float:
    """Return pass@k averaged over cases; *outcomes*, not empty, are the successes of every run by case.

    Raises UserError where a case has fewer than *k* runs.
    """
    values = [pass_at_k(len(found), sum(found), k) for found in outcomes.values()]
    return math.fsum(values) / len(values)


@dataclass(frozen=True)
class MeanTime:
    """The mean time in seconds over *successes* of *attempts*; None without a success."""

    seconds: float | None
    successes: int
    attempts: int


def mean_time(times_s: Iterable[float | None]) -> MeanTime:
    """Return the mean of *times_s* (seconds) over successes; None is a failure, an infinite time in the paper."""
    given = list(times_s)
    known = [value for value in given if value is not None]
    return MeanTime(math.fsum(known) / len(known) if known else None, len(known), len(given))


def complexity(propagation_length: int, resolution_steps: int, technologies: int) -> float:
    """Return the complexity of a scenario, (length * steps * technologies) ^ (1/3) (ITBench, Equation 6).

    Raises UserError for a size below 1.
    """
    sizes = (propagation_length, resolution_steps, technologies)
    if min(sizes) < 1:
        raise UserError(f"complexity is a mean of three sizes of at least 1, not {sizes}.")
    return math.cbrt(math.prod(sizes))
