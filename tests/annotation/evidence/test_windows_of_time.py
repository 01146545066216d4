"""Windows and moments are counted in whole nanoseconds: a call on a step is in the one that begins there."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from opsassay.annotation.evidence.load_normalisation import moment_of
from opsassay.annotation.evidence.states import SPAN_WINDOW_S, windows
from opsassay.annotation.evidence.thresholds import LoadThresholds
from opsassay.annotation.reading.calls import Calls

NANO = 1_000_000_000
STARTS = st.integers(0, 2**61)


@given(start=STARTS, count=st.integers(1, 200))
def test_a_call_on_the_step_of_a_moment_is_in_it(start: int, count: int) -> None:
    step_ns = 5 * NANO
    nothing = pl.DataFrame()
    calls = Calls(
        entries=nothing,
        exits=nothing,
        bare=nothing,
        services=(),
        status_known=True,
        start_ns={"normal": start},
        end_ns={"normal": start + count * step_ns},
    )
    times = pl.DataFrame({"time_ns": [start + i * step_ns + late for i in range(count) for late in (0, step_ns - 1)]})
    found = times.select(moment_of(calls, "normal", LoadThresholds(moment_s=5))).to_series()
    assert found.to_list() == [i for i in range(count) for _ in range(2)]


@settings(max_examples=20)  # one query each
@given(start=STARTS, count=st.integers(1, 60), more=st.integers(0, int(SPAN_WINDOW_S * NANO) - 1))
def test_a_call_on_the_step_of_a_window_is_in_it(start: int, count: int, more: int) -> None:
    step_ns = int(SPAN_WINDOW_S * NANO)
    times = [start + i * step_ns for i in range(count)]
    flags = {"failed": False, "duration_ms": 1.0, "node": "a"}
    entries = pl.DataFrame({"time_ns": times}).with_columns(pl.lit(value).alias(name) for name, value in flags.items())
    nodes = pl.DataFrame({"node": ["a"], "n": [100], "rate_per_s": [100.0]})
    found = windows(entries, nodes, start, start + count * step_ns + more)
    assert found.select("window", "now").rows() == [(i, 1) for i in range(count)]
