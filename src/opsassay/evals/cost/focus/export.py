"""Reads a team's own export of cost data, by FOCUS 1.0 to 1.3: CSV or Parquet, one file or several.

Source of names and rules: the FOCUS specification (https://focus.finops.org). Amounts are rounded to 12 decimals, times
become UTC, tags one JSON object of texts; a provider's own columns are left out. Notes say what was lost.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from opsassay.core.errors import NotFoundError, UserError, nearest
from opsassay.core.text import first_line
from opsassay.evals.cost.focus.schema import COSTS, TABLES, own_schema
from opsassay.evals.cost.insight.reading import sql_literals
from opsassay.telemetry.content import file_digest

MOST_ROWS = 10_000_000
"""Most rows of an export; they are held in memory."""
AMOUNTS = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")
_FILLED = ("BilledCost", "BillingCurrency", "ChargePeriodStart")
NEEDED = (*AMOUNTS, *_FILLED[1:], "ChargeCategory", "ProviderName", "ServiceCategory", "SubAccountId")
"""Required columns; those in `_FILLED` must have a value in each row."""
_SINCE = {"ProviderName": "ServiceProviderName"}
"""Columns that FOCUS 1.3 renamed -> their new names."""
_ALLOWED = {
    "ChargeCategory": ("Usage", "Purchase", "Tax", "Credit", "Adjustment"),
    "ChargeClass": ("Correction",),
    "CommitmentDiscountStatus": ("Used", "Unused"),
}
"""Allowed values of columns by which rows are selected."""
_DELIMITERS = ",;\t|"
_TYPES = {"money": "DECIMAL(38, 12)", "quantity": "DECIMAL(38, 12)", "time": "TIMESTAMPTZ"}


@dataclass(frozen=True)
class CostExport:
    """The *rows* of an export in the columns of FOCUS 1.2, all in one *currency*.

    *tag* is the tag key that names a row's application, None if no row has a tag. *start* and *end* are the midnights
    (UTC) around all charges; *categories* are up to five, the most expensive; *empty* are amount columns that some rows
    lack, as in Oracle's exports. *notes* say what was left out.
    """

    rows: pl.DataFrame
    currency: str
    tag: str | None
    start: datetime
    end: datetime
    categories: tuple[str, ...]
    empty: tuple[str, ...]
    notes: tuple[str, ...]


def read_export(files: Sequence[Path], currency: str | None = None, tag: str | None = None) -> CostExport:
    """Return the charges in the FOCUS *files* in one *currency*; the tag key *tag* names the application.

    None selects the only currency, or the most frequent key. Raises UserError for a file that is not a FOCUS export,
    naming file and column, and for several currencies; NotFoundError for an unknown key.
    """
    _require_different(files)
    with TemporaryDirectory(prefix="opsassay-export-") as folder:
        made = [Path(folder) / str(number) for number in range(len(files))]
        parts = [_convert_file(path, at) for path, at in zip(files, made, strict=True)]
        rows = pl.concat([pl.read_parquet(part) for part, _ in parts]).cast(dict(own_schema()))  # type: ignore[arg-type]
    if len(rows) > MOST_ROWS:
        raise UserError(f"The files have {len(rows)} rows, more than {MOST_ROWS}; export fewer days.")
    if not len(rows):
        raise UserError(f"{files[0]} has no charges; export at least nine days.")
    rows, chosen, notes = _of_one_currency(rows, currency)
    rows, untagged = _with_plain_tags(rows)
    columns = sorted({one for _, left in parts for one in left})
    notes += [f"columns that are not of FOCUS 1.2 are left out: {', '.join(columns)}"] if columns else []
    notes += [f"{untagged} rows have Tags that are no JSON object; they count as untagged"] if untagged else []
    keys = _tag_keys(rows)
    if tag is not None and tag not in keys:
        raise NotFoundError("tag", tag, keys)
    empty = {name: count for name in AMOUNTS if (count := rows[name].null_count())}
    notes += [f"{name} is empty in {count} rows, which FOCUS does not allow" for name, count in empty.items()]
    start, end = _date_bounds(rows)
    return CostExport(
        rows.sort("ChargePeriodStart", *(c for c in rows.columns if c != "ChargePeriodStart"), nulls_last=True),
        chosen, tag or next(iter(keys), None), start, end, _most_expensive_categories(rows), tuple(empty), tuple(notes),
    )  # fmt: skip


def _require_different(files: Sequence[Path]) -> None:
    """Raise UserError when one of *files* occurs twice, by its path or as a copy."""
    sizes = Counter(one.stat().st_size for one in files)
    seen: dict[str, Path] = {}
    for file in (one for one in files if sizes[one.stat().st_size] > 1):
        if known := seen.get(digest := file_digest(file)):
            same = f"{file} is given twice" if file.resolve() == known.resolve() else f"{file} is a copy of {known}"
            raise UserError(f"{same}, so that its charges would count twice; give each file once.")
        seen[digest] = file


def _convert_file(path: Path, folder: Path) -> tuple[Path, list[str]]:
    """Write the FOCUS 1.2 columns of *path* as Parquet into *folder*; return that file and the columns left out."""
    import duckdb

    part = folder / "part.parquet"
    folder.mkdir()
    link = folder / f"export{''.join(path.suffixes[-2:])}"  # DuckDB takes brackets and stars in a name for a pattern
    link.symlink_to(path.resolve())
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        try:
            source = _open_relation(connection, link, path)
            given = dict(zip(source.columns, map(str, source.types), strict=True))
            names = _map_columns(path, given)
            count = _count_rows(source)
        except duckdb.Error as error:
            raise UserError(f"{path} {_describe_unreadable(error, link)}") from error
        if count > MOST_ROWS:
            raise UserError(f"{path} has {count} rows, more than {MOST_ROWS}; export fewer days.")
        source = source.project(", ".join(_filled_columns(given, names)))
        for column in _FILLED:
            if missing := _count_rows(source.filter(f"{_quote_identifier(names[column])} IS NULL")):
                raise UserError(
                    f"{path}: {column} is empty in {missing} rows, which FOCUS does not allow; export it again."
                )
        chosen = [_column_expression(source, path, one, names.get(one), given) for one in TABLES[COSTS]]
        source.project(", ".join(chosen)).write_parquet(str(part))
    return part, sorted(set(given) - {*names.values(), *_newer_columns(given, names).values()})


def _file_format(path: Path) -> str:
    """Return "Parquet" or "CSV" by the file's suffixes."""
    return "Parquet" if ".parquet" in path.suffixes else "CSV"


