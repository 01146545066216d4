"""The tables of cost tasks: the columns of FOCUS 1.2 "Cost and Usage" with their types, and further tables.

Source of names, types and meanings: the FOCUS 1.2 specification (https://focus.finops.org); the descriptions are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl

from opsassay.core.schema.files import packaged_yaml
from opsassay.evals.cost.focus.world import MICRO, Resource, World
from opsassay.evals.runner.draws import Draws

ColumnKind = Literal["text", "money", "quantity", "time", "integer"]
DTYPES: Mapping[ColumnKind, pl.DataType] = {
    "text": pl.String(),
    "money": pl.Decimal(18, 6),
    "quantity": pl.Decimal(18, 6),
    "time": pl.Datetime("us", "UTC"),
    "integer": pl.Int64(),
}

COSTS, EXCHANGE_RATES, BUDGETS, RESOURCE_DAYS = "costs", "exchange_rates", "budgets", "resource_days"


def _read_known_tables() -> Mapping[str, Mapping[str, tuple[ColumnKind, str]]]:
    """Return (kind, meaning) by table and column, as columns.yaml declares them."""
    tables = packaged_yaml(__package__, "columns.yaml")
    return {table: {name: (kind, meaning) for name, (kind, meaning) in rows.items()} for table, rows in tables.items()}


TABLES = _read_known_tables()
"""Table to column to (kind, description), as in `columns.yaml`."""


def frame_schema(table: str) -> pl.Schema:
    """Return the polars type by column of *table*, in column order."""
    return pl.Schema({name: DTYPES[kind] for name, (kind, _) in TABLES[table].items()})


def own_schema() -> pl.Schema:
    """Return the polars types of the table of a team's own costs: as `COSTS`, amounts with 12 decimals."""
    decimal = pl.Decimal(38, 12)
    return pl.Schema({n: decimal if isinstance(t, pl.Decimal) else t for n, t in frame_schema(COSTS).items()})


def describe_columns(table: str, schema: pl.Schema) -> str:
    """Return a line of text for each column in *schema*: name, DuckDB type, meaning in *table*."""
    types = {"text": "VARCHAR", "time": "TIMESTAMPTZ", "integer": "BIGINT"}
    decimals = {name: f"DECIMAL({t.precision},{t.scale})" for name, t in schema.items() if isinstance(t, pl.Decimal)}
    return "\n".join(
        f"{name} {decimals.get(name) or types[kind]}: {meaning}" for name, (kind, meaning) in TABLES[table].items()
    )


TIERS = ("Standard", "Infrequent", "Archive")
IDLE_ONE_IN = 6
"""One in so many resources is unused for part of the time."""


def resource_days(world: World) -> pl.DataFrame:
    """Return a row per resource and UTC day with capacity, use and forecast, in whole micro-units."""
    return pl.concat(_daily_utilization(world, number, one) for number, one in enumerate(world.resources)).sort(
        "Day", "ResourceId"
    )


def _daily_utilization(world: World, number: int, resource: Resource) -> pl.DataFrame:
    """Return a row per day with capacity, use and forecast of resource *number*, in whole micro-units."""
    draws, days = Draws(world.seed, "days", str(number)), world.hours // 24
    hourly = draws.integer(4, 64) * MICRO
    capacity = hourly * 24 * draws.integers(days, 500, 1000) // 1000
    share = draws.integer(150, 850)
    used = capacity * (share + draws.integers(days, -100, 100)) // 1000
    if draws.integer(1, IDLE_ONE_IN) == 1:
        idle = draws.integer(0, days - 8)
        used[idle : idle + draws.integer(7, days)] = 0
    forecast = used * draws.integers(days, 700, 1350) // 1000 + MICRO
    stored = draws.integer(50, 5000) * MICRO * (1000 + np.arange(days) * draws.integer(0, 8)) // 1000
    moved, tier = draws.integer(0, 2 * days), draws.integer(0, 1)
    start = np.datetime64(world.start.replace(tzinfo=None), "D")
    is_storage = resource.category == "Storage"
    return pl.DataFrame(
        {
            "Day": (start + np.arange(days)).astype(str),
            "ResourceId": f"{resource.account.sub_id}/{resource.name}",
            "ProviderName": resource.account.provider.name,
            "SubAccountId": resource.account.sub_id,
            "ServiceCategory": resource.category,
            "Tags": pl.Series([resource.tags] * days, dtype=pl.String),
            "CapacityUnits": capacity,
            "PeakCapacityUnits": capacity // 24 * draws.integers(days, 1000, 1800) // 1000,
            "UsedUnits": used,
            "ForecastUnits": forecast,
            "AccessTier": [TIERS[tier + (day >= moved)] if is_storage else None for day in range(days)],
            "StoredGb": pl.Series(stored if is_storage else [None] * days, dtype=pl.Int64),
            "CarbonKg": capacity * draws.integer(20, 400) // 1000,
        },
        schema_overrides={"AccessTier": pl.String},
    )
