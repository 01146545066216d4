"""Packet faults on the real kernel, seen by real TCP and UDP between namespaces."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time

import pytest

from opsassay.testbed.kernel.heal import heal
from opsassay.testbed.kernel.namespaces import inside, isolate
from testbed.kernel.laboratory import Laboratory, run_apart

pytestmark = pytest.mark.live  # delays are measured: the machine shall do nothing else
USERS = pytest.mark.parametrize("user", ["root", "nobody"])
DELAY = {"kind": "delay", "delay_s": 0.1, "jitter_s": 0.0}


def queues(lab: Laboratory) -> dict[str, list[str]]:
    """Return the queueing disciplines that are not the kernel's own, by interface of the fabric and of b."""
    from pyroute2 import IPRoute

    def kinds() -> list[str]:
        with IPRoute() as netlink:
            return [
                str(row.get_attr("TCA_KIND")) for row in netlink.get_qdiscs() if row.get_attr("TCA_KIND") != "noqueue"
            ]

    return {"fabric": kinds(), "b": inside(lab.b.namespace, kinds)}


def tables(lab: Laboratory) -> list[str]:
    """Return the nftables tables of the fabric and of b."""
    from pyroute2.nftables.main import NFTables

    def names(family: int) -> list[str]:
        with NFTables(nfgen_family=family) as nft:
            return [str(row.get_attr("NFTA_TABLE_NAME")) for row in nft.get_tables()]

    return names(7) + inside(lab.b.namespace, lambda: names(2))


@USERS
def test_a_delay_is_exact_and_hits_one_peer_in_one_direction(user):
    def work():
        lab = Laboratory()
        with lab.fault(DELAY, [lab.stream(lab.b, lab.a, leaving=True)]) as fault:
            assert 100 <= min(lab.exchange(lab.a, lab.b, 8)) < 102
            assert 100 <= min(lab.one_way(lab.b, lab.a, 20)) < 102
            assert min(lab.one_way(lab.a, lab.b, 20)) < 20
            assert min(lab.exchange(lab.c, lab.b, 8)) < 20
            assert fault.ledger() == {("packet_delay", "a>b", "backward"): 8}
        assert min(lab.exchange(lab.a, lab.b, 8)) < 20
        with lab.fault(DELAY, [lab.stream(lab.b, lab.a, leaving=False)]) as fault:
            assert 100 <= min(lab.exchange(lab.a, lab.b, 8)) < 102
            assert 100 <= min(lab.one_way(lab.a, lab.b, 20)) < 102
            assert min(lab.one_way(lab.b, lab.a, 20)) < 20
            assert min(lab.exchange(lab.c, lab.b, 8)) < 20
            assert fault.ledger() == {("packet_delay", "a>b", "forward"): 8}
        assert tables(lab) == []

    run_apart(work, user)


def test_a_delayed_answer_of_many_packets_is_delayed_once():
    """A packet that waits in the kernel's queue holds back the segments behind it: 30 KB took eleven delays."""

    def work():
        lab = Laboratory()
        for leaving in (True, False):
            with lab.fault(DELAY, [lab.stream(lab.b, lab.a, leaving=leaving)]):
                assert min(lab.exchange(lab.a, lab.b, 8, size=30_000)) < 250

    run_apart(work)


def test_two_delays_at_once_add_up():
    def work():
        lab = Laboratory()
        streams = [lab.stream(lab.b, lab.a, leaving=True), lab.stream(lab.b, lab.a, leaving=False)]
        with lab.fault(DELAY, streams), lab.fault({"kind": "delay", "delay_s": 0.05, "jitter_s": 0.0}, streams):
            assert 150 <= min(lab.one_way(lab.b, lab.a, 20)) < 154
            assert 150 <= min(lab.one_way(lab.a, lab.b, 20)) < 154

    run_apart(work)


def test_jitter_spreads_the_delay():
    def work():
        lab = Laboratory()
        jitter = {"kind": "delay", "delay_s": 0.1, "jitter_s": 0.05}
        with lab.fault(jitter, [lab.stream(lab.b, lab.a, leaving=True)]):
            found = lab.one_way(lab.b, lab.a, 300)
        assert len(found) == 300
        assert 50 <= min(found) < 60
        assert 85 < sum(found) / 300 < 125

    run_apart(work)


