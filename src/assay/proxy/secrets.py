"""Keys never enter a record: headers that carry them are withheld, their text is replaced wherever it appears."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

WITHHELD = b"[key]"
_SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "set-cookie"}
)
_SECRET_QUERY = re.compile(r"([?&](?:key|api[_-]?key|access_token|token)=)[^&]*", re.IGNORECASE)


def safe_headers(headers: Iterable[tuple[str, str]], masks: Iterable[bytes] = ()) -> list[list[str]]:
    """Return *headers* with the values of those that carry keys withheld, and *masks* replaced in the others."""
    known = tuple(masks)
    return [
        [name, WITHHELD.decode() if name.lower() in _SECRET_HEADERS else _masked_text(value, known)]
        for name, value in headers
    ]


def safe_path(path: str, masks: Iterable[bytes] = ()) -> str:
    """Return a path with its query, in which keys are withheld."""
    return _masked_text(_SECRET_QUERY.sub(rf"\g<1>{WITHHELD.decode()}", path), tuple(masks))


def mask(data: bytes, masks: Iterable[bytes]) -> bytes:
    """Return *data* with every one of *masks* replaced."""
    for secret in masks:
        if secret in data:
            data = data.replace(secret, WITHHELD)
    return data


class StreamMask:
    """Masks a body that comes in chunks, also where a key is split between two of them.

    The end of a chunk that could be the beginning of a key is given with the next chunk. A gzip or deflate body cannot
    be masked in place: from the chunk on in which a key appears inside, it is withheld.
    """

    def __init__(self, masks: Iterable[bytes], encoding: str = "") -> None:
        self._masks = tuple(masks)
        self._held = b""
        self._inflate = zlib.decompressobj(47) if self._masks and encoding in {"gzip", "deflate"} else None
        self._inside = b""
        self._tainted = False

    def feed(self, chunk: bytes) -> bytes:
        """Return what of *chunk* may be recorded now."""
        if not self._masks:
            return chunk
        if self._inflate is not None:
            return self._feed_compressed(chunk)
        data = mask(self._held + chunk, self._masks)
        keep = max((_overlap(data, secret) for secret in self._masks), default=0)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def rest(self) -> bytes:
        """Return what was held back, once the body has ended."""
        held, self._held = self._held, b""
        return held

    def _feed_compressed(self, chunk: bytes) -> bytes:
        assert self._inflate is not None
        try:
            inside = self._inside + self._inflate.decompress(chunk)
        except zlib.error:
            inside = self._inside  # not what its header says; the raw bytes are searched instead
        self._tainted = self._tainted or any(secret in inside or secret in chunk for secret in self._masks)
        self._inside = inside[-max(map(len, self._masks)) :]
        return WITHHELD if self._tainted else chunk


def _overlap(data: bytes, secret: bytes) -> int:
    """Return how many bytes at the end of *data* are the beginning of *secret*, short of all of it."""
    if data[-1:] not in secret:  # nearly every chunk: events end with a line feed, keys have none
        return 0
    return next((n for n in range(min(len(secret) - 1, len(data)), 0, -1) if data.endswith(secret[:n])), 0)


def _masked_text(text: str, masks: tuple[bytes, ...]) -> str:
    return mask(text.encode("utf-8", "surrogateescape"), masks).decode("utf-8", "replace") if masks else text
