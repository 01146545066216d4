"""Pages of an import that goes on where it was cut off: each is on disk, redacted, before the next one is asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from opsassay.telemetry.content import whole_file, write_table


class Pages:
    """The pages of one import in *folder*: tables as parquet, and last a note in JSON that says that the page is whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @cached_property
    def _read_notes(self) -> dict[str, dict[str, Any]]:
        """Return what was noted of each page that is kept, by the name of its file."""
        return {path.stem: json.loads(path.read_bytes()) for path in sorted(self._folder.glob("*.json"))}

    def kept_note(self, *key: object) -> dict[str, Any] | None:
        """Return the note stored with the page *key*, None when the page is not complete."""
        return self._read_notes.get(_name_of_page(key))

    def keep(self, *key: object, tables: Mapping[str, pl.DataFrame] | None = None, **note: Any) -> dict[str, Any]:
        """Write the *tables* of the page *key*, then its *note*, and return the note."""
        name, rows = _name_of_page(key), {}
        for table, frame in (tables or {}).items():
            if frame.height:
                with whole_file(self._path_of_table(name, table)) as partial:
                    write_table(partial, frame)
                rows[table] = frame.height
        note = {**note, "rows": rows}
        with whole_file(self._folder / f"{name}.json") as partial:
            partial.write_text(json.dumps(note), encoding="utf-8")
        self._read_notes[name] = note
        return note

    def read(self, *key: object, table: str, columns: list[str]) -> pl.DataFrame | None:
        """Return *columns* of one *table* of the page *key*, None when the page has no such rows."""
        name = _name_of_page(key)
        if table not in self._read_notes.get(name, {}).get("rows", {}):
            return None
        return pl.read_parquet(self._path_of_table(name, table), columns=columns)

    def files(self, table: str) -> list[Path]:
        """Return the files of *table* in all complete pages."""
        return [
            self._path_of_table(name, table) for name, note in sorted(self._read_notes.items()) if table in note["rows"]
        ]

    def _path_of_table(self, name: str, table: str) -> Path:
        """Return the file of *table* of the page *name*."""
        return self._folder / f"{name}.{table}.parquet"


def _name_of_page(key: tuple[object, ...]) -> str:
    """Return the file name of the page with *key*: its first word and a hash of the whole."""
    digest = hashlib.sha256(json.dumps(key, default=str).encode()).hexdigest()[:24]
    return f"{key[0]}-{digest}"
