"""What fair scheduling leaves of a CPU limit, by hand."""

from __future__ import annotations

import pytest

from assay.testbed.runtime.pressure import shares


@pytest.mark.parametrize(
    ("limit", "cores", "load", "target", "burner"),
    [
        (0.5, 1, 100, 0.25, 0.25),  # two equal claimants share half a core
        (0.5, 3, 100, 0.125, 0.375),  # four do
        (1.0, 1, 50, 2 / 3, 1 / 3),  # a burner at half load is half a claimant
        (4.0, 1, 100, 1.0, 2.0),  # a period cannot hold more than itself
    ],
)
def test_the_target_gets_its_fair_share(limit, cores, load, target, burner):
    assert shares([limit], cores, load) == pytest.approx((target, burner))


def test_the_replicas_of_a_host_share_what_they_have_together():
    # Two limits of half a core: one core for two replicas and two burners, a quarter each.
    assert shares([0.5, 0.5], 2, 100) == pytest.approx((0.25, 0.5))
