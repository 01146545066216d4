"""The alert rules over live tables: what is usual is known for as long as a trial lasts."""

from __future__ import annotations

import polars as pl
import pytest

from opsassay.core.schema.incident import Window
from opsassay.core.schema.system import Slo
from opsassay.testbed.core.fleet import LOAD_GENERATOR
from opsassay.testbed.operations import live
from opsassay.testbed.operations.live import ARRIVAL_S, KEPT_S, LiveAlerts, users_are_served
from testbed.recording.test_alerts import SECOND, START, lending, readings, stream


class Kept:
    """Tables as they are kept: nothing that is older than a while."""

    def __init__(self, clock, *streams, metrics=None):
        self.clock, self.streams = clock, streams
        self.metrics = metrics or {"metrics": readings(0.1), "metrics_sum": readings(0.1).clear()}

    arrived_ns = live.LiveTelemetry.arrived_ns

    def tables(self):
        both, now = pl.concat(self.streams), START + int(self.clock[0] * SECOND)
        at = pl.col("time").cast(pl.Int64)
        arrived = {name: table.filter(at <= now) for name, table in self.metrics.items()}
        return {"traces": both.filter(at.is_between(now - int(KEPT_S * SECOND), now)), **arrived}


@pytest.fixture
def clock(monkeypatch):
    seconds = [0.0]
    monkeypatch.setattr(live.time, "time_ns", lambda: START + int(seconds[0] * SECOND))
    return seconds


def test_a_service_that_fails_fires_however_long_ago_it_was_well(clock):
    long = int(KEPT_S) + 200
    telemetry = Kept(clock, stream(to_s=60), stream(from_s=60, to_s=long + 20, failed=True))
    alerts = LiveAlerts(telemetry, Slo(), Window(start_ns=START, end_ns=START + 40 * SECOND))
    clock[0] = 41 + ARRIVAL_S
    assert alerts.firing()[1] == []
    for clock[0] in (80, long):
        assert [(a.service, a.signal) for a in alerts.firing()[1]] == [("cart", "error_rate")]
    assert telemetry.tables()["traces"]["time"].min() > stream(to_s=60)["time"].max()  # the healthy stretch is gone


def test_what_is_usual_is_not_settled_before_all_of_it_has_arrived(clock):
    telemetry = Kept(clock, stream(rate=1, to_s=30), stream(rate=8, from_s=30, to_s=60))
    alerts = LiveAlerts(telemetry, Slo(), Window(start_ns=START, end_ns=START + 40 * SECOND))
    clock[0] = 31
    alerts.firing()
    assert alerts._baseline is None
    clock[0] = 50
    alerts.firing()
    assert alerts._baseline.item(0, "usual_count") == pytest.approx((30 + 80) / 4, abs=0.5)


def test_a_saturated_service_stays_so_while_others_take_what_it_wants_and_clears_once_it_wants_less(clock):
    parts = [(40, 50, 0.05, 0.0), (50, 60, 0.5, 0.5), (60, 70, 0.2, 0.8), (70, 90, 0.05, 0.2), (90, 100, 0.2, 0.8)]
    usual = Window(start_ns=START, end_ns=START + 40 * SECOND)
    alerts = LiveAlerts(Kept(clock, stream(to_s=100), metrics=lending(*parts)), Slo(), usual)
    fired = []
    for clock[0] in range(43, 101):
        at_ns, found = alerts.firing()
        fired += [(at_ns - START) // SECOND for _ in found]
    assert fired == list(range(52, 70))


def test_whether_users_are_served_is_read_off_their_own_requests_whatever_programs_tell(clock):
    silent = stream(service=LOAD_GENERATOR, to_s=40)
    clock[0] = 40
    assert users_are_served(Kept(clock, silent))
    assert users_are_served(Kept(clock, silent, stream(to_s=40, failed=True)))
    assert not users_are_served(Kept(clock, stream(to_s=40)))  # nobody asked
    assert not users_are_served(Kept(clock, stream(service=LOAD_GENERATOR, to_s=40, failed=True)))
    assert not users_are_served(Kept(clock, stream(service=LOAD_GENERATOR, to_s=40, ms=1600)))


def test_without_a_load_generator_spans_of_the_entries_tell_whether_users_are_served(clock):
    clock[0] = 40
    entries = {"cart"}
    assert users_are_served(Kept(clock, stream(to_s=40)), entries)
    assert not users_are_served(Kept(clock, stream(to_s=40, failed=True)), entries)
    assert not users_are_served(Kept(clock, stream(to_s=20)), entries), "none has come of late"
    assert users_are_served(Kept(clock, stream(service="other", to_s=40)), entries), "it never sent any: not known"
