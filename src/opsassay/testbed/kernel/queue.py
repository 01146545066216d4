"""A netfilter queue: packets that the kernel passes to this process, which decides when and whether they are sent.

The netlink messages are those of ``linux/netfilter/nfnetlink_queue.h``. When the socket closes the kernel drops held
packets (TCP sends them again) and the rule, which has the bypass flag, accepts all packets.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

NETLINK_NETFILTER = 12
SUBSYSTEM = 3
PACKET, VERDICT, CONFIGURE, VERDICT_BATCH = 0, 1, 2, 3
PACKET_HEADER, VERDICT_HEADER, MARK, PAYLOAD = 1, 2, 3, 10
COMMAND, PARAMETERS, MAX_LENGTH, MASK, FLAGS = 1, 2, 3, 4, 5
BIND = 1
COPY_PACKET = 2
WHOLE_SEGMENTS = 0x4
"""NFQA_CFG_F_GSO: receive whole segments of up to 64 KB; without it the kernel cuts them into packets."""
DROP, ACCEPT = 0, 1
LOCAL_OUT = 3
ACKNOWLEDGE = 0x5
QUEUES = 32
HEADERS = 120
BUFFER_BYTES = 32 << 20
MOST_HELD = 1 << 16
SO_RCVBUFFORCE = 33


class Packet(NamedTuple):
    """One packet: its number in the queue, whether it leaves the replica, its mark, and its bytes from the IP header on."""

    number: int
    leaving: bool
    mark: int
    data: bytes


class Queue:
    """The first free netfilter queue of the calling thread's namespace.

    *whole* copies packets entirely, else their headers; *cut* receives packets as on a wire, else the kernel's segments of
    up to 64 KB.
    """

    def __init__(self, *, whole: bool, cut: bool) -> None:
        self.overflows = self.number = 0
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
        self._socket.bind((0, 0))
        enlarge(self._socket, SO_RCVBUFFORCE, socket.SO_RCVBUF)
        if not any(self._bind(number) for number in range(QUEUES)):
            self._socket.close()
            raise OSError(errno.EBUSY, f"all {QUEUES} packet queues of the replica's namespace are taken")
        self._send_configuration(
            _pack_attribute(PARAMETERS, struct.pack(">IB", 0xFFFF if whole else HEADERS, COPY_PACKET))
        )
        self._send_configuration(_pack_attribute(MAX_LENGTH, struct.pack(">I", MOST_HELD)))
        flags = 0 if cut else WHOLE_SEGMENTS
        self._send_configuration(
            _pack_attribute(MASK, struct.pack(">I", WHOLE_SEGMENTS)) + _pack_attribute(FLAGS, struct.pack(">I", flags))
        )
        self._socket.settimeout(0)

    def fileno(self) -> int:
        """Return the descriptor that is readable while packets wait; for `select`."""
        return self._socket.fileno()

    def packets(self, limit: int) -> Iterator[Packet]:
        """Yield at most *limit* waiting packets; packets that the kernel dropped (overflows) are counted."""
        for _ in range(limit):
            try:
                message = self._socket.recv(1 << 17)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.overflows += 1
                continue
            if message[5] == SUBSYSTEM and message[4] == PACKET:
                yield _packet(message)

    def accept(self, number: int, data: bytes | None = None) -> None:
        """Let packet *number* pass, with its content replaced by *data* if given."""
        payload = b"" if data is None else _pack_attribute(PAYLOAD, data)
        self._send_message(VERDICT, _pack_attribute(VERDICT_HEADER, struct.pack(">II", ACCEPT, number)) + payload)

    def accept_up_to(self, number: int) -> None:
        """Let all waiting packets with a number up to *number* pass."""
        self._send_message(VERDICT_BATCH, _pack_attribute(VERDICT_HEADER, struct.pack(">II", ACCEPT, number)))

    def drop(self, number: int) -> None:
        """Drop packet *number*."""
        self._send_message(VERDICT, _pack_attribute(VERDICT_HEADER, struct.pack(">II", DROP, number)))

    def close(self) -> None:
        """Close the queue; packets without a verdict are dropped."""
        self._socket.close()

    def _bind(self, number: int) -> bool:
        """Bind this object to queue *number*; return False when another process has that queue."""
        self.number = number
        try:
            self._send_configuration(_pack_attribute(COMMAND, struct.pack(">BBH", BIND, 0, socket.AF_INET)))
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EBUSY, errno.EEXIST):
                return False
            raise
        return True

    def _send_configuration(self, attributes: bytes) -> None:
        """Send *attributes* as a configuration message of the queue; raises OSError if the kernel refuses it."""
        self._send_message(CONFIGURE, attributes, ACKNOWLEDGE)
        (status,) = struct.unpack_from("=i", self._socket.recv(4096), 16)
        if status:
            raise OSError(-status, os.strerror(-status))

    def _send_message(self, kind: int, attributes: bytes, flags: int = 1) -> None:
        """Send a netlink message of *kind* with packed *attributes*; a full buffer is counted, else OSError raised."""
        header = struct.pack("=IHHII", 20 + len(attributes), SUBSYSTEM << 8 | kind, flags, 0, 0)
        try:
            self._socket.send(header + struct.pack(">BBH", 0, 0, self.number) + attributes)
        except OSError as error:
            if error.errno != errno.ENOBUFS:  # reported on whichever call comes next, this message was sent
                raise
            self.overflows += 1


def enlarge(sock: socket.socket, forced: int, fallback: int) -> None:
    """Set the buffer of *sock* to BUFFER_BYTES by the socket option *forced*, or *fallback* if not permitted."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, forced, BUFFER_BYTES)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, fallback, BUFFER_BYTES)


def _pack_attribute(kind: int, value: bytes) -> bytes:
    """Return the bytes of a netlink attribute of type *kind* with *value*, padded to four bytes."""
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + bytes(-length % 4)


def _packet(message: bytes) -> Packet:
    """Return (number, whether it leaves, mark, data) of the queued packet that the netlink *message* describes."""
    number, leaving, mark, data = 0, False, 0, b""
    end, at = len(message), 20
    while at < end:
        length, kind = struct.unpack_from("=HH", message, at)
        if kind == PACKET_HEADER:
            number, _, hook = struct.unpack_from(">IHB", message, at + 4)
            leaving = hook == LOCAL_OUT
        elif kind == MARK:
            (mark,) = struct.unpack_from(">I", message, at + 4)
        elif kind == PAYLOAD:
            data = message[at + 4 : at + length]
        at += length + 3 & ~3
    return Packet(number, leaving, mark, data)
