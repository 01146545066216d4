"""Which stream of a fault a packet belongs to."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from assay.testbed.kernel.queue import Packet

TCP = 6


class Stream(NamedTuple):
    """One direction of one link as seen from the replica; *address* is the other end's."""

    link: str
    direction: str
    leaving: bool
    address: str


class Streams:
    """The streams that a fault impairs."""

    def __init__(self, streams: Sequence[dict[str, Any]]) -> None:
        self.all = tuple(Stream(**stream) for stream in streams)
        self._by_end = {
            (stream.leaving, socket.inet_aton(stream.address), stream.direction): stream for stream in self.all
        }

    def addresses(self, *, leaving: bool) -> list[str]:
        """Return the peers' addresses of the streams that leave the replica, or of those that arrive."""
        return sorted({stream.address for stream in self.all if stream.leaving == leaving})

    def of(self, packet: Packet) -> Stream | None:
        """Return the stream of *packet* when it carries TCP payload, else None.

        Two replicas that call one another have a stream of each link in either direction: the caller's end of a
        connection is the one with the higher port, since services listen below the ephemeral ports.
        """
        data = packet.data
        header = (data[0] & 0xF) * 4
        if data[9] != TCP or len(data) < header + 20:
            return None
        (size,) = struct.unpack_from(">H", data, 2)
        if size <= header + (data[header + 12] >> 4) * 4:
            return None
        source, destination = struct.unpack_from(">HH", data, header)
        direction = "forward" if source > destination else "backward"
        address = data[16:20] if packet.leaving else data[12:16]
        end = (packet.leaving, address)
        return self._by_end.get((*end, direction)) or self._by_end.get(
            (*end, "backward" if direction == "forward" else "forward")
        )
