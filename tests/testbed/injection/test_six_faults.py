"""Each of the six faults in the running shop: seen in the telemetry and in the ledger, undone, recovered from."""

from __future__ import annotations

import time

import polars as pl
import pytest

from live import Recording, state_folder
from opsassay.core.errors import RefusedError, UserError
from opsassay.core.schema.incident import FaultPlan
from opsassay.testbed.apps import load_system
from opsassay.testbed.substrates.local.substrate import LocalSubstrate

pytestmark = [pytest.mark.live, pytest.mark.alone, pytest.mark.timeout(200)]

BEFORE_S, FAULT_S, AFTER_S = 6.0, 8.0, 3.0


@pytest.fixture(scope="module")
def shop():
    with state_folder():
        running = LocalSubstrate().deploy(load_system("shop"), "six", seed=5, rate_rps=20, owned=True)
        time.sleep(4)
        yield running
        LocalSubstrate().remove("six")


class Injected:
    """One fault injected into the shop with its recording: *before*, *during* and *after* are (start, end) in ns."""

    def __init__(self, shop, folder, fault, service, **parameters):
        deadline = time.monotonic() + 30
        while shop.status().not_ready and time.monotonic() < deadline:
            time.sleep(0.2)
        plan = FaultPlan.model_validate(
            {"fault": fault, "target": {"service": service}, "parameters": parameters, "duration_s": FAULT_S}
        )
        with Recording(shop, folder / "spool") as self.recording:
            started = time.time_ns()
            time.sleep(BEFORE_S)
            self.events = {event["event"]: event for event in shop.inject(plan)}
            ended = time.time_ns()
            time.sleep(AFTER_S)
        fault_as_was = self.events["done"]["faults"][0]
        self.before = (started, fault_as_was["start_ns"])
        self.during = (fault_as_was["start_ns"], fault_as_was["end_ns"])
        self.after = (ended, time.time_ns())
        self.ledger = shop.ledger(started)
        assert self.events["done"]["recovered"]
        assert self.events["effect"]["passed"], self.events["effect"]
        assert shop.status().fault is None
        assert shop.status().not_ready == ()

    def ms(self, window, **which):
        """Return the median duration of the spans in *window*, milliseconds."""
        spans = self.recording.spans(*window, **which)
        assert spans.height >= 3, f"too few spans to tell: {which}"
        return spans["duration"].median() / 1e6

    def failed(self, window, **which):
        """Return the share of failed spans in *window*."""
        spans = self.recording.spans(*window, **which)
        assert spans.height >= 3, f"too few spans to tell: {which}"
        return (spans["attr.status_code"] == "Error").mean()

    def entries(self, kind, **equal):
        found = self.ledger.filter(pl.col("kind") == kind)
        for column, value in equal.items():
            found = found.filter(pl.col(column) == value)
        return found

    def assert_nothing_names_the_injector(self):
        text = pl.concat([self.recording.tables["logs"]["message"], self.recording.tables["traces"]["span_name"]])
        assert not text.str.to_lowercase().str.contains("inject|chaos|opsassay|fault").any()


@pytest.mark.faults
def test_http_response_delay(shop, tmp_path):
    it = Injected(shop, tmp_path, "HTTPResponseDelay", "currency", delay_ms=250)
    assert (
        it.ms(it.during, service="currency", kind="Server") > it.ms(it.before, service="currency", kind="Server") + 200
    )
    assert it.ms(it.after, service="currency", kind="Server") < 200
    delays = it.entries("delay", service="currency")
    assert delays.height >= 3
    assert set(delays["ns"]) == {250_000_000}
    assert {"frontend"} <= set(it.entries("wait", callee="currency")["service"])
    spans = it.recording.spans(*it.during, service="currency", kind="Server")
    assert set(delays["span_id"]) & set(spans["span_id"])  # the ledger points into the traces
    it.assert_nothing_names_the_injector()


def test_http_response_abort(shop, tmp_path):
    it = Injected(shop, tmp_path, "HTTPResponseAbort", "payment", code=503)
    assert it.failed(it.before, service="payment", kind="Server") == 0
    aborted = it.recording.spans(*it.during, service="payment", kind="Server")
    assert (aborted["attr.http.response.status_code"] == 503).mean() > 0.8
    assert it.failed(it.after, service="payment", kind="Server") == 0
    assert it.entries("error", service="payment").height >= 3
    assert {"checkout", "frontend"} <= set(it.entries("wait", error=True)["service"])


@pytest.mark.faults
def test_jvm_mysql_exception(shop, tmp_path):
    it = Injected(shop, tmp_path, "JVMMySQLException", "reviews")
    assert it.failed(it.before, service="reviews", name="SELECT reviews") == 0
    assert it.failed(it.during, service="reviews", name="SELECT reviews") > 0.8
    assert it.failed(it.after, service="reviews", name="SELECT reviews") == 0
    logs = it.recording.tables["logs"].filter(pl.col("service_name") == "reviews")["message"]
    assert logs.str.contains("SQLException: could not execute statement").any()
    assert it.entries("error", service="reviews", callee="db").height >= 3
    assert it.events["done"]["faults"][0]["emulated"]
    it.assert_nothing_names_the_injector()


