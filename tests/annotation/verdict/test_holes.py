"""Recordings with holes: minutes without spans, and few or uncertain readings of a processor."""

from __future__ import annotations

import polars as pl
import pytest

from annotation.cascade import EPOCH, NANO, SECONDS, Effect, fault, frames, incident
from annotation.systems import deep
from opsassay.annotation.reading.calls import read_calls
from opsassay.annotation.verdict.annotate import annotate
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack


def _without(tables, holes):
    """Leave out the requests that begin in *holes*: (period, from_s, to_s)."""
    for period, begin_s, end_s in holes:
        start = EPOCH + (period == "abnormal") * SECONDS * NANO
        traces = tables[period, "traces"]
        begun = traces.filter(pl.col("parent_span_id") == "")
        at = pl.col("time").dt.epoch("ns").is_between(start + begin_s * NANO, start + end_s * NANO)
        tables[period, "traces"] = traces.join(begun.filter(at).select("trace_id"), on="trace_id", how="anti")
    return tables


def _at_limit(tables, service, usual, now):
    """Replace the processor metrics of *service*: readings of a share of a limit of 0.02 cores."""
    for period, shares in (("normal", usual), ("abnormal", now)):
        table = tables[period, "metrics"]
        start = EPOCH + (period == "abnormal") * SECONDS * NANO
        times = [start + (10 + 10 * n) * NANO for n in range(len(shares))]
        rows = [
            {
                "time": t,
                "metric": metric,
                "value": share * of,
                "service_name": service,
                "attr.k8s.pod.name": f"{service}-0",
            }
            for t, share in zip(times, shares, strict=True)
            for metric, of in (("k8s.pod.cpu.usage", 0.02), ("k8s.pod.cpu_limit_utilization", 1.0))
        ]
        new = pl.DataFrame(rows).with_columns(pl.col("time").cast(table.schema["time"]))
        kept = table.filter((pl.col("service_name") != service) | ~pl.col("metric").str.contains("cpu"))
        tables[period, "metrics"] = pl.concat([kept, new.select(kept.columns)])
    return tables


def _opened(folder, tables):
    write_datapack(folder / "pack", tables, incident(), {})
    return Datapack.open(folder / "pack")


HOLES = [
    [("normal", 15, 50)], [("normal", 0, 40)], [("normal", 25, 60)],
    [("normal", 10, 30), ("normal", 35, 55)], [("abnormal", 10, 30), ("normal", 10, 52)],
]  # fmt: skip


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("holes", HOLES)
def test_growth_is_over_the_time_that_was_observed(tmp_path, holes):
    """Twice as many requests would explain a used-up limit; a minute that nobody recorded is no request less."""
    tables = _at_limit(_without(frames(deep()), holes), "payment", [0.03, 0.031, 0.028, 0.03], [0.99, 1.0, 1.01])
    found = annotate(_opened(tmp_path, tables), [fault("CPUStress", "payment")])
    assert found.faults[0].shown
    told = [note for note in found.notes if "were observed" in note]
    assert len(told) == len({period for period, _, _ in holes})
    for period, note in zip(sorted({p for p, _, _ in holes}, reverse=True), told, strict=True):
        lost = sum(end - begin for p, begin, end in holes if p == period)
        assert f"of the {period} window" in note
        assert abs(int(note.split("window ")[1].split(" s")[0]) - (60 - lost)) <= 2


@pytest.mark.parametrize("effect", [Effect(gone=frozenset({"gateway"}), to_s=40), Effect(gone=frozenset({"orders"}))])
def test_a_system_that_is_down_is_no_hole(tmp_path, effect):
    calls = read_calls(_opened(tmp_path, frames(deep(), effect)))
    assert calls.gaps == {"normal": (), "abnormal": ()}
    assert calls.seconds("abnormal") == SECONDS


NOISY = [0.84, 0.79, 0.77, 0.36, 0.54]


@pytest.mark.parametrize(("late_ms", "shown"), [(200.0, True), (0.0, False)])
def test_a_processor_at_its_limit_and_late_answers_are_a_sign_together(tmp_path, late_ms, shown):
    tables = _at_limit(frames(deep(), Effect(own_ms={"payment": late_ms})), "payment", NOISY, [0.9, 1.0, 1.01])
    found = annotate(_opened(tmp_path, tables), [fault("CPUStress", "payment")])
    assert found.faults[0].shown is shown
    wrong = annotate(_opened(tmp_path / "again", tables), [fault("CPUStress", "bank")])
    assert not wrong.faults[0].shown


def test_one_of_two_pods_with_a_wrong_clock_is_shown_and_makes_no_hole(tmp_path):
    tables = frames(deep())
    second = (pl.col("service_name") == "payment") & (pl.col("trace_id").hash() % 3 == 0)
    for period, seconds in (("normal", 0), ("abnormal", -80)):
        table = tables[period, "traces"]
        tables[period, "traces"] = table.with_columns(
            pl.when(second).then(pl.col("time") + pl.duration(seconds=seconds)).otherwise("time").alias("time"),
            pl.when(second).then(pl.lit("payment-1")).otherwise("attr.k8s.pod.name").alias("attr.k8s.pod.name"),
        ).sort("time")
    pack = _opened(tmp_path, tables)
    assert read_calls(pack).gaps == {"normal": (), "abnormal": ()}
    found = annotate(pack, [fault("TimeSkew", "payment")])
    (tried,) = found.faults
    assert (tried.shown, found.roots) == (True, ()), tried
