"""Removes keys from records: values of headers that contain keys are withheld, known keys are replaced in all texts."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import quote

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from opsassay.core.errors import DatapackError
from opsassay.solvers.proxy.codings import decoder

WITHHELD = b"[key]"
UNREADABLE = b"[withheld: nobody can look for keys in this coding]"
_TELLING_BYTES = 8
_SEED = 4
"""Length of the prefix, in bytes, by which forms of a secret are first searched."""
_PLACEHOLDERS = frozenset(files(__package__).joinpath("placeholders.txt").read_text(encoding="utf-8").split())
"""Words that make up dummy keys, which need no masking."""
_SECRET_HEADER = re.compile(
    r"(?:^|[-_])(?:api[-_]?key|access[-_]?key|subscription[-_]key|auth|authorization|token|secret|password|credential|"
    r"cookie2?|session|signature)$",
    re.IGNORECASE,
)
_SECRET_QUERY = re.compile(
    r"([?&](?:key|api[_-]?key|access_token|token|sig|signature|code|x-(?:amz|goog|oss)-(?:signature|credential|security-token)|"
    r"awsaccesskeyid|googleaccessid)=)[^&#]*",
    re.IGNORECASE,
)


class Secret(NamedTuple):
    """A secret text: its encoded *forms*, longest first, and automata that find them."""

    forms: tuple[bytes, ...]
    finder: BytesAhoCorasick
    """Finds every form in one pass over the data, the longest of those that begin at one place."""
    seeds: tuple[tuple[bytes, ...], ...]
    """The forms, grouped by their first `_SEED` bytes."""
    seeding: BytesAhoCorasick
    """Finds the common first bytes of each group in *seeds*."""
    starts: frozenset[bytes]
    """Beginnings of forms that are shorter than `_SEED` bytes."""


def is_placeholder(key: str) -> bool:
    """Return whether *key* is a dummy for servers without keys: a known word, or 3 characters at most.

    Examples: ``none``, ``EMPTY``, ``ollama``, ``sk-no-key-required``, ``sk-1234``, ``your_api_key_here``, ``xxxxxxxx``.
    """
    parts = [part for part in re.split(r"[^a-z0-9]+", key.casefold()) if part]
    return len(key) <= 3 or all(part in _PLACEHOLDERS or len(set(part)) == 1 or part in "1234567890" for part in parts)


@lru_cache(maxsize=256)
def secret(text: str) -> Secret:
    """Return the search data for the secret *text*: all its encoded forms, up to two encodings deep."""
    plain = text.encode("utf-8", "surrogateescape")
    once = [plain, *_encoded_forms(plain)]
    least = max(1, min(len(plain), _TELLING_BYTES))
    forms = {form for known in once for form in (known, *_encoded_forms(known)) if len(form) >= least}
    ordered = tuple(sorted(forms, key=lambda form: (-len(form), form)))
    seeds: dict[bytes, tuple[bytes, ...]] = {}
    for form in ordered:
        seeds[form[:_SEED]] = (*seeds.get(form[:_SEED], ()), form)
    starts = frozenset(form[:n] for form in ordered for n in range(1, min(_SEED, len(form))))
    finder = BytesAhoCorasick(ordered, MatchKind.LeftmostLongest)
    return Secret(ordered, finder, tuple(seeds.values()), BytesAhoCorasick(list(seeds)), starts)


def _encoded_forms(data: bytes) -> Iterator[bytes]:
    """Yield *data* in common encodings: percent, JSON, HTML, hexadecimal, base64 at each alignment."""
    odd = {byte for byte in data if not chr(byte).isalnum() or byte > 127}

    def each(pattern: str, of: Collection[int]) -> bytes:
        """Return the data with each byte in *of* written by the format *pattern*."""
        return b"".join(pattern.format(byte).encode() if byte in of else bytes([byte]) for byte in data)

    yield quote(data, safe="").encode()
    yield data.replace(b"/", b"\\/")
    for pattern in ("%{:02X}", "%{:02x}", "\\u{:04x}", "\\u{:04X}", "\\x{:02x}", "&#{};", "&#x{:x};", "&#x{:X};"):
        yield each(pattern, odd)
        yield each(pattern, data)
    yield html.escape(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    yield data.hex().encode()
    yield data.hex().upper().encode()
    for before in range(3):  # where a group of three bytes begins is not known: what holds bytes of others is left off
        first, last = -(-8 * before // 6), (before + len(data)) * 8 // 6
        for coded in (base64.b64encode(bytes(before) + data), base64.urlsafe_b64encode(bytes(before) + data)):
            yield coded[first:last]


def safe_headers(headers: Iterable[tuple[str, str]], masks: Sequence[Secret] = ()) -> list[list[str]]:
    """Return *headers* as [name, value], values of key headers withheld and secrets *masks* replaced in the others."""
    return [
        [name, WITHHELD.decode() if _SECRET_HEADER.search(name) else safe_text(value, masks)] for name, value in headers
    ]


def safe_path(path: str, masks: Sequence[Secret] = ()) -> str:
    """Return the URL *path* with keys in its query withheld and the secrets *masks* replaced."""
    return safe_text(_SECRET_QUERY.sub(rf"\g<1>{WITHHELD.decode()}", path), masks)


def safe_text(text: str, masks: Sequence[Secret]) -> str:
    """Return *text* with each occurrence of the secrets *masks* replaced."""
    return mask(text.encode("utf-8", "surrogateescape"), masks).decode("utf-8", "surrogateescape")


def mask(data: bytes, masks: Sequence[Secret]) -> bytes:
    """Return *data* with each occurrence of the secrets *masks* replaced."""
    for known in masks:
        kept, parts = 0, []
        for _, start, end in known.finder.find_matches_as_indexes(data):
            parts += [data[kept:start], WITHHELD]
            kept = end
        data = b"".join((*parts, data[kept:])) if parts else data
    return data


def mask_coded(data: bytes, masks: Sequence[Secret], encoding: str) -> bytes:
    """Return the body *data* of Content-Encoding *encoding* with secrets masked; a coded one is withheld if it has any."""
    stream = StreamMask(masks, encoding)
    return stream.feed(data) + stream.rest()


class StreamMask:
    """Masks a body that arrives in chunks, also where a key is split between two of them.

    The end of a chunk that may be the beginning of a key is returned with the next chunk. A coded body cannot be masked in
    place: it is withheld from the chunk on whose decoded bytes have a key, or which cannot be decoded.
    """

    def __init__(self, masks: Sequence[Secret], encoding: str = "") -> None:
        self._masks = masks
        self._held = b""
        self._coded = encoding.strip().lower() not in {"", "identity"}
        self._decoder = decoder(encoding) if self._coded else None
        self._inside = b""
        self._begun = self._withheld = False

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes of this and earlier chunks that may be recorded now, masked, without the start of a secret."""
        if not self._masks:
            return chunk
        if self._coded:
            return self._feed_coded(chunk)
        data = mask(self._held + chunk, self._masks)
        keep = self._longest_overlap(data)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def rest(self) -> bytes:
        """Return the bytes held back at the end of the body; a mark instead if they are most of a secret."""
        begun = self._longest_overlap(self._inside if self._coded else self._held)
        held, self._held = self._held, b""
        return held if begun < _TELLING_BYTES else WITHHELD

    def _feed_coded(self, chunk: bytes) -> bytes:
        """Return the compressed bytes that may be recorded now; nothing more once a secret is decoded."""
        if self._withheld:
            return b""
        if self._decoder is None:
            return self._withhold_rest(UNREADABLE)
        try:
            self._inside += self._decoder.feed(chunk)
        except DatapackError:
            if self._begun:
                return self._withhold_rest(UNREADABLE)
            self._coded = False  # the header says what is not so: plain after all
            return self.feed(chunk)
        self._begun = True
        if mask(self._inside, self._masks) != self._inside or mask(chunk, self._masks) != chunk:
            return self._withhold_rest(WITHHELD)
        keep = self._longest_overlap(self._inside)
        self._inside = self._inside[len(self._inside) - keep :]
        self._held, given = (self._held + chunk, b"") if keep else (b"", self._held + chunk)
        return given

    def _withhold_rest(self, instead: bytes) -> bytes:
        """Return the mark *instead*, and drop all later bytes of the stream."""
        self._withheld, self._held, self._inside = True, b"", b""
        return instead

    def _longest_overlap(self, data: bytes) -> int:
        """Return how many bytes at the end of *data* may be the beginning of a secret."""
        return max((_overlap(data, known) for known in self._masks), default=0)


def _overlap(data: bytes, secret_forms: Secret) -> int:
    """Return how many bytes at the end of *data* may be the beginning of one of *secret_forms*."""
    most = next((n for n in range(_SEED - 1, 0, -1) if len(data) >= n and data[-n:] in secret_forms.starts), 0)
    tail = data[max(0, len(data) - len(secret_forms.forms[0]) + 1) :]
    for which, at, _ in secret_forms.seeding.find_matches_as_indexes(tail, overlapping=True):
        begun = tail[at:]
        if len(begun) > most and any(
            len(form) > len(begun) and form.startswith(begun) for form in secret_forms.seeds[which]
        ):
            most = len(begun)
    return most
