"""A team's own costs in tasks: the table by its digest, and the facts from which questions are made."""

from __future__ import annotations

import hashlib
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path

import polars as pl
from pydantic import Field

from opsassay.core.errors import DatapackError, UserError
from opsassay.core.schema.base import Noun
from opsassay.evals.cost.focus.export import CostExport
from opsassay.evals.cost.focus.generate import CostTables
from opsassay.evals.cost.focus.schema import COSTS
from opsassay.evals.cost.insight.own import FEWEST_DAYS
from opsassay.evals.cost.insight.question import OwnReading
from opsassay.telemetry.content import whole_file, write_table

TABLE_FOLDER = "cost_data"
"""Folder of a store, or of generated tasks, with the tables of cost tasks."""


class OwnData(Noun):
    """The description of a team's own costs in a task; the table is TABLE_FOLDER/*sha256*.parquet below *root*.

    *empty*: amount columns that some rows lack. *root* is not stored.
    """

    sha256: str
    currency: str
    tag: str | None
    start: datetime
    end: datetime
    categories: tuple[str, ...]
    empty: tuple[str, ...]
    root: Path = Field(default=Path(), exclude=True)

    @property
    def middle(self) -> datetime:
        """The midnight at which the last billed month starts, or the first billed day if that is later."""
        return max(self.start, self.end.replace(day=1))

    @property
    def reading(self) -> OwnReading:
        """The currency of the costs, and the tag key that names the application."""
        return OwnReading(self.currency, self.tag)

    @property
    def path(self) -> Path:
        """The path of the Parquet file, whose name is the SHA-256 of its content."""
        return self.root / TABLE_FOLDER / f"{self.sha256}.parquet"

    @cached_property
    def data(self) -> CostTables:
        """The tables read from `path`; raises DatapackError when the content does not match its SHA-256."""
        return _read_tables(self.path)

    def located(self, root: Path) -> OwnData:
        """Return a copy whose Parquet file is in the store at *root*."""
        return self.model_copy(update={"root": root})

    def keep(self, root: Path) -> None:
        """Copy the Parquet file into the store at *root*, unless it is there."""
        kept = self.located(root).path
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(kept) as partial:
                partial.write_bytes(self.path.read_bytes())


@lru_cache(maxsize=2)
def _read_tables(path: Path) -> CostTables:
    """Return the tables of the Parquet file *path*; raises DatapackError when its SHA-256 is not its name."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DatapackError(
            f"{path}: the costs of a task cannot be read ({error.strerror}); restore the file."
        ) from error
    if hashlib.sha256(content).hexdigest() != path.stem:
        raise DatapackError(f"{path} is not what its name says; restore it.")
    return CostTables({COSTS: pl.read_parquet(content)})


def keep_export(export: CostExport, root: Path) -> OwnData:
    """Write the charges of *export* as Parquet below *root*; return their description. UserError for too few days."""
    days = (export.end - export.start).days
    if days < FEWEST_DAYS:
        raise UserError(f"The export covers {days} days; questions need {FEWEST_DAYS} or more.")
    folder = root / TABLE_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "made.parquet"
    write_table(made, export.rows)
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    made.rename(folder / f"{digest}.parquet")
    own = OwnData(
        sha256=digest, currency=export.currency, tag=export.tag, start=export.start, end=export.end,
        categories=export.categories, empty=export.empty,
    )  # fmt: skip
    return own.located(root)
