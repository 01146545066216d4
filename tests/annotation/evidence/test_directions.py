"""In which direction a network fault acts: each variant is found with its direction, and at no other service."""

from __future__ import annotations

import polars as pl
import pytest

from annotation import systems
from annotation.cascade import EPOCH, NANO, SECONDS, Call, Effect, fault, frames, incident, make_pack
from opsassay.annotation.verdict.annotate import annotate, open_pack
from opsassay.annotation.verdict.hypothetical_roots import possible_types, pretend
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.core.schema.incident import Label
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack

DATABASE = systems.DATABASE


def mesh():
    """Two entrances over orders, which calls payment and stock; payment is called by refunds too and calls a bank."""
    bank = Call("bank", "POST /transfer", calls=(DATABASE,))
    payment = Call("payment", "POST /charge", calls=(bank, DATABASE))
    stock = Call("stock", "PUT /reserve", calls=(DATABASE,))
    orders = Call("orders", "POST /orders", calls=(DATABASE, stock, payment))
    refunds = Call("refunds", "POST /refunds", calls=(payment, DATABASE))
    return {
        Call("gateway", "POST /checkout", calls=(orders,)): 4.0,
        Call("gateway", "POST /refunds", calls=(refunds,)): 3.0,
        Call("gateway", "GET /stock", calls=(Call("stock", "GET /stock", calls=(DATABASE,)),)): 4.0,
        Call("gateway", "GET /noise", calls=(Call("weather", "GET /weather", own_ms=20),)): 4.0,
    }


CACHE = Call("cache", "GET session", own_ms=2, way="store")


def stores():
    """gateway > payment, which asks a database and a cache, and calls a bank."""
    payment = Call("payment", "POST /charge", calls=(DATABASE, CACHE, Call("bank", "POST /transfer")))
    return {
        Call("gateway", "POST /checkout", calls=(payment,)): 6.0,
        Call("gateway", "GET /noise", calls=(Call("weather", "GET /weather", own_ms=20),)): 4.0,
    }


def chain():
    """gateway > shop > page > price: nobody else calls price, and page calls nobody else."""
    page = Call("page", "GET /page", calls=(Call("price", "GET /price"),))
    return {
        Call("gateway", "GET /", calls=(Call("shop", "GET /", calls=(page, DATABASE)),)): 6.0,
        Call("gateway", "GET /noise", calls=(Call("weather", "GET /weather", own_ms=20),)): 4.0,
    }


VARIANTS = [
    ("inbound", {("*", "payment"): 200}, {}, "inbound"),
    ("outbound", {("payment", "*"): 200}, {}, "outbound"),
    ("both", {("*", "payment"): 200, ("payment", "*"): 200}, {}, "both"),
    ("one peer", {("payment", "bank"): 200}, {"peer": "bank"}, "peer:bank"),
    ("one store", {("payment", "database"): 200}, {"parameters": {"direction": "from"}}, "protocol:sql"),
    ("calls alone", {("*", "payment"): 200, ("payment", "bank"): 200}, {}, "protocol:call"),
]


def wrong(pack, true, but=()):
    """Return what is attributed at every service but the true one and *but*, as any type that may be there."""
    others = [s for s in pack.services() if s not in (true.service, *but)]
    found = pretend(open_pack(pack), true, AnnotateSettings(), others)
    return [(one.type, one.service) for one in found if one.label is Label.ATTRIBUTED]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "slow", "record", "direction"), VARIANTS, ids=[v[0] for v in VARIANTS])
def test_each_direction_is_found_at_its_place_alone(tmp_path, name, slow, record, direction):
    effect = Effect(directed_ms=slow)
    pack = make_pack(tmp_path / "pack", mesh(), effect)
    true = fault("NetworkDelay", "payment", effect, **record)
    found = annotate(pack, [true])
    assert (found.label, found.faults[0].direction) == (Label.ATTRIBUTED, direction), found.reason
    # The other end of one link is the same fault: bank is called by payment alone.
    assert wrong(pack, true, but=("bank",) if name == "one peer" else ()) == []


