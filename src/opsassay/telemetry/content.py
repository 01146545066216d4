"""File names, content hash and atomic writing of datapacks; equal inputs give equal bytes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from opsassay.core.errors import DatapackError
from opsassay.core.schema.incident import Incident
from opsassay.telemetry.schema import MODALITIES, PERIODS, SCHEMA, conform, empty

TABLES = tuple(f"{period}_{modality}.parquet" for period in PERIODS for modality in MODALITIES)
ENV = "env.json"
INCIDENT = "incident.json"
_ROW_GROUP = 262_144  # fixed, so that the bytes do not depend on the number of cores
_HASHERS = 2


def opaque_id(seed_material: str) -> str:
    """Return an id of 16 hexadecimal digits, a hash of *seed_material* that does not reveal it."""
    return hashlib.sha256(b"assay incident\0" + seed_material.encode()).hexdigest()[:16]


def content_hash(path: Path) -> str:
    """Return the SHA-256 of the datapack at *path*: of its tables, env.json, and incident.json without the hash itself.

    Files that are not part of a datapack (injection.json of the public form) do not count. Raises DatapackError for an
    incident.json that cannot be read.
    """
    incident = path / INCIDENT
    try:
        described = Incident.model_validate_json(incident.read_bytes()) if incident.exists() else None
    except ValidationError as error:
        raise DatapackError(f"{incident} is not the description of an incident; restore it.") from error
    return _digest_datapack(path, described)


def write_datapack(
    path: Path, frames: Mapping[tuple[str, str], pl.DataFrame], incident: Incident, env: Mapping[str, Any]
) -> Incident:
    """Write a datapack to *path*, which must not exist, and return *incident* with its content hash.

    *frames* is keyed by (period, modality); both traces are required, other missing tables are written without rows.
    Rows are sorted by time and then by all other columns; *env* becomes env.json. The folder appears whole or not at
    all. Raises DatapackError.
    """
    for period in PERIODS:
        if (period, "traces") not in frames:
            raise DatapackError(f"{path} cannot be written without {period} traces.")
    with whole_folder(path) as partial:
        for period in PERIODS:
            for modality in MODALITIES:
                name = f"{period}_{modality}.parquet"
                table = frames.get((period, modality), empty(modality))
                write_table(partial / name, _sorted(conform(table, modality, f"{path}: {name}"), modality))
        text = json.dumps(dict(env), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        (partial / ENV).write_text(text, encoding="utf-8")
        finished = incident.model_copy(update={"content_hash": _digest_datapack(partial, incident)})
        (partial / INCIDENT).write_text(finished.pretty_json(), encoding="utf-8")
    return finished


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder next to *path* that is renamed to *path* when the block ends, or deleted when it fails.

    Raises DatapackError when *path* exists already. An OSError that names no file, as a full disk's, gets *path*.
    """
    if path.exists():
        raise DatapackError(f"{path} exists already; remove it or choose another folder.")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = _path_of_partial(path)
    partial.mkdir()
    try:
        yield partial
        for file in (*sorted(partial.iterdir()), partial):
            _sync_to_disk(file)
        partial.rename(path)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        _name_file(error, path)
        raise
    _sync_to_disk(path.parent)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a file name next to *path* that is renamed to *path* when the block ends, or deleted when it fails.

    Raises DatapackError for a device or another place that no file may replace. An OSError that names no file, as a
    full disk's, gets *path*.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DatapackError(f"{path} is no ordinary file; name another place.")
    partial = _path_of_partial(path)
    try:
        yield partial
        _sync_to_disk(partial)
        partial.replace(path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        _name_file(error, path)
        raise
    _sync_to_disk(path.parent)


def _name_file(error: BaseException, path: Path) -> None:
    """Set *path* as the file name of *error* if it is an OSError without one."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        error.filename = os.fspath(path)


def write_table(path: Path, table: pl.DataFrame) -> None:
    """Write *table* to *path* as parquet, compressed by zstd; raises OSError."""
    content = io.BytesIO()  # Polars reports a full disk as a malformed file, without the system's error number
    table.write_parquet(content, compression="zstd", row_group_size=_ROW_GROUP)
    path.write_bytes(content.getbuffer())


def _sorted(table: pl.DataFrame, modality: str) -> pl.DataFrame:
    """Return *table*, of *modality* (traces, ...), with rows in one fixed order: by time, then by all other columns."""
    keys = ["time", *(name for name in SCHEMA[modality] if name != "time")]
    keys += [n for n, dtype in table.schema.items() if n not in SCHEMA[modality] and not dtype.is_nested()]
    return table.sort(keys, nulls_last=False, maintain_order=True)


def _digest_datapack(path: Path, incident: Incident | None) -> str:
    """Return the SHA-256 of the datapack's tables, env.json and *incident* (without its content hash), in hexadecimal."""
    total = hashlib.sha256()
    files = [path / name for name in (*TABLES, ENV) if (path / name).exists()]
    with ThreadPoolExecutor(_HASHERS) as pool:  # hashing lets other threads run
        for file, digest in zip(files, pool.map(file_digest, files), strict=True):
            total.update(f"{file.name}\0{digest}\0".encode())
    if incident is not None:
        total.update(incident.model_copy(update={"content_hash": ""}).canonical_json().encode())
    return total.hexdigest()


def file_digest(file: Path) -> str:
    """Return the SHA-256 of the content of *file*, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _path_of_partial(path: Path) -> Path:
    """Return an unused temporary path in the folder of *path*, for a file or folder that is not complete yet."""
    return path.parent / f".{path.name}.{secrets.token_hex(4)}.partial"


def _sync_to_disk(path: Path) -> None:
    """Flush *path*, a file or a folder, to the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
