"""Impairments by the kernel's queueing disciplines: netem and tbf, below an htb class that u32 filters select.

Packets from the replica are shaped on its interface, packets to it on the fabric's end of its link. Disciplines outlive
the process that installed them: `unshape` removes them.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import select
import socket
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from opsassay.testbed.kernel.namespaces import inside
from opsassay.testbed.kernel.network import DATA_INTERFACE
from opsassay.testbed.kernel.packet_decision import backlog_bytes
from opsassay.testbed.kernel.streams import Streams

ROOT = 0xA55A0000
"""The handle of OpsAssay's root discipline."""
CLASSES = range(1, 64)
UNLIMITED = {"rate": "10gbit", "burst": 1 << 20, "cburst": 1 << 20, "quantum": 60_000}
PACKETS_HELD = 100_000
SOURCE_OFFSET, DESTINATION_OFFSET = 12, 16
ETHERTYPE_IPV4 = 0x0800
LEAST_BURST = 2 * 1514


class Shaping:
    """One traffic class on each side with streams of the fault; entered and left in the fabric's namespace."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._namespace, self._peer_interface = config["namespace"], config["peer_interface"]
        self._streams = Streams(config["streams"])
        self._leaf = leaf(config["impairment"])
        self._leaving = self._arriving = 0

    def __enter__(self) -> Shaping:
        leaving, arriving = (self._streams.addresses(leaving=side) for side in (True, False))
        if leaving:
            self._leaving = inside(
                self._namespace, lambda: add_class(DATA_INTERFACE, leaving, DESTINATION_OFFSET, self._leaf)
            )
        if arriving:
            self._arriving = add_class(self._peer_interface, arriving, SOURCE_OFFSET, self._leaf)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._leaving:
            inside(self._namespace, lambda: remove_class(DATA_INTERFACE, self._leaving))
        if self._arriving:
            remove_class(self._peer_interface, self._arriving)

    def counts(self) -> dict[str, int]:
        """Return {}: the kernel shapes the packets without a count."""
        return {}

    def run(self, end_descriptor: int) -> None:
        """Block until *end_descriptor* becomes readable or its other end closes, which ends the shaping."""
        select.select([end_descriptor], [], [])


def leaf(impairment: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the queueing discipline (netem or tbf) that does *impairment*, its parameters; ValueError if none does."""
    match impairment:
        case {"kind": "bandwidth", "bytes_per_s": rate}:
            burst = max(LEAST_BURST, int(rate / 100))
            return "tbf", {"rate": int(rate), "burst": burst, "limit": burst + backlog_bytes(rate)}
        case {"kind": "delay", "delay_s": delay_s, "jitter_s": jitter_s}:
            numbers = {"delay": round(delay_s * 1e6), "jitter": round(jitter_s * 1e6)}
        case {"kind": "loss", "share": share}:
            numbers = {"loss": share * 100}
        case {"kind": "duplicate", "share": share}:
            numbers = {"duplicate": share * 100}
        case {"kind": "corrupt", "share": share}:
            numbers = {"prob_corrupt": share * 100}
        case _:
            raise ValueError(f"no discipline does what {impairment} says")
    return "netem", {"limit": PACKETS_HELD, **numbers}


def add_class(interface: str, addresses: Sequence[str], offset: int, discipline: tuple[str, dict[str, Any]]) -> int:
    """Shape packets with one of *addresses* at byte *offset* of their IP header; return the number of the class.

    *discipline* is (kind, parameters); *interface* is one of the calling thread's namespace; other packets pass
    unshaped.
    """
    kind, numbers = discipline
    with IPRoute() as netlink:
        index = socket.if_nametoindex(interface)
        with _tolerate_errors(errno.EEXIST):  # another fault shapes here as well
            netlink.tc("add", "htb", index, handle=ROOT, default=0)
        number = next(number for number in CLASSES if _claim_class(netlink, index, number))
        try:
            netlink.tc("add", kind, index, handle=ROOT + (number << 16), parent=ROOT | number, **numbers)
            for address in addresses:
                netlink.tc(
                    "add-filter", "u32", index, parent=ROOT, prio=number, protocol=ETHERTYPE_IPV4,
                    target=ROOT | number, keys=[f"{int(ipaddress.IPv4Address(address)):#010x}/0xffffffff+{offset}"],
                )  # fmt: skip
        except NetlinkError:
            remove_class(interface, number)
            raise
    return number


def remove_class(interface: str, number: int) -> None:
    """Remove the traffic class *number* of *interface*; with the last class, also the root discipline."""
    with IPRoute() as netlink:
        index = socket.if_nametoindex(interface)
        with _tolerate_errors(errno.ENOENT):
            netlink.tc(
                "del-filter",
                "u32",
                index,
                parent=ROOT,
                prio=number,
                protocol=ETHERTYPE_IPV4,
                target=ROOT | number,
                keys=[],
            )
        with _tolerate_errors(errno.ENOENT):
            netlink.tc("del-class", "htb", index, handle=ROOT | number, parent=ROOT, **UNLIMITED)
        if not list(netlink.get_classes(index)):
            _remove_root(netlink, index)


def unshape(interface: str) -> None:
    """Remove OpsAssay's queueing disciplines from *interface* of the calling thread's namespace, if there are any."""
    try:
        index = socket.if_nametoindex(interface)
    except OSError:
        return
    with IPRoute() as netlink:
        if any(row["handle"] == ROOT for row in netlink.get_qdiscs(index)):
            _remove_root(netlink, index)


def _claim_class(netlink: IPRoute, index: int, number: int) -> bool:
    """Create the traffic class *number* on the interface with *index*; return False when it exists already."""
    try:
        netlink.tc("add-class", "htb", index, handle=ROOT | number, parent=ROOT, **UNLIMITED)
    except NetlinkError as error:
        if error.code != errno.EEXIST:
            raise
        return False
    return True


def _remove_root(netlink: IPRoute, index: int) -> None:
    """Remove the root queueing discipline of the interface with *index*, if there is one."""
    with _tolerate_errors(errno.ENOENT, errno.EINVAL):
        netlink.tc("del", "htb", index, handle=ROOT)


@contextlib.contextmanager
def _tolerate_errors(*numbers: int) -> Iterator[None]:
    """Ignore netlink errors with one of *numbers* in the block."""
    try:
        yield
    except NetlinkError as error:
        if error.code not in numbers:
            raise
