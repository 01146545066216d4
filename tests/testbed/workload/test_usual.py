"""What of a time is beyond the usual of its link, by hand."""

from __future__ import annotations

from opsassay.testbed.workload.runtime.baseline import LinkBaseline

MS = 1_000_000


def usual(times):
    found = LinkBaseline()
    for ns in times:
        found.note("rate", ns)
    return found


def test_what_noise_reaches_too_is_no_excess():
    # 1 to 100 ms: the 99th percentile is the last, the median 51 ms.
    found = usual(i * MS for i in range(1, 101))
    assert found.excess("rate", 100 * MS) == 0
    assert found.excess("rate", 101 * MS) == 50 * MS


def test_a_delay_is_booked_without_the_usual_part():
    assert usual([2 * MS] * 50).excess("rate", 102 * MS) == 100 * MS


def test_where_too_little_was_measured_a_fixed_limit_stands_in():
    found = usual([MS] * 3)
    assert found.excess("rate", 5 * MS) == 0
    assert found.excess("rate", 6 * MS) == 6 * MS
    assert found.excess("price", 6 * MS) == 6 * MS


def test_only_recent_times_count():
    assert usual([50 * MS] * 500 + [MS] * 200).excess("rate", 40 * MS) == 39 * MS
