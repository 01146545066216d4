"""Charges of a bill other than hourly usage: purchases, unused commitments, taxes, credits, corrections; and budgets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from opsassay.evals.cost.focus.planting import Distraction, Planted
from opsassay.evals.cost.focus.world import CLOSED, MICRO, REFUNDED, Commitment, Resource, SubAccount, World
from opsassay.evals.runner.draws import Draws

TAX_PERMILLE = 80
_OF_NO_SERVICE = {"ServiceName": "Other", "ServiceCategory": "Other", "ServiceSubcategory": "Other (Other)"}
"""Service columns of a charge on a whole account: FOCUS 1.2 allows none of them to be null."""


def window(account: SubAccount) -> dict[str, str | None]:
    """Return the FOCUS columns that identify the provider, billing account and sub-account of *account*."""
    provider = account.provider
    return {
        "ProviderName": provider.name, "PublisherName": provider.publisher, "InvoiceIssuerName": provider.publisher,
        "BillingAccountId": account.billing_id, "BillingAccountName": f"{provider.name} {account.billing_id[-4:]}",
        "BillingAccountType": provider.billing_type, "SubAccountId": account.sub_id, "SubAccountName": account.sub_name,
        "SubAccountType": provider.sub_type,
    }  # fmt: skip


def extra_rows(
    world: World, planted: Sequence[Planted], distractions: Sequence[Distraction], usage: pl.DataFrame
) -> list[dict[str, Any]]:
    """Return all charges but hourly *usage*, in micro-units; credits hide *planted* anomalies or are *distractions*."""
    draws = Draws(world.seed, "extras")
    rows = [
        *_commitment_rows(world),
        *_tax_rows(world, usage),
        *_anomaly_credits(world, planted, distractions, usage),
        *_other_credits(world, draws, usage),
    ]
    return [{**row, "BillingPeriodStart": _billing_month(world, row["ChargePeriodStart"])[0],
             "BillingPeriodEnd": _billing_month(world, row["ChargePeriodStart"])[1]} for row in rows]  # fmt: skip


def budgets(world: World) -> pl.DataFrame:
    """Return a row per sub-account (but the closed one) and month with its budget and forecast in micro-USD."""
    draws = Draws(world.seed, "budgets")
    rows = [
        (one.sub_id, f"{start:%Y-%m}", 100 * MICRO * draws.integer(5, 120), 100 * MICRO * draws.integer(5, 120))
        for start in (world.start, world.middle)
        for one in world.accounts
        if one.sub_name != CLOSED
    ]
    zero = next(n for n, row in enumerate(rows) if row[0] == world.accounts[0].sub_id)
    rows[zero] = (*rows[zero][:2], 0, rows[zero][3])  # a budget of nothing: its variance is not defined
    return pl.DataFrame(rows, schema=["SubAccountId", "Month", "BudgetUsd", "ForecastUsd"], orient="row")


def _cost_row(
    account: SubAccount, category: str, start: datetime, end: datetime, cost: int, **overrides: Any
) -> dict[str, Any]:
    """Return a charge from *start* to *end*, all four FOCUS costs set to *cost* (micro-units), *overrides* replaced."""
    return {
        **window(account),
        "InvoiceId": f"INV-{account.billing_id}-{start:%Y%m}",
        "ChargePeriodStart": start, "ChargePeriodEnd": end, "ChargeCategory": category, "ChargeFrequency": "One-Time",
        "BilledCost": cost, "EffectiveCost": cost, "ListCost": cost, "ContractedCost": cost,
        "BillingCurrency": account.currency, "PricingCurrency": "USD",
        **_OF_NO_SERVICE,
        **overrides,
    }  # fmt: skip


def _service_columns(resource: Resource) -> dict[str, Any]:
    """Return the FOCUS columns that name the service of *resource*."""
    return {
        "ServiceName": resource.service,
        "ServiceCategory": resource.category,
        "ServiceSubcategory": resource.subcategory,
    }


def _billing_month(world: World, moment: datetime) -> tuple[datetime, datetime]:
    """Return the start and end of the billing month that *moment* is in."""
    return (world.start, world.middle) if moment < world.middle else (world.middle, world.end)


def _commitment_rows(world: World) -> Iterator[dict[str, Any]]:
    """Yield the charges of commitments: one purchase per month, and the unused part of each day."""
    for one in world.commitments:
        rate = world.rates[one.account.currency]
        hourly = one.hourly_micros * MICRO // rate
        of_service = _service_columns(next(resource for resource in world.resources if resource.commitment == one))
        for start, end in ((world.start, world.middle), (world.middle, world.end)):
            bought = hourly * (int((end - start).total_seconds()) // 3600)
            yield _cost_row(
                one.account, "Purchase", start, end, bought, **_discount_columns(one), **of_service,
                **_priced(one, hourly, int((end - start).total_seconds()) // 3600 * MICRO, bought), EffectiveCost=0,
                ChargeFrequency="Recurring", ChargeDescription=f"{one.kind} for {start:%Y-%m}", PricingCategory="Standard",
            )  # fmt: skip
        for day in range(world.hours // 24):
            at, unused = world.start + timedelta(days=day), 24 * hourly * one.waste // 1000
            yield _cost_row(
                one.account, "Usage", at, at + timedelta(days=1), unused, **_discount_columns(one), **of_service,
                **_priced(one, hourly, 24 * one.waste * MICRO // 1000, unused), BilledCost=0,
                CommitmentDiscountStatus="Unused", ChargeFrequency="Usage-Based",
                ChargeDescription=f"{one.kind}, not used", PricingCategory="Committed",
            )  # fmt: skip


def _priced(commitment: Commitment, hourly: int, quantity: int, cost: int) -> dict[str, Any]:
    """Return a commitment's price columns: *hourly* price and *cost* in micro-units, *quantity* in micro-hours."""
    by_money = commitment.category == "Spend"
    return {
        "SkuId": commitment.kind, "SkuPriceId": f"{commitment.kind}-{commitment.account.provider.name}",
        "PricingUnit": "Commitment-Hours",
        "PricingQuantity": quantity, "ListUnitPrice": hourly, "ContractedUnitPrice": hourly,
        "CommitmentDiscountQuantity": cost if by_money else quantity,
        "CommitmentDiscountUnit": commitment.account.currency if by_money else "Hours",
    }  # fmt: skip