STORES = [
    ("statements", {("payment", "database"): 200}, {}, "protocol:sql"),
    ("commands", {("payment", "cache"): 200}, {}, "protocol:command"),
    ("all stores", {("payment", "database"): 200, ("payment", "cache"): 200}, {}, "protocol:store"),
    ("a store by its name", {("payment", "cache"): 200}, {"peer": "valkey-main"}, "peer:valkey-main"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "slow", "record", "direction"), STORES, ids=[s[0] for s in STORES])
def test_one_protocol_of_several(tmp_path, name, slow, record, direction):
    effect = Effect(directed_ms=slow)
    pack = make_pack(tmp_path / "pack", stores(), effect)
    true = fault("NetworkDelay", "payment", effect, **record)
    if "peer" not in record:  # whoever is slow: only a record tells a store from the packets to it
        assert annotate(pack, [true]).label is Label.UNEXPLAINED
        true = true.model_copy(update={"parameters": {"direction": "both"}})
    found = annotate(pack, [true])
    assert (found.label, found.faults[0].direction) == (Label.ATTRIBUTED, direction), found.reason
    assert wrong(pack, true) == []


def test_the_way_leads_along_the_affected_links_only(tmp_path):
    effect = Effect(directed_ms={("*", "payment"): 200})
    pack = make_pack(tmp_path / "pack", mesh(), effect)
    edges = annotate(pack, [fault("NetworkDelay", "payment", effect)]).graph.service_edges()
    assert edges == {("payment", "orders"), ("payment", "refunds"), ("orders", "gateway"), ("refunds", "gateway")}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["page", "price"])
def test_one_link_that_both_ends_explain_is_ambiguous(tmp_path, place):
    effect = Effect(directed_ms={("page", "price"): 200})
    pack = make_pack(tmp_path / "pack", chain(), effect)
    found = annotate(pack, [fault("NetworkDelay", place, effect)])
    assert found.label is Label.UNEXPLAINED
    assert "either could be the cause" in found.reason
    # A record that names calls decides it, and so does one of packets by when calls wait: here, answers come late too.
    named = {"page": ("outbound", "to"), "price": ("inbound", "from")}
    for direction in ("inbound", "outbound", "from", "to"):
        recorded = fault("NetworkDelay", place, effect, parameters={"direction": direction})
        attributed = annotate(pack, [recorded]).label is Label.ATTRIBUTED
        assert attributed == (direction in named[place]), direction


@pytest.mark.slow
def test_another_link_of_one_end_decides(tmp_path):
    """The slow link is price's own when page calls somebody else as fast as before, and page's when it does not."""
    price, ads = Call("price", "GET /price"), Call("ads", "GET /ads")
    page = Call("page", "GET /page", calls=(price, ads))
    system = {Call("gateway", "GET /", calls=(Call("shop", "GET /", calls=(page, DATABASE)),)): 6.0}
    for slow, root in (({("page", "price"): 200}, "price"), ({("page", "*"): 200}, "page")):
        effect = Effect(directed_ms=slow)
        pack = make_pack(tmp_path / root, system, effect)
        true = fault("NetworkDelay", root, effect)
        assert annotate(pack, [true]).label is Label.ATTRIBUTED
        assert wrong(pack, true) == []


QUEUES = [
    ("outbound", {("payment", "*"): 200}, {"parameters": {"direction": "outbound"}}, "outbound"),
    ("one peer", {("payment", "bank"): 200}, {"peer": "bank"}, "peer:bank"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "slow", "record", "direction"), QUEUES, ids=[q[0] for q in QUEUES])
