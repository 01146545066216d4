"""The spool: one append-only file of frames per signal; a frame is a request body exactly as it was received.

Frame, little endian: payload length (u32), CRC-32 of all that follows (u32), receive time in ns of UTC (u64), kind
(u8), payload. The files survive a kill of the receiver: a frame that was acknowledged is whole, only the last one may
be torn.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO, NamedTuple

from opsassay.core.errors import DatapackError

HEADER = struct.Struct("<IIQB")
_COVERED = struct.Struct("<QB")
MAX_PAYLOAD_BYTES = 16 * 1024 * 1024


class Kind(IntEnum):
    """What a frame holds."""

    OPENED = 0  # no payload: the session was opened at this receive time
    PROTOBUF = 1
    GZIP = 2  # protobuf, still compressed as the client sent it


class Frame(NamedTuple):
    """One frame of a spool."""

    received_ns: int
    kind: Kind
    payload: bytes


def spool_path(directory: Path, signal: str) -> Path:
    """Return the path of the spool file of *signal* (traces, metrics, logs) in a session's *directory*."""
    return directory / f"spool-{signal}.bin"


def frame_header(received_ns: int, kind: Kind, payload: bytes) -> bytes:
    """Return the header bytes of a spool frame: length, checksum and kind of *payload*, time *received_ns* (UTC)."""
    covered = _COVERED.pack(received_ns, kind)
    return HEADER.pack(len(payload), zlib.crc32(payload, zlib.crc32(covered)), received_ns, kind)


def read_frames(path: Path) -> Iterator[Frame]:
    """Yield the frames of a spool file in the order they were received, one in memory at a time.

    A torn or damaged last frame was never acknowledged and is dropped. Raises DatapackError when a frame before the
    last one is damaged, because that one was acknowledged.
    """
    for _, frame in _scan_frames(path):
        yield frame


def whole_length(path: Path) -> int:
    """Return the length in bytes of all complete frames at the start of *path*; raises DatapackError as `read_frames`."""
    end = 0
    for end, _ in _scan_frames(path):  # noqa: B007 - the last end is what we want
        pass
    return end


def frames_after(path: Path, offset: int) -> Iterator[tuple[int, Frame]]:
    """Yield (end, frame) of the complete frames after byte *offset* of a spool that is still written to.

    *end* is the offset to continue from. Raises DatapackError as `read_frames`.
    """
    return _scan_frames(path, offset)


def _scan_frames(path: Path, offset: int = 0) -> Iterator[tuple[int, Frame]]:
    """Yield (end, frame) of the spool *path* from byte *offset*; *end* is the frame's end. Raises DatapackError."""
    try:
        stream = path.open("rb")
    except FileNotFoundError as error:
        raise DatapackError(f"There is no spool {path}: was a session recorded into {path.parent}?") from error
    with stream:
        yield from frames_in(stream, offset)


def frames_in(stream: BinaryIO, offset: int) -> Iterator[tuple[int, Frame]]:
    """Yield (end, frame) after *offset* of the open *stream*, as `frames_after`; the file may be deleted meanwhile."""
    size = os.fstat(stream.fileno()).st_size
    stream.seek(offset)
    while offset + HEADER.size <= size:
        length, crc, received_ns, kind = HEADER.unpack(stream.read(HEADER.size))
        end = offset + HEADER.size + length
        if end > size and length <= MAX_PAYLOAD_BYTES:
            return
        payload = stream.read(min(length, MAX_PAYLOAD_BYTES))
        if length > MAX_PAYLOAD_BYTES or zlib.crc32(payload, zlib.crc32(_COVERED.pack(received_ns, kind))) != crc:
            if end == size:
                return
            raise DatapackError(
                f"{stream.name} is damaged at byte {offset}: the frame there is not the one that was written; "
                "restore the file from a copy, or record again."
            )
        yield end, Frame(received_ns, Kind(kind), payload)
        offset = end


class SpoolFile:
    """Appends frames to one file; after a failed append the file is as it was before."""

    def __init__(self, path: Path) -> None:
        self._length = whole_length(path) if path.exists() else 0
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._fd, self._length)

    def append(self, header: bytes, payload: bytes) -> None:
        """Write *header* and *payload* as one frame; on OSError (full disk, ...) remove the partial frame and raise."""
        size = len(header) + len(payload)
        try:
            written = os.writev(self._fd, (header, payload))
            while written < size:  # a short write is rare; the next one goes on or tells the reason
                written += os.write(self._fd, (header + payload)[written:])
        except OSError:
            os.ftruncate(self._fd, self._length)
            raise
        self._length += size

    def close(self) -> None:
        """Force the file to the disk and close it; raises OSError when the disk refuses."""
        try:
            os.fsync(self._fd)
        finally:
            os.close(self._fd)
