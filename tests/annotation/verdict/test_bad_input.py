"""Recordings that are odd or broken: each has its one sentence, and what can be judged is judged."""

from __future__ import annotations

import re

import polars as pl
import pytest

from annotation import systems
from annotation.cascade import EPOCH, NANO, SECONDS, Effect, fault, frames, incident, make_pack
from opsassay.annotation.reading import preflight
from opsassay.annotation.search.paths import SearchLimits
from opsassay.annotation.verdict.annotate import annotate
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.core.errors import DatapackError
from opsassay.core.schema.incident import Label
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack

EFFECT = Effect(own_ms={"payment": 300})
FAULT = fault("HTTPResponseDelay", "payment", EFFECT)
UP = {("payment", "orders"), ("orders", "gateway")}


def written(folder, tables, described=None):
    write_datapack(folder, tables, described or incident(), {})
    return Datapack.open(folder)


def changed(folder, change, periods=("normal", "abnormal")):
    """Write a pack whose traces went through *change*."""
    tables = frames(systems.deep(), EFFECT)
    for period in periods:
        tables[period, "traces"] = change(tables[period, "traces"])
    return written(folder, tables)


def still_right(pack):
    found = annotate(pack, [FAULT])
    assert found.label is Label.ATTRIBUTED, found.reason
    assert found.graph.service_edges() == UP
    return found


@pytest.mark.parametrize("period", ["normal", "abnormal"])
def test_a_window_without_spans(tmp_path, period):
    pack = changed(tmp_path / "pack", lambda t: t.clear(), [period])
    with pytest.raises(
        DatapackError, match=rf"has no spans in its {period} window, so nothing can be compared; record"
    ):
        annotate(pack, [FAULT])


def test_duplicate_span_ids(tmp_path):
    pack = changed(tmp_path / "pack", lambda t: pl.concat([t, t.head(50)]))
    assert "100 spans repeat the ids of others; the first of each is kept." in still_right(pack).notes


@pytest.mark.sampled
@pytest.mark.parametrize("column", ["service_name", "span_name", "attr.k8s.pod.name", "attr.span_kind"])
def test_spans_without_a_name(tmp_path, column):
    some = pl.int_range(pl.len()) % 97 == 5
    pack = changed(tmp_path / "pack", lambda t: t.with_columns(pl.when(~some).then(pl.col(column)).alias(column)))
    found = annotate(pack, [FAULT])
    assert found.label is Label.ATTRIBUTED, found.reason
    assert found.graph.service_edges() >= UP


def test_orphan_spans(tmp_path):
    orphaned = pl.when(pl.col("service_name") == "weather").then(pl.lit("lost")).otherwise("parent_span_id")
    pack = changed(tmp_path / "pack", lambda t: t.with_columns(parent_span_id=orphaned))
    found = still_right(pack)
    assert any("spans name a parent that is not there; each counts as an entry." in note for note in found.notes)


def test_cyclic_parents(tmp_path):
    """Two spans of one service that are each other's parents, and one that is its own."""

    def with_cycles(table):
        row = table.filter(pl.col("service_name") == "weather").head(1)
        row = row.with_columns(trace_id=pl.lit("loop"))
        cycle = [("c1", "c2"), ("c2", "c1"), ("c3", "c3")]
        return pl.concat(
            [
                table,
                *(
                    row.with_columns(span_id=pl.lit(a), parent_span_id=pl.lit(b), trace_id=pl.lit("loop"))
                    for a, b in cycle
                ),
            ]
        )

    found = still_right(changed(tmp_path / "pack", with_cycles))
    assert "6 spans are their own ancestors; they are left out." in found.notes


def test_a_clock_that_jumped(tmp_path):
    def jumped(table):
        late = table.head(20).with_columns(pl.col("time").dt.offset_by("5h"), trace_id=pl.lit("x") + pl.col("trace_id"))
        return pl.concat([table, late])

    found = still_right(changed(tmp_path / "pack", jumped))
    assert "40 spans lie outside their window (a clock jumped?); they are left out." in found.notes


