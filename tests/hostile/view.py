"""What a view says as scalars, and whether any of them says what was broken: mutual information, held against permutations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl

from opsassay.telemetry.content import ENV, INCIDENT, TABLES

Scalars = dict[str, Any]
PERMUTATIONS, BINS = 499, 5


class Found(NamedTuple):
    """The scalar that says most, and how likely one of all does so by chance: p is corrected for their number."""

    scalar: str
    p: float


def scalars(folder: Path) -> Scalars:
    """Return every scalar of an incident's *folder*: of its name, its JSON files, the files of its tables and their columns."""
    incident = json.loads((folder / INCIDENT).read_text())
    said = dict(flat("incident", incident)) | dict(flat("env", json.loads((folder / ENV).read_text())))
    normal, abnormal, alerts = incident["normal"], incident["abnormal"], incident["alerts"]
    said |= {
        "folder": folder.name,
        "normal length": normal["end_ns"] - normal["start_ns"],
        "abnormal length": abnormal["end_ns"] - abnormal["start_ns"],
        "length": abnormal["end_ns"] - normal["start_ns"],
        "pre-roll": alerts[0]["time_ns"] - normal["end_ns"] if alerts else None,
        "last alert to end": abnormal["end_ns"] - alerts[-1]["time_ns"] if alerts else None,
    }
    for table in TABLES:
        said |= {f"{table} {name}": value for name, value in _of_table(folder / table).items()}
    return said


def flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every scalar of the JSON *value* with its path, and the length of every list."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(f"{name}.{key}", inner)
    elif isinstance(value, list):
        yield f"{name} length", len(value)
        for number, inner in enumerate(value):
            yield from flat(f"{name}.{number}", inner)
    else:
        yield name, value


def _of_table(path: Path) -> Scalars:
    frame = pl.read_parquet(path)
    with duckdb.connect() as connection:
        (file,) = connection.execute(
            "SELECT created_by, num_row_groups FROM parquet_file_metadata($1)", [str(path)]
        ).fetchall()
    found = {"size": path.stat().st_size, "rows": frame.height, "columns": ", ".join(frame.columns), "file": file}
    for column in frame.columns:
        values = frame[column].cast(pl.Int64) if column == "time" else frame[column]
        found |= {
            f"{column} nulls": values.null_count(), f"{column} different": values.n_unique(),
            f"{column} first": values.first(), f"{column} last": values.last(),
        }  # fmt: skip
    return found


def codes(values: Sequence[Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield *values* as classes in several ways: as they are, by rank, by remainder, by how they begin and end."""
    yield "", _classes([str(v) for v in values])
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if numbers and len(numbers) + sum(v is None for v in values) == len(values):
        edges = np.quantile(numbers, np.linspace(0, 1, BINS + 1)[1:-1])
        yield " by rank", _classes([-1 if v is None else int(np.searchsorted(edges, v)) for v in values])
        whole = [None if v is None else int(v) for v in values]
        for base in (2, 10, 1000):
            yield f" modulo {base}", _classes([-1 if v is None else v % base for v in whole])
        return
    texts = [str(v) for v in values]
    yield " begins", _classes([text[:1] for text in texts])
    yield " ends", _classes([text[-1:] for text in texts])
    yield " length", _classes([len(text) for text in texts])
    yield " digest", _classes([hashlib.sha256(text.encode()).digest()[0] % 2 for text in texts])


def _classes(values: Sequence[Any]) -> np.ndarray:
    return np.unique(np.array(values, dtype=str), return_inverse=True)[1]


def most_telling(labels: Sequence[str], views: Sequence[Mapping[str, Any]], seed: int = 0) -> Found:
    """Return the scalar of *views* that has most mutual information with *labels*, and its p.

    The information of a scalar is compared with that under `PERMUTATIONS` of the labels, in standard deviations of it; the
    largest of all scalars with the largest of each permutation, which corrects for their number (Westfall and Young).
    """
    label = _classes(list(labels))
    drawn = np.random.default_rng(seed)
    orders = np.vstack([label, *(drawn.permutation(label) for _ in range(PERMUTATIONS))])
    best, names = np.full(len(orders), -np.inf), sorted({name for view in views for name in view})
    scalar = ""
    for name in names:
        for how, classes in codes([view.get(name) for view in views]):
            said = _standardised(orders, classes)
            scalar = f"{name}{how}" if said[0] > best[0] else scalar
            best = np.maximum(best, said)
    return Found(scalar, float((best >= best[0]).mean()))


def _standardised(orders: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the mutual information of *classes* with each row of *orders*, less its mean, over its deviation.

    But for constants it is the sum of n log n over the counts of all pairs. Nothing is said by classes of one row each,
    nor by a single one.
    """
    kinds, each = int(orders.max()) + 1, int(classes.max()) + 1
    if each in (1, len(classes)):
        return np.full(len(orders), -np.inf)
    at = (np.arange(len(orders))[:, None] * kinds + orders) * each + classes
    counts = np.bincount(at.ravel(), minlength=len(orders) * kinds * each).reshape(len(orders), -1)
    said = np.where(counts > 1, counts * np.log(np.maximum(counts, 1)), 0.0).sum(axis=1)
    spread = said.std()
    return (said - said.mean()) / spread if spread > 0 else np.full(len(orders), -np.inf)
