"""Every fault type on every level that this machine has, in one small system per level: seen, accounted for, gone again.

The six types of the first systems are tested in the shop, in test_six_faults.py.
"""

from __future__ import annotations

import time

import polars as pl
import psutil
import pytest

from live import Recording, state_folder
from opsassay.core.errors import RefusedError
from opsassay.core.schema.faults import CATALOGUE
from opsassay.core.schema.incident import FaultPlan
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.state import marked_processes
from opsassay.testbed.substrates.local.actuators.table import REPERTOIRES
from opsassay.testbed.substrates.local.capabilities import LEVELS, probe, refusal
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from testbed import CORNER

PLAIN, NAMESPACED = (REPERTOIRES[level].actuators for level in ("plain", "namespaced"))

live = [pytest.mark.live, pytest.mark.faults, pytest.mark.timeout(120)]
USUAL_S, HOLD_S, HEAL_S, AFTER_S = 3.0, 2.0, 0.4, 0.8
NAMES_HEAL_S = 1.2  # look-ups are cached for a second


def test_every_type_is_carried_out_with_a_signature_or_refused_with_a_reason():
    assert set(CATALOGUE) == set(NAMESPACED) == {*PLAIN, "NetworkDuplicate"}
    for name in CATALOGUE:
        assert (name in PLAIN) == (refusal(name, "plain") is None)
    assert "TCP drops a duplicate" in refusal("NetworkDuplicate", "plain")


def plan(fault, service, seconds=HOLD_S, replica=None, **parameters):
    target = {"service": service, "replica": replica}
    return FaultPlan.model_validate({"fault": fault, "target": target, "parameters": parameters, "duration_s": seconds})


def own_processes(running):
    """Return how many processes of ours the system has; a database starts one more for every connection."""
    return sum(process.name().startswith("python") for process in marked_processes(running.state))


class Corner:
    """The running system, with what is usual in it."""

    def __init__(self, running, level, folder):
        self.running, self.level, self.folder, self.count = running, level, folder, 0
        self.plain = level == "plain"
        with self.recording() as self.usual:
            time.sleep(USUAL_S)
        self.usual_window = (self.usual.started_ns, time.time_ns())

    def recording(self):
        self.count += 1
        return Recording(self.running, self.folder / f"s{self.count}")

    def settle(self):
        deadline = time.monotonic() + 20
        while self.running.status().not_ready and time.monotonic() < deadline:
            time.sleep(0.1)

    def pid(self, replica):
        return self.running.status().pids[replica]

    def inject(self, fault, service, seconds=HOLD_S, on_effect=None, heal_s=HEAL_S, **parameters):
        return Injected(self, plan(fault, service, seconds, **parameters), on_effect, heal_s)


class Injected:
    """One fault in the system: *during* and *after* are (start, end) in ns."""

    def __init__(self, corner, fault_plan, on_effect, heal_s):
        self.corner, running = corner, corner.running
        corner.settle()
        self.events = {}
        processes = own_processes(running)
        with corner.recording() as self.recording:
            running.flush()  # a histogram needs a point before
            for event in running.inject(fault_plan):
                self.events[event["event"]] = event
                if event["event"] == "applied":
                    self.applied = time.time_ns()
                if event["event"] == "effect" and on_effect:
                    on_effect()
            time.sleep(heal_s)
            healed = time.time_ns()
            time.sleep(AFTER_S)
            self.after = (healed, time.time_ns())
        fault = self.events["done"]["faults"][0]
        self.during = (fault["start_ns"], fault["end_ns"])
        ledger = running.ledger(fault["start_ns"])
        self.late = ledger.filter(pl.col("time_ns") > healed)
        self.ledger = ledger
        assert self.events["effect"]["passed"], self.events["effect"]
        assert self.events["done"]["recovered"]
        assert running.status().fault is None
        assert running.status().not_ready == ()
        assert own_processes(running) == processes
        assert fault["emulated"] == fault["type"].startswith("JVM")
        logs, traces = self.recording.tables["logs"], self.recording.tables["traces"]
        for frame in self.recording.tables.values():
            for column in {"metric", "service_name"} & set(frame.columns):
                self.assert_silent(frame[column])
        self.assert_silent(logs["message"])
        self.assert_silent(traces["span_name"])

    @staticmethod
    def assert_silent(words):
        assert not words.str.to_lowercase().str.contains(r"inject|chaos|opsassay|fault|jvm\.").any()

    def spans(self, window, **which):
        found = self.recording.spans(*window, **which)
        assert found.height >= 3, f"too few spans to tell: {which}"
        return found

    def failed(self, window, **which):
        return (self.spans(window, **which)["attr.status_code"] == "Error").mean()

    def ms(self, window, **which):
        return self.spans(window, **which)["duration"].median() / 1e6

    def usual_ms(self, **which):
        return self.corner.usual.spans(*self.corner.usual_window, **which)["duration"].median() / 1e6

    def messages(self, service):
        logs = self.recording.tables["logs"]
        return logs.filter(pl.col("service_name") == service)["message"]

    def entries(self, kind, **equal):
        found = self.ledger.filter(pl.col("kind") == kind)
        for column, value in equal.items():
            found = found.filter(pl.col(column) == value)
        return found

    def metric(self, table, name, service):
        frame = self.recording.tables[table]
        return frame.filter((pl.col("metric") == name) & (pl.col("service_name") == service))

    def assert_users_are_served_again(self):
        assert self.failed(self.after, service="loadgenerator", name="GET /") == 0
        if self.late.height:  # the ledger is quiet when the fault is over
            assert self.late.filter(pl.col("kind") != "wait").height == 0