def test_a_share_of_the_packets_is_lost_and_tcp_sends_them_again():
    def work():
        lab = Laboratory()
        streams = [lab.stream(lab.b, lab.a, leaving=True), lab.stream(lab.b, lab.a, leaving=False)]
        with lab.fault({"kind": "loss", "share": 0.3}, streams) as fault:
            for source, destination in ((lab.a, lab.b), (lab.b, lab.a)):
                assert 0.6 < len(lab.one_way(source, destination, 600)) / 600 < 0.8
            before = lab.counter(lab.b, "Tcp.RetransSegs")
            lab.exchange(
                lab.a, lab.b, 3, size=12_000
            )  # few packets: TCP waits twice as long after each loss of the same
            assert lab.counter(lab.b, "Tcp.RetransSegs") > before
            assert fault.ledger()["packet_loss", "a>b", "backward"] > 3

    run_apart(work)


@pytest.mark.parametrize("leaving", [True, False])
def test_a_corrupted_packet_is_discarded_by_its_checksum_and_sent_again(leaving):
    def work():
        lab = Laboratory()
        receiver = lab.a if leaving else lab.b
        with lab.fault({"kind": "corrupt", "share": 0.3}, [lab.stream(lab.b, lab.a, leaving=leaving)]) as fault:
            before = lab.counter(receiver, "Tcp.InCsumErrors")
            for _ in range(20):  # few packets go each time, and none of them may be hit
                lab.exchange(lab.a, lab.b, 6, size=20_000)  # compares every byte
                if found := fault.ledger():
                    break
            ((_, corrupted),) = found.items()
        assert corrupted > 0
        assert lab.counter(receiver, "Tcp.InCsumErrors") - before == corrupted

    run_apart(work)


@pytest.mark.parametrize("leaving", [True, False])
def test_a_duplicated_packet_arrives_twice(leaving):
    def work():
        lab = Laboratory()
        source, destination = (lab.b, lab.a) if leaving else (lab.a, lab.b)
        with lab.fault({"kind": "duplicate", "share": 1.0}, [lab.stream(lab.b, lab.a, leaving=leaving)]) as fault:
            assert len(lab.one_way(source, destination, 100)) == 200
            lab.exchange(lab.a, lab.b, 10)
            assert fault.ledger()["packet_duplicate", "a>b", "backward" if leaving else "forward"] == 10
            assert fault.ping()["unsent"] == 0
        assert len(lab.one_way(source, destination, 100)) == 100

    run_apart(work)


@USERS
def test_a_partition_is_silent_and_heals(user):
    def work():
        lab = Laboratory()
        streams = [lab.stream(lab.b, lab.a, leaving=True), lab.stream(lab.b, lab.a, leaving=False)]
        with lab.fault({"kind": "partition"}, streams[:1]):
            assert lab.one_way(lab.b, lab.a, 20) == []
            assert len(lab.one_way(lab.a, lab.b, 20)) == 20
        with lab.fault({"kind": "partition"}, streams):
            assert lab.one_way(lab.b, lab.a, 20) == []
            assert lab.one_way(lab.a, lab.b, 20) == []
            assert len(lab.one_way(lab.b, lab.c, 20)) == 20
            assert len(tables(lab)) == 2
        assert tables(lab) == []
        assert len(lab.one_way(lab.a, lab.b, 20)) == 20

    run_apart(work, user)


@USERS
def test_nobody_hears_of_an_isolated_replica_which_goes_on_in_itself(user):
    def work():
        lab = Laboratory()
        with lab.fault({"kind": "isolation"}, []):
            assert lab.one_way(lab.b, lab.a, 20) == lab.one_way(lab.b, lab.c, 20) == lab.one_way(lab.a, lab.b, 20) == []
            assert len(lab.one_way(lab.b, lab.b, 20)) == 20
            assert len(lab.one_way(lab.a, lab.c, 20)) == 20
        assert tables(lab) == []
        assert len(lab.one_way(lab.a, lab.b, 20)) == 20

    run_apart(work, user)


@pytest.mark.parametrize(("means", "user"), [("kernel", "root"), ("kernel", "nobody"), ("queue", "present")])
@pytest.mark.parametrize("leaving", [True, False])
def test_a_narrow_wire_passes_what_it_says(means, user, leaving):
    def work():
        lab = Laboratory()
        rate, size = 1_000_000, 500_000
        caller, callee = (lab.a, lab.b) if leaving else (lab.b, lab.a)
        link = {"link": f"{caller.name}>{callee.name}", "direction": "backward", "leaving": leaving}
        with lab.fault({"kind": "bandwidth", "bytes_per_s": rate}, [{**link, "address": lab.a.data_address}], means):
            elapsed_s = lab.exchange(caller, callee, 1, size)[0] / 1e3
            on_the_wire = size * 1514 / 1448
            assert on_the_wire / elapsed_s == pytest.approx(rate, rel=0.1)
        assert queues(lab) == {"fabric": [], "b": []}

    run_apart(work, user)


