"""Tables 4 and 17 of ITBench over trials: means and errors as by hand, and a dash where nothing was asked."""

from __future__ import annotations

from math import sqrt

import pytest

from opsassay.bench.domains.sre.itbench_tables import itbench_tables
from opsassay.bench.domains.sre.tables import TrialRow

HELD = {"outcome": True, "temporal": True, "depth_holds": True, "probe": True, "conjunction": True}


def row(scenario, seed, *, agent="a", right=None, after=None, alerts=True, repair=None, submitted=None, **further):
    return TrialRow(
        scenario=scenario, depth="D1", agent=agent, arm="baseline", probes=True, seed=seed, **HELD, alerts=alerts,
        repair_s=repair, right=right, diagnosis_s=after, submitted=submitted, **further,
    )  # fmt: skip


ROWS = [
    row("s1", 0, right=True, after=10.0, repair=100.0, submitted=True),
    row("s1", 1, right=False, repair=None, submitted=False),
    row("s2", 0, right=True, after=30.0, repair=200.0, submitted=True),
    row("s2", 1, right=True, after=20.0, repair=300.0, submitted=True),
    row("s3", 0, agent="b", alerts=False),
]


def test_pass_at_1_is_over_scenarios_and_times_over_successes():
    four, seventeen = itbench_tables(ROWS)
    share = f"{75:.2f} ± {sqrt(2 * 25**2) / sqrt(2):.2f}"
    times = ("20.0 ± 5.8", "200.0 ± 57.7")
    assert four.rows[0] == ("a", 4, share, times[0], share, times[1])
    assert four.rows[1] == ("b", 1, None, None, None, None)
    assert seventeen.rows == (("a", 2, 2, 4, "75.0%"), ("b", 1, 1, 1, None))
    assert (four.number, seventeen.number) == (4, 17)


def test_other_arms_are_no_part_of_it_and_nothing_is_nothing():
    four, seventeen = itbench_tables([])
    assert (four.rows, seventeen.rows) == ((), ())
    other = TrialRow("s1", "D1", "a", "constrained", probes=True, seed=0, **HELD)
    assert itbench_tables([other])[0].rows == ()


@pytest.mark.parametrize(("repairs", "shown"), [([5.0], "5.0"), ([None], None)])
def test_one_success_has_no_error_and_none_has_no_time(repairs, shown):
    (four, _) = itbench_tables([row("s1", n, repair=repair) for n, repair in enumerate(repairs)])
    assert four.rows[0][5] == shown
