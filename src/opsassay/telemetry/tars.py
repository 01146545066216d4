"""Reads untrusted tar archives within limits: plain files and folders only, no oversized headers.

A long-name or PAX header is read into memory whole before the member is visible, so a compressed archive is expanded
first, within a limit, and single reads of the tar are small.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO

from opsassay.core.errors import DatapackError
from opsassay.core.untrusted import safe_text

CHUNK = 2**20
"""Most bytes of one read of a tar; longer headers are refused."""
MOST_XZ_BYTES = 2**28
"""Most memory for expanding xz, whose headers may demand 4 GiB."""
_GZIP, _BZIP2, _XZ = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0"


def open_tar(file: BinaryIO) -> tarfile.TarFile:
    """Open the tar in the seekable *file*; raises tarfile.TarError."""
    file.seek(0)
    return tarfile.open(fileobj=_SmallReads(file), mode="r:")


def plain_members(
    archive: tarfile.TarFile, most_files: int, most_bytes: int | None = None
) -> Iterator[tarfile.TarInfo]:
    """Yield the files and folders of *archive*; at most *most_files*, and *most_bytes* in all.

    Raises DatapackError for more than that, a link, a device, a sparse file or a name that leads out; tarfile.TarError.
    """
    size = 0
    for number, member in enumerate(archive):
        name = PurePosixPath(member.name)
        if not (member.isfile() or member.isdir()) or name.is_absolute() or ".." in name.parts or member.issparse():
            said = safe_text(member.name[:200])
            raise DatapackError(f"The tar holds {said!r}, which is no plain file inside it; leave it out.")
        size += abs(member.size)
        if number >= most_files or (most_bytes is not None and size > most_bytes):
            bound = "" if most_bytes is None else f" or {most_bytes >> 20} MB"
            raise DatapackError(f"The tar holds more than {most_files} files{bound}; leave some out.")
        yield member


def expanded(file: BinaryIO) -> Iterator[bytes] | None:
    """Return *file* decompressed, in chunks, None if it is not compressed; reading raises EOFError, OSError, LZMAError."""
    start = file.read(8)
    file.seek(0)
    if start.startswith(_GZIP):
        return _read_pieces(gzip.GzipFile(fileobj=file))
    if start.startswith(_BZIP2):
        return _read_pieces(bz2.BZ2File(file))
    return _read_pieces_of_xz(file) if start.startswith(_XZ) else None


def _read_pieces(stream: gzip.GzipFile | bz2.BZ2File) -> Iterator[bytes]:
    """Yield the unpacked content of *stream*, CHUNK bytes at a time, and close it."""
    with stream:
        while piece := stream.read(CHUNK):
            yield piece


def _read_pieces_of_xz(file: BinaryIO) -> Iterator[bytes]:
    """Yield the unpacked content of an xz *file* in bounded memory; raises EOFError when it is cut off."""
    unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_XZ_BYTES)
    while not unpacking.eof:
        fed = file.read(CHUNK) if unpacking.needs_input else b""
        if unpacking.needs_input and not fed:
            raise EOFError("it ends early")
        yield unpacking.decompress(fed, CHUNK)


class _SmallReads(io.RawIOBase):
    """Wraps *file* for tarfile, and refuses a read of more than `CHUNK` bytes, as of an oversized header."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        """Return the next *size* bytes; raises tarfile.ReadError when *size* is above `CHUNK`."""
        if not 0 <= size <= CHUNK:
            raise tarfile.ReadError("a header of it is too long")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to *offset*, as ``io.IOBase.seek``."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position in the stream."""
        return self._file.tell()