def _open_relation(connection: Any, link: Path, path: Path) -> Any:
    """Return the DuckDB relation over *link*, a link to *path*, with all CSV values as text. Raises UserError."""
    if _file_format(link) == "Parquet":
        return connection.read_parquet(str(link))
    plain = {"auto_detect": False, "quotechar": "", "escapechar": "", "delimiter": "\x01"}
    lines = connection.read_csv(str(link), header=False, columns={"line": "VARCHAR"}, strict_mode=False, **plain)
    header = "".join(line or "" for (line,) in lines.limit(1).fetchall())
    delimiter = max(_DELIMITERS, key=header.count)
    names = [name or f"column{number}" for number, name in enumerate(_split_at(delimiter, [header]) or [""], 1)]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UserError(f"{path} has two columns called {twice[0]}; leave one out.")
    return connection.read_csv(
        str(link), header=True, columns=dict.fromkeys(names, "VARCHAR"), na_values=["", "NULL"], allow_quoted_nulls=True,
        **plain | {"delimiter": delimiter, "quotechar": '"', "escapechar": '"'},
    )  # fmt: skip


def _split_at(delimiter: str, lines: Iterable[str]) -> list[str]:
    """Return the cells of the first of CSV *lines*, split at *delimiter*."""
    return next(csv.reader(lines, delimiter=delimiter), [])


def _describe_unreadable(error: Exception, link: Path) -> str:
    """Return why the file at *link* cannot be read, as a predicate to follow the file's name in a sentence."""
    said = str(error)
    if "Number of Columns" in said and (odd := _find_odd_row(link)):
        line, count, expected = odd
        return f"has {count} values in line {line}, and {expected} in the header; export it again."
    if "not utf-8" in said:
        return "is not UTF-8; save it as UTF-8."
    place = f" at row {found[1]}" if (found := re.search(r"CSV Error on Line: (\d+)", said)) else ""
    why = "a quote is not closed" if "unterminated quote" in said else first_line(error).split(": ", 1)[-1]
    return f"cannot be read as {_file_format(link)} ({why.replace(str(link), 'it')}{place}); check the file."


