"""A datapack: one incident on disk as a solver may see it, checked when opened and read lazily."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from pydantic import ValidationError

from opsassay.core.errors import DatapackError, UserError
from opsassay.core.schema.incident import Incident, Window
from opsassay.core.schema.validation_errors import described, problem
from opsassay.core.text import first_line
from opsassay.core.untrusted import MAX_FILE_BYTES, most_expanded, read_json, read_plain, require_plain
from opsassay.telemetry.content import ENV, INCIDENT, TABLES, content_hash, opaque_id, write_datapack
from opsassay.telemetry.schema import MODALITIES, PERIODS, conform, empty

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["LOAD_GENERATORS", "Datapack", "content_hash", "opaque_id", "read_object", "write_datapack"]

LOAD_GENERATORS = frozenset({"loadgenerator", "load-generator", "locust", "wrk2", "dsb-wrk2", "k6"})
"""Services that only send load and are not part of the system; env.json adds to them under "load_generators"."""


@dataclass(frozen=True, eq=False)
class Datapack:
    """One recorded incident: its tables and its description."""

    path: Path
    incident: Incident
    env: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> Datapack:
        """Open and check the datapack in the folder *path*.

        A folder without incident.json (the public form) gets an Incident made from the time range of its tables. Raises
        DatapackError when a traces table is missing, a table is unreadable or lacks a required column, a period holds
        no rows at all, or incident.json is invalid.
        """
        path = Path(path)
        if not path.is_dir():
            raise DatapackError(f"{path} is not a folder; a datapack is a folder with {TABLES[0]} and others.")
        for period in PERIODS:
            if not (path / f"{period}_traces.parquet").is_file():
                raise DatapackError(f"{path} has no {period}_traces.parquet, so it is not a datapack; record it again.")
        try:
            require_plain(path / name for name in (*TABLES, ENV, INCIDENT))
        except UserError as error:
            raise DatapackError(str(error)) from error
        require_expandable(*(path / name for name in TABLES))
        env = read_object(path / ENV) if (path / ENV).exists() else {}
        incident = _read_incident(path) if (path / INCIDENT).exists() else None
        with ThreadPoolExecutor(1) as beside:  # hashing needs no look at the tables, nor they at it
            digest = beside.submit(content_hash, path) if incident is None else None
            ranges = _read_ranges(path)
        if incident is None:
            assert digest is not None
            incident = _make_incident(digest.result(), env, ranges)
        return cls(path, incident, env)

    def scan(self, period: str, modality: str) -> pl.LazyFrame:
        """Return the table of *modality* (traces, logs, ...) in *period* (normal, abnormal) as a lazy frame.

        Columns are those of SCHEMA[*modality*], then extra ones. A missing file has no rows. Raises DatapackError for a
        file that cannot be read or lacks a required column.
        """
        return _scan_table(self.path, period, modality)

    def read(self, period: str, modality: str) -> pl.DataFrame:
        """Return the table of *modality* in *period* in memory, as `scan` does lazily; raises DatapackError if damaged."""
        return _collect_frame(self.scan(period, modality), _name_of_table(self.path, period, modality))

    def both(self, modality: str) -> pl.LazyFrame:
        """Return the rows of *modality* of both periods, with an extra column `period` (normal, abnormal)."""
        parts = [self.scan(period, modality).with_columns(period=pl.lit(period)) for period in PERIODS]
        return pl.concat(parts, how="diagonal")

    def collect(self, frame: pl.LazyFrame, modality: str) -> pl.DataFrame:
        """Run the lazy query *frame* over the table *modality*; return its rows.

        Raises DatapackError for a damaged file.
        """
        return _collect_frame(frame, f"{self.path}: a table of {modality}")

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Sentences on missing or repeated spans and a wrong content hash; on first use it reads all ids."""
        found = [about for period in PERIODS for about in _remark_on_traces(self.path, period)]
        stored = self.incident.content_hash
        if stored and stored != content_hash(self.path):
            found.append(f"{self.path} was changed after it was written: its content hash differs.")
        return tuple(found)

    def services(self) -> list[str]:
        """Return the names of services with spans (if none has any, with logs or metrics), sorted, no load generators."""
        return list(self._service_names)

    def candidates(self) -> list[str]:
        """Return all possible root causes: names in service_name of any table, sorted, without load generators."""
        return list(self._candidate_names)

    def load_generators(self) -> frozenset[str]:
        """Return the names of services that only send load: known ones, and those that env.json lists."""
        return LOAD_GENERATORS | frozenset(self.env.get("load_generators", ()))

    @cached_property
    def _service_names(self) -> tuple[str, ...]:
        """Services of the spans, or of metrics and logs when there are no spans; without load generators."""
        names = self._names_in("traces") or self._names_in("metrics") | self._names_in("logs")
        return tuple(sorted(names - self.load_generators() - {""}))

    @cached_property
    def _candidate_names(self) -> tuple[str, ...]:
        """All values of service_name in any table, sorted, without load generators."""
        names = {name for modality in MODALITIES for name in self._names_in(modality)}
        return tuple(sorted(names - self.load_generators() - {""}))

    def _names_in(self, modality: str) -> set[str]:
        """Return the values of service_name in the table of *modality*, both periods together."""
        names = self.both(modality).select(pl.col("service_name").unique()).collect().get_column("service_name")
        return set(names.drop_nulls())


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in the file *path*; raises DatapackError when the file is missing or holds anything else."""
    try:
        value = read_json(read_plain(path, MAX_FILE_BYTES))
    except (OSError, ValueError, UserError) as error:
        raise DatapackError(
            f"{path} cannot be read as JSON ({first_line(error)}); restore it from the source."
        ) from error
    if not isinstance(value, dict):
        raise DatapackError(f"{path} holds {described(value)} instead of a JSON object; restore it.")
    return value


def require_expandable(*paths: Path) -> None:
    """Raise DatapackError when a parquet file of *paths* would decompress to more than its size allows.

    The size counts 16 bytes per cell, or the decompressed pages if larger. Missing files and other formats are ignored.
    """
    with suppress(OSError):
        there = [path for path in paths if path.is_file()]
        expanded = _expanded_bytes(tuple((str(path), path.stat().st_mtime_ns) for path in there))
        for path in there:
            most = most_expanded(path.stat().st_size, 512 * 2**20, 64)
            size, rows, columns = expanded.get(str(path), (0, 0, 0))
            if size > most:
                raise DatapackError(
                    f"{path} expands to more than {most >> 20} MiB ({rows} rows, {columns} columns), the most for its "
                    "size; write it again without what is repeated."
                )


_EXPANDED = """
    SELECT file_name, max(pages), max(rows), max(columns)
    FROM (
        SELECT file_name, num_rows AS rows, 0 AS columns, 0 AS pages FROM parquet_file_metadata($files)
        UNION ALL
        SELECT file_name, sum(row_group_num_rows) FILTER (column_id = 0), count(DISTINCT column_id),
               sum(total_uncompressed_size)
        FROM parquet_metadata($files) GROUP BY file_name
    )
    GROUP BY file_name
