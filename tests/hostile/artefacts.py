"""What of a recorded view is not the physics of its fault: all of the time before it, and afterwards only how it is written."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from opsassay.telemetry.content import ENV, INCIDENT, write_table
from opsassay.telemetry.schema import MODALITIES, PERIODS

from .view import Scalars, flat

PRECISIONS = (10**3, 10**6, 10**9)


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
        before = frames["normal"].filter(pl.col("time").cast(pl.Int64) < began_ns)
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
