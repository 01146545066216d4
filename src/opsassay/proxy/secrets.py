"""Keys never enter a record: headers that carry them are withheld, their text is replaced wherever it appears."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from opsassay.errors import DatapackError
from opsassay.proxy.codings import decoder

WITHHELD = b"[key]"
UNREADABLE = b"[withheld: nobody can look for keys in this coding]"
_TELLING_BYTES = 8
_SECRET_HEADER = re.compile(
    r"(?:^|[-_])(?:api[-_]?key|access[-_]?key|subscription[-_]key|auth|authorization|token|secret|password|credential|"
    r"cookie)$",
    re.IGNORECASE,
)
_SECRET_QUERY = re.compile(r"([?&](?:key|api[_-]?key|access_token|token|sig|signature)=)[^&]*", re.IGNORECASE)


class Secret(NamedTuple):
    """A text that enters no record, in the *forms* in which it may be written; all of them hold its *stem*."""

    stem: bytes
    forms: tuple[bytes, ...]


@lru_cache(maxsize=256)
def secret(text: str) -> Secret:
    """Return *text* as it is, percent-encoded, and escaped in JSON."""
    odd = {char for char in text if not char.isalnum() and char.isascii()}

    def written(pattern: str) -> str:
        return "".join(pattern.format(ord(char)) if char in odd else char for char in text)

    patterns = ("%{:02X}", "%{:02x}", "\\u{:04x}", "\\u{:04X}")
    given = (text, quote(text, safe=""), text.replace("/", "\\/"), *map(written, patterns))
    forms = tuple(dict.fromkeys(form.encode("utf-8", "surrogateescape") for form in given if form))
    stem = max(re.findall(r"[A-Za-z0-9]*", text), key=len)
    return Secret(stem.encode(), forms)


def safe_headers(headers: Iterable[tuple[str, str]], masks: Sequence[Secret] = ()) -> list[list[str]]:
    """Return *headers* with the values of those that carry keys withheld, and *masks* replaced in the others."""
    return [
        [name, WITHHELD.decode() if _SECRET_HEADER.search(name) else safe_text(value, masks)] for name, value in headers
    ]


def safe_path(path: str, masks: Sequence[Secret] = ()) -> str:
    """Return a path with its query, in which keys are withheld."""
    return safe_text(_SECRET_QUERY.sub(rf"\g<1>{WITHHELD.decode()}", path), masks)


def safe_text(text: str, masks: Sequence[Secret]) -> str:
    """Return *text* with every one of *masks* replaced."""
    return mask(text.encode("utf-8", "surrogateescape"), masks).decode("utf-8", "surrogateescape")


def mask(data: bytes, masks: Sequence[Secret]) -> bytes:
    """Return *data* with every one of *masks* replaced."""
    for known in masks:
        if known.stem in data:
            for form in known.forms:
                data = data.replace(form, WITHHELD)
    return data


def mask_coded(data: bytes, masks: Sequence[Secret], encoding: str) -> bytes:
    """Return a whole body in any coding with *masks* replaced, or withheld if that is not possible in place."""
    stream = StreamMask(masks, encoding)
    return stream.feed(data) + stream.rest()


class StreamMask:
    """Masks a body that comes in chunks, also where a key is split between two of them.

    The end of a chunk that could be the beginning of a key is given with the next chunk. A coded body cannot be masked
    in place: from the chunk on in which a key appears inside, or which cannot be decoded, it is withheld.
    """

    def __init__(self, masks: Sequence[Secret], encoding: str = "") -> None:
        self._masks = masks
        self._held = b""
        self._coded = encoding.strip().lower() not in {"", "identity"}
        self._decoder = decoder(encoding) if self._coded else None
        self._inside = b""
        self._begun = self._withheld = False

    def feed(self, chunk: bytes) -> bytes:
        """Return what of *chunk* may be recorded now."""
        if not self._masks:
            return chunk
        if self._coded:
            return self._feed_coded(chunk)
        data = mask(self._held + chunk, self._masks)
        keep = self._overlap(data)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def rest(self) -> bytes:
        """Return what was held back, once the body has ended; the greater part of a key is as good as the key."""
        begun = self._overlap(self._inside if self._coded else self._held)
        held, self._held = self._held, b""
        return held if begun < _TELLING_BYTES else WITHHELD

    def _feed_coded(self, chunk: bytes) -> bytes:
        if self._withheld:
            return b""
        if self._decoder is None:
            return self._withhold(UNREADABLE)
        try:
            self._inside += self._decoder.feed(chunk)
        except DatapackError:
            if self._begun:
                return self._withhold(UNREADABLE)
            self._coded = False  # the header says what is not so: plain after all
            return self.feed(chunk)
        self._begun = True
        if mask(self._inside, self._masks) != self._inside or mask(chunk, self._masks) != chunk:
            return self._withhold(WITHHELD)
        keep = self._overlap(self._inside)
        self._inside = self._inside[len(self._inside) - keep :]
        self._held, given = (self._held + chunk, b"") if keep else (b"", self._held + chunk)
        return given

    def _withhold(self, instead: bytes) -> bytes:
        self._withheld, self._held, self._inside = True, b"", b""
        return instead

    def _overlap(self, data: bytes) -> int:
        return max((_overlap(data, form) for known in self._masks for form in known.forms), default=0)


def _overlap(data: bytes, form: bytes) -> int:
    """Return how many bytes at the end of *data* are the beginning of *form*, short of all of it."""
    if data[-1:] not in form:  # nearly every chunk: events end with a line feed, keys have none
        return 0
    return next((n for n in range(min(len(form) - 1, len(data)), 0, -1) if data.endswith(form[:n])), 0)
