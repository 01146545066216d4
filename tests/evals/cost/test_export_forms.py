"""Exports of cost data in forms that are no fault of theirs: empty texts, names of two versions, copies of a file."""

from __future__ import annotations

import shutil

import polars as pl
import pytest

from evals.cost.test_own_costs import as_csv, as_parquet, charges
from opsassay.core.errors import UserError
from opsassay.evals.cost.focus.export import read_export


def test_an_empty_text_in_parquet_is_no_value(tmp_path):
    plain = as_parquet(tmp_path / "plain.parquet", "CAST(t AS VARCHAR)")
    texts = pl.read_parquet(plain).with_columns(pl.col(pl.String).fill_null(""))
    texts.write_parquet(tmp_path / "texts.parquet")
    assert read_export([tmp_path / "texts.parquet"]).rows.equals(read_export([plain]).rows)


def test_an_empty_cost_in_parquet_is_refused(tmp_path):
    rows = pl.read_csv(as_csv(tmp_path / "a.csv", charges()), infer_schema=False)
    rows.with_columns(BilledCost=pl.lit("")).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(UserError, match="BilledCost is empty in"):
        read_export([tmp_path / "a.parquet"])


@pytest.mark.parametrize("name", ["ServiceProviderName", "service_provider_name"])
@pytest.mark.parametrize("older", ["", "ProviderName"])
def test_the_provider_stands_in_either_column_of_focus_1_3(tmp_path, name, older):
    plain = as_csv(tmp_path / "plain.csv", charges())
    rows = pl.read_csv(plain, infer_schema=False).rename({"ProviderName": name})
    rows = rows.with_columns(pl.lit(None, pl.String).alias(older)) if older else rows
    rows.write_csv(tmp_path / "newer.csv")
    found = read_export([tmp_path / "newer.csv"])
    assert found.rows.equals(read_export([plain]).rows)
    assert not found.notes


def test_a_copy_of_a_file_is_refused(tmp_path):
    first = as_csv(tmp_path / "march.csv", charges())
    shutil.copy(first, tmp_path / "again.csv")
    with pytest.raises(UserError, match=r"again.csv is a copy of .*march.csv"):
        read_export([first, tmp_path / "again.csv"])