def test_windows_that_overlap(tmp_path):
    whole = incident()
    overlapping = whole.model_copy(
        update={"normal": whole.normal.model_copy(update={"end_ns": whole.normal.end_ns + 10 * NANO})}
    )
    pack = written(tmp_path / "pack", frames(systems.deep(), EFFECT), overlapping)
    assert "The windows overlap by 10 s, so the baseline holds part of the fault." in annotate(pack, [FAULT]).notes


def test_a_target_that_is_not_in_the_data(tmp_path):
    pack = make_pack(tmp_path / "pack", systems.deep(), EFFECT)
    found = annotate(pack, [fault("HTTPResponseDelay", "nobody", EFFECT)])
    assert found.label is Label.UNEXPLAINED
    assert "the target nobody is nowhere in the traces" in found.reason


def test_overlapping_faults_have_a_root_each(tmp_path):
    both = Effect(own_ms={"payment": 300, "weather": 200})
    pack = make_pack(tmp_path / "pack", systems.deep(), both)
    found = annotate(pack, [fault("HTTPResponseDelay", s, both) for s in ("payment", "weather")])
    assert found.label is Label.ATTRIBUTED
    assert found.graph.root_services() == {"payment", "weather"}
    assert found.graph.service_edges() == UP | {("weather", "gateway")}
    assert [root.service for root in found.roots] == [("payment",), ("weather",)]
    assert [(f.place, f.label) for f in found.faults] == [("payment", Label.ATTRIBUTED), ("weather", Label.ATTRIBUTED)]
    assert found.alarms["unexplained"] == ()


def test_of_two_faults_the_one_without_effect_is_no_root(tmp_path):
    pack = make_pack(tmp_path / "pack", systems.deep(), EFFECT)
    found = annotate(pack, [FAULT, fault("HTTPResponseDelay", "bank", EFFECT)])
    assert found.graph.root_services() == {"payment"}
    assert [r.path for r in found.rejected if r.gate == "signature"] == [("service|bank",)]
    assert [(f.place, f.label) for f in found.faults] == [("payment", Label.ATTRIBUTED), ("bank", Label.NO_EFFECT)]


def test_more_spans_than_memory(tmp_path):
    pack = make_pack(tmp_path / "pack", systems.deep(), EFFECT)
    small = AnnotateSettings(limits=SearchLimits(memory_mb=1))
    with pytest.raises(DatapackError, match=r"spans, which need about [\d,]+ MB of memory, and there are 1: use fewer"):
        annotate(pack, [FAULT], settings=small)


def test_of_more_spans_than_memory_a_sample_of_traces_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "FEWEST_SPANS", 1000)
    pack = make_pack(tmp_path / "pack", {call: 6 * rate for call, rate in systems.deep().items()}, EFFECT)
    spans = sum(pack.read(period, "traces").height for period in ("normal", "abnormal"))
    room_mb = int(spans * preflight.BYTES_PER_SPAN / 2**20 / 2)
    found = annotate(pack, [FAULT], settings=AnnotateSettings(limits=SearchLimits(memory_mb=room_mb)))
    assert re.fullmatch(rf"One in [23] traces is read: there are {spans:,} spans, which need .*\.", found.notes[0])
    assert found.graph.root_services() == {"payment"}
    assert found.label is Label.ATTRIBUTED
    whole = annotate(pack, [FAULT])
    assert {(e.source, e.target) for e in found.graph.edges} == {(e.source, e.target) for e in whole.graph.edges}
    assert not [note for note in whole.notes if "One in" in note]


def test_a_sample_has_whole_traces_and_every_line_without_one(tmp_path):
    pack = make_pack(tmp_path / "pack", systems.deep(), EFFECT)
    half = preflight.SampledTraces(pack.path, pack.incident, pack.env, whole=pack, one_of=2)
    for period in ("normal", "abnormal"):
        all_, kept = pack.read(period, "traces"), half.read(period, "traces")
        ids = kept.get_column("trace_id").unique()
        assert 0.3 < ids.len() / all_.get_column("trace_id").n_unique() < 0.7
        assert kept.height == all_.filter(pl.col("trace_id").is_in(ids.implode())).height
        assert set(half.read(period, "logs").get_column("trace_id")) <= {*ids, ""}
        assert half.read(period, "metrics").equals(pack.read(period, "metrics"))


