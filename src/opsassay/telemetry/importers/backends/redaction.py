"""What never enters a datapack: values of labels and headers, texts that look like credentials, the tokens themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import polars as pl

from opsassay.core.errors import UserError
from opsassay.core.schema.backends import Redact
from opsassay.core.text import first_line
from opsassay.core.untrusted import one_sentence

REDACTED = "[redacted]"
_HEADER_ATTRIBUTE = re.compile(r"http[._](?:request|response)[._]header[._](.+)", re.IGNORECASE)


class Redaction:
    """The *rules* applied to labels and texts; *tokens* are replaced wherever they stand."""

    def __init__(self, rules: Redact, tokens: Iterable[str] = ()) -> None:
        self._names = {_comparable(name) for name in rules.labels}
        self._headers = {_comparable(name) for name in rules.headers}
        known = sorted({token for token in tokens if token}, key=len, reverse=True)
        self._texts = [*(re.escape(token) for token in known), *rules.texts]
        words = "|".join(re.escape(name) for name in rules.headers)
        for pattern in self._texts:
            try:
                pl.Series([""]).str.contains(pattern)
            except pl.exceptions.PolarsError as error:
                raise UserError(f"redact.texts: {pattern!r} is no regular expression of Rust.") from error
        self._header = rf"(?i)\b((?:{words})[\"']?\s*[:=]\s*[\"'\[]*)[^\"'\r\n]+" if words else ""

    def labels(self, raw_labels: Mapping[str, Any]) -> dict[str, str]:
        """Return *raw_labels* as texts, with the values of redacted labels and headers replaced."""
        return {str(name): self.label(str(name), value) for name, value in raw_labels.items()}

    def label(self, name: str, value: Any) -> str:
        """Return the *value* of the label *name* as text, replaced where it is to be redacted."""
        return REDACTED if self._hides_attribute(name) else str(value)

    def texts(self, column: pl.Series) -> pl.Series:
        """Return the texts of *column*, each distinct one redacted once."""
        distinct = column.unique()
        if distinct.len() * 2 > column.len():
            return self._replace_secrets(column).rename(column.name)
        plain = pl.DataFrame({"found": distinct, "plain": self._replace_secrets(distinct)})
        found = pl.DataFrame({"found": column})
        return found.join(plain, on="found", how="left", nulls_equal=True, maintain_order="left")["plain"].rename(
            column.name
        )

    def sentence(self, text: str | BaseException) -> str:
        """Return the first line of *text*, redacted and cut to the length of a message."""
        line = first_line(text) if isinstance(text, BaseException) else (text.strip().splitlines() or [""])[0]
        return one_sentence(str(self._replace_secrets(pl.Series([line], dtype=pl.String()))[0]))[:160]

    def whole(self, text: str) -> str:
        """Return all lines of *text*, redacted."""
        return "\n".join(self._replace_secrets(pl.Series(text.split("\n"), dtype=pl.String())).to_list())

    @cache  # noqa: B019 - as many as there are names, for as long as an import takes
    def _hides_attribute(self, name: str) -> bool:
        """Return whether the value of the attribute *name* is hidden, as of a header with a secret."""
        if _comparable(name) in self._names:
            return True
        header = _HEADER_ATTRIBUTE.fullmatch(name)
        return header is not None and (_comparable(header[1]) in self._headers | self._names)

    def _replace_secrets(self, column: pl.Series) -> pl.Series:
        """Return *column* with each secret text replaced by a mark."""
        if self._header:
            column = column.str.replace_all(self._header, f"${{1}}{REDACTED}")
        for pattern in self._texts:
            column = column.str.replace_all(pattern, REDACTED)
        return column


def _comparable(name: str) -> str:
    """Return *name* normalised for comparison: ``http.request.header.x-api-key`` equals its form with ``_``."""
    return re.sub(r"[^a-z0-9]", "_", name.lower())
