"""Whether a normal window is steady, asked of spans before a fault is injected."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl

from opsassay.annotation.evidence.baseline import drift_objection
from opsassay.core.schema.incident import Window
from opsassay.telemetry.schema import TIME

START = datetime(2026, 11, 1, tzinfo=UTC)
LENGTH_S = 30
OPERATIONS = [f"op-{number}" for number in range(8)]


def window():
    start_ns = int(START.timestamp() * 1e9)
    return Window(start_ns=start_ns, end_ns=start_ns + LENGTH_S * 10**9)


def never(_operation, _second):
    return False


def spans(slow=never, failed=never):
    """Return five calls a second of each operation, 20 ms or 200 ms long, and client spans that are no calls."""
    rows = []
    for tick in range(LENGTH_S * 5):
        for operation in OPERATIONS:
            second, spread = tick / 5, 1 + (tick * 7 % 10) / 50
            duration = int((200 if slow(operation, second) else 20) * spread * 1e6)
            status = "Error" if failed(operation, second) else "Unset"
            rows.append((START + timedelta(seconds=second), "shop", operation, "Server", status, duration))
            rows.append((START + timedelta(seconds=second), "shop", operation, "Client", "Error", duration * 50))
    names = ["time", "service_name", "span_name", "attr.span_kind", "attr.status_code", "duration"]
    return pl.DataFrame(rows, schema=names, orient="row").with_columns(
        pl.col("time").cast(TIME), pl.col("duration").cast(pl.UInt64)
    )


def test_a_steady_window_has_no_objection():
    assert drift_objection(spans(), window()) == ""


def test_operations_that_become_slower_half_way_are_drift():
    slower = spans(slow=lambda operation, second: second > 15 and operation < "op-4")
    assert drift_objection(slower, window()) == (
        "in its second half 50% of the operations' windows were unlike the first half"
    )


def test_operations_that_begin_to_fail_are_drift():
    failing = spans(failed=lambda operation, second: second > 15 and operation == "op-1")
    assert "12% of the operations' windows" in drift_objection(failing, window())


def test_one_slow_moment_of_one_operation_is_no_drift():
    once = spans(slow=lambda operation, second: 20 <= second < 23 and operation == "op-0")
    assert drift_objection(once, window()) == ""


def test_a_window_without_calls_says_nothing():
    assert drift_objection(spans().filter(pl.col("attr.span_kind") == "Client"), window()) == ""
