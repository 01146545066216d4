import polars as pl
import pytest
from pydantic import ValidationError

from opsassay.core.errors import UserError
from opsassay.telemetry.datapack import content_hash
from opsassay.telemetry.mask import Mask, apply
from opsassay.telemetry.schema import MODALITIES, PERIODS
from telemetry.packs import SECOND, make_pack


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return make_pack(tmp_path_factory.mktemp("packs") / "pack", traces=600)


def traces_of(pack, period):
    return set(pack.read(period, "traces")["trace_id"])


def test_no_mask_changes_nothing_but_env(pack, tmp_path):
    same = apply(pack, Mask(), tmp_path / "same")
    for period in PERIODS:
        for modality in MODALITIES:
            assert same.read(period, modality).equals(pack.read(period, modality))
    assert same.incident.id == pack.incident.id
    assert same.incident.content_hash != pack.incident.content_hash
    assert same.env["mask"] == Mask().model_dump(mode="json")


def test_dropped_tables_are_empty(pack, tmp_path):
    masked = apply(pack, Mask(drop=("logs", "metrics_sum")), tmp_path / "masked")
    empty = {m for m in MODALITIES if masked.both(m).collect().is_empty()}
    assert empty == {"logs", "metrics_sum"}


def test_whole_traces_are_sampled_the_same_way_each_time(pack, tmp_path):
    mask = Mask(trace_fraction=0.25, seed=3)
    masked = apply(pack, mask, tmp_path / "masked")
    kept = traces_of(masked, "normal")
    assert 100 < len(kept) < 200  # 150 of 600 expected, 10.6 standard deviation
    sizes = masked.both("traces").group_by("trace_id").len().collect()["len"]
    assert set(sizes) == {4}
    assert content_hash(apply(pack, mask, tmp_path / "again").path) == content_hash(masked.path)
    assert traces_of(apply(pack, Mask(trace_fraction=0.25, seed=4), tmp_path / "other"), "normal") != kept
    assert traces_of(apply(pack, Mask(trace_fraction=0.5, seed=3), tmp_path / "more"), "normal") > kept


def test_truncation_keeps_what_lies_beside_the_boundary(pack, tmp_path):
    masked = apply(pack, Mask(normal_s=20, abnormal_s=2), tmp_path / "masked")
    incident, boundary_ns = masked.incident, pack.incident.abnormal.start_ns
    assert (incident.normal.start_ns, incident.normal.end_ns) == (boundary_ns - 20 * SECOND, boundary_ns)
    assert (incident.abnormal.start_ns, incident.abnormal.end_ns) == (boundary_ns, boundary_ns + 2 * SECOND)
    assert len(traces_of(masked, "normal")) == 200  # ten each second
    assert len(traces_of(masked, "abnormal")) == 20
    time = pl.col("time").dt.epoch("ns")
    assert masked.both("logs").select(time.min()).collect().item() >= incident.normal.start_ns
    assert incident.alerts == ()  # it fired in the third second
    assert apply(pack, Mask(abnormal_s=4), tmp_path / "longer").incident.alerts == pack.incident.alerts


def test_a_longer_truncation_than_the_window_keeps_it(pack, tmp_path):
    masked = apply(pack, Mask(normal_s=1000, abnormal_s=1000), tmp_path / "masked")
    assert masked.incident.normal == pack.incident.normal
    assert masked.read("abnormal", "traces").equals(pack.read("abnormal", "traces"))


def test_a_mask_that_leaves_nothing_is_refused_and_writes_nothing(pack, tmp_path):
    with pytest.raises(UserError, match="leaves no spans in the normal period"):
        apply(pack, Mask(trace_fraction=1e-9), tmp_path / "masked")
    assert not (tmp_path / "masked").exists()


@pytest.mark.parametrize(
    "wrong", [{"trace_fraction": 0}, {"trace_fraction": 1.1}, {"drop": ["spans"]}, {"normal_s": 0}]
)
def test_wrong_masks(wrong):
    with pytest.raises(ValidationError):
        Mask(**wrong)