"""


@lru_cache(maxsize=1024)
def _expanded_bytes(files: tuple[tuple[str, int], ...]) -> dict[str, tuple[int, int, int]]:
    """Return file to the (bytes, rows, columns) it decompresses to, by parquet footers; *files*: (path, time of change)."""
    import duckdb

    found: dict[str, tuple[int, int, int]] = {}
    cursor = _metadata_connection(os.getpid()).cursor()
    paths = [path for path, _ in files]
    for some in (paths, *([path] for path in paths)):
        with suppress(duckdb.Error):
            for name, pages, rows, columns in cursor.execute(_EXPANDED, {"files": some}).fetchall() if some else ():
                found[name] = max(int(rows) * int(columns) * 16, int(pages or 0)), int(rows), int(columns)
            break  # else one of them is no parquet: one by one
    return found


@cache
def _metadata_connection(_process: int) -> DuckDBPyConnection:
    """Return a DuckDB connection for parquet footers, cached for each process, since opening takes longer than reading."""
    import duckdb

    return duckdb.connect(":memory:")


def _scan_table(path: Path, period: str, modality: str) -> pl.LazyFrame:
    """Return the table of *modality* and *period* in the folder *path* as a lazy frame, empty without a file.

    Raises ValueError for an unknown table and DatapackError for a damaged one.
    """
    if period not in PERIODS or modality not in MODALITIES:
        raise ValueError(f"no table {period}_{modality}: periods are {PERIODS}, modalities {MODALITIES}")
    file = path / f"{period}_{modality}.parquet"
    if not file.exists():
        return empty(modality).lazy()
    where = _name_of_table(path, period, modality)
    try:
        frame = pl.scan_parquet(file, glob=False)
        frame.collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _damaged_error(where, error) from error
    return conform(frame, modality, where)


def _name_of_table(path: Path, period: str, modality: str) -> str:
    """Return "PATH: PERIOD_MODALITY.parquet", the name of a table in messages."""
    return f"{path}: {period}_{modality}.parquet"


def _collect_frame(frame: pl.LazyFrame, where: str) -> pl.DataFrame:
    """Run the query *frame* and return its rows; raises DatapackError that begins with *where*, the table's name."""
    try:
        return frame.collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise _damaged_error(where, error) from error


