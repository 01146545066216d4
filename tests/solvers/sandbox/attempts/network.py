"""The network: services of the machine, ways out of it, and sockets of other kinds."""

# An attacker takes what the system offers, not what reads well.
from __future__ import annotations

import socket
from pathlib import Path

from .base import attempt, holds


@attempt
def a_service_on_the_loopback(facts):
    with socket.create_connection(("127.0.0.1", facts["tcp"]), 5) as connection:
        return holds(connection.recv(4096), facts)


@attempt
def a_service_on_the_loopback_of_ipv6(facts):
    with socket.create_connection(("::1", facts["tcp6"]), 5) as connection:
        return holds(connection.recv(4096), facts)


@attempt
def a_service_on_the_machines_address(facts):
    with socket.create_connection((facts["own_address"], facts["tcp"]), 5) as connection:
        return holds(connection.recv(4096), facts)


@attempt
def a_datagram_service(facts):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(2)
        connection.connect(("127.0.0.1", facts["udp"]))
        connection.send(b"?")
        return holds(connection.recv(4096), facts)


@attempt
def a_way_to_the_internet(facts):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.connect(("192.0.2.1", 53))  # sends nothing; fails without a route
        return True


@attempt
def a_name_server(facts):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.sendto(b"\0" * 12, (facts["name_servers"][0], 53))
        return True


@attempt
def interfaces(facts):
    return any(name != "lo" for _, name in socket.if_nameindex())


@attempt
def an_abstract_socket(facts):
    return holds(from_unix_socket("\0" + facts["abstract"]), facts)


@attempt
def the_tools_of_another_run(facts):
    return holds(from_unix_socket(facts["other_socket"]), facts)


@attempt
def the_supervisors_socket(facts):
    return holds(from_unix_socket(facts["socket"]), facts)


@attempt
def a_file_beside_the_tools_socket(facts):
    Path(facts["socket_folder"], "mine.sock").write_text("x")
    return True


@attempt
def replacing_the_tools_socket(facts):
    path = Path(facts["socket_folder"], "tools.sock")
    path.rename(path.with_suffix(".moved"))
    return True


@attempt(root=True)
def a_raw_socket(facts):
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    return True


@attempt
def a_socket_to_the_hypervisor(facts):
    socket.socket(40, socket.SOCK_STREAM).close()
    return True


@attempt
def a_socket_to_the_kernels_ciphers(facts):
    socket.socket(38, socket.SOCK_SEQPACKET).close()
    return True


def from_unix_socket(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(path)
        return connection.recv(4096)
