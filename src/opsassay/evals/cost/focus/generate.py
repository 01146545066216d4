"""Generates the cost data of a seed: hourly usage of every resource and other charges, in whole micro-units.

No floating-point number is used, so that a seed gives the same bytes on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opsassay.evals.cost.focus.extras import budgets, extra_rows, window
from opsassay.evals.cost.focus.planting import NOISE, Distraction, Planted, plant
from opsassay.evals.cost.focus.schema import BUDGETS, COSTS, EXCHANGE_RATES, RESOURCE_DAYS, frame_schema, resource_days
from opsassay.evals.cost.focus.world import MICRO, Resource, World, make_world, profile
from opsassay.evals.runner.draws import Draws
from opsassay.telemetry.content import write_table

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CostTables:
    """The tables of a task, by name."""

    tables: dict[str, pl.DataFrame]

    @cached_property
    def connection(self) -> Any:
        """A DuckDB connection to the tables for the grader's statements; each thread needs its own cursor of it."""
        import duckdb

        connection = duckdb.connect(":memory:", config={"threads": 1})
        connection.execute("SET TimeZone = 'UTC'")
        with TemporaryDirectory(prefix="opsassay-costs-") as folder:
            for name, path in write_tables(self, Path(folder)).items():
                connection.read_parquet(str(path)).create(name)
        return connection


@dataclass(frozen=True)
class CostData(CostTables):
    """The generated tables of one seed, the company (*world*) behind them, and the planted anomalies."""

    world: World
    planted: tuple[Planted, ...]


@lru_cache(maxsize=4)
def cost_data(seed: int) -> CostData:
    """Return the generated cost data of *seed*: more than 100,000 FOCUS rows over two whole months, and their truth."""
    world = make_world(seed)
    planted, distractions = plant(world)
    usage = pl.concat(
        [_usage_rows(world, number, one, planted, distractions) for number, one in enumerate(world.resources)]
    )
    extras = pl.DataFrame(extra_rows(world, planted, distractions, usage), schema=_raw_schema(), orient="row")
    costs = _sort_and_convert(pl.concat([usage.select(list(_raw_schema())), extras]))
    rates = [(currency, rate) for currency, rate in world.rates.items()]
    tables = {
        COSTS: costs,
        EXCHANGE_RATES: pl.DataFrame(rates, schema=["Currency", "UsdPerUnit"], orient="row").select(
            "Currency", _decimal_of_micro("UsdPerUnit")
        ),
        BUDGETS: budgets(world).select(
            "SubAccountId", "Month", _decimal_of_micro("BudgetUsd"), _decimal_of_micro("ForecastUsd")
        ),
        RESOURCE_DAYS: _convert_micro(resource_days(world), RESOURCE_DAYS),
    }
    return CostData({name: one.cast(frame_schema(name)) for name, one in tables.items()}, world, tuple(planted))


def write_tables(data: CostTables, folder: Path) -> dict[str, Path]:
    """Write the tables of *data* as Parquet files into *folder*, always the same bytes; return the path by name."""
    files = {name: folder / f"{name}.parquet" for name in data.tables}
    for name, frame in data.tables.items():
        write_table(files[name], frame)
    return files


def _raw_schema() -> dict[str, Any]:
    """Return the polars type by FOCUS column while generating: money and quantities are integers in micro-units."""
    return {name: pl.Int64() if isinstance(kind, pl.Decimal) else kind for name, kind in frame_schema(COSTS).items()}


def _decimal_of_micro(name: str) -> pl.Expr:
    """Return the expression that turns the micro-unit integers of column *name* into exact decimals."""
    return (pl.col(name).cast(pl.Decimal(38, 0)) * pl.lit("0.000001").cast(pl.Decimal(7, 6))).cast(pl.Decimal(18, 6))


def _sort_and_convert(raw: pl.DataFrame) -> pl.DataFrame:
    """Return *raw* sorted by time, account and resource, its amounts converted from micro-units to decimals."""
    order = ["ChargePeriodStart", "SubAccountId", "ResourceId", "ChargeDescription", "BilledCost", "EffectiveCost"]
    return _convert_micro(raw.sort(order, nulls_last=True, maintain_order=True), COSTS)


def _convert_micro(raw: pl.DataFrame, table: str) -> pl.DataFrame:
    """Return *raw* with the amounts of *table* converted from whole micro-units to decimals."""
    decimals = [name for name, kind in frame_schema(table).items() if isinstance(kind, pl.Decimal)]
    return raw.with_columns(_decimal_of_micro(name) for name in decimals)