def _find_odd_row(link: Path) -> tuple[int, int, int] | None:
    """Return (line, its values, values of the header) of the first CSV row with another number of values, else None."""
    opened = gzip.open if link.suffix == ".gz" else open
    with opened(link, mode="rt", encoding="utf-8-sig", errors="replace", newline="") as file:
        header = file.readline()
        expected = len(_split_at(delimiter := max(_DELIMITERS, key=header.count), [header]))
        rows = csv.reader(file, delimiter=delimiter)
        return next(((rows.line_num + 1, len(row), expected) for row in rows if row and len(row) != expected), None)


def _count_rows(relation: Any) -> int:
    """Return the number of rows of the DuckDB *relation*."""
    return int(relation.count("*").fetchall()[0][0])


def _map_columns(path: Path, source_columns: dict[str, str]) -> dict[str, str]:
    """Return the name in *source_columns* of each FOCUS 1.2 column; raises UserError with *path* if one is missing."""
    found: dict[str, str] = {}
    for name in source_columns:
        plain = name.replace("_", "").casefold()
        for column in TABLES[COSTS]:
            if plain == column.casefold():
                if column in found:
                    raise UserError(f"{path} has two columns for {column}: {found[column]} and {name}; leave one out.")
                found[column] = name
    for column, newer in _SINCE.items():
        if column not in found and (same := _find_column(newer, source_columns)):
            found[column] = same
    if lacking := [one for one in NEEDED if one not in found]:
        near = nearest(lacking[0], set(source_columns) - set(found.values()))
        hint = f"; is it {near}?" if near else "; export the data by FOCUS 1.0 to 1.3."
        raise UserError(f"{path} has no column {', '.join(lacking)}{hint}")
    return found


def _filled_columns(source_columns: dict[str, str], names: dict[str, str]) -> Iterator[str]:
    """Yield the SQL of each source column: '' becomes NULL, NULL its FOCUS 1.3 successor. *names*: by FOCUS column."""
    newer = _newer_columns(source_columns, names)
    for name, kind in source_columns.items():
        quoted = _quote_identifier(name)
        value = f"nullif({quoted}, '')" if kind == "VARCHAR" else quoted
        if name in newer:
            value = f"coalesce({value}, {_quote_identifier(newer[name])})"
        yield f"{value} AS {quoted}"


def _newer_columns(source_columns: dict[str, str], names: dict[str, str]) -> dict[str, str]:
    """Return the FOCUS 1.3 column by the older one that it replaces, if the file has both (*names*: by FOCUS name)."""
    found = {names[column]: _find_column(name, source_columns) for column, name in _SINCE.items()}
    return {older: newer for older, newer in found.items() if newer and newer != older}


def _find_column(column: str, source_columns: Iterable[str]) -> str | None:
    """Return the one of *source_columns* that equals *column* without case and underscores, else None."""
    return next((one for one in source_columns if one.replace("_", "").casefold() == column.casefold()), None)


def _column_expression(source: Any, path: Path, column: str, name: str | None, source_columns: dict[str, str]) -> str:
    """Return the SQL that converts *name* (None: NULL) to FOCUS *column*; raises UserError with a wrong value."""
    kind = TABLES[COSTS][column][0]
    if name is None:
        return f"CAST(NULL AS {_TYPES.get(kind, 'VARCHAR')}) AS {column}"
    quoted = _quote_identifier(name)
    if column == "Tags":
        return f"{_tags_text(quoted, source_columns[name])} AS Tags"
    text = f"CAST({quoted} AS VARCHAR)"
    if column == "BillingCurrency":
        return f"upper(trim({text})) AS {column}"
    if column in _ALLOWED:
        _require(source, path, name, f"lower(trim({text})) NOT IN ({sql_literals(map(str.lower, _ALLOWED[column]))})",
                 f"one of {', '.join(_ALLOWED[column])}, as FOCUS has it, or nothing")  # fmt: skip
        words = " ".join(f"WHEN '{word.lower()}' THEN '{word}'" for word in _ALLOWED[column])
        return f"CASE lower(trim({text})) {words} END AS {column}"
    if kind not in _TYPES:
        return f"{text} AS {column}"
    expected = "a time as ISO 8601 writes it" if kind == "time" else "a number below 10^26"
    _require(source, path, name, f"TRY_CAST({quoted} AS {_TYPES[kind]}) IS NULL OR contains({text}, '_')", expected)
    return f"CAST({quoted} AS {_TYPES[kind]}) AS {column}"


