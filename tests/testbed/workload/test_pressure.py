"""When a CPU quota that is shared with burners is used up, by hand."""

from __future__ import annotations

import pytest

from opsassay.testbed.workload.runtime.pressure import shares


@pytest.mark.parametrize(
    ("limit", "cores", "load", "used", "run", "burnt"),
    [
        (0.5, 1, 100, 0.0, 0.5, 0.5),  # a burner uses half a core in half of the period
        (0.5, 4, 100, 1.0, 0.1, 0.4),  # five cores are wanted, half a core is there
        (0.25, 1, 1, 0.1, 1.0, 0.01),  # what is wanted fits: nobody is stopped
        (4.0, 1, 100, 0.1, 1.0, 1.0),  # one burner does not use up four cores
    ],
)
def test_the_targets_run_until_the_quota_is_used_up(limit, cores, load, used, run, burnt):
    assert shares([limit], cores, load, used) == pytest.approx((run, burnt))


def test_the_replicas_of_a_host_use_one_quota():
    # Two limits of half a core: one core, of which the replicas use 0.5 and two burners want two.
    assert shares([0.5, 0.5], 2, 100, 0.5) == pytest.approx((0.4, 0.8))
