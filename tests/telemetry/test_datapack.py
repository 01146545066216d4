import errno
import json
import math
from pathlib import Path

import polars as pl
import pytest

from opsassay.core.errors import DatapackError
from opsassay.telemetry.content import whole_file, whole_folder, write_table
from opsassay.telemetry.datapack import Datapack, content_hash, opaque_id, write_datapack
from opsassay.telemetry.schema import SCHEMA
from telemetry.packs import CHAIN, SECOND, START_NS, copied, make_frames, make_incident, make_pack


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return make_pack(tmp_path_factory.mktemp("packs") / "pack", error_in="store", traces=20)


def rewritten(folder, name, change):
    frame = pl.read_parquet(folder / name)
    (folder / "incident.json").unlink()
    change(frame).write_parquet(folder / name)
    return folder


def test_what_was_written_is_read(pack):
    assert pack.incident == make_incident().model_copy(update={"content_hash": pack.incident.content_hash})
    assert pack.env == {"namespace": "chain"}
    assert pack.warnings == ()
    assert pack.services() == sorted(CHAIN)
    abnormal = pack.read("abnormal", "traces")
    assert abnormal.height == 20 * 4  # three services and the load generator
    assert abnormal.filter(service_name="store", **{"attr.status_code": "Error"}).height == 20
    assert pack.read("normal", "traces").filter(pl.col("attr.status_code") == "Error").is_empty()
    assert pack.read("normal", "traces")["time"].dt.epoch("ns").min() == START_NS


def test_both_periods_below_each_other(pack):
    counts = pack.both("logs").group_by("period").len().sort("period").collect()
    assert counts.rows() == [("abnormal", 60), ("normal", 60)]


def test_env_names_further_load_generators(tmp_path):
    pack = make_pack(tmp_path / "pack", traces=3, env={"load_generators": ["frontend"]})
    assert pack.services() == ["cart", "store"]


def test_same_inputs_same_bytes_whatever_the_order_of_rows(tmp_path):
    frames = make_frames(traces=20, error_in="cart")
    shuffled = {table: frame.sample(fraction=1, shuffle=True, seed=5) for table, frame in frames.items()}
    one = write_datapack(tmp_path / "one", frames, make_incident(), {"b": 1, "a": 2})
    two = write_datapack(tmp_path / "two", shuffled, make_incident(), {"a": 2, "b": 1})
    assert one == two
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()
    assert content_hash(tmp_path / "one") == one.content_hash


def test_the_content_hash_depends_on_each_part(tmp_path):
    frames, incident = make_frames(traces=5), make_incident()
    other = {**frames, ("normal", "logs"): frames["normal", "logs"].head(3)}
    hashes = {
        write_datapack(tmp_path / "0", frames, incident, {}).content_hash,
        write_datapack(tmp_path / "1", other, incident, {}).content_hash,
        write_datapack(tmp_path / "2", frames, incident, {"x": 1}).content_hash,
        write_datapack(tmp_path / "3", frames, incident.model_copy(update={"description": "else"}), {}).content_hash,
    }
    assert len(hashes) == 4


def test_a_changed_datapack_says_so(pack, tmp_path):
    folder = copied(pack, tmp_path / "changed")
    (folder / "env.json").write_text('{"namespace": "other"}')
    assert "content hash differs" in " ".join(Datapack.open(folder).warnings)


def test_a_failed_write_leaves_nothing(tmp_path):
    frames = make_frames(traces=3)
    frames["abnormal", "metrics"] = frames["abnormal", "metrics"].drop("value")
    with pytest.raises(DatapackError, match=r"abnormal_metrics.parquet has no column 'value'"):
        write_datapack(tmp_path / "pack", frames, make_incident(), {})
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_never_overwritten(pack):
    with pytest.raises(DatapackError, match="exists already"):
        write_datapack(pack.path, make_frames(traces=3), make_incident(), {})


def test_traces_of_both_periods_are_needed_to_write(tmp_path):
    frames = make_frames(traces=3)
    del frames["normal", "traces"]
    with pytest.raises(DatapackError, match="without normal traces"):
        write_datapack(tmp_path / "pack", frames, make_incident(), {})


def test_missing_optional_tables_are_empty(pack, tmp_path):
    folder = copied(pack, tmp_path / "sparse")
    for name in ("normal_logs", "abnormal_logs", "normal_metrics_sum"):
        (folder / f"{name}.parquet").unlink()
    sparse = Datapack.open(folder)
    assert sparse.read("normal", "logs").is_empty()
    assert dict(sparse.scan("normal", "logs").collect_schema()) == dict(SCHEMA["logs"])
    assert sparse.both("metrics_sum").collect().height == 3


@pytest.mark.parametrize("name", ["normal_traces.parquet", "abnormal_traces.parquet"])
def test_missing_traces(pack, tmp_path, name):
    folder = copied(pack, tmp_path / "broken")
    (folder / name).unlink()
    with pytest.raises(DatapackError, match=rf"broken has no {name}"):
        Datapack.open(folder)


def test_a_file_is_not_a_datapack(tmp_path):
    with pytest.raises(DatapackError, match="is not a folder"):
        Datapack.open(tmp_path / "nothing")


def test_missing_column_names_folder_table_and_column(pack, tmp_path):
    folder = rewritten(copied(pack, tmp_path / "broken"), "abnormal_traces.parquet", lambda f: f.drop("span_id"))
    with pytest.raises(DatapackError, match=r"broken: abnormal_traces.parquet has no column 'span_id'; traces need"):
        Datapack.open(folder)


