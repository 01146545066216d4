"""Cost data of a seed: the same everywhere, in the columns of FOCUS 1.2, with all the traps of a bill."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from decimal import Decimal

import polars as pl
import pytest

from opsassay.evals.cost.focus.generate import cost_data, write_tables
from opsassay.evals.cost.focus.schema import COSTS, TABLES, describe_columns, frame_schema
from opsassay.evals.cost.focus.world import CLOSED, REFUNDED
from opsassay.evals.runner.draws import Draws
from opsassay.telemetry.sql import LockedSql, TableFolder

DIGEST = """
import hashlib, sys, tempfile, pathlib
from opsassay.evals.cost.focus.generate import cost_data, write_tables
with tempfile.TemporaryDirectory() as folder:
    files = write_tables(cost_data(int(sys.argv[1])), pathlib.Path(folder))
    print(hashlib.sha256(b"".join(files[name].read_bytes() for name in sorted(files))).hexdigest())
"""


def digest(folder, seed):
    files = write_tables(cost_data(seed), folder)
    return hashlib.sha256(b"".join(files[name].read_bytes() for name in sorted(files))).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "4"])
def test_the_same_seed_gives_the_same_bytes_in_other_processes_and_with_other_threads(tmp_path, threads):
    environment = {**os.environ, "POLARS_MAX_THREADS": threads, "PYTHONHASHSEED": threads}
    ended = subprocess.run(
        [sys.executable, "-c", DIGEST, "7"], capture_output=True, text=True, check=True, env=environment
    )
    assert ended.stdout.strip() == digest(tmp_path, 7)


@pytest.mark.slow
def test_another_seed_gives_other_data(tmp_path):
    assert digest(tmp_path, 7) != digest(tmp_path, 8)


def test_draws_are_whole_numbers_of_a_stable_stream():
    draws = Draws(1, "test")
    assert [draws.integer(0, 999) for _ in range(5)] == [int(n) for n in Draws(1, "test").integers(5, 0, 999)]
    assert Draws(1, "other").integer(0, 10**9) != Draws(1, "test").integer(0, 10**9)
    assert sorted(Draws(3, "s").sample("abcdef", 6)) == list("abcdef")


def test_it_has_every_column_of_focus_and_more_than_a_hundred_thousand_rows():
    costs = cost_data(1).tables[COSTS]
    assert costs.columns == list(TABLES[COSTS])
    assert len(costs.columns) == 57
    assert costs.height > 100_000


def test_the_columns_are_focus_1_2_as_another_tool_reads_them():
    detection = pytest.importorskip("focus_data_toolkit.schema.detection", reason="focus-data-toolkit: the extra dev")
    found = detection.detect_focus_schema(list(TABLES[COSTS]))
    assert (found.detected_version, found.confidence, found.missing_columns, found.unknown_columns) == (
        "1.2", "HIGH", (), ()
    )  # fmt: skip


CHARGED = (pl.col("ChargeCategory").is_in(["Usage", "Purchase"])) & (
    pl.col("ChargeClass").fill_null("") != "Correction"
)
COMMITTED = pl.col("CommitmentDiscountId").is_not_null()
FOCUS_RULES = {  # what a row may not be, by FOCUS 1.2, specification/columns
    **{
        f"{name} is null": pl.col(name).is_null()
        for name in (
            "BilledCost", "BillingAccountId", "BillingAccountType", "BillingCurrency", "BillingPeriodEnd",
            "BillingPeriodStart", "ChargeCategory", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart",
            "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost", "ProviderName", "PublisherName",
            "ServiceCategory", "ServiceName", "ServiceSubcategory",
        )
    },
    "PricingUnit without PricingQuantity": pl.col("PricingUnit").is_not_null() != pl.col("PricingQuantity").is_not_null(),
    "PricingQuantity without SkuPriceId": pl.col("PricingQuantity").is_not_null() & pl.col("SkuPriceId").is_null(),
    "a charge without PricingQuantity": CHARGED & pl.col("PricingQuantity").is_null(),
    "a charge without unit prices": CHARGED & (pl.col("ListUnitPrice").is_null() | pl.col("ContractedUnitPrice").is_null()),
    "a tax with a quantity": (pl.col("ChargeCategory") == "Tax") & pl.col("PricingQuantity").is_not_null(),
    "usage without the state of its commitment":
        COMMITTED & (pl.col("ChargeCategory") == "Usage") & pl.col("CommitmentDiscountStatus").is_null(),
    "a commitment without name, category, type or quantity": COMMITTED & pl.any_horizontal(
        pl.col("CommitmentDiscountName", "CommitmentDiscountCategory", "CommitmentDiscountType",
               "CommitmentDiscountQuantity", "CommitmentDiscountUnit").is_null()),
    "something of a commitment without one": ~COMMITTED & pl.any_horizontal(
        pl.col("CommitmentDiscountName", "CommitmentDiscountCategory", "CommitmentDiscountType",
               "CommitmentDiscountStatus", "CommitmentDiscountQuantity", "CommitmentDiscountUnit").is_not_null()),
    "a quantity that was consumed but not used":
        (pl.col("ConsumedQuantity").is_not_null()) & ((pl.col("ChargeCategory") != "Usage")
                                                      | (pl.col("CommitmentDiscountStatus") == "Unused")),
    "a currency that is none": ~pl.col("BillingCurrency").str.contains("^[A-Z]{3}$"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 7])
def test_no_row_is_one_that_focus_1_2_does_not_allow(seed):
    costs = cost_data(seed).tables[COSTS]
    assert {rule: n for rule, wrong in FOCUS_RULES.items() if (n := costs.filter(wrong).height)} == {}


def test_a_bill_has_its_traps():
    costs = cost_data(1).tables[COSTS]
    totals = dict(costs.group_by("SubAccountName").agg(pl.sum("BilledCost")).rows())
    assert totals[CLOSED] == Decimal(-25), "an account with nothing but a refund"
    assert totals[REFUNDED] < 0, "an account whose credits exceed its charges"
    assert {"NULL", None} <= set(costs["Tags"]), "no tags, written in both ways"
    assert set(costs["BillingCurrency"]) == {"USD", "EUR", "GBP", "JPY"}
    assert costs.filter(pl.col("ConsumedUnit") != pl.col("PricingUnit")).height, "a unit that changes"
    moved = costs.group_by("SubAccountId").agg(pl.col("BillingCurrency").n_unique())
    assert moved["BillingCurrency"].max() == 2, "an account that moves to another currency"
    assert costs.filter(pl.col("ChargeClass") == "Correction").height
    assert set(costs["CommitmentDiscountStatus"]) == {None, "Used", "Unused"}


@pytest.mark.slow
def test_costs_are_ordered_as_the_specification_has_them():
    usage = cost_data(2).tables[COSTS].filter((pl.col("ChargeCategory") == "Usage") & pl.col("ChargeClass").is_null())
    usage = usage.filter(pl.col("CommitmentDiscountStatus").is_null() | (pl.col("CommitmentDiscountStatus") == "Used"))
    assert usage.filter(pl.col("ListCost") < pl.col("ContractedCost")).is_empty()
    assert usage.filter(pl.col("ContractedCost") < pl.col("EffectiveCost")).is_empty()
    assert usage.filter((pl.col("CommitmentDiscountStatus") == "Used") & (pl.col("BilledCost") != 0)).is_empty()


def test_nothing_that_an_agent_sees_names_what_was_planted():
    tables = cost_data(1).tables
    texts = " ".join(map(str, tables[COSTS].select(pl.col(pl.String)).unique(["ResourceName"]).rows())).lower()
    for word in ("spike", "drift", "masking", "planted", "distract"):
        assert word not in texts


def test_locked_sql_reads_a_folder_of_tables(tmp_path):
    write_tables(cost_data(1), tmp_path)
    with LockedSql(TableFolder(tmp_path)) as sql:
        assert sql.tables() == ["budgets", "costs", "exchange_rates", "resource_days"]
        assert sql.query("SELECT count(*) FROM costs").rows == ((cost_data(1).tables[COSTS].height,),)
        assert "ApplicationName" in sql.query("SELECT ApplicationName FROM costs").message
        types = sql.schema("costs")
    assert (
        describe_columns("costs", frame_schema("costs"))
        .splitlines()[18]
        .startswith(f"BilledCost {types['BilledCost']}")
    )
    assert types["ChargePeriodStart"] == "TIMESTAMP WITH TIME ZONE"