def test_messages_between_traces_are_not_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "FEWEST_SPANS", 10)
    pack = make_pack(tmp_path / "pack", {call: 6 * rate for call, rate in systems.deep().items()}, EFFECT)
    file = pack.path / "abnormal_traces.parquet"
    spans = pl.read_parquet(file)
    first = f"{spans['trace_id'][0]}:{spans['span_id'][0]}"
    spans.with_columns(pl.lit(first).alias("attr.links")).write_parquet(file)
    small = AnnotateSettings(limits=SearchLimits(memory_mb=1))
    with pytest.raises(DatapackError, match=r"spans, which need about [\d,]+ MB of memory, and there are 1: use fewer"):
        annotate(Datapack.open(pack.path), [FAULT], settings=small)


def test_a_truncated_table(tmp_path):
    pack = make_pack(tmp_path / "pack", systems.deep(), EFFECT)
    file = pack.path / "abnormal_traces.parquet"
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(
        DatapackError, match=r"abnormal_traces\.parquet cannot be read .*copy or record the incident again\."
    ):
        annotate(Datapack.open(pack.path), [FAULT])


def test_a_value_that_does_not_fit_its_column(tmp_path):
    pack = make_pack(tmp_path / "pack", systems.deep(), EFFECT)
    file = pack.path / "abnormal_traces.parquet"
    pl.read_parquet(file).with_columns(duration=pl.lit("soon")).write_parquet(file)
    with pytest.raises(DatapackError, match=r"pack: a table of traces cannot be read .*copy or record") as caught:
        annotate(Datapack.open(pack.path), [FAULT])
    assert "\n" not in str(caught.value)


def test_nan_and_infinite_metrics_change_nothing(tmp_path):
    effect = Effect(own_ms={"payment": 80}, cpu={"payment": 0.9})
    tables = frames(systems.deep(), effect)
    clean = annotate(written(tmp_path / "clean", tables), [fault("CPUStress", "payment", effect)])
    for period in ("normal", "abnormal"):
        table = tables[period, "metrics"]
        odd = [table.with_columns(value=pl.lit(v)) for v in (float("nan"), float("inf"), float("-inf"))]
        tables[period, "metrics"] = pl.concat([table, *odd])
    dirty = annotate(written(tmp_path / "dirty", tables), [fault("CPUStress", "payment", effect)])
    assert clean.label is Label.ATTRIBUTED
    assert (dirty.label, dirty.reason, dirty.graph) == (clean.label, clean.reason, clean.graph)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("unit", "zone"), [("ns", None), ("us", "UTC"), ("ms", "UTC"), ("us", None), ("ns", "Europe/Berlin")]
)
def test_times_in_other_units_and_zones(tmp_path, unit, zone):
    pack = make_pack(tmp_path / "pack", systems.deep(), EFFECT)
    for period in ("normal", "abnormal"):
        file = pack.path / f"{period}_traces.parquet"
        time = pl.col("time").dt.cast_time_unit(unit)
        time = time.dt.convert_time_zone(zone) if zone else time.dt.replace_time_zone(None)
        pl.read_parquet(file).with_columns(time).write_parquet(file)
    found = still_right(Datapack.open(pack.path))
    assert found.graph.nodes[0].timestamp == EPOCH + (SECONDS + 2) * NANO


def test_a_baseline_that_drifts_disqualifies(tmp_path):
    """Everything is slow from the middle of the normal window on: no fault can be told from that."""
    slow_from = EPOCH + SECONDS // 2 * NANO
    late = pl.when(pl.col("time").dt.epoch("ns") >= slow_from).then(pl.col("duration") * 5).otherwise("duration")
    pack = changed(tmp_path / "pack", lambda t: t.with_columns(duration=late.cast(pl.Int64)), ["normal"])
    found = annotate(pack, [FAULT])
    assert found.label is Label.DRIFTED
    assert found.false_alarm_rate > 0.5
    assert found.graph.nodes == ()