def test_a_kill_heals_the_path():
    def work():
        lab = Laboratory()
        streams = [lab.stream(lab.b, lab.a, leaving=True), lab.stream(lab.b, lab.a, leaving=False)]
        with lab.fault(DELAY, streams) as fault:
            fault.kill()
            assert min(lab.exchange(lab.a, lab.b, 8)) < 20
            assert tables(lab) == []
        with lab.fault({"kind": "bandwidth", "bytes_per_s": 1e5}, streams, "kernel") as fault:
            fault.kill()
            assert queues(lab) == {"fabric": ["htb", "tbf"], "b": ["htb", "tbf"]}
            for _ in range(2):
                heal(lab.b.path, lab.b.peer_interface)
            assert queues(lab) == {"fabric": [], "b": []}
        heal("/proc/self/fd/999", "gone0")  # a replica that is no more

    run_apart(work)


def test_what_is_held_goes_on_when_the_fault_ends():
    def work():
        lab = Laboratory()
        streams = [lab.stream(lab.b, lab.a, leaving=True), lab.stream(lab.b, lab.a, leaving=False)]
        for source, destination in ((lab.a, lab.b), (lab.b, lab.a)):
            before = lab.counter(destination, "Udp.InDatagrams") + lab.counter(destination, "Udp.NoPorts")
            with lab.fault({"kind": "delay", "delay_s": 60.0, "jitter_s": 0.0}, streams) as fault:
                assert lab.one_way(source, destination, 20, 0.1) == []
                assert fault.ping()["held"] == 20
            time.sleep(0.1)
            after = lab.counter(destination, "Udp.InDatagrams") + lab.counter(destination, "Udp.NoPorts")
            assert after - before == 20

    run_apart(work)


def test_two_systems_with_the_same_addresses_do_not_meet():
    def work():
        first = Laboratory()

        def another():
            second = Laboratory()
            assert second.b.data_address == first.b.data_address
            with second.fault({"kind": "partition"}, [second.stream(second.b, second.a, leaving=False)]):
                assert second.one_way(second.a, second.b, 20) == []
                assert inside(first.b.path, lambda: True)
                assert len(first.one_way(first.a, first.b, 20)) == 20

        run_apart(another)
        assert len(first.one_way(first.a, first.b, 20)) == 20

    run_apart(work)


def test_a_fault_that_cannot_be_applied_says_no_hello_and_leaves_nothing(capfd):
    def work():
        lab = Laboratory()
        stream = lab.stream(lab.b, lab.a, leaving=True)
        nowhere = dataclasses.replace(lab.b, path="/proc/self/fd/999")
        for means in ("queue", "kernel"):
            impairment = {"kind": "bandwidth", "bytes_per_s": 1e6}
            with pytest.raises(AssertionError), lab.fault(impairment, [stream], means, nowhere):
                pass
        assert tables(lab) == []
        assert queues(lab) == {"fabric": [], "b": []}
        assert len(lab.one_way(lab.b, lab.a, 20)) == 20

    run_apart(work)
    assert "FileNotFoundError" in capfd.readouterr().err


@USERS
def test_rules_of_a_process_that_is_about_to_end_are_removed_once_it_has(user):
    """The kernel answers EPERM to whoever removes a table whose owner lives, also to root."""

    def work():
        from opsassay.core.errors import OperationError
        from opsassay.testbed.kernel.netfilter import Table, remove_tables

        made, ready = os.pipe()
        owner = os.fork()
        if owner == 0:
            with Table("ip", "held"):
                os.write(ready, b".")
                time.sleep(30)
            os._exit(0)
        os.read(made, 1)
        with pytest.raises(
            OperationError, match="opsassay-held cannot be removed: the process that made them still runs"
        ):
            remove_tables("ip", owner_timeout_s=0.2)
        threading.Timer(0.3, os.kill, (owner, signal.SIGKILL)).start()
        remove_tables("ip")
        os.waitpid(owner, 0)

    run_apart(lambda: (isolate(), work()), user)
