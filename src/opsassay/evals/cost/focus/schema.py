"""The tables of a cost task: the columns of FOCUS 1.2 "Cost and Usage" with their types, and those beside it.

Source of names, types and meanings: the FOCUS 1.2 specification (https://focus.finops.org); the descriptions are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl

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

_COST_COLUMNS: Mapping[str, tuple[ColumnKind, str]] = {
    "ProviderName": ("text", "who made the resources available"),
    "PublisherName": ("text", "who produced them"),
    "InvoiceIssuerName": ("text", "who sends the invoice"),
    "InvoiceId": ("text", "invoice that the charge is on"),
    "BillingAccountId": ("text", "account that pays"),
    "BillingAccountName": ("text", "its name"),
    "BillingAccountType": ("text", "what the provider calls such an account"),
    "SubAccountId": ("text", "account within it that the charge belongs to"),
    "SubAccountName": ("text", "its name"),
    "SubAccountType": ("text", "what the provider calls such an account"),
    "BillingPeriodStart": ("time", "start of the billing month, inclusive, UTC"),
    "BillingPeriodEnd": ("time", "its end, exclusive, UTC"),
    "ChargePeriodStart": ("time", "start of what the charge is for, inclusive, UTC"),
    "ChargePeriodEnd": ("time", "its end, exclusive, UTC"),
    "ChargeCategory": ("text", "Usage, Purchase, Tax, Credit or Adjustment"),
    "ChargeClass": ("text", "Correction for what corrects an earlier charge, else NULL"),
    "ChargeDescription": ("text", "what it is, in words"),
    "ChargeFrequency": ("text", "One-Time, Recurring or Usage-Based"),
    "BilledCost": ("money", "what is invoiced, in BillingCurrency: 0 for usage of a commitment, negative for credits"),
    "EffectiveCost": ("money", "cost with all discounts and with commitments spread over their use, in BillingCurrency"),
    "ListCost": ("money", "cost at list prices, without any discount, in BillingCurrency"),
    "ContractedCost": ("money", "cost at negotiated prices, without commitments, in BillingCurrency"),
    "ListUnitPrice": ("money", "list price of one PricingUnit"),
    "ContractedUnitPrice": ("money", "negotiated price of one PricingUnit"),
    "PricingCategory": ("text", "Standard, Committed, Dynamic or Other"),
    "PricingQuantity": ("quantity", "amount in PricingUnit"),
    "PricingUnit": ("text", "unit of the prices"),
    "PricingCurrency": ("text", "currency of the prices"),
    "PricingCurrencyContractedUnitPrice": ("money", "ContractedUnitPrice in PricingCurrency"),
    "PricingCurrencyEffectiveCost": ("money", "EffectiveCost in PricingCurrency"),
    "PricingCurrencyListUnitPrice": ("money", "ListUnitPrice in PricingCurrency"),
    "BillingCurrency": ("text", "currency of all costs of the row"),
    "ConsumedQuantity": ("quantity", "amount consumed, in ConsumedUnit"),
    "ConsumedUnit": ("text", "unit of ConsumedQuantity; it may differ from row to row"),
    "ServiceName": ("text", "service that was used"),
    "ServiceCategory": ("text", "its category, as Compute, Storage, Databases, Networking"),
    "ServiceSubcategory": ("text", "its finer category"),
    "SkuId": ("text", "what was sold"),
    "SkuMeter": ("text", "what is metered"),
    "SkuPriceId": ("text", "its price"),
    "SkuPriceDetails": ("text", "JSON object with details of the price"),
    "ResourceId": ("text", "resource"),
    "ResourceName": ("text", "its name"),
    "ResourceType": ("text", "its type"),
    "RegionId": ("text", "region"),
    "RegionName": ("text", "its name"),
    "AvailabilityZone": ("text", "zone in the region"),
    "CommitmentDiscountId": ("text", "commitment that the charge is of"),
    "CommitmentDiscountName": ("text", "its name"),
    "CommitmentDiscountCategory": ("text", "Spend or Usage"),
    "CommitmentDiscountType": ("text", "what the provider calls it"),
    "CommitmentDiscountStatus": ("text", "Used or Unused for usage rows of a commitment, else NULL"),
    "CommitmentDiscountQuantity": ("quantity", "amount of the commitment"),
    "CommitmentDiscountUnit": ("text", "its unit"),
    "CapacityReservationId": ("text", "capacity reservation"),
    "CapacityReservationStatus": ("text", "Used or Unused"),
    "Tags": ("text", "JSON object of tags; NULL, or the text NULL, where there are none"),
}  # fmt: skip

TABLES: Mapping[str, Mapping[str, tuple[ColumnKind, str]]] = {
    COSTS: _COST_COLUMNS,
    EXCHANGE_RATES: {
        "Currency": ("text", "a BillingCurrency"),
        "UsdPerUnit": ("money", "USD for one unit of it, the same for the whole period"),
    },
    BUDGETS: {
        "SubAccountId": ("text", "account that the budget is for"),
        "Month": ("text", "month as YYYY-MM"),
        "BudgetUsd": ("money", "what was granted, USD"),
        "ForecastUsd": ("money", "what was forecast, USD"),
    },
    RESOURCE_DAYS: {
        "Day": ("text", "day of UTC as YYYY-MM-DD"),
        "ResourceId": ("text", "resource, as in costs"),
        "ProviderName": ("text", "who made it available"),
        "SubAccountId": ("text", "account that it belongs to"),
        "ServiceCategory": ("text", "category of its service"),
        "Tags": ("text", "JSON object of its tags; NULL, or the text NULL, where there are none"),
        "CapacityUnits": ("quantity", "what was provided on that day, summed over its hours"),
        "PeakCapacityUnits": ("quantity", "what was provided in the hour that had the most"),
        "UsedUnits": ("quantity", "what of it was used"),
        "ForecastUnits": ("quantity", "what was forecast to be used"),
        "AccessTier": ("text", "Standard (frequent access), Infrequent or Archive for storage, else NULL"),
        "StoredGb": ("quantity", "what was stored, GB, else NULL"),
        "CarbonKg": ("quantity", "carbon that it caused, kg"),
    },
}
"""Kind and description of every column of every table."""


def frame_schema(table: str) -> pl.Schema:
    """Return the polars types of *table* by column, in order."""
    return pl.Schema({name: DTYPES[kind] for name, (kind, _) in TABLES[table].items()})


def describe_columns(table: str) -> str:
    """Return a line of text for each column of *table*: its name, its type in DuckDB, what it is."""
    types = {"text": "VARCHAR", "time": "TIMESTAMPTZ", "integer": "BIGINT"}
    return "\n".join(
        f"{name} {types.get(kind, 'DECIMAL(18,6)')}: {meaning}" for name, (kind, meaning) in TABLES[table].items()
    )


TIERS = ("Standard", "Infrequent", "Archive")
IDLE_ONE_IN = 6
"""One in so many resources is used by nobody for a part of the time."""


def resource_days(world: World) -> pl.DataFrame:
    """Return a row for each resource and day (UTC); quantities are whole micro-units."""
    return pl.concat(_days(world, number, one) for number, one in enumerate(world.resources)).sort("Day", "ResourceId")


def _days(world: World, number: int, one: Resource) -> pl.DataFrame:
    """Return the days of one resource: capacity follows a load that wobbles, use is a share of it, forecasts err."""
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
    is_storage = one.category == "Storage"
    return pl.DataFrame(
        {
            "Day": (start + np.arange(days)).astype(str),
            "ResourceId": f"{one.account.sub_id}/{one.name}",
            "ProviderName": one.account.provider.name,
            "SubAccountId": one.account.sub_id,
            "ServiceCategory": one.category,
            "Tags": pl.Series([one.tags] * days, dtype=pl.String),
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
