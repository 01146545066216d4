"""Content codings: decoders of coded bodies, piece by piece; the proxy relays and stores bodies still coded."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

from opsassay.core.errors import DatapackError
from opsassay.core.zstandard import zstd

_PIECE_BYTES = 64 * 1024


class Decoder(Protocol):
    """Decodes a body from pieces in order."""

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes that the next piece *chunk* decodes to; raises DatapackError when it is not in the coding."""
        ...


def decoder(encoding: str) -> Decoder | None:
    """Return a decoder for the value *encoding* of a Content-Encoding header, None when one in it is unknown."""
    names = [name.strip().lower() for name in encoding.split(",") if name.strip()]
    made = [_DECODERS[name]() for name in reversed(names) if name in _DECODERS]
    return _Chain(made) if len(made) == len(names) else None


def decoded(data: bytes, encoding: str, max_bytes: int | None = None) -> bytes:
    """Return *data* decoded as far as it is complete, up to *max_bytes*; unchanged for an unknown encoding."""
    one = decoder(encoding)
    if one is None or not encoding:
        return data
    whole = bytearray()
    try:
        for start in range(0, len(data), _PIECE_BYTES):
            whole += one.feed(data[start : start + _PIECE_BYTES])
            if max_bytes is not None and len(whole) > max_bytes:
                return bytes(whole[:max_bytes])
    except DatapackError:
        return bytes(whole) or data
    return bytes(whole)


def readable(accepted: str) -> str:
    """Return the Accept-Encoding value *accepted* without the encodings that cannot be decoded here."""
    kept: list[str] = []
    for choice in (choice.strip() for choice in accepted.split(",")):
        name, _, weight = choice.partition(";")
        if name.strip() == "*" and not _is_zero(weight):
            kept += [coding for coding in _OFFERED if coding in _DECODERS and coding not in " ".join(kept)]
        elif name.strip().lower() in {*_DECODERS, "*"}:
            kept.append(choice)
    return ", ".join(kept) or "identity"


def _is_zero(weight: str) -> bool:
    """Whether the weight of an encoding in Accept-Encoding is q=0, which forbids it."""
    return weight.strip().replace(" ", "") in {"q=0", "q=0.0", "q=0.00", "q=0.000"}


class _Chain:
    """Decoders in turn, of the coding that was applied last first."""

    def __init__(self, decoders: Sequence[Decoder]) -> None:
        self._decoders = decoders

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes that *chunk* decodes to, through all decoders in turn; raises DatapackError."""
        try:
            for one in self._decoders:
                chunk = one.feed(chunk)
        except (zlib.error, zstd.ZstdError, EOFError) as error:
            raise DatapackError(f"A body is not in the coding that its header names ({error}).") from error
        return chunk


class _Identity:
    def feed(self, chunk: bytes) -> bytes:
        """Return *chunk* unchanged."""
        return chunk


class _Gzip:
    """Gzip, with several members one after the other."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(31)

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes that *chunk* decodes to; gzip streams that follow each other are read as one."""
        whole = b""
        while chunk:
            whole += self._inflate.decompress(chunk)
            chunk = self._inflate.unused_data
            if self._inflate.eof:
                self._inflate = zlib.decompressobj(31)
        return whole


class _Deflate:
    """Deflate, with the zlib header (as the standard says) or without it (as many servers send it)."""

    def __init__(self) -> None:
        self._head = b""
        self._inflate = zlib.decompressobj()

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes that *chunk* decodes to; the first two bytes tell whether there is a zlib header."""
        if len(self._head) < 2:
            self._head += chunk
            if len(self._head) < 2:
                return b""
            has_header = self._head[0] & 15 == 8 and int.from_bytes(self._head[:2]) % 31 == 0
            self._inflate = zlib.decompressobj(15 if has_header else -15)
            chunk = self._head
        return self._inflate.decompress(chunk)


class _Zstd:
    """Zstandard, with several frames one after the other."""

    def __init__(self) -> None:
        self._decompress = zstd.ZstdDecompressor()

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes that *chunk* decodes to; frames that follow each other are read as one."""
        whole = b""
        while chunk:
            whole += self._decompress.decompress(chunk)
            chunk = self._decompress.unused_data
            if self._decompress.eof:
                self._decompress = zstd.ZstdDecompressor()
        return whole


class _Brotli:
    def __init__(self) -> None:
        brotli = import_module("brotli")
        self._error, self._decompress = brotli.error, brotli.Decompressor()

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes that *chunk* decodes to; raises zlib.error when it is damaged."""
        try:
            return bytes(self._decompress.process(chunk))
        except self._error as error:
            raise zlib.error(str(error)) from error


_DECODERS: dict[str, type[Decoder]] = {
    "identity": _Identity,
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "zstd": _Zstd,
}
if find_spec("brotli"):  # not one of our dependencies; where it is installed, SDKs ask for it
    _DECODERS["br"] = _Brotli
_OFFERED = ("gzip", "deflate", "br", "zstd")