def test_network_delay(shop, tmp_path):
    it = Injected(shop, tmp_path, "NetworkDelay", "catalog", delay_ms=100)
    # Packets that the catalogue sends are late: its answers to callers, and its requests to the database.
    assert it.ms(it.during, service="catalog", name="SELECT products") > 100
    callers = it.ms(it.during, service="search", name="GET /products", kind="Client")
    assert callers > it.ms(it.during, service="catalog", name="GET /products", kind="Server") + 80
    assert it.ms(it.after, service="catalog", name="SELECT products") < 80
    delayed = it.entries("packet_delay")
    assert set(delayed["ns"]) == {100_000_000}
    assert delayed["link"].str.contains("catalog-0").all()
    assert it.entries("one_way", callee="catalog")["back_ns"].median() > 100_000_000
    assert {"frontend", "search"} <= set(it.entries("wait", callee="catalog")["service"])
    it.assert_nothing_names_the_injector()


def test_cpu_stress(shop, tmp_path):
    it = Injected(shop, tmp_path, "CPUStress", "recommendation", cores=3)
    assert it.events["effect"]["after"] > 2 * it.events["effect"]["before"]
    usage = it.recording.tables["metrics"].filter(
        (pl.col("metric") == "container.cpu.limit_utilization") & (pl.col("service_name") == "recommendation")
    )
    during = usage.filter(pl.col("time").cast(pl.Int64).is_between(it.during[0] + 4_000_000_000, it.during[1]))
    before = usage.filter(pl.col("time").cast(pl.Int64) < it.before[1])
    assert during["value"].max() > 0.5 > before["value"].median()
    waits = it.recording.tables["metrics_sum"].filter(
        (pl.col("metric") == "container.cpu.runqueue.time") & (pl.col("service_name") == "recommendation")
    )
    by_time = waits.sort("time").select(pl.col("time").cast(pl.Int64), "value")
    in_fault = by_time.filter(pl.col("time").is_between(*it.during))["value"]
    assert by_time["value"].is_sorted()
    assert in_fault.max() - in_fault.min() > 1.0  # three burners want more than the limit that they share
    assert it.entries("stall").height >= 10
    assert {"frontend"} <= set(it.entries("wait", callee="recommendation")["service"])


@pytest.mark.faults
def test_pod_kill(shop, tmp_path):
    it = Injected(shop, tmp_path, "PodKill", "cart")
    pods = it.recording.tables["traces"].filter(pl.col("service_name") == "cart")["attr.k8s.pod.name"].unique()
    assert len(pods) == 2, "the successor is another pod"
    failed = it.recording.spans(*it.during, service="frontend", name="POST /items", kind="Client")
    assert (failed["attr.status_code"] == "Error").any()
    served = it.recording.spans(*it.after, service="cart", kind="Server")
    assert served.height >= 1
    assert (served["attr.status_code"] != "Error").all()
    waits = it.entries("wait", callee="cart", error=True)
    assert {"frontend"} <= set(waits["service"])


def test_a_fault_that_cannot_be_injected_is_refused_with_reason_and_way_out(shop):
    def refused(fault, service="cart", **parameters):
        plan = FaultPlan.model_validate({"fault": fault, "target": {"service": service}, "parameters": parameters})
        with pytest.raises(UserError) as error:
            list(shop.inject(plan))
        return error.value

    assert isinstance(refused("JVMMySQLException", "quote"), RefusedError)
    assert "did you mean 'cart'" in str(refused("PodKill", "carts"))
    assert "operation of payment" in str(refused("HTTPResponseAbort", "payment", operation="GET /charges"))
    assert "exchanges no packets with 'quote'" in str(refused("NetworkDelay", "cart", peer="quote"))


def test_a_second_fault_waits_for_the_first_and_hanging_up_undoes_it(shop):
    plan = FaultPlan.model_validate(
        {"fault": "HTTPResponseDelay", "target": {"service": "ads"}, "parameters": {"delay_ms": 20}, "duration_s": 60}
    )
    first = shop.inject(plan)
    assert next(first)["event"] == "applied"
    with pytest.raises(RefusedError, match="HTTPResponseDelay on ads is still active"):
        list(shop.inject(plan))
    first.close()  # the lease ends with the connection
    deadline = time.monotonic() + 10
    while shop.status().fault is not None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert shop.status().fault is None
    assert "undone" in shop.state.journal.read_text().splitlines()[-1]


def test_a_fault_that_does_not_bite_is_told_so(shop, tmp_path):
    plan = FaultPlan.model_validate(
        {
            "fault": "NetworkBandwidth",
            "target": {"service": "currency"},
            "parameters": {"rate_bps": 10**9},
            "duration_s": 3,
        }
    )
    events = {event["event"]: event for event in shop.inject(plan)}
    assert not events["effect"]["passed"]
    assert events["done"]["effects"][0]["passed"] is False
