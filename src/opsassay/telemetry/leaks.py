"""Checks whether the folder that a solver gets reveals the fault by name or content, after recording and importing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from opsassay.core.schema.incident import Fault, Truth
from opsassay.telemetry.content import ENV, INCIDENT, TABLES
from opsassay.telemetry.injection import iso_time

_TELLING = r"(?i)(?:^|[^a-z])(?:faults?|chaos|inject(?:s|ed|ion|ions)?|injection\w*)(?:$|[^a-z])"
_NO_FRACTION = r"(?:\.0+)?(?:$|[^0-9.]|\.(?:$|[^0-9]))"  # an application's log may well have lines in that second
_EXPECTED_FILES = frozenset({*TABLES, ENV, INCIDENT})


def leaks(incident_dir: Path, truth: Truth) -> list[str]:
    """Return a sentence for each place in *incident_dir* that reveals *truth* to a solver; [] when there is none.

    Searched are the names of files and folders, every string column and column name of every table and every key and
    value of the JSON files, for the fault's type and kind, the words fault, chaos and injection (as whole words), and
    the exact instants of the injection in any unit of epoch time and in ISO form.
    """
    pattern = _pattern(truth)
    found = []
    for path in sorted(Path(incident_dir).rglob("*")):
        name = str(path.relative_to(incident_dir))
        if path.name not in _EXPECTED_FILES:
            found.append(
                f"{name}: nothing but {', '.join(sorted(_EXPECTED_FILES - set(TABLES)))} and tables belongs here"
            )
        if path.suffix == ".parquet":
            found += [f"{name}: column {column}: {text}" for column, text in _search_table(path, pattern)]
        elif path.is_file():
            texts = (
                _search_json(json.loads(path.read_bytes()))
                if path.suffix == ".json"
                else [path.read_text("utf-8", "replace")]
            )
            found += [f"{name}: {text[:120]}" for text in texts if re.search(pattern, text)]
    folder = Path(incident_dir).name
    return [*([f"the folder is called {folder}"] if re.search(pattern, folder) else []), *found]


def leak_notes(incident_dir: Path, truth: Truth) -> tuple[str, ...]:
    """Return a sentence, as a tuple, on where a solver's files in *incident_dir* reveal *truth*; () if none does."""
    found = leaks(incident_dir, truth)
    if not found:
        return ()
    places = "1 place" if len(found) == 1 else f"{len(found)} places"
    return (f"what a solver sees gives the truth away in {places}, first in {found[0]}",)


def _pattern(truth: Truth) -> str:
    """Return one regular expression, valid in Python and polars, for the words and times that reveal *truth*."""
    words = {word for fault in truth.faults for word in (fault.type, fault.kind and fault.kind.value) if word}
    timed = () if truth.stated else truth.faults  # a stated fault has the times of the window, which everybody knows
    instants = {text for fault in timed for text in _list_instants(fault)}
    exact = [rf"(?i:{re.escape(word)})" for word in sorted(words)]
    exact += [rf"(?:^|[^0-9]){re.escape(instant)}{_NO_FRACTION}" for instant in sorted(instants)]
    return "|".join([_TELLING.replace("(?i)", "(?i:", 1) + ")", *exact])


def _list_instants(fault: Fault) -> Iterator[str]:
    """Yield start and end of *fault* as texts, in each form they may be written in: s, ms, us, ns and ISO 8601."""
    for time_ns in (fault.start_ns, fault.end_ns):
        yield from (str(time_ns // unit) for unit in (1, 10**3, 10**6, 10**9) if time_ns % unit == 0)
        iso = iso_time(time_ns).removesuffix("+00:00")
        yield from (iso, iso.replace("T", " "))


def _search_table(path: Path, pattern: str) -> Iterator[tuple[str, str]]:
    """Yield (column, text) for each column name and cell in the parquet file *path* that *pattern* matches."""
    frame = pl.scan_parquet(path, glob=False)
    for column, dtype in frame.collect_schema().items():
        if re.search(pattern, column):
            yield column, "its name"
        if dtype == pl.String:
            values = frame.select(pl.col(column).drop_nulls().unique()).filter(pl.col(column).str.contains(pattern))
            yield from ((column, text[:120]) for text in values.collect().get_column(column).sort())


def _search_json(value: Any) -> Iterator[str]:
    """Yield every key and value within the JSON *value*, at any depth, as text."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _search_json(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _search_json(inner)
    elif value is not None:
        yield str(value)