def test_callers_wait_before_a_place_whose_own_calls_wait(tmp_path, name, slow, record, direction):
    """A service that waits has no room for its callers, which speaks neither for packets of theirs nor against its own."""
    effect = Effect(directed_ms=slow, queued_ms={("orders", "payment"): 400, ("refunds", "payment"): 400})
    pack = make_pack(tmp_path / "pack", mesh(), effect)
    true = fault("NetworkDelay", "payment", effect, **record)
    found = annotate(pack, [true])
    assert (found.label, found.faults[0].direction) == (Label.ATTRIBUTED, direction), found.reason
    assert wrong(pack, true, but=("bank",) if name == "one peer" else ()) == []


def test_callers_that_wait_do_not_make_a_link_their_callees(tmp_path):
    """Price is slow to be reached, so that page has no room: both ends explain it, and a record of calls decides."""
    effect = Effect(directed_ms={("page", "price"): 200}, queued_ms={("shop", "page"): 400})
    pack = make_pack(tmp_path / "pack", chain(), effect)
    found = {
        direction: annotate(pack, [fault("NetworkDelay", "price", effect, parameters={"direction": direction})]).label
        for direction in ("inbound", "outbound", "from", "to", "both")
    }
    assert [one for one, label in found.items() if label is Label.ATTRIBUTED] == ["inbound"]
    assert "either could be the cause" in annotate(pack, [fault("NetworkDelay", "price", effect)]).reason


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["NetworkLoss", "NetworkCorrupt", "NetworkBandwidth"])
def test_a_fault_that_hits_a_share_of_the_calls(tmp_path, kind):
    effect = Effect(directed_ms={("*", "payment"): 400}, link_share=0.3)
    pack = make_pack(tmp_path / "pack", mesh(), effect)
    true = fault(kind, "payment", effect)
    found = annotate(pack, [true])
    assert found.faults[0].direction == "inbound", found.reason
    assert wrong(pack, true) == []


def test_a_delay_hits_most_calls(tmp_path):
    """One call in ten that waits is no delay of packets: nothing lets the other nine through in time."""
    effect = Effect(directed_ms={("*", "payment"): 400}, link_share=0.1)
    pack = make_pack(tmp_path / "pack", mesh(), effect)
    assert not annotate(pack, [fault("NetworkDelay", "payment", effect)]).faults[0].shown


@pytest.mark.slow
def test_a_partition_breaks_calls_in_its_direction(tmp_path):
    effect = Effect(gone=frozenset({"payment"}))
    pack = make_pack(tmp_path / "pack", mesh(), effect)
    true = fault("NetworkPartition", "payment", effect)
    found = annotate(pack, [true])
    assert (found.label, found.faults[0].direction) == (Label.ATTRIBUTED, "inbound"), found.reason
    assert wrong(pack, true) == []


def test_links_that_are_called_once(tmp_path):
    """Eight callers call payment once in each window: no link tells by itself how it usually is, all together do."""
    payment = Call("payment", "POST /charge")
    callers = {
        Call("gateway", f"GET /{n}", calls=(Call(f"shop{n}", "GET /", calls=(payment,)),)): 1 / SECONDS
        for n in range(8)
    }
    system = callers | {Call("gateway", "GET /noise", calls=(Call("weather", "GET /weather"),)): 4.0}
    effect = Effect(directed_ms={("*", "payment"): 400}, from_s=0.0)
    pack = make_pack(tmp_path / "pack", system, effect)
    found = annotate(pack, [fault("NetworkDelay", "payment", effect)])
    assert (found.faults[0].shown, found.faults[0].direction) == (True, "inbound"), found.reason


@pytest.mark.slow
def test_clocks_that_disagree_by_seconds(tmp_path):
    """The clock of payment's host is three seconds ahead: server spans end after their client spans, in both windows."""
    effect = Effect(directed_ms={("*", "payment"): 200})
    tables = frames(mesh(), effect)
    for period in ("normal", "abnormal"):
        ahead = pl.when(pl.col("service_name") == "payment").then(3 * NANO).otherwise(0)
        late = pl.col("time").dt.epoch("ns") + ahead
        tables[period, "traces"] = tables[period, "traces"].with_columns(time=late.cast(pl.Datetime("ns", "UTC")))
    write_datapack(tmp_path / "pack", tables, incident(), {})
    pack = Datapack.open(tmp_path / "pack")
    true = fault("NetworkDelay", "payment", effect)
    assert annotate(pack, [true]).faults[0].direction == "inbound"
    assert wrong(pack, true) == []