@pytest.mark.parametrize("name", ["normal_traces.parquet", "abnormal_metrics_histogram.parquet"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_truncated_tables(pack, tmp_path, name, share):
    file = copied(pack, tmp_path / "broken") / name
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
    with pytest.raises(DatapackError, match=rf"broken: {name} cannot be read") as caught:
        Datapack.open(file.parent)
    assert "\n" not in str(caught.value)


def test_a_period_without_any_row(pack, tmp_path):
    folder = copied(pack, tmp_path / "broken")
    for file in folder.glob("abnormal_*.parquet"):
        pl.read_parquet(file).clear().write_parquet(file)
    with pytest.raises(DatapackError, match="no rows at all in its abnormal period"):
        Datapack.open(folder)


def test_a_period_without_spans_is_a_warning_because_an_outage_may_look_so(tmp_path):
    frames = make_frames(traces=3)
    frames["abnormal", "traces"] = frames["abnormal", "traces"].clear()
    write_datapack(tmp_path / "pack", frames, make_incident(), {})
    assert "abnormal_traces.parquet has no rows" in Datapack.open(tmp_path / "pack").warnings[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda told: told.pop("normal"), "incident.json: normal: this key is required"),
        (lambda told: told["abnormal"].update(end_ns=told["abnormal"]["start_ns"]), "the abnormal window is empty"),
        (lambda told: told.update(id=None), "incident.json: id:"),
    ],
)
def test_a_bad_description(pack, tmp_path, change, said):
    folder = copied(pack, tmp_path / "broken")
    told = json.loads((folder / "incident.json").read_text())
    change(told)
    (folder / "incident.json").write_text(json.dumps(told))
    with pytest.raises(DatapackError, match=said):
        Datapack.open(folder)


@pytest.mark.parametrize("name", ["incident.json", "env.json"])
@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff"])
def test_json_that_is_none(pack, tmp_path, name, text):
    folder = copied(pack, tmp_path / "broken")
    (folder / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(DatapackError, match=name):
        Datapack.open(folder)


def test_unknown_keys_of_an_artefact_are_tolerated(pack, tmp_path):
    folder = copied(pack, tmp_path / "newer")
    told = json.loads((folder / "incident.json").read_text()) | {"schema_version": 9, "mood": "good"}
    (folder / "incident.json").write_text(json.dumps(told))
    assert Datapack.open(folder).incident.schema_version == 9


def test_repeated_span_ids_are_kept_and_reported(tmp_path):
    frames = make_frames(traces=5)
    frames["normal", "traces"] = pl.concat([frames["normal", "traces"], frames["normal", "traces"].head(2)])
    write_datapack(tmp_path / "pack", frames, make_incident(), {})
    pack = Datapack.open(tmp_path / "pack")
    assert pack.read("normal", "traces").height == 22
    assert [w for w in pack.warnings if "normal_traces.parquet repeats the ids of 2 spans" in w]


def test_nan_and_infinite_metrics_are_kept(tmp_path):
    frames = make_frames(traces=3, services=("frontend",), seconds=30)
    odd = pl.Series("value", [math.nan, math.inf, -math.inf])
    frames["normal", "metrics"] = frames["normal", "metrics"].with_columns(odd)
    write_datapack(tmp_path / "pack", frames, make_incident(seconds=30), {})
    values = Datapack.open(tmp_path / "pack").read("normal", "metrics")["value"].to_list()
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf]


@pytest.mark.parametrize("unit", ["us", "ms"])
def test_a_public_pack_in_other_units_has_the_same_rows(pack, tmp_path, unit):
    def coarser(frame):
        return frame.with_columns(pl.col("time").dt.cast_time_unit(unit).dt.replace_time_zone(None))

    folder = rewritten(copied(pack, tmp_path / "coarse"), "normal_traces.parquet", coarser)
    coarse = Datapack.open(folder)
    step = {"us": 10**3, "ms": 10**6}[unit]
    exact = pack.read("normal", "traces").select(pl.col("time").dt.epoch("ns") // step * step, "span_id")
    assert coarse.read("normal", "traces").select(pl.col("time").dt.epoch("ns"), "span_id").rows() == exact.rows()


def test_a_public_pack_gets_its_incident_from_its_times(pack, tmp_path):
    folder = copied(pack, tmp_path / "telling-name")
    (folder / "incident.json").unlink()
    incident = Datapack.open(folder).incident
    normal = pack.read("normal", "traces")["time"].dt.epoch("ns")
    assert (incident.normal.start_ns, incident.normal.end_ns) == (normal.min(), normal.max() + 1)
    assert incident.abnormal.start_ns >= START_NS + 60 * SECOND
    assert incident.system == "chain"
    assert incident.id == opaque_id(content_hash(folder))
    renamed = folder.rename(tmp_path / "other-name")
    (renamed / "injection.json").write_text("{}")
    assert Datapack.open(renamed).incident == incident


@pytest.mark.slow
def test_real_packs_open_without_warnings(real_data):
    folders = sorted((real_data / "nezha-datapacks").iterdir())
    opened = [Datapack.open(folder) for folder in folders]
    assert len({pack.incident.id for pack in opened}) == 28
    assert all(pack.warnings == () and pack.incident.system == "ts" for pack in opened)
    assert {len(pack.services()) for pack in opened} == {27, 28}


def test_a_full_disk_is_an_error_of_the_system_that_names_the_file(tmp_path):
    with pytest.raises(OSError, match="No space left on device") as raised:
        write_table(Path("/dev/full"), pl.DataFrame({"a": range(10)}))
    assert raised.value.errno == errno.ENOSPC
    for whole in (whole_file, whole_folder):
        with pytest.raises(OSError, match="No space left on device") as raised, whole(tmp_path / "x"):
            write_table(Path("/dev/full"), pl.DataFrame({"a": range(10)}))
        assert raised.value.filename == str(tmp_path / "x")
        assert list(tmp_path.iterdir()) == []
