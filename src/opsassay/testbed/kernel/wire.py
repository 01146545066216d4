"""Sends packets for the replica, past the rules that queued them.

A packet in a netfilter queue counts as unsent for its TCP socket: the kernel then holds further segments back (TCP small
queues). With a hold of 100 ms, an answer of 30 KB took 1.1 s where a network with that delay takes 0.1 to 0.2 s. So
leaving packets are taken from the kernel and sent later.
"""

from __future__ import annotations

import socket
import struct
from collections import Counter
from fcntl import ioctl

from opsassay.testbed.kernel.network import DATA_INTERFACE
from opsassay.testbed.kernel.queue import enlarge

SO_SNDBUFFORCE = 32
SIOCGIFHWADDR = 0x8927
ETHERTYPE_IPV4 = b"\x08\x00"
SENDER = b"\x02\x00\x00\x00\x00\x01"
"""A locally administered MAC address; the receiver ignores the sender's."""


class Outward:
    """Sends packets of the calling thread's namespace to their destination, with *mark* added to their own mark."""

    def __init__(self, mark: int) -> None:
        self.unsent = 0
        self._mark = mark
        self._sockets: dict[int, socket.socket] = {}

    def send(self, data: bytes, mark: int) -> None:
        """Send the IP packet *data* with its former *mark*; a packet that the kernel refuses is counted as lost."""
        try:
            self._socket_for_mark(mark | self._mark).sendto(data, (socket.inet_ntoa(data[16:20]), 0))
        except OSError:
            self.unsent += 1

    def close(self) -> None:
        """Close the sockets."""
        for opened in self._sockets.values():
            opened.close()

    def _socket_for_mark(self, mark: int) -> socket.socket:
        """Return the raw socket that sends packets with the netfilter *mark*; it is opened on first use."""
        if mark not in self._sockets:
            opened = socket.socket(socket.AF_INET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.IPPROTO_RAW)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
            enlarge(opened, SO_SNDBUFFORCE, socket.SO_SNDBUF)
            opened.settimeout(0)
            self._sockets[mark] = opened
        return self._sockets[mark]


class Inward:
    """Sends copies of arriving packets to the replica again, from the fabric's end of its link.

    It is made in the fabric's namespace; `address` is called in the replica's. A copy passes the rules again, where
    `is_copy` recognises it.
    """

    def __init__(self, peer_interface: str) -> None:
        self.unsent = 0
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.bind((peer_interface, 0))
        self._socket.settimeout(0)
        self._head = b""
        self._expected: Counter[bytes] = Counter()

    def address(self) -> None:
        """Read the MAC address of the replica's interface, to which `send` sends; called in the replica's namespace."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            answer = ioctl(control, SIOCGIFHWADDR, struct.pack("40s", DATA_INTERFACE.encode()))
        self._head = answer[18:24] + SENDER + ETHERTYPE_IPV4

    def send(self, data: bytes) -> None:
        """Send the IP packet *data* to the replica; it passes the queue again, where `is_copy` recognises it."""
        try:
            self._socket.send(self._head + data)
        except OSError:
            self.unsent += 1
        else:
            self._expected[data] += 1

    def is_copy(self, data: bytes) -> bool:
        """Return whether *data* is a packet that `send` sent; True once for each that was sent."""
        if not self._expected[data]:
            del self._expected[data]
            return False
        self._expected[data] -= 1
        return True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
