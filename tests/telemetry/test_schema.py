from datetime import UTC, datetime

import polars as pl
import pytest

from opsassay.core.errors import DatapackError
from opsassay.telemetry.schema import MODALITIES, PERIODS, REQUIRED, SCHEMA, conform, empty

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
ROW = {
    "time": [MOMENT],
    "trace_id": ["t"],
    "span_id": ["s"],
    "parent_span_id": [None],
    "span_name": ["GET /"],
    "service_name": ["frontend"],
    "duration": [7],
}


def test_our_schema_is_that_of_the_real_public_packs(real_data):
    folder = sorted((real_data / "nezha-datapacks").iterdir())[0]
    for period in PERIODS:
        for modality in MODALITIES:
            given = pl.read_parquet_schema(folder / f"{period}_{modality}.parquet")
            links = {"attr.source", "attr.destination"}  # that converter's own columns
            assert list(SCHEMA[modality].items()) == [(n, t) for n, t in given.items() if n not in links]


def test_required_columns_are_columns():
    for modality in MODALITIES:
        assert REQUIRED[modality] < set(SCHEMA[modality])


def test_a_missing_optional_column_becomes_null_and_extra_columns_stay_at_the_end():
    given = pl.DataFrame(ROW).with_columns(mine=pl.lit(3))
    table = conform(given, "traces", "here")
    assert table.columns == [*SCHEMA["traces"], "mine"]
    assert table.drop("mine").schema == empty("traces").schema
    assert table["attr.status_code"].to_list() == [None]
    assert table["mine"].to_list() == [3]


def test_a_null_parent_is_a_root():
    assert conform(pl.DataFrame(ROW), "traces", "here")["parent_span_id"].to_list() == [""]


@pytest.mark.parametrize("missing", sorted(REQUIRED["traces"]))
@pytest.mark.parametrize("lazy", [False, True])
def test_a_missing_required_column_is_named(missing, lazy):
    given = pl.DataFrame(ROW).drop(missing)
    with pytest.raises(DatapackError, match=f"here: table has no column '{missing}'"):
        conform(given.lazy() if lazy else given, "traces", "here: table")


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Vienna"])
def test_times_of_every_unit_and_zone_become_ns_of_utc(unit, zone):
    wall = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC).replace(
        tzinfo=None
    )  # a winter's day: Vienna is an hour ahead
    column = pl.Series("time", [wall], dtype=pl.Datetime(unit)).dt.replace_time_zone(zone)
    table = conform(pl.DataFrame(ROW | {"time": column}), "traces", "here")
    hours_ahead = 1 if zone == "Europe/Vienna" else 0
    expected = (
        int(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()) * 10**9 + 678_000_000 - hours_ahead * 3600 * 10**9
    )
    assert table.schema["time"] == pl.Datetime("ns", "UTC")
    assert table["time"].dt.epoch("ns").to_list() == [expected]


def test_a_time_that_is_a_number_is_refused_rather_than_guessed():
    with pytest.raises(DatapackError, match="here has a column 'time' of type Int64"):
        conform(pl.DataFrame(ROW | {"time": [1_700_000_000]}), "traces", "here")


def test_a_value_that_does_not_fit_is_one_sentence():
    with pytest.raises(DatapackError, match="here has a value that does not fit") as caught:
        conform(pl.DataFrame(ROW | {"duration": [-7]}), "traces", "here")
    assert "\n" not in str(caught.value)


def test_numbers_of_other_widths_are_converted():
    table = conform(pl.DataFrame(ROW | {"attr.http.response.status_code": ["503"]}), "traces", "here")
    assert table["attr.http.response.status_code"].to_list() == [503]
    assert table.schema["attr.http.response.status_code"] == pl.UInt16
