"""The fabric: one flat network of bridges to which every replica of a system is attached.

A ``core`` bridge joins one bridge per host, so that a host's uplink can be impaired; a separate ``management`` bridge
keeps telemetry apart from data faults. All are in the calling process's network namespace.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opsassay.testbed.kernel.namespaces import inside, new_namespace, path_of, raise_interface

if TYPE_CHECKING:
    from pyroute2 import IPRoute

DATA_NETWORK = ipaddress.IPv4Network("10.77.0.0/16")
MANAGEMENT_NETWORK = ipaddress.IPv4Network("10.78.0.0/16")
DATA_INTERFACE, MANAGEMENT_INTERFACE = "eth0", "mgmt0"
"""Interfaces of a replica; container engines and network plugins call the data interface eth0 too."""
MANAGEMENT_ADDRESS = str(MANAGEMENT_NETWORK[1])


@dataclass(frozen=True)
class Place:
    """The namespace of a replica, store, load generator or probe, attached to the bridge of its host.

    *namespace* is a descriptor of the process that made it and *path* how others open it; *peer_interface* is the fabric's
    end of the data link, by which packets to the place leave the fabric.
    """

    name: str
    host: str
    namespace: int
    path: str
    data_address: str
    management_address: str
    peer_interface: str


class Fabric:
    """The network of one system with *hosts*; call `start` in the namespace that `isolate` made.

    Its own thread talks to the kernel, since the netlink library runs an event loop and callers may have one running.
    """

    management_address = MANAGEMENT_ADDRESS

    def __init__(self, hosts: Sequence[str]) -> None:
        self.hosts = tuple(hosts)
        self.uplinks = {host: f"up{number}" for number, host in enumerate(self.hosts)}
        self._bridges: dict[str, int] = {}
        self._management = 0
        self._attached = 0
        self._netlink: IPRoute | None = None
        self._thread = ThreadPoolExecutor(1, "fabric")

    def start(self) -> None:
        """Create the bridges: core, management, and one per host that is connected to the core."""
        self._thread.submit(self._start_bridges).result()

    def attach(self, name: str, host: str) -> Place:
        """Create a network namespace called *name* on the bridge of *host*, with addresses; return its place."""
        return self._thread.submit(self._attach_place, name, host).result()

    def close(self) -> None:
        """Close the netlink sockets; bridges and namespaces exist until their last process ends."""
        if self._netlink is not None:
            self._thread.submit(self._netlink.close).result()
            self._netlink = None
        self._thread.shutdown()

    def _start_bridges(self) -> None:
        """Make the core, the management network, and a bridge for each host that is wired to the core."""
        from pyroute2 import IPRoute

        self._netlink = IPRoute()
        core = self._make_bridge("core")
        self._management = self._make_bridge("management")
        self._netlink.addr("add", index=self._management, address=MANAGEMENT_ADDRESS, prefixlen=16)
        for number, host in enumerate(self.hosts):
            self._bridges[host] = self._make_bridge(f"host{number}")
            uplink, downlink = self.uplinks[host], f"down{number}"
            self._netlink.link(
                "add", ifname=uplink, kind="veth", master=self._bridges[host], state="up", peer={"ifname": downlink}
            )
            self._netlink.link("set", index=socket.if_nametoindex(downlink), master=core, state="up")

    def _attach_place(self, name: str, host: str) -> Place:
        """Create the namespace *name* with data and management interfaces on the bridge of *host*; return its place."""
        netlink = self._require_netlink()
        self._attached += 1
        number = self._attached
        namespace = new_namespace()
        place = Place(
            name=name,
            host=host,
            namespace=namespace,
            path=path_of(namespace),
            data_address=str(DATA_NETWORK[number + 1]),
            management_address=str(MANAGEMENT_NETWORK[number + 1]),
            peer_interface=f"data{number}",
        )
        for outer, inner, bridge in (
            (place.peer_interface, DATA_INTERFACE, self._bridges[host]),
            (f"mgmt{number}", MANAGEMENT_INTERFACE, self._management),
        ):
            peer = {"ifname": inner, "net_ns_fd": namespace}
            netlink.link("add", ifname=outer, kind="veth", master=bridge, state="up", peer=peer)
        inside(namespace, lambda: _address(place))
        return place

    def _require_netlink(self) -> IPRoute:
        """Return the netlink socket; raises RuntimeError before `start`."""
        if self._netlink is None:
            raise RuntimeError("start the fabric before attaching to it")
        return self._netlink

    def _make_bridge(self, name: str) -> int:
        """Make the bridge *name* and return its interface index."""
        self._require_netlink().link("add", ifname=name, kind="bridge", state="up")
        return socket.if_nametoindex(name)


def _address(place: Place) -> None:
    """Set the addresses of the interfaces of *place*, and set these up; the caller is in its namespace."""
    from pyroute2 import IPRoute

    with IPRoute() as netlink:
        for interface, address in (
            (DATA_INTERFACE, place.data_address),
            (MANAGEMENT_INTERFACE, place.management_address),
        ):
            netlink.addr("add", index=socket.if_nametoindex(interface), address=address, prefixlen=16)
            raise_interface(interface)


def peer_of(namespace: str) -> str:
    """Return the name of the interface here that is the other end of the data link of *namespace* (a path)."""
    from pyroute2 import IPRoute

    def other_end() -> int:
        with IPRoute() as netlink:
            (link,) = netlink.get_links(socket.if_nametoindex(DATA_INTERFACE))
            return int(link.get_attr("IFLA_LINK"))

    return socket.if_indextoname(inside(namespace, other_end))
