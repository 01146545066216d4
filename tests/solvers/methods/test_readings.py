"""The matrix under the metric methods, and what each of them computes on it, by hand and against the papers' cells."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opsassay.core.schema.incident import Incident, Window
from opsassay.solvers.methods.alert_count import AlertCount
from opsassay.solvers.methods.baro import Baro, robust_scores
from opsassay.solvers.methods.base import Method, method_named
from opsassay.solvers.methods.cd_1min import Cd1Min
from opsassay.solvers.methods.circa import Circa, structural_parents
from opsassay.solvers.methods.matrix import readings, z_scores
from opsassay.solvers.methods.max_z import MaxZ
from opsassay.solvers.methods.self_time import SelfTime
from opsassay.solvers.methods.signals import bins_of
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.importers.petshop import import_petshop
from opsassay.telemetry.schema import empty
from opsassay.telemetry.tree import resolve
from telemetry.packs import make_frames, make_incident

S = 1_000_000_000


def metrics_only(
    path: Path,
    normal: dict[tuple[str, str], list[float | None]],
    abnormal: dict[tuple[str, str], list[float | None]],
    apart_s: int = 0,
) -> Datapack:
    """A recording of gauges by (service, metric), one reading per minute, without spans; normal begins at minute 0."""
    frames = {("normal", "traces"): empty("traces"), ("abnormal", "traces"): empty("traces")}
    windows, begin = [], 0
    for period, data in (("normal", normal), ("abnormal", abnormal)):
        rows = [
            {"time": (begin + 60 * i) * S, "metric": metric, "value": value, "service_name": service}
            for (service, metric), values in data.items()
            for i, value in enumerate(values)
        ]
        length = 60 * max(len(values) for values in data.values())
        windows.append(Window(start_ns=begin * S, end_ns=(begin + length) * S))
        begin += length + apart_s
        time = pl.col("time").cast(pl.Datetime("ns")).dt.replace_time_zone("UTC")
        frames[period, "metrics"] = pl.DataFrame(rows, schema_overrides={"value": pl.Float64}).with_columns(time)
    incident = Incident(id="i", system="s", normal=windows[0], abnormal=windows[1])
    write_datapack(path, frames, incident, {})
    return Datapack.open(path)


def test_readings_are_the_common_columns_in_own_steps_filled_forward_over_both_periods(tmp_path: Path) -> None:
    normal = {("b", "x"): [1.0, None, 3.0], ("a", "y"): [None, 5.0, float("inf")], ("a", "gone"): [1.0, 1.0, 1.0]}
    abnormal = {("b", "x"): [None, 9.0], ("a", "y"): [None, None], ("a", "new"): [2.0, 2.0]}
    table = readings(metrics_only(tmp_path / "p", normal, abnormal))
    assert table.step_s == 60
    assert list(zip(table.services, table.signals, strict=True)) == [("a", "metric y"), ("b", "metric x")]
    # nothing before the first reading is 0; infinite is missing; the last normal reading goes on into the abnormal
    assert table.normal.tolist() == [[0.0, 1.0], [5.0, 1.0], [5.0, 3.0]]
    assert table.abnormal.tolist() == [[5.0, 3.0], [5.0, 9.0]]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    start=st.integers(0, 2_000_000_000 * S),
    step=st.one_of(st.integers(1, 10**12), st.sampled_from((S // 3, S // 7, 60 * S, 300 * S, 7 * S + 1))),
    counts=st.tuples(st.integers(2, 40), st.integers(1, 40)),
    share=st.one_of(st.just(0), st.integers(0, 99)),
    after=st.integers(1, 100),
)
@example(start=1_700_000_100 * S, step=300 * S, counts=(40, 12), share=0, after=100)  # a float's quotient is short here
@example(start=7, step=186_571_782_823, counts=(20, 20), share=0, after=1)
def test_every_sample_of_a_regular_gauge_is_a_reading_of_its_own(
    start: int, step: int, counts: tuple[int, int], share: int, after: int
) -> None:
    """Whatever the step, and whether the window begins on a sample or between two: no two share a bin, none is empty."""
    phase, rest = share * step // 100, max(1, after * step // 100)
    values = [[float(period * 1000 + i) for i in range(count)] for period, count in enumerate(counts)]
    frames, windows, begin = {}, [], start
    for period, own in zip(("normal", "abnormal"), values, strict=True):
        times = [begin + phase + i * step for i in range(len(own))]
        time = pl.from_epoch(pl.Series(times), time_unit="ns").dt.replace_time_zone("UTC")
        frames[period, "traces"] = empty("traces")
        frames[period, "metrics"] = pl.DataFrame({"time": time, "metric": "m", "service_name": "a", "value": own})
        windows.append(Window(start_ns=begin, end_ns=times[-1] + rest))
        begin = times[-1] + rest
    with tempfile.TemporaryDirectory() as folder:
        incident = Incident(id="i", system="s", normal=windows[0], abnormal=windows[1])
        write_datapack(Path(folder) / "p", frames, incident, {})
        table = readings(Datapack.open(Path(folder) / "p"))
    assert table.step_ns == step
    # a window may end up to a step after its last sample, which is a further bin without a reading: filled forward
    assert table.normal[: counts[0], 0].tolist() == values[0]
    assert table.abnormal[: counts[1], 0].tolist() == values[1]
    assert [len(table.normal) - counts[0], len(table.abnormal) - counts[1]] == [(phase + rest - 1) // step] * 2


@given(start=st.integers(0, 2**61), step=st.integers(1, 2**50), number=st.integers(0, 2**10), late=st.data())
def test_a_bin_begins_on_its_step(start: int, step: int, number: int, late: st.DataObject) -> None:
    window = Window(start_ns=start, end_ns=start + number * step + late.draw(st.integers(0, step - 1)))
    assert bins_of(window, step) == max(1, number)
    assert bins_of(window, step, partial=True) == max(1, number + (window.end_ns > start + number * step))


def test_gauges_that_are_read_in_turn_do_not_shorten_the_step(tmp_path: Path) -> None:
    flat: dict[tuple[str, str], list[float | None]] = {("a", "x"): [1.0, 2.0, 3.0], ("b", "y"): [4.0, 5.0, 6.0]}
    pack = metrics_only(tmp_path / "p", flat, flat)
    frame = pl.read_parquet(pack.path / "normal_metrics.parquet")
    later = pl.when(pl.col("service_name") == "b").then(pl.duration(seconds=20)).otherwise(pl.duration(seconds=0))
    frame.with_columns(pl.col("time") + later).write_parquet(pack.path / "normal_metrics.parquet")
    table = readings(Datapack.open(pack.path))
    assert table.step_ns == 60 * S
    assert table.normal.tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]


def test_spans_are_counted_in_the_bin_that_they_open(tmp_path: Path) -> None:
    """Ten bins of a tenth of a period whose length is no round number of seconds: a span on every boundary."""
    width = S // 3
    spans = [span(i, "a", "", 0, 1) | {"time": i * width} for i in range(10)]
    frames, windows = {}, {}
    for period, begin in (("normal", 0), ("abnormal", 10 * width)):
        time = pl.from_epoch(pl.col("time") + begin, time_unit="ns").dt.replace_time_zone("UTC")
        frames[period, "traces"] = pl.DataFrame(spans).with_columns(time, pl.col("duration").cast(pl.UInt64))
        windows[period] = Window(start_ns=begin, end_ns=begin + 10 * width)
    write_datapack(tmp_path / "p", frames, Incident(id="i", system="s", **windows), {})
    table = readings(Datapack.open(tmp_path / "p"))
    rate = table.signals.index("spans_per_s")
    assert table.normal[:, rate].tolist() == table.abnormal[:, rate].tolist() == [pytest.approx(S / width)] * 10


def test_z_takes_the_normal_mean_and_population_deviation_and_is_zero_without_variance() -> None:
    normal = np.array([[1.0, 5.0, 0.1], [3.0, 5.0, 0.1]])  # mean 2, deviation 1 (ddof 0); no variance twice
    abnormal = np.array([[2.0, 9.0, 9.0], [0.0, 9.0, 9.0], [6.0, 9.0, 9.0]])
    assert z_scores(normal, abnormal).tolist() == [[0, 0, 0], [-2, 0, 0], [4, 0, 0]]


def test_robust_scores_by_hand() -> None:
    # median 3, quartiles 2 and 4; a fall does not count; constant in a period is left out; a range of 0 is 1
    normal = np.array(
        [[1, 1, 7, 0, 5], [2, 2, 7, 0, 5], [3, 3, 7, 0, 5], [4, 4, 7, 0, 5], [5, 5, 7, 9, 6]], dtype=float
    )
    abnormal = np.array([[9, -9, 8, 4, 8], [7, -5, 9, 3, 8]], dtype=float)
    scores = robust_scores(normal, abnormal)
    assert scores[:2].tolist() == [(9 - 3) / 2, (-5 - 3) / 2]
    assert np.isnan(scores[2])
    assert scores[3] == 4.0
    assert np.isnan(scores[4])


def test_memory_is_scored_in_whole_megabytes_once_what_is_constant_is_left_out() -> None:
    # 5.2 to 5.9 MB are all 5: their range is 0 and counts as 1; in bytes 9 MB would be 16.5 ranges away
    normal = np.array([[5.2e6, 5.2e6], [5.4e6, 5.4e6], [5.6e6, 5.6e6], [5.9e6, 5.9e6]])
    abnormal = np.array([[9.1e6, 9.1e6], [5.5e6, 5.5e6]])
    in_bytes, in_megabytes = robust_scores(normal, abnormal, np.array([False, True]))
    assert in_megabytes == 9 - 5
    assert in_bytes == pytest.approx((9.1 - 5.5) / (5.675 - 5.35))


@pytest.mark.parametrize(("metric", "first"), [("mem", "b"), ("memory", "a"), ("container.memory.working_set", "a")])
def test_baro_takes_the_public_memory_step_for_the_public_columns_alone(tmp_path, metric, first) -> None:
    """a's memory moves by half a megabyte, which is nothing in whole ones; b's processor by a few ranges."""
    calm = [5.01e6, 5.02e6, 5.03e6, 5.02e6, 5.01e6] * 6
    flat = [10.0, 10.2, 9.8, 10.1, 9.9] * 6
    normal = {("a", metric): calm, ("b", "cpu"): flat}
    abnormal = {("a", metric): [value + 0.5e6 for value in calm], ("b", "cpu"): [value + 3 for value in flat]}
    pack = metrics_only(tmp_path / "pack", normal, abnormal)
    assert Baro().diagnose(pack).ranking[0].service == first


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Datapack:
    """One reading of a is far out, three of b a little, all of c move by a large share."""
    flat = [10.0, 10.2, 9.8, 10.1, 9.9] * 6
    normal = {(s, m): list(flat) for s in "abc" for m in ("m1", "m2", "m3")}
    abnormal = {key: [10.0] * 12 for key in normal}
    abnormal["a", "m1"] = [10.0] * 11 + [18.0]
    for metric in ("m1", "m2", "m3"):
        abnormal["b", metric] = [11.6] * 12
    normal["c", "m1"], abnormal["c", "m1"] = [0.10, 0.11, 0.09, 0.10, 0.10] * 6, [0.10] * 12
    return metrics_only(tmp_path_factory.mktemp("m") / "p", normal, abnormal)


def test_each_rule_sees_another_culprit(many: Datapack) -> None:
    assert MaxZ().diagnose(many).ranking[0].service == "a"
    assert [(r.service, r.score) for r in AlertCount().diagnose(many).ranking] == [("b", 3.0), ("a", 1.0), ("c", 0.0)]
    change = Cd1Min().diagnose(many)
    # |z| over the case window exceeds 3 only for the single reading of a; its mean over ten steps did not change
    assert {r.service: r.score for r in change.ranking} == {"a": 0.0, "b": 0.0, "c": 0.0}
    assert change.root_causes == ()


def test_cd_1min_measures_the_change_of_ten_steps_across_the_boundary(tmp_path: Path) -> None:
    normal = {("a", "m"): [10.0] * 120, ("b", "m"): [1.0, 1.02] * 60}
    abnormal = {("a", "m"): [30.0] * 6, ("b", "m"): [1.5] * 6}
    ranking = Cd1Min().diagnose(metrics_only(tmp_path / "p", normal, abnormal)).ranking
    assert [(r.service, pytest.approx(r.score)) for r in ranking] == [("a", 200.0), ("b", 100 * 0.49 / 1.01)]


@pytest.mark.parametrize("apart_s", [0, 3600])
def test_cd_1min_says_that_time_lies_between_the_periods(tmp_path: Path, apart_s: int) -> None:
    normal, abnormal = {("a", "m"): [10.0] * 120}, {("a", "m"): [30.0] * 6}
    (note,) = Cd1Min().diagnose(metrics_only(tmp_path / "p", normal, abnormal, apart_s)).notes
    assert ("3,600 s lie between the periods" in note) is bool(apart_s)


def test_circa_prefers_the_cause_to_what_its_callers_feel(tmp_path: Path) -> None:
    frames = make_frames(slow_in="store")
    for period in ("normal", "abnormal"):
        frame = frames[period, "traces"]
        wobble = 0.9 + 0.2 * (pl.col("trace_id").hash(seed=3) % 1000) / 1000
        frames[period, "traces"] = frame.with_columns((pl.col("duration") * wobble).cast(pl.UInt64))
    write_datapack(tmp_path / "p", frames, make_incident(), {})
    diagnosis = Circa().diagnose(Datapack.open(tmp_path / "p"))
    assert [claim.service for claim in diagnosis.root_causes] == ["store"]
    assert not any("no calls" in note for note in diagnosis.notes)


def test_circa_says_when_there_is_no_graph_to_regress_on(many: Datapack) -> None:
    assert any("no calls between services" in note for note in Circa().diagnose(many).notes)


def test_the_structural_graph_has_traffic_go_down_and_latency_come_up() -> None:
    groups = [(s, signal) for s in "xy" for signal in ("traffic", "latency", "errors")]
    parents = structural_parents(groups, [("x", "y")])
    assert parents["y", "traffic"] == {("x", "traffic")}
    assert parents["x", "latency"] == {("x", "traffic"), ("y", "latency")}
    assert parents["y", "latency"] == {("y", "traffic")}


def span(trace: int, name: str, parent: str, start_ms: float, ms: float, **further: object) -> dict[str, object]:
    return {
        "time": int((trace * 100 + start_ms) * 1e6), "trace_id": str(trace), "span_id": f"{trace}{name}",
        "parent_span_id": f"{trace}{parent}" if parent else "", "span_name": name, "service_name": name[0],
        "duration": int(ms * 1e6), "attr.status_code": "Unset", **further,
    }  # fmt: skip


def traced(path: Path, abnormal: list[list[dict[str, object]]], normal: list[list[dict[str, object]]]) -> Datapack:
    frames, windows = {}, {}
    for period, traces, begin in (("normal", normal, 0), ("abnormal", abnormal, 1000)):
        rows = [row | {"time": int(str(row["time"])) + begin * S} for trace in traces for row in trace]
        time = pl.col("time").cast(pl.Datetime("ns")).dt.replace_time_zone("UTC")
        frames[period, "traces"] = pl.DataFrame(rows).with_columns(time, pl.col("duration").cast(pl.UInt64))
        windows[period] = Window(start_ns=begin * S, end_ns=(begin + 10) * S)
    write_datapack(path, frames, Incident(id="t", system="s", **windows), {})
    return Datapack.open(path)


def chain(trace: int, a: float = 10, b: float = 5, c: float = 2, **of_b: object) -> list[dict[str, object]]:
    return [span(trace, "a", "", 0, a), span(trace, "b", "a", 1, b, **of_b), span(trace, "c", "b", 2, c)]


def test_waiting_for_a_slow_callee_is_not_held_against_the_caller(tmp_path: Path) -> None:
    normal = [chain(i, 10 + i % 3, 5 + i % 2, 2) for i in range(40)]
    slow = [chain(i, 60 + i % 3, 55 + i % 2, 2) for i in range(40)]  # 50 ms more in b itself
    diagnosis = SelfTime().diagnose(traced(tmp_path / "p", slow, normal))
    assert [(r.service, r.score) for r in diagnosis.ranking] == [("b", 4.0), ("a", 0.0), ("c", 0.0)]
    assert [(c.service, str(c.fault_kind)) for c in diagnosis.root_causes] == [("b", "http_slow")]


def test_parallel_children_cover_their_parent_once(tmp_path: Path) -> None:
    def fan(trace: int, ms: float) -> list[dict[str, object]]:
        both = [span(trace, name, "a", 1, ms) for name in ("b", "c")]
        return [span(trace, "a", "", 0, ms + 4), *both]

    pack = traced(tmp_path / "p", [fan(i, 80) for i in range(40)], [fan(i, 8) for i in range(40)])
    voices = {row["service"]: row["slow"] for row in SelfTime().voices(pack).iter_rows(named=True)}
    # a waits 80 ms for two children of 80 ms each: 4 ms are its own, as before; one voice per trace, alphabetical
    assert voices == {"a": 0.0, "b": 40.0, "c": 0.0}


def test_the_deepest_failure_speaks_for_the_trace_and_a_failed_client_call_for_whom_it_calls(tmp_path: Path) -> None:
    normal = [chain(i) for i in range(40)]
    failed = {"attr.status_code": "Error"}
    chained = [[row | failed if row["service_name"] in "ab" else row for row in chain(i)] for i in range(40)]
    assert SelfTime().diagnose(traced(tmp_path / "p", chained, normal)).ranking[0].service == "b"

    def client(trace: int, **of_call: object) -> list[dict[str, object]]:
        call = span(trace, "a-call", "a", 1, 5, **{"attr.span_kind": "Client", **of_call})
        served = [] if of_call else [span(trace, "b", "a-call", 2, 3)]
        return [
            span(trace, "a", "", 0, 10) | {"attr.span_kind": "Server"},
            call,
            *[r | {"attr.span_kind": "Server"} for r in served],
        ]

    pack = traced(tmp_path / "q", [client(i, **failed) for i in range(40)], [client(i) for i in range(40)])
    diagnosis = SelfTime().diagnose(pack)
    assert [(c.service, str(c.fault_kind)) for c in diagnosis.root_causes] == [("b", "pod_unavailable")]


@pytest.fixture(scope="module")
def petshop(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("petshop")
    report = import_petshop(real_data / "petshop", out)
    assert (len(report.imported), len(report.failed)) == (27, 16)
    assert all("no noissue/metrics.csv" in reason for _, reason in report.failed)
    return out


@pytest.mark.slow
def test_petshop_high_traffic_is_the_papers_cells(petshop: Path) -> None:
    cases = [case for case in resolve(petshop) if case.truth is not None and case.truth.roots]
    assert len(cases) == 26
    correct: Counter[str] = Counter()
    methods: dict[str, Method] = {"baro": Baro(), "max-z": MaxZ(), "alert-count": AlertCount()}
    for case in cases:
        assert case.truth is not None
        pack = case.datapack
        for name, method in methods.items():
            correct[name] += method.diagnose(pack).ranking[0].service == case.truth.roots[0].service[0]
    assert correct == {"baro": 4, "max-z": 2, "alert-count": 1}


def test_every_method_answers_a_recording_without_spans(many: Datapack) -> None:
    for name in ("baro", "circa", "self-time", "loudest", "gap", "constant", "chance"):
        assert sorted(r.service for r in method_named(name).diagnose(many).ranking) == ["a", "b", "c"]