def _discount_columns(commitment: Commitment) -> dict[str, Any]:
    """Return the FOCUS columns that name the commitment discount."""
    return {
        "CommitmentDiscountId": commitment.id, "CommitmentDiscountName": commitment.kind,
        "CommitmentDiscountCategory": commitment.category,
        "CommitmentDiscountType": commitment.kind,
    }  # fmt: skip


def _tax_rows(world: World, usage: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield one tax charge per sub-account and month, in the currency of its billing account."""
    billed = _billed_usage(usage)
    for account in world.accounts:
        for start, end in ((world.start, world.middle), (world.middle, world.end)):
            cost = billed.get((account.sub_id, start), 0) * TAX_PERMILLE // 1000
            if cost:
                yield _cost_row(account, "Tax", start, end, cost, ChargeDescription=f"Tax for {start:%Y-%m}",
                           ChargeFrequency="Recurring")  # fmt: skip


def _billed_usage(usage: pl.DataFrame) -> dict[tuple[str, datetime], int]:
    """Return BilledCost summed by (sub-account, month start), in micro-units."""
    sums = usage.group_by("SubAccountId", "BillingPeriodStart").agg(pl.col("BilledCost").sum())
    return {(sub, start): cost for sub, start, cost in sums.rows()}


def _anomaly_credits(
    world: World, planted: Sequence[Planted], distractions: Sequence[Distraction], usage: pl.DataFrame
) -> Iterator[dict[str, Any]]:
    """Yield the hourly credits of *distractions*: some cancel a *planted* anomaly, others look like one."""
    for one in distractions:
        if "credit" not in one.kind:
            continue
        resource = world.resources[one.resource]
        factor = next((e.factors[0] for e in planted if (e.resource, e.start) == (one.resource, one.start)), None)
        of = usage.filter(pl.col("ResourceName") == resource.name)
        for hour in range(one.start, one.end):
            at = world.start + timedelta(hours=hour)
            cost = int(of["BilledCost"][hour])
            back = cost * 3 if factor is None else cost - cost * 1000 // factor
            yield _cost_row(
                resource.account, "Credit", at, at + timedelta(hours=1), -back, **_service_columns(resource),
                PricingUnit=resource.unit, PricingQuantity=int(of["PricingQuantity"][hour]),
                SkuPriceId=of["SkuPriceId"][hour],
                ChargeDescription="Promotional credit",
                ResourceName=resource.name, Tags=resource.tags,
            )  # fmt: skip


def _other_credits(world: World, draws: Draws, usage: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield random credits of sub-accounts and corrections, the refund of a closed account, and a negative bill."""
    billed = _billed_usage(usage)
    tags = {one.account.sub_id: one.tags for one in world.resources if one.tags and '"application"' in one.tags}
    for account in world.accounts:
        for start in (world.start, world.middle):
            base = billed.get((account.sub_id, start), 0)
            at = start + timedelta(hours=draws.integer(0, 600))
            share = 1150 if account.sub_name == REFUNDED else draws.integer(5, 300)
            if base and (draws.integer(0, 3) or account.sub_name == REFUNDED):
                yield _cost_row(account, "Credit", at, at + timedelta(hours=1), -(base * share // 1000),
                           Tags=tags.get(account.sub_id), ChargeDescription="Credit granted after the charge")  # fmt: skip
    for account in draws.sample(world.accounts[:-2], 8):
        at = world.middle + timedelta(hours=draws.integer(0, 400))
        cost = -MICRO * draws.integer(1, 40)
        of_service = _service_columns(draws.choice([one for one in world.resources if one.account == account]))
        yield _cost_row(account, "Usage", at, at + timedelta(hours=1), cost, ChargeClass="Correction", **of_service,
                   ChargeDescription="Correction of last month",
                   Tags='{"application": "atlas", "cost_center": "1001", "environment": "prod"}')  # fmt: skip
    closed = next(one for one in world.accounts if one.sub_name == CLOSED)
    at = world.start + timedelta(days=3)
    yield _cost_row(closed, "Adjustment", at, at + timedelta(hours=1), -25 * MICRO, ChargeDescription="Refund at closing",
               Tags="NULL")  # fmt: skip