def _require(source: Any, path: Path, name: str, wrong: str, expected: str) -> None:
    """Raise UserError with an example of column *name* and *expected* if the SQL condition *wrong* holds in a row."""
    odd = source.filter(f"{_quote_identifier(name)} IS NOT NULL AND ({wrong})")
    if found := odd.project(f"CAST({_quote_identifier(name)} AS VARCHAR)").limit(1).fetchall():
        raise UserError(f"{path}: {name} is {found[0][0][:40]!r} in a row; expected {expected}.")


def _quote_identifier(name: str) -> str:
    """Return *name* as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _tags_text(quoted: str, kind: str) -> str:
    """Return the SQL that turns the tags column *quoted*, of DuckDB type *kind*, into JSON text."""
    return quoted if kind == "VARCHAR" else f"CAST(to_json({quoted}) AS VARCHAR)"


def _of_one_currency(rows: pl.DataFrame, currency: str | None) -> tuple[pl.DataFrame, str, list[str]]:
    """Return (rows in one currency, its code, notes); raises UserError unless *currency* or the rows decide it."""
    counts = dict(rows.group_by("BillingCurrency").len().sort("len", "BillingCurrency", descending=True).rows())
    if currency is not None and currency not in counts:
        raise NotFoundError("currency", currency, counts)
    if currency is None and len(counts) > 1:
        listed = ", ".join(f"{name} in {count} rows" for name, count in counts.items())
        raise UserError(
            f"The charges are in several currencies ({listed}); say which, as with --currency {next(iter(counts))}."
        )
    chosen = currency or str(next(iter(counts)))
    left_out = len(rows) - counts[chosen]
    notes = [f"{left_out} rows in other currencies than {chosen} are left out"] if left_out else []
    return rows.filter(pl.col("BillingCurrency") == chosen), chosen, notes


def _with_plain_tags(rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return *rows* with tags as a JSON object of texts or NULL, and the number of rows with unreadable tags."""
    plain = {text: _plain_tags(text) for text in rows["Tags"].unique().drop_nulls().to_list()}
    odd = [text for text, read in plain.items() if read is None]
    untagged = int(rows["Tags"].is_in(odd).sum()) if odd else 0
    replaced = rows["Tags"].replace_strict(plain, return_dtype=pl.String) if plain else rows["Tags"]
    return rows.with_columns(replaced.alias("Tags")), untagged


def _plain_tags(text: str) -> str | None:
    """Return the tags in *text* as a JSON object of texts, also from a list of {key, value}; None if unreadable."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(given, list) and all(isinstance(one, dict) and "key" in one for one in given):
        given = {str(one["key"]): one.get("value") for one in given}
    if not isinstance(given, dict):
        return None
    texts = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items() if value is not None
    }
    return json.dumps(texts, sort_keys=True, ensure_ascii=False)


def tag_values(rows: pl.DataFrame) -> Iterator[tuple[dict[str, str], int]]:
    """Yield (tags, number of rows) for each distinct set of tags in *rows*."""
    for text, count in rows.drop_nulls("Tags").group_by("Tags").len().sort("Tags").rows():
        yield json.loads(text), count


def _tag_keys(rows: pl.DataFrame) -> list[str]:
    """Return the tag keys that have a value in any row, the most frequent first."""
    counts: Counter[str] = Counter()
    for tags, count in tag_values(rows):
        counts.update({key: count for key, value in tags.items() if value not in ("", "NULL")})
    return [key for key, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]


def _date_bounds(rows: pl.DataFrame) -> tuple[datetime, datetime]:
    """Return midnight of the first day in *rows*, and midnight after the last day."""
    first: Any = rows["ChargePeriodStart"].min()
    last: Any = rows["ChargePeriodStart"].max()
    start = first.replace(hour=0, minute=0, second=0, microsecond=0)
    return start, last.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def _most_expensive_categories(rows: pl.DataFrame) -> tuple[str, ...]:
    """Return the names of the five service categories with the highest positive cost."""
    sums = rows.drop_nulls("ServiceCategory").group_by("ServiceCategory").agg(pl.col("BilledCost").sum())
    paid = sums.filter(pl.col("BilledCost") > 0).sort("BilledCost", "ServiceCategory", descending=True)
    return tuple(paid["ServiceCategory"].to_list()[:5])
