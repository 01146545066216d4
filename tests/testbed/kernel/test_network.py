"""The fabric: everybody reaches everybody, data and management apart, and others can come in."""

from __future__ import annotations

import os
import socket
import time

import pytest

from opsassay.testbed.kernel.namespaces import enter, inside, join, local_ports, path_of, set_local_ports
from opsassay.testbed.kernel.network import Fabric
from testbed.kernel.laboratory import PORT, Laboratory, run_apart

USERS = pytest.mark.parametrize("user", ["root", "nobody"])


@USERS
def test_places_reach_one_another_and_the_fabric(user):
    def work():
        lab = Laboratory()
        with socket.create_server((Fabric.management_address, 0)) as receiver:
            for place in (lab.a, lab.c):
                lab.exchange(place, lab.b, 1)
                with inside(place.namespace, lambda: socket.create_connection(receiver.getsockname(), 5)) as calling:
                    assert calling.getsockname()[0] == place.management_address
        assert len({place.data_address for place in (lab.a, lab.b, lab.c)}) == 3
        assert {lab.fabric.uplinks[host] for host in ("h1", "h2")} <= {name for _, name in socket.if_nameindex()}
        assert inside(lab.a.namespace, lambda: {name for _, name in socket.if_nameindex()}) == {"lo", "eth0", "mgmt0"}

    run_apart(work, user)


@USERS
def test_the_data_network_has_no_way_into_the_management_network(user):
    def work():
        lab = Laboratory()
        with pytest.raises(OSError, match=r"unreachable|timed out|refused"):
            inside(lab.a.namespace, lambda: socket.create_connection(("10.79.0.1", 1), 0.2))
        inside(lab.b.namespace, lambda: os.close(os.open("/proc/thread-self/ns/net", os.O_RDONLY)))
        # the fabric itself has no address on the data network: a replica's data leaves by its own interface alone
        with pytest.raises(OSError, match=r"unreachable"):
            socket.create_connection((lab.a.data_address, PORT), 0.2)

    run_apart(work, user)


@USERS
def test_a_process_from_outside_joins_a_place(user):
    def work():
        there, tell = os.pipe()
        here, told = os.pipe()
        outsider = os.fork()
        if outsider == 0:
            status = 1
            os.close(tell)  # the end of its pipe is heard when there is no laboratory
            try:
                supervisor, namespace, address = os.read(there, 1000).decode().split()
                join(int(supervisor), namespace)
                with socket.create_connection((address, PORT), 5) as calling:
                    os.write(told, calling.getsockname()[0].encode())
                status = 0
            finally:
                os._exit(status)
        lab = Laboratory()
        os.write(tell, f"{os.getpid()} {lab.a.path} {lab.b.data_address}".encode())
        os.close(told)
        assert os.read(here, 100).decode() == lab.a.data_address
        assert os.waitpid(outsider, 0)[1] == 0

    run_apart(work, user)


def test_a_namespace_is_entered_by_path_and_by_descriptor():
    def work():
        lab = Laboratory()
        for way in (lab.a.namespace, lab.a.path):
            child = os.fork()
            if child == 0:
                enter(way)
                os._exit(0 if socket.if_nametoindex("eth0") else 1)
            assert os.waitpid(child, 0)[1] == 0
        assert path_of(lab.a.namespace) == lab.a.path

    run_apart(work)


@USERS
def test_a_place_with_few_local_ports_runs_out_of_them_and_gets_others(user):
    def work():
        lab = Laboratory()
        place = path_of(lab.a.namespace)

        def call():
            inside(place, lambda: socket.create_connection((lab.b.data_address, PORT), 5)).close()  # TIME_WAIT

        set_local_ports(place, 42_000, 42_001)
        call()
        call()
        with pytest.raises(OSError, match="Cannot assign requested address"):
            call()
        deadline = time.monotonic() + 10
        while local_ports(place)["time_wait"] < 2 and time.monotonic() < deadline:
            time.sleep(0.02)  # the other end closes a moment later
        assert local_ports(place) == {"range": "42000 42001", "established": 0, "time_wait": 2}
        lab.exchange(lab.c, lab.b, 1)  # another place has its own
        set_local_ports(place, 32_768, 60_999)
        call()

    run_apart(work, user)
