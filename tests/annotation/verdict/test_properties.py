"""What must not matter does not: the order of rows, the date, the names, a noisy stranger."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from annotation import systems
from annotation.cascade import Effect, fault, frames, incident, make_pack
from opsassay.annotation.verdict.annotate import annotate, annotate_opened, open_pack
from opsassay.core.schema.causal_graph import Annotation
from opsassay.core.schema.incident import Label
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack

EFFECT = Effect(own_ms={"payment": 300})
QUICK = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _shape(found: Annotation) -> tuple:
    edges = {(e.source, e.target, e.rule, tuple(sorted(e.evidence.items()))) for e in found.graph.edges}
    return found.label, edges, set(found.paths), found.alarms["explained"], found.false_alarm_rate


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    pack = make_pack(tmp_path_factory.mktemp("reference") / "pack", systems.deep(), EFFECT)
    found = annotate(pack, [fault("HTTPResponseDelay", "payment", EFFECT)])
    assert found.label is Label.ATTRIBUTED
    return _shape(found)


@pytest.mark.slow
@QUICK
@given(seed=st.integers(0, 10_000))
def test_the_order_of_rows_does_not_matter(tmp_path_factory, reference, seed):
    folder = tmp_path_factory.mktemp("shuffled") / "pack"
    tables = frames(systems.deep(), EFFECT)
    write_datapack(folder, tables, incident(), {})
    for period, modality in tables:
        file = folder / f"{period}_{modality}.parquet"
        pl.read_parquet(file).sample(fraction=1, shuffle=True, seed=seed).write_parquet(file)
    found = annotate(Datapack.open(folder), [fault("HTTPResponseDelay", "payment", EFFECT)])
    assert _shape(found) == reference


@pytest.mark.slow
@QUICK
@given(shift_s=st.integers(-400_000_000, 400_000_000))
def test_the_date_does_not_matter(tmp_path_factory, reference, shift_s):
    shift = shift_s * 1_000_000_000
    folder = tmp_path_factory.mktemp("shifted") / "pack"
    write_datapack(folder, frames(systems.deep(), EFFECT, shift_ns=shift), incident(shift), {})
    found = annotate(Datapack.open(folder), [fault("HTTPResponseDelay", "payment", EFFECT, shift)])
    assert _shape(found) == reference


@pytest.mark.slow
@QUICK
@given(salt=st.text("abcxyz", min_size=1, max_size=4))
def test_names_do_not_matter(tmp_path_factory, reference, salt):
    services = ["gateway", "orders", "payment", "bank", "catalogue", "weather"]
    named = {s: f"{salt}-{i}" for i, s in enumerate(services)}
    folder = tmp_path_factory.mktemp("renamed") / "pack"
    tables = {
        k: t.with_columns(pl.col("service_name").replace(named)) for k, t in frames(systems.deep(), EFFECT).items()
    }
    write_datapack(folder, tables, incident(), {})
    found = annotate(Datapack.open(folder), [fault("HTTPResponseDelay", named["payment"], EFFECT)])
    back = {v: k for k, v in named.items()}

    def old(component: str) -> str:
        kind, _, name = component.partition("|")
        service, colons, operation = name.partition("::")
        return f"{kind}|{back[service]}{colons}{operation}"

    edges = {(old(e.source), old(e.target), e.rule, tuple(sorted(e.evidence.items()))) for e in found.graph.edges}
    assert edges == reference[1]


def test_a_noisy_stranger_adds_nothing(tmp_path, reference):
    def stranger(table: pl.DataFrame, period: str) -> pl.DataFrame:
        loud = 20 if period == "abnormal" else 1
        return table.filter(pl.col("service_name") == "weather").with_columns(
            pl.col("trace_id", "span_id") + "-stranger",
            parent_span_id=pl.lit(""),
            service_name=pl.lit("stranger"),
            duration=pl.col("duration") * loud,
            **{"attr.status_code": pl.lit("Error" if loud > 1 else "Unset")},
        )

    tables = frames(systems.deep(), EFFECT)
    for period in ("normal", "abnormal"):
        table = tables[period, "traces"]
        tables[period, "traces"] = pl.concat([table, stranger(table, period)])
    write_datapack(tmp_path / "pack", tables, incident(), {})
    found = annotate(Datapack.open(tmp_path / "pack"), [fault("HTTPResponseDelay", "payment", EFFECT)])
    assert {(e.source, e.target) for e in found.graph.edges} == {(a, b) for a, b, *_ in reference[1]}
    assert any("stranger" in alarm for alarm in found.alarms["unexplained"])


@pytest.mark.slow
def test_second_half_of_the_normal_window_as_sham(tmp_path):
    tables = frames(systems.deep())
    normal = incident().normal
    middle = (normal.start_ns + normal.end_ns) // 2
    early = pl.col("time").dt.epoch("ns") < middle
    for modality in ("traces", "metrics"):
        whole = tables["normal", modality]
        tables["normal", modality], tables["abnormal", modality] = whole.filter(early), whole.filter(~early)
    described = incident().model_copy(
        update={
            "normal": normal.model_copy(update={"end_ns": middle}),
            "abnormal": normal.model_copy(update={"start_ns": middle}),
        }
    )
    write_datapack(tmp_path / "pack", tables, described, {})
    pack = Datapack.open(tmp_path / "pack")
    opened = open_pack(pack)
    calm = dataclasses.replace(EFFECT, from_s=0.0)
    for service in pack.services():
        for type_ in ("HTTPResponseDelay", "NetworkDelay", "JVMException", "PodKill"):
            assert annotate_opened(opened, [fault(type_, service, calm, -30_000_000_000)]).label is Label.NO_EFFECT


def test_healthy_services_beside_it_change_nothing(tmp_path, reference):
    """Ten services of their own, quiet before and after, with traffic as heavy as the system's."""
    tables = frames(systems.deep(), EFFECT)
    for period in ("normal", "abnormal"):
        table = tables[period, "traces"]
        quiet = frames(systems.fan_out())[period, "traces"].with_columns(
            pl.when(pl.col("service_name") == "loadgenerator")
            .then("service_name")
            .otherwise(pl.lit("healthy-") + pl.col("service_name"))
            .alias("service_name"),
            pl.concat_str(pl.lit("h-"), "trace_id").alias("trace_id"),
        )
        tables[period, "traces"] = pl.concat([table, quiet])
    write_datapack(tmp_path / "pack", tables, incident(), {})
    found = annotate(Datapack.open(tmp_path / "pack"), [fault("HTTPResponseDelay", "payment", EFFECT)])
    assert _shape(found)[:4] == reference[:4]
