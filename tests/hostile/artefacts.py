"""What of a recorded view is not the physics of its fault: all of the time before it, and afterwards only how it is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import StratifiedKFold, permutation_test_score

from opsassay.telemetry.content import ENV, INCIDENT, write_table
from opsassay.telemetry.schema import MODALITIES, PERIODS

from .view import Scalars, flat

PRECISIONS, FOLDS = (10**3, 10**6, 10**9), 5


def artefacts(folder: Path, normal_s: float, scratch: Path) -> Scalars:
    """Return what an incident's *folder* says without the physics; *normal_s* is how long nothing was broken.

    Of that time every count, name and mean; of both windows the columns and their types, which of them are empty, the order
    of rows, the precision of times, the form of ids, and by how many bytes a file is longer than its rows take in *scratch*.
    """
    incident, env = (json.loads((folder / name).read_text()) for name in (INCIDENT, ENV))
    began_ns = incident["normal"]["start_ns"] + int(normal_s * 1e9)
    said = dict(flat("env", env))
    said |= {
        f"incident.{name}": str(incident[name])
        for name in ("system", "provenance", "schema_version")
        if name in incident
    }
    said |= {"folder": folder.name, "start": incident["normal"]["start_ns"], "keys": ", ".join(sorted(incident))}
    said["length"] = incident["abnormal"]["end_ns"] - incident["normal"]["start_ns"]
    for modality in MODALITIES:
        frames = {period: pl.read_parquet(folder / f"{period}_{modality}.parquet") for period in PERIODS}
        for period, frame in frames.items():
            written = write_again(frame, scratch / "again.parquet")
            said[f"{period} {modality} longer"] = (folder / f"{period}_{modality}.parquet").stat().st_size - written
            said |= {f"{period} {modality} {name}": value for name, value in _form(frame).items()}
        took = (
            pl.col("duration").cast(pl.Int64) if modality == "traces" else 0
        )  # what ends later may have met the fault
        before = frames["normal"].filter(pl.col("time").cast(pl.Int64) + took < began_ns)
        said |= {f"before {modality} {name}": value for name, value in _contents(before).items()}
    return said


def write_again(frame: pl.DataFrame, path: Path) -> int:
    """Return the size of a file at *path* that holds the rows of *frame* and nothing else."""
    write_table(path, frame)
    return path.stat().st_size


def _form(frame: pl.DataFrame) -> Scalars:
    """Return how *frame* is written, whatever its rows say."""
    times = frame["time"].cast(pl.Int64)
    found: Scalars = {"columns": len(frame.columns), "sorted": bool(times.is_sorted())}
    found |= {f"type of {name}": str(kind) for name, kind in frame.schema.items()}
    found |= {f"{name} is empty": bool(frame[name].null_count() == frame.height) for name in frame.columns}
    for unit in PRECISIONS if frame.height else ():
        found[f"times of whole {unit} ns"] = round(float((times % unit == 0).mean()), 2)
    for name in ("trace_id", "span_id"):
        if name in frame.columns:
            texts = frame[name].drop_nulls()
            found[f"length of {name}"] = str(texts.filter(texts != "").str.len_chars().unique().sort().to_list())
    return found


def _contents(frame: pl.DataFrame) -> Scalars:
    """Return counts, names and means of *frame*, in which nothing is broken yet."""
    found: Scalars = {"rows": frame.height}
    for name, kind in frame.schema.items():
        values = frame[name]
        found |= {f"{name} nulls": values.null_count(), f"{name} different": values.n_unique()}
        if kind == pl.String:
            found[f"{name} first"] = values.drop_nulls().first()
        elif kind.is_numeric():
            found[f"{name} mean"] = values.cast(pl.Float64).mean()
    return found


def classified(labels: Sequence[str], views: Sequence[Scalars]) -> float:
    """Return how likely a classifier names *labels* so often by chance (cross-validated, 99 permutations).

    A label that is there once is left out.
    """
    chosen = [place for place, label in enumerate(labels) if labels.count(label) > 1]
    labels, views = [labels[place] for place in chosen], [views[place] for place in chosen]
    columns = [[view.get(name) for view in views] for name in sorted({name for view in views for name in view})]
    given = np.array([_numbers(column) for column in columns if len({str(v) for v in column}) > 1]).T
    folds = StratifiedKFold(min(FOLDS, *(labels.count(one) for one in labels)), shuffle=True, random_state=0)
    trees = ExtraTreesClassifier(20, random_state=0)
    return float(permutation_test_score(trees, given, labels, cv=folds, n_permutations=99, random_state=0)[2])


def _numbers(column: Sequence[Any]) -> list[float]:
    if all(v is None or isinstance(v, int | float) for v in column):
        return [-1.0 if v is None else float(v) for v in column]
    texts = [str(v) for v in column]
    return [float(sorted(set(texts)).index(text)) for text in texts]
