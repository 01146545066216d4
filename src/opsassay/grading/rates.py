"""The interval that every table gives a rate."""

from __future__ import annotations

import math
from statistics import NormalDist

CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


def wilson(successes: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of *successes*, which may be a mean over repeats, out of *n*; (0, 1) for none.

    With p = successes / n: (p + z²/2n ± z sqrt(p (1 - p) / n + z²/4n²)) / (1 + z²/n) (Wilson 1927).
    """
    if not n:
        return 0.0, 1.0
    p, spread = successes / n, _Z**2 / n
    half = _Z * math.sqrt(p * (1 - p) / n + spread / (4 * n))
    return max((p + spread / 2 - half) / (1 + spread), 0.0), min((p + spread / 2 + half) / (1 + spread), 1.0)
