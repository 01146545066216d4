"""Building blocks of the decoders: python lists for one batch, turned into typed polars columns at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import polars as pl

from opsassay.telemetry.schema import SCHEMA, TIME

SERVICE = "service.name"


def attribute_keys(modality: str) -> dict[str, str]:
    """Return OTLP attribute key to table column, for service_name and the ``attr.*`` columns of *modality*."""
    return {SERVICE: "service_name"} | {
        column.removeprefix("attr."): column for column in SCHEMA[modality] if column.startswith("attr.")
    }


def text(value: Any) -> str | None:
    """Return an OTLP AnyValue as text: strings unchanged, all else as JSON (bytes in hexadecimal), unset as None."""
    form = value.WhichOneof("value")
    if form == "string_value":
        return str(value.string_value)
    return None if form is None else json.dumps(_as_python_value(value), ensure_ascii=False)


def _as_python_value(value: Any) -> Any:
    """Return an OTLP AnyValue as a Python value; bytes as hexadecimal text, None when it is unset."""
    form = value.WhichOneof("value")
    if form == "array_value":
        return [_as_python_value(element) for element in value.array_value.values]
    if form == "kvlist_value":
        return {pair.key: _as_python_value(pair.value) for pair in value.kvlist_value.values}
    if form == "bytes_value":
        return value.bytes_value.hex()
    return getattr(value, form) if form else None


def integer(value: Any) -> int | None:
    """Return an OTLP AnyValue as an integer; of a list its first element (HTTP headers are lists), None for others."""
    form = value.WhichOneof("value")
    if form == "int_value":
        return int(value.int_value)
    if form == "array_value" and value.array_value.values:
        return integer(value.array_value.values[0])
    if form == "string_value" and value.string_value.isascii() and value.string_value.isdigit():
        return int(value.string_value[:18])
    return None


class Attributes:
    """Sparse columns of one batch, one per selected attribute *key*; keys that are not selected are never decoded."""

    def __init__(self, readers: dict[str, Callable[[Any], Any]]) -> None:
        self._columns: dict[str, list[Any]] = {key: [] for key in readers}
        self._selected = {key: (self._columns[key], reader) for key, reader in readers.items()}

    def extend(self, messages: Sequence[Any]) -> None:
        """Add a row for each of *messages* (spans, log records, ...) with the selected ones of its attributes."""
        for column in self._columns.values():
            base = len(column)
            column.extend([None] * len(messages))
        selected = self._selected
        for row, item in enumerate(messages, base):
            for pair in item.attributes:
                if found := selected.get(pair.key):
                    found[0][row] = found[1](pair.value)

    def series(self, key: str, dtype: pl.DataType) -> pl.Series:
        """Return the values of the attribute *key*, one a row, as *dtype*; missing ones and other types are null."""
        return pl.Series(self._columns[key], dtype=dtype, strict=False)


class Resources:
    """Every distinct resource of a recording as one row; items refer to it by number."""

    def __init__(self, modality: str) -> None:
        self._keys = attribute_keys(modality)
        self._numbers: dict[bytes, int] = {}
        self._rows: list[dict[str, str | None]] = []

    def number(self, resource: Any) -> int:
        """Return the row number of the OTLP *resource*; a new one is added."""
        identity = resource.SerializeToString()
        if (number := self._numbers.get(identity)) is None:
            number = self._numbers[identity] = len(self._rows)
            self._rows.append(
                {column: text(pair.value) for pair in resource.attributes if (column := self._keys.get(pair.key))}
            )
        return number

    def columns(self, rows: list[int]) -> pl.DataFrame:
        """Return the attribute columns of the resources with the numbers *rows*, one row for each."""
        table = pl.DataFrame(self._rows, schema=dict.fromkeys(self._keys.values(), pl.String()))
        return table[pl.Series(rows, dtype=pl.UInt32)]

    def source_columns(self, rows: list[int]) -> dict[str, pl.Series]:
        """Return service, pod, namespace and Kubernetes service (default: the service) of the resources *rows*."""
        found = self.columns(rows)
        service, in_kubernetes = found["service_name"], found["attr.k8s.service.name"]
        return {
            "service_name": service.fill_null(""),
            "attr.k8s.pod.name": found["attr.k8s.pod.name"],
            "attr.k8s.namespace.name": found["attr.k8s.namespace.name"],
            "attr.k8s.service.name": in_kubernetes.zip_with(in_kubernetes.is_not_null(), service),
        }


def times(nanoseconds: Iterable[int]) -> pl.Series:
    """Return *nanoseconds* since 1970 (UTC) as times; 0 (unset) and times after the year 2262 are null."""
    series = pl.Series(list(nanoseconds), dtype=pl.UInt64()).cast(pl.Int64(), strict=False)
    return series.set(series == 0, None).cast(TIME)


def hexadecimal(identifiers: list[bytes]) -> pl.Series:
    """Return binary ids as lower-case hexadecimal text; '' for empty ones and for zeros alone (W3C trace context)."""
    digits = pl.Series(identifiers, dtype=pl.Binary()).bin.encode("hex")
    return digits.set(digits.str.strip_chars("0") == "", "")
