"""Reads a score table, a long CSV or parquet file, and checks every row."""

from __future__ import annotations

import codecs
from pathlib import Path

import polars as pl

from opsassay.analysis.audit.settings import Columns
from opsassay.core.errors import UserError, nearest

KEYS = ("family", "system", "case", "method")
_OPTIONAL = ("protocol", "predicted", "expected")
_CHUNK = 1 << 20


def read_table(path: Path) -> pl.DataFrame:
    """Return the table in the CSV (all columns as text) or parquet file *path*; raises UserError."""
    if not path.is_file():
        raise UserError(f"There is no score table {path}; give a CSV or parquet file, or a store of graded runs.")
    try:
        if path.suffix.lower() in {".parquet", ".pq"}:
            table = pl.read_parquet(path)
        else:
            _check_utf8(path)
            table = pl.read_csv(path, infer_schema=False)
    except pl.exceptions.NoDataError as error:
        raise UserError(f"{path} is empty; a score table has a header and at least two methods.") from error
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise UserError(f"{path} is not a readable table ({reason}); save it as CSV or parquet.") from error
    if table.is_empty():
        raise UserError(f"{path} has a header and no rows; a score table needs at least two methods.")
    return table


def long_scores(table: pl.DataFrame, columns: Columns, name: str) -> pl.DataFrame:
    """Return *table* with the columns that the audit reads, every row checked.

    Columns: family, system, case, method (text), score (f64 or null) and, where there are any, protocol, predicted,
    expected (text) and every other column as it is. *name* stands for the table in errors. A null score is a missing
    cell. Scores of several seeds are averaged, their answer is the most frequent one, and conditions become part of the
    method. Raises UserError for a column that is lacking, an empty name, a score that is no number or lies outside
    [0, 1], and for a cell that occurs twice.
    """
    given = columns.model_dump()
    needed = {key: given[key] for key in (*KEYS, "score") if given[key] is not None}
    conditions = {f"conditions[{place}]": column for place, column in enumerate(columns.conditions)}
    for key, column in (needed | conditions).items():
        if column not in table.columns:
            near = nearest(column, table.columns)
            found = f"did you mean -c columns.{key}={near}?" if near else f"it has {', '.join(table.columns[:12])}."
            raise UserError(f"{name} lacks the column {column!r} ({key}); {found}")
    optional = {key: given[key] for key in (*_OPTIONAL, "seed") if given[key] in table.columns}
    family = pl.lit("all", dtype=pl.String).alias("family") if columns.family is None else None
    texts = [pl.col(c).cast(pl.String).alias(k) for k, c in (needed | optional).items() if k != "score"]
    used = {*needed.values(), *optional.values(), *conditions.values()}
    if conditions:
        arm = pl.concat_str([pl.col(c).cast(pl.String).fill_null("") for c in conditions.values()], separator=", ")
        table = table.with_columns(pl.concat_str([pl.col(columns.method), pl.lit(" ["), arm, pl.lit("]")]))
    others = [pl.col(c) for c in table.columns if c not in used and c not in {*KEYS, "score"}]
    score = _parse_scores(table, columns.score, name).alias("score")
    long = table.select(*([family] if family is not None else []), *texts, *others).with_columns(score)
    _check_names(long, name)
    _check_scores(long, name)
    _check_duplicates(long, name)
    return _average_seeds(long) if "seed" in long.columns else long


def _average_seeds(long: pl.DataFrame) -> pl.DataFrame:
    """Return *long* with seeds averaged: mean score, most frequent answer, first of other columns."""
    cell = [*KEYS, "protocol"] if "protocol" in long.columns else list(KEYS)
    others = [c for c in long.columns if c not in {*cell, "seed", "score", "predicted"}]
    kept = [pl.col(others).first(), pl.col("score").mean()]
    if "predicted" in long.columns:
        kept.append(pl.col("predicted").mode().sort().first())
    return long.group_by(cell, maintain_order=True).agg(kept).select(c for c in long.columns if c != "seed")


def _check_utf8(path: Path) -> None:
    """Raise UserError with the position of the first byte of the file *path* that is not UTF-8."""
    decoder, read = codecs.getincrementaldecoder("utf-8")(), 0
    with path.open("rb") as stream:
        while True:
            chunk = stream.read(_CHUNK)
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path} is not UTF-8 text (near byte {read + error.start}); save it as UTF-8."
                ) from error
            if not chunk:
                return
            read += len(chunk)


def _parse_scores(table: pl.DataFrame, column: str, name: str) -> pl.Series:
    """Return *column* as numbers, empty cells as null; UserError, naming *name* and row, for any other text."""
    raw = table.get_column(column)
    if raw.dtype.is_numeric() or raw.dtype in {pl.Boolean, pl.Null}:
        return raw.cast(pl.Float64)
    text = raw.cast(pl.String).str.strip_chars()
    text = text.set(text == "", None)
    numbers = text.cast(pl.Float64, strict=False)
    wrong = (numbers.is_null() & text.is_not_null()).arg_true()
    if len(wrong):
        row = int(wrong[0])
        raise UserError(
            f"{name}, row {row + 1}: the score {text[row]!r} is not a number; write a fraction between 0 and 1, "
            "or leave the cell empty where there is none."
        )
    return numbers


def _check_names(long: pl.DataFrame, name: str) -> None:
    """Raise UserError, naming the table *name* and the row, if a key column is empty."""
    for key in KEYS:
        column = long.get_column(key)
        empty = (column.is_null() | (column.str.strip_chars() == "")).arg_true()
        if len(empty):
            raise UserError(f"{name}, row {int(empty[0]) + 1}: the {key} is empty; name it in every row.")


def _check_scores(long: pl.DataFrame, name: str) -> None:
    """Raise UserError, naming the table *name* and the row, for a score outside 0 to 1."""
    score = long.get_column("score")
    outside = (~(score.is_finite() & (score >= 0) & (score <= 1)) & score.is_not_null()).arg_true()
    if len(outside):
        row = int(outside[0])
        more = f" ({len(outside)} rows in all)" if len(outside) > 1 else ""
        if score[row] != score[row]:
            raise UserError(f"{name}, row {row + 1}: the score is NaN{more}; leave the cell empty where there is none.")
        raise UserError(
            f"{name}, row {row + 1}: the score {score[row]:g} lies outside [0, 1]{more}; divide percentages by 100."
        )


def _check_duplicates(long: pl.DataFrame, name: str) -> None:
    """Raise UserError, naming the table *name* and the row, for a cell that occurs more than once."""
    cell = [*KEYS, *(key for key in ("protocol", "seed") if key in long.columns)]
    twice = long.select(cell).is_duplicated().arg_true()
    if len(twice):
        row = int(twice[0])
        said = ", ".join(f"{key} {long.get_column(key)[row]!r}" for key in cell)
        raise UserError(
            f"{name}, row {row + 1}: this cell occurs more than once ({said}; {len(twice)} such rows in all); "
            "keep one score per case and method, or name what tells them apart: columns.seed, columns.conditions."
        )
