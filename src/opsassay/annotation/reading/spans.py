"""Spans of both periods with their parent and their role: entry (a service begins to serve), exit (it calls out), inner.

Data without span kinds is read by structure: an entry has its parent in another service, an exit is a span that
usually has its child there.

Rows are dense and sorted by time, so that parents, owners and callees are plain indices into columns: one hash table
finds the parents, all else is gathering. An index of -1 is nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opsassay.annotation.reading.names import codes
from opsassay.annotation.reading.parents import Index
from opsassay.annotation.reading.windows import read
from opsassay.telemetry.datapack import Datapack

Flags = NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)

USUAL = 0.5
"""An operation counts as an exit if at least this share of its baseline spans has a child in another service."""

_STORE_VERB = r"^(SELECT|INSERT|UPDATE|DELETE|MERGE|REPLACE) "
SQL_NAME = _STORE_VERB + r"|^sql\."
"""Regular expression for operation names of database calls: a statement, or a call of the driver."""
_UNTOLD, _SERVER, _CONSUMER, _CLIENT, _PRODUCER = range(5)
"""Codes of KIND."""


@dataclass(frozen=True, eq=False)
class Spans:
    """The spans of a datapack.

    *frame*, one row per span, by time: period, trace (64-bit hash of its id), time_ns, end_ns, service, operation, kind
    and pod (Enums), error, own_error (an error that blames no other service), logged_error, response_bytes; key (64-bit
    hash of ids) and links when there are any. *parent*: row of the parent span. *entry*: row of the entry that a span
    belongs to, -1 for spans in a cycle of parents. *generator*, *is_entry*, *is_exit*: roles. *status_known*: whether
    spans carry a status.
    """

    frame: pl.DataFrame
    parent: Index
    entry: Index
    generator: Flags
    is_entry: Flags
    is_exit: Flags
    status_known: bool
    notes: tuple[str, ...] = ()


def take_or_missing(values: NDArray[T], index: Index, missing: int) -> NDArray[T]:
    """Return ``values[index]``, with *missing* where the index is -1."""
    if not values.size:
        return np.full(index.shape, missing, dtype=values.dtype)
    found = values.take(index)  # half the time of values[index]
    found[index < 0] = missing
    return found


def nullable(index: Index) -> pl.Series:
    """Return *index* as a polars series with null for -1, for Series.gather."""
    return pl.select(pl.when(pl.lit(pl.Series(index)) >= 0).then(pl.lit(pl.Series(index)))).to_series()


def index_of(series: pl.Series) -> Index:
    """Return *series* as an index array with -1 for null, the reverse of `nullable`."""
    return series.fill_null(-1).to_numpy()


def read_spans(pack: Datapack) -> Spans:
    """Return the spans of *pack* with their parents and roles; raises DatapackError for a table that cannot be read."""
    found = read(pack)
    frame, parent, notes = found.frame, found.parent, list(found.notes)
    generator = frame.get_column("service").is_in(sorted(pack.load_generators())).to_numpy()
    is_entry, is_exit = _find_roles(frame, parent)
    owner = _find_roots(np.where(is_entry, -1, parent))
    entry = np.where(is_entry.take(owner), owner, -1)
    looped = int((entry < 0).sum())
    notes += [f"{looped} spans are their own ancestors; they are left out."] if looped else []
    lost = int(((parent < 0) & ~frame.get_column("root").to_numpy()).sum())
    notes += (
        [f"{lost} of {parent.size} spans name a parent that is not there; each counts as an entry."] if lost else []
    )
    done = ["root"] if "links" in frame.columns else ["root", "key"]
    return Spans(frame.drop(done), parent, entry, generator, is_entry, is_exit, found.status_known, tuple(notes))


def _find_roles(frame: pl.DataFrame, parent: Index) -> tuple[Flags, Flags]:
    """Return two flags per span: (is an entry, or server side; is an exit, or client side)."""
    service, kind = codes(frame.get_column("service")), frame.get_column("kind").to_physical().to_numpy()
    serving = (kind == _SERVER) | (kind == _CONSUMER)
    foreign = take_or_missing(service, parent, -1) != service
    is_entry = (parent < 0) | foreign | (serving & (take_or_missing(kind, parent, _UNTOLD) != kind))
    is_exit = (kind == _CLIENT) | (kind == _PRODUCER)
    untold = kind == _UNTOLD
    if not untold.any():
        return is_entry, is_exit
    calls_out, has_child = np.zeros(parent.size, dtype=bool), np.zeros(parent.size, dtype=bool)
    calls_out[parent[is_entry & (parent >= 0)]] = True
    has_child[parent[parent >= 0]] = True
    usual = (
        frame.select("period", "service", "operation")
        .with_columns(calls_out=pl.Series(calls_out))
        .filter(pl.Series(untold) & (pl.col("period") == "normal"))
        .group_by("service", "operation")
        .agg(usual=pl.col("calls_out").mean() >= USUAL)
    )
    habits = frame.select("service", "operation").join(
        usual, on=["service", "operation"], how="left", maintain_order="left"
    )
    store = frame.get_column("operation").cast(pl.String).str.contains(_STORE_VERB).to_numpy() & ~has_child
    by_habit = habits.get_column("usual").fill_null(value=False).to_numpy()
    return is_entry, is_exit | (untold & ~is_entry & (by_habit | store))


def _find_roots(parent: Index) -> Index:
    """Return for each row its topmost ancestor by *parent* (row indices, -1 for none), by pointer doubling."""
    up, rows = np.arange(parent.size), np.flatnonzero(parent >= 0)
    up[rows] = parent.take(rows)
    for _ in range(32):
        above = up.take(rows)
        further = up.take(above)
        moves = np.flatnonzero(further != above)
        rows, further = rows.take(moves), further.take(moves)
        if not rows.size:
            break
        up[rows] = further
    return up


def top_exit(spans: Spans) -> Index:
    """Return for each span the outermost client span in the chain of client spans above it, itself if there is none."""
    inside = spans.is_exit & take_or_missing(spans.is_exit, spans.parent, 0)
    return _find_roots(np.where(inside, spans.parent, -1))