def _damaged_error(where: str, error: BaseException) -> DatapackError:
    """Return the DatapackError for a table (named *where*) that cannot be read because of *error*."""
    return DatapackError(f"{where} cannot be read ({first_line(error)}); copy or record the incident again.")


Ranges = dict[str, dict[str, Window]]
"""Windows by period and modality."""


def _read_ranges(path: Path) -> Ranges:
    """Return by period and modality the time window of each table with rows; raises DatapackError for a damaged one."""
    names = [(period, modality) for period in PERIODS for modality in MODALITIES]
    time = pl.col("time").dt.epoch("ns")
    frames = [_scan_table(path, *name).select(start=time.min(), end=time.max()) for name in names]
    try:
        collected = pl.collect_all(frames)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):  # one by one: which of them is damaged?
        collected = [
            _collect_frame(frame, _name_of_table(path, *name)) for frame, name in zip(frames, names, strict=True)
        ]
    ranges: Ranges = {period: {} for period in PERIODS}
    for (period, modality), window in zip(names, collected, strict=True):
        start, end = window.row(0)
        if start is not None:
            ranges[period][modality] = Window(start_ns=start, end_ns=end + 1)
    for period in PERIODS:
        if not ranges[period]:
            raise DatapackError(f"{path} has no rows at all in its {period} period; record it again with load running.")
    return ranges


def _remark_on_traces(path: Path, period: str) -> tuple[str, ...]:
    """Return sentences on *period*'s spans: that there are none, or that span ids are repeated; () if all is well."""
    where, frame = _name_of_table(path, period, "traces"), _scan_table(path, period, "traces")
    spans, rows = _collect_frame(frame.select(pl.struct("trace_id", "span_id").n_unique(), pl.len()), where).row(0)
    if not rows:
        return (f"{where} has no rows.",)
    return (f"{where} repeats the ids of {rows - spans} spans; they are kept.",) if rows > spans else ()


def _read_incident(path: Path) -> Incident:
    """Read incident.json in the folder *path*; raises DatapackError when it is damaged or a window is empty."""
    where = path / INCIDENT
    try:
        incident = Incident.model_validate(read_object(where))
    except ValidationError as error:
        raise DatapackError(f"{where}: {problem(error)}; restore the file or record the incident again.") from error
    for name, window in (("normal", incident.normal), ("abnormal", incident.abnormal)):
        if window.end_ns <= window.start_ns:
            raise DatapackError(f"{where}: the {name} window is empty; its end_ns must lie after its start_ns.")
    return incident


def _make_incident(digest: str, env: dict[str, Any], ranges: Ranges) -> Incident:
    """Return an Incident for a recording without incident.json: id from *digest*, system from *env*, windows."""
    windows = {period: found.get("traces") or _hull_of_windows(found) for period, found in ranges.items()}
    return Incident(
        id=opaque_id(digest),
        system=str(env.get("namespace") or "unknown"),
        normal=windows["normal"],
        abnormal=windows["abnormal"],
        content_hash=digest,
    )


def _hull_of_windows(windows: dict[str, Window]) -> Window:
    """Return the window from the earliest start to the latest end of *windows*."""
    return Window(start_ns=min(w.start_ns for w in windows.values()), end_ns=max(w.end_ns for w in windows.values()))