@pytest.fixture(scope="module", params=LEVELS)
def corner(request, tmp_path_factory):
    if not (level := probe()[request.param]).available:
        pytest.skip(f"no {level.name} level here: {level.reason}")
    with state_folder():
        running = LocalSubstrate().deploy(load_system(CORNER), "corner", seed=5, owned=True, isolation=level.name)
        time.sleep(2)
        yield Corner(running, level.name, tmp_path_factory.mktemp("spools"))
        LocalSubstrate().remove("corner")


class TestHttp:
    pytestmark = live

    @pytest.mark.parametrize(
        ("fault", "parameters", "status", "says"),
        [
            ("HTTPRequestAbort", {"code": 503}, 503, "answered 503"),
            ("HTTPResponseReplaceCode", {"code": 404}, 404, "answered 404"),
            ("HTTPRequestReplaceMethod", {"method": "PUT"}, 405, "answered 405"),
            ("HTTPRequestReplacePath", {"new_path": "/nowhere"}, 404, "answered 404"),
            ("HTTPRequestReplacePath", {"new_path": "/names"}, 200, "unexpected response"),
            ("HTTPResponseReplaceBody", {"body_type": "empty"}, 200, "response is not JSON (0 bytes)"),
            ("HTTPResponseReplaceBody", {"body_type": "random"}, 200, "response is not JSON"),
            ("HTTPResponsePatchBody", {}, 200, '"patched": true'),
        ],
    )
    def test_what_callers_see_and_do(self, corner, fault, parameters, status, says):
        it = corner.inject(fault, "stock", operation="GET /items", **parameters)
        asked = it.spans(it.during, service="front", name="GET /items", kind="Client")
        assert (asked["attr.status_code"] == "Error").mean() > 0.8
        assert asked["attr.http.response.status_code"].value_counts(sort=True).row(0)[0] == status
        assert it.messages("front").str.contains(says, literal=True).any()
        assert it.entries("error", service="stock").height >= 3
        assert {"front"} == set(it.entries("wait", callee="stock", error=True)["service"])
        served = it.spans(it.during, service="stock", kind="Server")
        worked = it.recording.spans(*it.during, service="stock", name="SELECT items").height
        if "Request" in fault:
            assert worked < 0.2 * served.height, "the steps are not reached"
        else:
            assert worked > 0.8 * served.height, "the steps are done"
        it.assert_users_are_served_again()

    def test_bodies_have_another_size(self, corner):
        it = corner.inject("HTTPResponsePatchBody", "rate", patch='{"ok": true, "more": "xxxxxxxxxxxxxxxx"}')
        (usual,) = corner.usual.spans(*corner.usual_window, service="rate", kind="Server")[
            "attr.http.response.content_length"
        ].unique()
        seen = it.spans(it.during, service="rate", kind="Server")["attr.http.response.content_length"]
        assert seen.median() == usual + len(', "more": "xxxxxxxxxxxxxxxx"')

    def test_request_delay_comes_before_the_steps(self, corner):
        it = corner.inject("HTTPRequestDelay", "rate", delay_ms=150)
        served = it.spans(it.during, service="rate", kind="Server").select("span_id", began="time")
        methods = it.spans(it.during, service="rate", kind="Internal").select(span_id="parent_span_id", ran="time")
        gap = served.join(methods, on="span_id").select((pl.col("ran") - pl.col("began")).dt.total_milliseconds())
        assert gap.to_series().median() >= 150
        assert set(it.entries("delay", service="rate")["ns"]) == {150_000_000}
        assert {"stock", "price"} == set(it.entries("wait", callee="rate")["service"])
        assert it.ms(it.after, service="rate", kind="Server") < 100
        it.assert_users_are_served_again()

    @pytest.mark.parametrize(
        ("fault", "parameters", "says"),
        [
            ("JVMMemoryStress", {"memory_type": "stack"}, "use memory_type heap"),
            ("DNSError", {"hostname": "price"}, "it asks for rate"),
            ("NetworkLoss", {"peer": "counter"}, "exchanges no packets with 'counter'"),
            ("NetworkDuplicate", {}, "namespaced level"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, corner, fault, parameters, says):
        if fault == "NetworkDuplicate" and not corner.plain:
            pytest.skip("packets can be duplicated here; see TestPackets")
        corner.settle()
        with pytest.raises(RefusedError, match=says.replace("'", ".").replace("(", ".")):
            list(corner.running.inject(plan(fault, "stock", **parameters)))
        assert corner.running.status().fault is None


class TestMethods:
    pytestmark = live

    def test_latency(self, corner):
        it = corner.inject("JVMLatency", "rate", delay_ms=150)
        name = "RateController.getRate"
        assert it.ms(it.during, service="rate", name=name) > it.usual_ms(service="rate", name=name) + 120
        assert it.ms(it.after, service="rate", name=name) < 100
        methods = it.spans(it.during, service="rate", name=name)
        assert set(it.entries("delay", service="rate")["span_id"]) & set(methods["span_id"])

    def test_exception(self, corner):
        it = corner.inject("JVMException", "stock", exception="NullPointerException")
        assert it.messages("stock").str.contains("StockController.getItems: .*NullPointerException").any()
        assert it.failed(it.during, service="stock", name="StockController.getItems") > 0.8
        assert it.entries("error", service="stock").height >= 3
        it.assert_users_are_served_again()

    def test_exception_in_a_consumer(self, corner):
        it = corner.inject("JVMException", "counter")
        assert it.failed(it.during, service="counter", kind="Consumer") > 0.8
        assert it.failed(it.after, service="counter", kind="Consumer") == 0

    def test_return(self, corner):
        it = corner.inject("JVMReturn", "rate", value="7", value_type="int")
        assert it.failed(it.during, service="rate", kind="Server") == 0
        assert it.messages("stock").str.contains("unexpected response 7").any()
        assert it.entries("wait", callee="rate", error=True).height >= 3
        it.assert_users_are_served_again()

    def test_database_latency(self, corner):
        it = corner.inject("JVMMySQLLatency", "stock", delay_ms=150)
        assert it.ms(it.during, service="stock", name="SELECT items") > 130
        assert it.ms(it.after, service="stock", name="SELECT items") < 100
        assert set(it.entries("delay", service="stock", callee="db")["ns"]) == {150_000_000}


class TestProcess:
    pytestmark = live

    def test_garbage(self, corner):
        it = corner.inject("JVMGarbageCollector", "stock", seconds=3)
        pauses = it.metric("metrics_histogram", "process.runtime.gc.duration", "stock")
        assert pauses["sum"].sum() > 0.3
        assert it.entries("stall")["process"].unique().to_list() == ["stock-0"]
        assert it.entries("stall")["ns"].max() > 20_000_000
        it.assert_users_are_served_again()

    def test_busy_threads(self, corner):
        it = corner.inject("JVMCPUStress", "stock", seconds=4, cpu_count=2)
        assert it.metric("metrics", "container.cpu.usage", "stock")["value"].max() > 0.25
        assert it.metric("metrics_sum", "process.runtime.cpu.time", "stock")["value"].max() > 0.5
        assert it.ms(it.during, service="stock", kind="Server") > 2 * it.ms(it.after, service="stock", kind="Server")
        assert it.entries("stall")["process"].unique().to_list() == ["stock-0"]
        before = psutil.Process(corner.pid("stock-0")).num_threads()
        assert before < 20
        it.assert_users_are_served_again()

    def test_burners_leave_with_the_fault(self, corner):
        it = corner.inject("CPUStress", "stock", seconds=6, heal_s=2.0)  # what piled up is worked off
        assert it.metric("metrics", "container.cpu.limit_utilization", "stock")["value"].max() > 0.4
        assert it.entries("stall").height >= 10
        it.assert_users_are_served_again()

    def test_heap(self, corner):
        sizes = []
        rss = lambda: sizes.append(psutil.Process(corner.pid("rate-0")).memory_info().rss / 2**20)  # noqa: E731
        rss()
        it = corner.inject("JVMMemoryStress", "rate", seconds=4, on_effect=rss, size_mb=100)
        rss()
        assert sizes[1] > sizes[0] + 40
        assert sizes[2] < sizes[0] + 30
        used = it.metric("metrics", "container.memory.working_set", "rate")["value"]
        assert used.max() > (sizes[0] + 40) * 2**20

    def test_whoever_needs_more_than_a_full_group_has_is_killed_for_it(self, corner):
        if corner.plain:
            pytest.skip("without control groups allocations fail; see the next test")
        it = corner.inject("MemoryStress", "archive", seconds=6)
        full = it.metric("metrics", "container.memory.limit_utilization", "archive")["value"]
        assert 0.85 < full.max() <= 1.0
        restarts = it.metric("metrics", "k8s.container.restarts", "archive")["value"]
        assert restarts.max() > restarts.min()
        killed = [note for note in it.events["done"]["notes"] if "out-of-memory" in note]
        assert killed
        assert all(note.startswith("archive-0") for note in killed)
        assert it.entries("memory").height == 1

    def test_who_needs_no_more_than_is_left_lives_on_in_a_full_group(self, corner):
        if corner.plain:
            pytest.skip("without control groups nothing is filled together")
        it = corner.inject("MemoryStress", "rate", seconds=8)
        assert it.events["done"]["notes"] == []  # nobody was killed: neither the replica nor who fills the group
        full = it.metric("metrics", "container.memory.limit_utilization", "rate")["value"]
        assert full.max() > 0.95
        assert it.failed(it.during, service="rate", kind="Server") == 0

    def test_a_full_container_fails_what_needs_more(self, corner):
        if not corner.plain:
            pytest.skip("with control groups the kernel kills; see the test before")
        limits = []
        ask = lambda: limits.append(psutil.Process(corner.pid("archive-0")).rlimit(psutil.RLIMIT_AS)[0])  # noqa: E731
        ask()
        it = corner.inject("MemoryStress", "archive", seconds=5, on_effect=ask, size_mb=256)
        ask()
        assert limits[1] > 0
        assert limits[0] == limits[2] != limits[1]
        full = it.metric("metrics", "container.memory.limit_utilization", "archive")["value"]
        assert full.max() > 0.85
        assert full.max() <= 1.05
        assert it.messages("archive").str.contains("ArchiveController.getReport: request failed: out of memory").any()
        assert it.entries("error", service="archive").height >= 1
        assert it.entries("memory").height == 1

    def test_clock(self, corner):
        it = corner.inject("TimeSkew", "price", offset_ms=-20_000)
        real = it.spans(it.during, service="front", name="GET /price", kind="Client").select("span_id", real="time")
        frame = it.recording.tables["traces"].filter(pl.col("service_name") == "price")
        told = frame.select(span_id="parent_span_id", told="time")
        apart = real.join(told, on="span_id").select((pl.col("told") - pl.col("real")).dt.total_seconds()).to_series()
        assert apart.min() == -20 or apart.min() == -19
        assert (frame["duration"] < 5_000_000_000).all()
        assert it.entries("skew")["ns"].to_list() == [-20_000_000_000]
        last = it.spans(it.after, service="price", kind="Server")  # by its own clock
        assert last.height >= 3


class TestNames:
    pytestmark = live

    def test_no_answer(self, corner):
        it = corner.inject("DNSError", "stock", seconds=2.5, heal_s=NAMES_HEAL_S)
        assert it.messages("stock").str.contains("name resolution of rate failed: SERVFAIL").any()
        assert it.failed(it.during, service="stock", name="GET /rate", kind="Client") > 0.5
        assert it.entries("lookup", service="stock", callee="rate").height >= 3
        assert it.entries("lookup")["service"].unique().to_list() == ["stock"]
        assert it.entries("wait", service="stock", callee="rate", error=True).height >= 3
        it.assert_users_are_served_again()

    def test_a_stray_answer(self, corner):
        it = corner.inject("DNSRandom", "stock", hostname="rate", seconds=3.5, heal_s=NAMES_HEAL_S)
        assert it.messages("stock").str.contains("answered 404|unexpected response").any()
        calls = it.spans(it.during, service="stock", name="GET /rate", kind="Client").select(
            "span_id", "attr.status_code"
        )
        served = it.recording.tables["traces"].filter(pl.col("attr.span_kind") == "Server")
        strays = calls.join(served, left_on="span_id", right_on="parent_span_id")
        strays = strays.filter(pl.col("attr.status_code") == "Error")
        assert strays.height >= 3
        assert "rate" not in strays["service_name"].to_list()
        assert it.entries("lookup", service="stock", callee="rate").height >= 1
        assert it.entries("wait", service="stock", callee="rate", error=True).height >= 3
        it.assert_users_are_served_again()


class TestPackets:
    pytestmark = live

    @pytest.mark.parametrize(
        ("fault", "share"), [("NetworkLoss", "loss_percent"), ("NetworkCorrupt", "corrupt_percent")]
    )
    def test_lost_packets_arrive_when_they_are_sent_again(self, corner, fault, share):
        it = corner.inject(fault, "rate", seconds=3, **{share: 30.0})
        kind = "packet_corrupt" if fault == "NetworkCorrupt" and not corner.plain else "packet_loss"
        lost = it.entries(kind)
        assert lost["link"].str.contains("rate-0").all()
        assert set(lost["direction"]) == {"backward"}
        assert min(lost["ns"]) == (200_000_000 if corner.plain else 0)  # real packets: when TCP resends is TCP's affair
        calls = it.spans(it.during, service="stock", name="GET /rate", kind="Client")["duration"] / 1e6
        assert (calls > 195).mean() == pytest.approx(0.35, abs=0.25)
        assert (calls < 100).any()
        assert it.entries("wait", callee="rate").height >= 3
        assert it.ms(it.after, service="stock", name="GET /rate", kind="Client") < 100
        it.assert_users_are_served_again()

    def test_packets_that_arrive_twice_are_seen_and_harm_nobody(self, corner):
        if corner.plain:
            pytest.skip("byte streams have no duplicates; the type is refused")
        it = corner.inject("NetworkDuplicate", "rate", seconds=4, duplicate_percent=50.0)
        twice = it.entries("packet_duplicate")
        assert set(twice["direction"]) == {"backward"}
        assert twice["link"].str.contains("rate-0").all()
        assert it.failed(it.during, service="stock", name="GET /rate", kind="Client") == 0
        it.assert_users_are_served_again()

    def test_a_narrow_link(self, corner):
        it = corner.inject("NetworkBandwidth", "rate", seconds=3, rate_bps=40_000)
        assert it.ms(it.during, service="stock", name="GET /rate", kind="Client") > 100
        if corner.plain:  # the kernel's queue shapes without telling; the callers' waits tell
            assert it.entries("packet_delay")["link"].str.contains("rate-0").all()
        assert it.ms(it.after, service="stock", name="GET /rate", kind="Client") < 100
        it.assert_users_are_served_again()

    @pytest.mark.parametrize(("direction", "arrives"), [("from", True), ("to", False)])
    def test_a_partition_has_a_direction(self, corner, direction, arrives):
        it = corner.inject("NetworkPartition", "rate", seconds=3, direction=direction)
        given_up = (it.applied + 200_000_000, it.during[1] - 1_100_000_000)  # whose time-out passes before the end
        assert it.failed(given_up, service="stock", name="GET /rate", kind="Client") > 0.9
        assert it.messages("stock").str.contains("GET rate/rate: timed out after 1 s").any()
        calls = it.spans((it.applied, it.during[1]), service="stock", name="GET /rate", kind="Client")
        unanswered = calls.filter(pl.col("attr.status_code") == "Error").select("span_id")
        in_time = (it.applied, it.during[1] - 400_000_000)  # what was held back arrives at the end
        served = it.recording.spans(*in_time, service="rate", kind="Server")
        reached = unanswered.join(served, left_on="span_id", right_on="parent_span_id").height
        assert (reached > 0) == arrives
        assert set(it.entries("packet_loss")["ns"]) == ({0} if corner.plain else set())  # the kernel drops in silence
        assert it.entries("wait", service="stock", callee="rate", error=True).height >= 3
        it.assert_users_are_served_again()

    def test_a_partition_from_the_database_alone(self, corner):
        it = corner.inject("NetworkPartition", "stock", seconds=3, direction="both", peer="db")
        assert it.failed(it.during, service="stock", name="SELECT items") > 0.3
        assert set(it.entries("packet_loss")["link"]) == ({"stock-0>db"} if corner.plain else set())
        it.assert_users_are_served_again()


class TestPods:
    pytestmark = live

    @staticmethod
    def pods_and_restarts(it, service):
        restarts = it.metric("metrics", "k8s.container.restarts", service)
        return restarts["attr.k8s.pod.name"].unique().to_list(), restarts["value"].to_list()

    def test_a_killed_container_comes_back_in_its_pod(self, corner):
        it = corner.inject("ContainerKill", "stock", seconds=4)
        pods, restarts = self.pods_and_restarts(it, "stock")
        assert len(pods) == 1
        assert max(restarts) == min(restarts) + 1
        assert it.entries("wait", callee="stock", error=True).height >= 3
        it.assert_users_are_served_again()

    def test_a_killed_pod_is_replaced(self, corner):
        it = corner.inject("PodKill", "rate", seconds=4)
        pods, restarts = self.pods_and_restarts(it, "rate")
        assert len(set(pods) - {it.events["done"]["faults"][0]["pod"]}) == 1
        assert restarts[-1] == 0
        it.assert_users_are_served_again()

    def test_a_failed_pod_stays_down_for_the_duration(self, corner):
        it = corner.inject("PodFailure", "price", seconds=5, replica=1)
        assert it.during[1] - it.during[0] > 4_500_000_000
        pod = it.events["done"]["faults"][0]["pod"]
        ready = it.metric("metrics", "k8s.pod.ready", "price").filter(pl.col("attr.k8s.pod.name") == pod)
        late = ready.filter(pl.col("time").dt.epoch("ns").is_between(it.during[0] + 3_000_000_000, it.during[1]))
        assert late.height >= 1
        assert late["value"].max() == 0
        served = it.recording.spans(*it.during, service="price", kind="Server")
        assert pod not in served.filter(pl.col("time").dt.epoch("ns") > it.during[0] + 500_000_000)["attr.k8s.pod.name"]
        assert served.height >= 3, "the other replica goes on"
        it.assert_users_are_served_again()


class TestNothingBroken:
    pytestmark = live

    def disturbed(self, corner, during=lambda: None, **fields):
        corner.settle()
        asked = FaultPlan.model_validate({"fault": "NoFault", "duration_s": 3.0, **fields})
        with corner.recording() as recording:
            started = time.time_ns()
            events = {}
            for event in corner.running.inject(asked):
                events[event["event"]] = event
                during()
            ended = time.time_ns()
            time.sleep(1)
        assert corner.running.status().fault is None
        assert corner.running.ledger(started).height == 0
        return recording, events, (started, ended)

    def test_a_load_surge_returns_the_rate(self, corner):
        recording, events, window = self.disturbed(corner, parameters={"disturbance": "load_surge", "factor": 3})
        sent = recording.spans(*window, service="loadgenerator").height / ((window[1] - window[0]) / 1e9)
        assert sent == pytest.approx(75, rel=0.35)
        assert events["done"]["faults"][0]["parameters"]["factor"] == 3
        assert corner.running.set_rate(25) == 25

    def test_a_surge_ends_with_the_connection(self, corner):
        corner.settle()
        asked = FaultPlan.model_validate({"fault": "NoFault", "parameters": {"disturbance": "load_surge"}})
        events = corner.running.inject(asked)
        assert next(events)["event"] == "applied"
        time.sleep(0.3)
        with pytest.raises(RefusedError, match=r"NoFault .load_surge. is still active"):
            list(corner.running.inject(plan("PodKill", "rate")))
        events.close()
        deadline = time.monotonic() + 10
        while corner.running.status().fault is not None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert corner.running.set_rate(25) == 25

    @pytest.mark.parametrize("target", [None, {"service": "counter"}, {"service": "stock"}])
    def test_a_harmless_restart_harms_nobody(self, corner, target):
        pids = corner.running.status().pids
        recording, _, window = self.disturbed(
            corner, parameters={"disturbance": "harmless_restart"}, **({"target": target} if target else {})
        )
        changed = {name for name, pid in corner.running.status().pids.items() if pid != pids[name]}
        assert changed == {f"{target['service']}-0" if target else "price-0"}
        assert not psutil.pid_exists(pids[changed.pop()]), "the former process is gone"
        traces = recording.tables["traces"]
        assert (traces["attr.status_code"] == "Error").sum() == 0
        visits = traces.filter(pl.col("span_name") == "publish visits")
        handled = traces.filter(pl.col("attr.span_kind") == "Consumer")
        whole = visits.filter(pl.col("time").dt.epoch("ns").is_between(window[0], window[1]))
        assert set(whole["span_id"]) <= set(handled["parent_span_id"]), "no message is lost"