def test_servers_that_work_on_after_their_callers_left(tmp_path):
    """Client minus server time is negative everywhere: nothing is slower for it, and nothing breaks."""
    tables = frames(mesh(), Effect())
    for period in ("normal", "abnormal"):
        longer = pl.when(pl.col("attr.span_kind") == "Server").then(80_000_000).otherwise(0)
        spans = tables[period, "traces"]
        tables[period, "traces"] = spans.with_columns(duration=pl.col("duration") + longer)
    write_datapack(tmp_path / "pack", tables, incident(), {})
    found = annotate(Datapack.open(tmp_path / "pack"), [fault("NetworkDelay", "payment")])
    assert (found.label, found.faults[0].shown) == (Label.NO_EFFECT, False)


@pytest.mark.slow
def test_spans_without_kind(tmp_path):
    effect = Effect(directed_ms={("*", "payment"): 200})
    tables = frames(mesh(), effect)
    for period in ("normal", "abnormal"):
        tables[period, "traces"] = tables[period, "traces"].drop("attr.span_kind")
    write_datapack(tmp_path / "pack", tables, incident(), {})
    pack = Datapack.open(tmp_path / "pack")
    true = fault("NetworkDelay", "payment", effect)
    found = annotate(pack, [true])
    assert (found.label, found.faults[0].direction) == (Label.ATTRIBUTED, "inbound"), found.reason
    assert wrong(pack, true) == []


@pytest.mark.slow
def test_a_service_that_writes_no_spans_is_a_peer_only(tmp_path):
    """The bank is somebody else's: only payment's client spans tell of it, and it is no root."""
    effect = Effect(directed_ms={("payment", "bank"): 200})
    tables = frames(mesh(), effect)
    for period in ("normal", "abnormal"):
        spans = tables[period, "traces"]
        tables[period, "traces"] = spans.filter(pl.col("service_name") != "bank")
    write_datapack(tmp_path / "pack", tables, incident(), {})
    pack = Datapack.open(tmp_path / "pack")
    found = annotate(pack, [fault("NetworkDelay", "bank", effect)])
    assert found.label is Label.UNEXPLAINED
    assert "nowhere in the traces" in found.reason
    assert wrong(pack, fault("NetworkDelay", "bank", effect), but=("payment",)) == []


def test_windows_that_begin_between_steps(tmp_path):
    """Windows of odd nanoseconds that begin between two requests and two samples change nothing."""
    effect = Effect(directed_ms={("*", "payment"): 200})
    whole = incident()
    odd = whole.model_copy(
        update={
            "normal": whole.normal.model_copy(update={"start_ns": EPOCH + 1_234_567_891}),
            "abnormal": whole.abnormal.model_copy(update={"start_ns": EPOCH + SECONDS * NANO + 7}),
        }
    )
    write_datapack(tmp_path / "pack", frames(mesh(), effect), odd, {})
    found = annotate(Datapack.open(tmp_path / "pack"), [fault("NetworkDelay", "payment", effect)])
    assert (found.label, found.faults[0].direction) == (Label.ATTRIBUTED, "inbound")


def test_possible_types_follow_the_calls_of_a_service(tmp_path):
    opened = open_pack(make_pack(tmp_path / "pack", mesh()))
    asked, leaf = (set(possible_types(opened.calls, service)) for service in ("payment", "weather"))
    assert asked - leaf == {"DNSError", "DNSRandom", "JVMMySQLLatency", "JVMMySQLException"}
    assert {"NetworkDelay", "PodKill", "CPUStress", "JVMException"} <= leaf
