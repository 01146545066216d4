"""The stream of a fault to which a packet belongs."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from opsassay.testbed.kernel.queue import Packet

TCP = 6
UDP_HEADER = 8


class PacketStream(NamedTuple):
    """One direction of one link as seen from the replica; *address* is the peer's."""

    link: str
    direction: str
    leaving: bool
    address: str


class Streams:
    """The streams that a fault impairs."""

    def __init__(self, streams: Sequence[dict[str, Any]]) -> None:
        self.all = tuple(PacketStream(**stream) for stream in streams)
        self._by_end = {
            (stream.leaving, socket.inet_aton(stream.address), stream.direction): stream for stream in self.all
        }

    def addresses(self, *, leaving: bool) -> list[str]:
        """Return the sorted addresses of peers to which packets leave the replica, or, if not *leaving*, come from."""
        return sorted({stream.address for stream in self.all if stream.leaving == leaving})

    def stream_of(self, packet: Packet) -> PacketStream | None:
        """Return the stream of the fault that *packet* is part of; None if it is of none or has no TCP payload.

        Two replicas that call each other have two links: the caller of a connection is the end with the higher
        port, since services listen below the ephemeral ports.
        """
        data = packet.data
        begin = _ip_header(data)
        if data[9] != TCP or _total_length(data) <= _payload(data):
            return None
        source, destination = struct.unpack_from(">HH", data, begin)
        directions = ("forward", "backward") if source > destination else ("backward", "forward")
        end = (packet.leaving, data[16:20] if packet.leaving else data[12:16])
        return next((stream for direction in directions if (stream := self._by_end.get((*end, direction)))), None)


def flip_a_bit(data: bytes, rng: random.Random) -> bytes | None:
    """Return the IP packet *data* with one bit of its TCP or UDP payload flipped; None when it has no payload."""
    begin, end = _payload(data), min(_total_length(data), len(data))
    if begin >= end:
        return None
    changed = bytearray(data)
    changed[rng.randrange(begin, end)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _total_length(data: bytes) -> int:
    """Return the length of the IPv4 packet *data* in bytes, as its header states it."""
    return int.from_bytes(data[2:4])


def _ip_header(data: bytes) -> int:
    """Return the length in bytes of the IP header of the IPv4 packet *data*."""
    return (data[0] & 0xF) * 4


def _payload(data: bytes) -> int:
    """Return the offset of the payload in the IP packet *data*; its size when it is neither TCP nor UDP."""
    header = _ip_header(data)
    match data[9]:
        case 6 if len(data) > header + 12:
            return header + (data[header + 12] >> 4) * 4
        case 17:
            return header + UDP_HEADER
    return _total_length(data)
