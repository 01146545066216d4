import math

import pytest
from scipy import stats

from opsassay.grading.rates import wilson


def test_the_interval_is_wilsons():
    z = stats.norm.ppf(0.975)  # Wilson (1927), written out
    for hits, n in ((22, 36), (39, 126), (0, 5)):
        centre, spread = hits / n + z**2 / (2 * n), z * math.sqrt(hits * (n - hits) / n**3 + z**2 / (4 * n**2))
        assert wilson(hits, n) == pytest.approx(tuple((centre + s * spread) / (1 + z**2 / n) for s in (-1, 1)))
    assert wilson(0, 0) == (0.0, 1.0)
