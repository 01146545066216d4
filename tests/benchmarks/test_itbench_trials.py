"""Tables 4 and 17 of ITBench over trials: means and errors as by hand, and a dash where nothing was asked."""

from __future__ import annotations

from math import erfc, sqrt

import pytest
from benchmarks.papers.itbench_trials import ItbenchRow, itbench_tables

from opsassay.core.schema.task import level_of
from opsassay.scoring.repeats import complexity

HELD = {"outcome": True, "temporal": True, "depth_holds": True, "probe": True, "conjunction": True}


def row(scenario, seed, *, agent="a", right=None, after=None, alerts=True, repair=None, submitted=None, **further):
    return ItbenchRow(
        scenario=scenario, depth="D1", agent=agent, arm="baseline", probes=True, seed=seed, **HELD, alerts=alerts,
        repair_s=repair, right=right, diagnosis_s=after, submitted=submitted, **further,
    )  # fmt: skip


ROWS = [
    row("s1", 0, right=True, after=10.0, repair=100.0, submitted=True, fl=1.0),
    row("s1", 1, right=False, repair=None, submitted=False, fl=0.0),
    row("s2", 0, right=True, after=30.0, repair=200.0, submitted=True, fl=0.5),
    row("s2", 1, right=True, after=20.0, repair=300.0, submitted=True),
    row("s3", 0, agent="b", alerts=False),
]


def numbered(rows, attempts=None):
    return [one for one in itbench_tables(rows, attempts) if one.number in (4, 17)]


def test_pass_at_1_is_over_scenarios_and_times_over_successes():
    four, seventeen = numbered(ROWS, {"a": (4, 5)})
    share = f"{75:.2f} ± {sqrt(2 * 25**2) / sqrt(2):.2f}"
    times = ("20.0 ± 5.8", "200.0 ± 57.7")
    assert four.rows[0] == ("a", 4, share, "0.50 ± 0.00", None, times[0], share, times[1])
    assert four.rows[1] == ("b", 1, *[None] * 6)
    assert seventeen.rows == (("a", 2, 2, 4, "80.0%", "75.0%"), ("b", 1, 1, 1, None, None))
    assert (four.number, seventeen.number) == (4, 17)


def test_other_arms_are_no_part_of_it_and_nothing_is_nothing():
    four, seventeen = numbered([])
    assert (four.rows, seventeen.rows) == ((), ())
    other = ItbenchRow("s1", "D1", "a", "constrained", probes=True, seed=0, **HELD)
    assert numbered([other])[0].rows == ()


@pytest.mark.parametrize(("repairs", "shown"), [([5.0], "5.0"), ([None], None)])
def test_one_success_has_no_error_and_none_has_no_time(repairs, shown):
    (four, _) = numbered([row("s1", n, repair=repair) for n, repair in enumerate(repairs)])
    assert four.rows[0][7] == shown


def named(rows, title):
    return next(one for one in itbench_tables(rows) if one.title.startswith(title))


def test_levels_are_those_of_the_papers_examples_and_the_z_test_is_by_hand():
    # Table 2 with the sizes of Table 12: MemoryResourceLimit and CorruptImage are easy, the others medium
    sizes = {
        "easy": [(1, 2, 2), (2, 1, 1)],
        "medium": [(3, 2, 1), (3, 2, 2), (3, 1, 2), (4, 1, 5)],
        "hard": [(8, 6, 3)],
    }
    for level, examples in sizes.items():
        assert {level_of(complexity(*one)) for one in examples} == {level}
    rows = [row("e", n, right=n < 6, complexity=1.0) for n in range(10)]
    rows += [row("h", n, right=n < 1, complexity=5.3) for n in range(10)]
    table = next(one for one in itbench_tables(rows) if one.number == 18)
    assert table.rows == (("a", "60.00", None, "10.00", 10, 0, 10),)
    z = (0.6 - 0.1) / sqrt(0.35 * 0.65 * 2 / 10)
    assert table.statistics["z_test_p a easy hard"] == pytest.approx(erfc(z / sqrt(2)))
    assert table.statistics["z_test_p a easy medium"] is None


def test_tries_are_unbiased_and_only_as_many_as_there_are_trials():
    rows = [row("s1", 0, right=True), row("s1", 1, right=False), row("s2", 0, right=False), row("s2", 1, right=False)]
    assert named(rows, "pass@k").rows == (("a", 1, "25.00", "0.00", "100.00"), ("a", 2, "50.00", "0.00", "100.00"))


def test_tools_are_counted_and_distributions_are_compared():
    many = [row("s", n, tools=(("ps", 3, 1), ("logs", n, 0)), right=True, detoured=0.0, covered=1.0) for n in range(5)]
    few = [
        row("s", n, agent="b", tools=(("ps", 1, 0),), right=True, detoured=float(9 + n), covered=0.1) for n in range(5)
    ]
    used, looked = named(many + few, "Figure 5"), named(many + few, "Figure 6")
    assert used.rows[0] == ("a", "ps", 15, "60.0%", "33.3%")
    assert used.statistics["ks_p calls per trial: a, b"] == pytest.approx(2 / 252)  # no overlap, 5 and 5: exact
    assert looked.rows[0] == ("a", "right", 5, "0.00 ± 0.00", "1.00 ± 0.00")
    assert looked.statistics["ks_p detours, right: a, b"] == pytest.approx(2 / 252)
    assert looked.statistics["ks_p coverage, right: a, b"] == pytest.approx(2 / 252)


def test_masked_arms_have_a_table_beside_the_same_scenarios_with_all_telemetry():
    masked = ItbenchRow(
        "s1", "D1", "a", "baseline/mask-traces", probes=True, seed=0, **HELD, right=True, diagnosis_s=1.0
    )
    tables = {one.number: one for one in itbench_tables([*ROWS, masked])}
    assert [row[1] for row in tables[20].rows] == [2]
    assert [row[1] for row in tables[21].rows] == [1]
    assert 21 not in {one.number for one in itbench_tables(ROWS)}