def _usage_rows(
    world: World, number: int, resource: Resource, planted: list[Planted], distractions: list[Distraction]
) -> pl.DataFrame:
    """Return a row per hour of resource *number*, in micro-units, with its *planted* anomalies and *distractions*."""
    draws = Draws(world.seed, "noise", str(number))
    hours = world.hours
    noise = 1000 - NOISE + draws.integers(hours, 0, NOISE) + draws.integers(hours, 0, NOISE)
    cost_usd = resource.base_micros * season(world, resource) // 1000 * noise // 1000
    for event in planted:
        if event.resource == number:
            cost_usd[event.start : event.end] = cost_usd[event.start : event.end] * np.array(event.factors) // 1000
    moved, minutes = _distraction_masks(hours, number, distractions)
    billing, currency = np.full(hours, resource.account.billing_id), np.full(hours, resource.account.currency)
    billing[moved], currency[moved] = f"{resource.account.billing_id}-JP", "JPY"
    rate = np.array([world.rates[str(name)] for name in currency])
    listed = cost_usd * MICRO // rate
    contracted = listed * resource.negotiated // 1000
    discount = resource.commitment.discount if resource.commitment else 1000
    effective = contracted * discount // 1000
    price = _unit_price(resource)
    quantity = cost_usd * MICRO // price
    starts = np.datetime64(world.start.replace(tzinfo=None), "us") + np.arange(hours) * np.timedelta64(1, "h")
    columns: dict[str, Any] = {
        "BillingAccountId": billing, "BillingCurrency": currency, "PricingCurrency": np.full(hours, "USD"),
        "ListCost": listed, "ContractedCost": contracted, "EffectiveCost": effective,
        "BilledCost": np.zeros(hours, np.int64) if resource.commitment else effective,
        "PricingQuantity": quantity, "ConsumedQuantity": np.where(minutes, quantity * 60, quantity),
        "ConsumedUnit": np.where(minutes, "Minutes", resource.unit),
        "ListUnitPrice": price * MICRO // rate, "ContractedUnitPrice": price * resource.negotiated // 1000 * MICRO // rate,
        "PricingCurrencyListUnitPrice": np.full(hours, price),
        "PricingCurrencyContractedUnitPrice": np.full(hours, price * resource.negotiated // 1000),
        "PricingCurrencyEffectiveCost": effective * rate // MICRO, "ChargePeriodStart": starts,
    }  # fmt: skip
    return (
        pl.DataFrame(columns)
        .with_columns(
            pl.col("ChargePeriodStart").cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
            **{
                name: pl.lit(value, dtype=pl.String)
                for name, value in _constant_columns(resource).items()
                if name not in columns
            },
            CommitmentDiscountQuantity=pl.col("PricingQuantity")
            if resource.commitment
            else pl.lit(None, dtype=pl.Int64),
        )
        .with_columns(*_period_columns(world))
    )


def season(world: World, resource: Resource) -> Ints:
    """Return the load of *resource* for every hour of the data, in permille of its base, by local time."""
    zone = ZoneInfo(resource.zone)
    found = []
    for hour in range(world.hours):
        local = (world.start + timedelta(hours=hour)).astimezone(zone)
        found.append(profile(resource.profile, local.weekday(), local.hour))
    return np.array(found, dtype=np.int64)


def _distraction_masks(
    hours: int, number: int, distractions: list[Distraction]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks of *hours* in which *distractions* bill resource *number* in another currency, another unit."""
    spans = {kind: np.zeros(hours, dtype=bool) for kind in ("currency", "unit")}
    for one in distractions:
        if one.resource == number and one.kind in spans:
            spans[one.kind][one.start : one.end] = True
    return spans["currency"], spans["unit"]


def _unit_price(resource: Resource) -> int:
    """Return the list price of one unit of the resource, micro-USD."""
    return {"Requests": 4, "GB": 90_000, "GB-Months": 23_000, "LCU-Hours": 8_000}.get(resource.unit, 96_000)


def _period_columns(world: World) -> list[pl.Expr]:
    """Return the expressions for the billing and charge period columns of hourly charges."""
    first = pl.col("ChargePeriodStart") < pl.lit(world.middle)
    return [
        (pl.col("ChargePeriodStart") + pl.duration(hours=1)).alias("ChargePeriodEnd"),
        pl.when(first).then(pl.lit(world.start)).otherwise(pl.lit(world.middle)).alias("BillingPeriodStart"),
        pl.when(first).then(pl.lit(world.middle)).otherwise(pl.lit(world.end)).alias("BillingPeriodEnd"),
        pl.concat_str(
            pl.lit("INV-"), pl.col("BillingAccountId"), pl.lit("-"), pl.col("ChargePeriodStart").dt.strftime("%Y%m")
        ).alias("InvoiceId"),
    ]


def _constant_columns(resource: Resource) -> dict[str, str | None]:
    """Return the FOCUS columns whose value is the same in every hour of *resource*."""
    provider, account, commitment = resource.account.provider, resource.account, resource.commitment
    return {
        **window(account),
        "ChargeCategory": "Usage", "ChargeClass": None, "ChargeFrequency": "Usage-Based",
        "ChargeDescription": f"{resource.service}, {resource.unit} in {resource.region[1]}",
        "PricingCategory": "Committed" if commitment else "Standard", "PricingUnit": resource.unit,
        "ServiceName": resource.service, "ServiceCategory": resource.category, "ServiceSubcategory": resource.subcategory,
        "SkuId": f"{provider.name[:3].upper()}-{resource.service}-{resource.unit}", "SkuMeter": resource.subcategory,
        "SkuPriceId": f"{provider.name[:3].upper()}-{resource.service}-{resource.unit}-{resource.region[0]}",
        "SkuPriceDetails": None,
        "ResourceId": f"{account.sub_id}/{resource.name}", "ResourceName": resource.name,
        "ResourceType": resource.subcategory,
        "RegionId": resource.region[0], "RegionName": resource.region[1], "AvailabilityZone": None,
        "CommitmentDiscountId": commitment.id if commitment else None,
        "CommitmentDiscountName": commitment.kind if commitment else None,
        "CommitmentDiscountCategory": commitment.category if commitment else None,
        "CommitmentDiscountType": commitment.kind if commitment else None,
        "CommitmentDiscountStatus": "Used" if commitment else None,
        "CommitmentDiscountUnit": resource.unit if commitment else None,
        "CapacityReservationId": None, "CapacityReservationStatus": None, "Tags": resource.tags,
    }  # fmt: skip
