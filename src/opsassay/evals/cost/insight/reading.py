"""Selects the charges of a question, in two ways: the first part of every DuckDB statement, and the same in polars."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

import polars as pl

from opsassay.evals.cost.focus.schema import COSTS, EXCHANGE_RATES
from opsassay.evals.cost.insight.question import PICO, Tables, Terms

TAGS = ("application", "cost_center", "environment")
_MONEY = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")


def sql_rows(terms: Terms) -> str:
    """Return the WITH clause of a statement: ``charges`` are the rows in the window, with picodollars, day and tags.

    ``chosen`` are the charges that count; their column pico is the requested cost. Picodollars (1e-12 USD) are whole:
    micro-units of the currency times micro-USD for one unit. A team's own amounts have 12 decimals and are not
    converted.
    """
    tags = ", ".join(
        f"nullif(nullif(json_extract_string(try_cast(nullif(Tags, 'NULL') AS JSON), {_pointer(key)}), ''), 'NULL') AS {tag}"
        for tag, key in _tag_keys(terms).items()
    )
    rate = "CAST(r.UsdPerUnit * 1000000 AS HUGEINT)" if terms.convert else "1000000"
    whole = "CAST(c.{0} * 1000000 AS HUGEINT) * " + rate
    if terms.own is not None:
        whole = "CAST(replace(CAST(c.{0} AS VARCHAR), '.', '') AS HUGEINT)"
    pico = ", ".join(f"{whole.format(name)} AS {name}_pico" for name in _MONEY)
    local = f"timezone('{terms.zone}', c.ChargePeriodStart)::DATE"
    kept = [f"{terms.cost} >= 0"] if terms.negative == "leave_out" else []
    kept += [] if terms.taxes else ["ChargeCategory <> 'Tax'"]
    return (
        f"WITH charges AS (SELECT * FROM (SELECT c.*, {pico}, {local} AS day, {tags} FROM costs c"
        f"{'' if terms.own else ' JOIN exchange_rates r ON r.Currency = c.BillingCurrency'}) "
        f"WHERE day BETWEEN DATE '{terms.first}' AND DATE '{terms.last}'), "
        f"chosen AS (SELECT *, {terms.cost}_pico AS pico FROM charges WHERE {' AND '.join(kept) or 'true'}) "
    )


def _tag_keys(terms: Terms) -> dict[str, str]:
    """Return the name in TAGS to the tag key in the data; a team's own key replaces "application"."""
    own = {"application": terms.own.tag} if terms.own is not None and terms.own.tag is not None else {}
    return dict(zip(TAGS, TAGS, strict=True)) | own


def _pointer(key: str) -> str:
    """Return the JSON pointer (RFC 6901) to *key* as an SQL literal."""
    return sql_literals(["/" + key.replace("~", "~0").replace("/", "~1")])


def frame_rows(tables: Tables, terms: Terms) -> pl.DataFrame:
    """Return the rows of `sql_rows` computed independently with polars.

    Further columns: day, the TAGS, NAME_pico for each cost column NAME, and pico, the cost that *terms* ask for.
    """
    zone = ZoneInfo(terms.zone)
    start = datetime.combine(terms.first, datetime.min.time(), zone).astimezone(UTC)
    end = datetime.combine(terms.last + timedelta(days=1), datetime.min.time(), zone).astimezone(UTC)
    costs = tables[COSTS].lazy().filter(
        (pl.col("ChargePeriodStart") >= start) & (pl.col("ChargePeriodStart") < end)
    )  # fmt: skip
    found = (costs if terms.own else _with_rates(costs, tables, terms)).collect()
    keys = tuple(_tag_keys(terms).values())
    parsed = {text: _tag_values(text, keys) for text in found["Tags"].unique().drop_nulls().to_list()}
    lookup = pl.DataFrame(
        [(text, *values) for text, values in parsed.items()], schema=["Tags", *TAGS], orient="row"
    ).cast(pl.String)  # fmt: skip
    rows = found.join(lookup, on="Tags", how="left", maintain_order="left").with_columns(
        pl.col("ChargePeriodStart").dt.convert_time_zone(terms.zone).dt.date().alias("day"),
        *(_pico(name, terms).alias(f"{name}_pico") for name in _MONEY),
    ).with_columns(pl.col(f"{terms.cost}_pico").alias("pico"))  # fmt: skip
    rows = rows if terms.taxes else rows.filter(pl.col("ChargeCategory") != "Tax")
    return rows.filter(pl.col("pico") >= 0) if terms.negative == "leave_out" else rows


def _with_rates(costs: pl.LazyFrame, tables: Tables, terms: Terms) -> pl.LazyFrame:
    """Return *costs* with a column rate, micro-USD per currency unit; 1,000,000 if amounts are not to be converted."""
    rates = tables[EXCHANGE_RATES].lazy().select(
        pl.col("Currency").alias("BillingCurrency"),
        pl.col("UsdPerUnit").to_physical().cast(pl.Int64).alias("rate") if terms.convert else pl.lit(10**6).alias("rate"),
    )  # fmt: skip
    return costs.join(rates, on="BillingCurrency", how="inner", maintain_order="left")


def _pico(name: str, terms: Terms) -> pl.Expr:
    """Return the expression of column *name* in whole picodollars (1e-12); 128-bit for a team's own costs."""
    amount = pl.col(name).to_physical()
    return amount.cast(pl.Int128) if terms.own else amount.cast(pl.Int64) * pl.col("rate")


def _tag_values(text: str, keys: Sequence[str]) -> list[str | None]:
    """Return the values of the tags *keys* in the JSON *text*, None where missing, empty or the text NULL."""
    try:
        given = json.loads(text)
    except ValueError:
        given = {}
    values = (given.get(key) if isinstance(given, dict) else None for key in keys)
    return [None if value in (None, "", "NULL") else str(value) for value in values]


def dollars(pico: int) -> Fraction:
    """Return *pico* picodollars (1e-12 USD) in USD, exactly."""
    return Fraction(pico, PICO)


def share(part: int, total: int) -> Fraction:
    """Return *part* as a percentage of *total*, exactly."""
    return Fraction(100 * part, total)


def sql_literals(names: Iterable[str]) -> str:
    """Return *names* as a comma-separated list of SQL literals."""
    return ", ".join("'" + name.replace("'", "''") + "'" for name in names)
