"""Each method on small recordings whose culprit is known."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.faults import FaultKind as K
from opsassay.solvers.methods.base import METHODS, method_named
from opsassay.solvers.methods.claims import kind_of
from opsassay.solvers.methods.propagation import propagation
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.sql import LockedSql
from telemetry.packs import CHAIN, make_frames, make_incident, make_pack

ALL = METHODS.names()
PROTOCOL = {
    "baseline_window", "column_set", "imputation", "zero_variance", "metric_to_service", "ties", "claim_threshold",
    "fault_kind",
}  # fmt: skip


def noisy(path: Path, seed: int = 0, **knobs: Any) -> Datapack:
    """A pack of `make_frames` whose durations and gauges vary by up to a tenth, each row in its own way."""
    frames = make_frames(**knobs)
    for (period, modality), frame in frames.items():
        column = {"traces": "duration", "metrics": "value"}.get(modality)
        if column:
            wobble = 0.9 + 0.2 * (pl.int_range(pl.len()).hash(seed=seed + len(period)) % 1000) / 1000
            scaled = (pl.col(column) * wobble).cast(frame.schema[column])
            frames[period, modality] = frame.with_columns(scaled)
    write_datapack(path, frames, make_incident(f"noisy {seed}", knobs.get("seconds", 60)), {"namespace": "chain"})
    return Datapack.open(path)


def top(diagnosis: Diagnosis) -> list[tuple[str, K | None]]:
    return [(claim.service, claim.fault_kind) for claim in diagnosis.root_causes]


def edges(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    return [(edge.source, edge.target) for edge in diagnosis.propagation]


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Datapack]:
    folder = tmp_path_factory.mktemp("packs")
    return {
        "quiet": noisy(folder / "quiet"),
        "slow": noisy(folder / "slow", slow_in="cart"),
        "errors": noisy(folder / "errors", error_in="cart"),
        "silent": noisy(folder / "silent", silent="cart"),
    }


@pytest.mark.sampled
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kind", ["quiet", "slow", "errors", "silent"])
def test_every_method_ranks_all_services_states_its_protocol_and_backs_its_claims(
    packs: dict[str, Datapack], name: str, kind: str
) -> None:
    diagnosis = method_named(name).diagnose(packs[kind])
    assert sorted(r.service for r in diagnosis.ranking) == sorted(CHAIN)
    scores = [r.score for r in diagnosis.ranking]
    assert scores == sorted(scores, reverse=True)
    assert diagnosis.protocol.keys() >= PROTOCOL
    assert all(diagnosis.protocol.values())
    assert [c.service for c in diagnosis.root_causes] in ([], [diagnosis.ranking[0].service])
    items = [e for part in (*diagnosis.root_causes, *diagnosis.propagation) for e in part.evidence]
    assert all(part.evidence for part in (*diagnosis.root_causes, *diagnosis.propagation))
    with LockedSql(packs[kind]) as sql:
        assert {(e.sql, sql.query(e.sql).status) for e in items} == {(e.sql, "ok") for e in items}


@pytest.mark.parametrize("name", ALL)
def test_the_same_incident_gives_the_same_answer(packs: dict[str, Datapack], name: str) -> None:
    first, second = (method_named(name).diagnose(packs["errors"]).pretty_json() for _ in range(2))
    assert first == second


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["baro", "cd-1min", "max-z", "alert-count", "circa", "self-time", "loudest", "gap"])
def test_nothing_is_wrong_is_the_answer_to_a_quiet_system(tmp_path: Path, name: str) -> None:
    for seed in range(5):
        diagnosis = method_named(name).diagnose(noisy(tmp_path / str(seed), seed))
        assert top(diagnosis) == []
        assert edges(diagnosis) == []


def test_loudest_names_a_service_of_the_failing_chain_and_prefers_what_fails_to_what_is_slow(
    packs: dict[str, Datapack],
) -> None:
    # cart fails, and so does its caller with as many spans and lines: alphabetical
    diagnosis = method_named("loudest").diagnose(packs["errors"])
    assert top(diagnosis) == [("cart", K.HTTP_ABORTED)]
    # 60 failed spans and 60 error lines in 60 s
    assert [(r.service, r.score) for r in diagnosis.ranking] == [("cart", 2.0), ("frontend", 2.0), ("store", 0.0)]
    assert edges(diagnosis) == [("cart", "frontend")]
    assert top(method_named("loudest").diagnose(packs["slow"])) == [("cart", K.HTTP_SLOW)]


def test_loudest_counts_only_the_excess_over_the_normal_period(tmp_path: Path) -> None:
    frames = make_frames(error_in="store")
    chatter = frames["abnormal", "logs"].filter(pl.col("service_name") == "frontend")
    normal = frames["normal", "logs"]
    earlier = normal.filter(pl.col("service_name") == "frontend").with_columns(level=pl.lit("ERROR"))
    frames["normal", "logs"] = pl.concat([normal, earlier], how="diagonal")
    assert chatter.get_column("level").unique().to_list() == ["ERROR"]
    write_datapack(tmp_path / "p", frames, make_incident(), {})
    scores = {r.service: r.score for r in method_named("loudest").diagnose(Datapack.open(tmp_path / "p")).ranking}
    assert scores == {"cart": 2.0, "store": 2.0, "frontend": 1.0}


def test_max_z_finds_the_slow_service_and_follows_its_callers(tmp_path: Path) -> None:
    # Every second trace takes 10 % longer than the mean, the others 10 % less: the deviation of a service grows with
    # its mean, so the same 400 ms are most deviations for cart (20 ms), fewer for its caller (30 ms).
    frames = make_frames(slow_in="cart")
    odd = pl.col("trace_id").str.slice(-1).is_in(["1", "3", "5", "7", "9"])
    swing = pl.when(odd).then(1.1).otherwise(0.9)
    for period in ("normal", "abnormal"):
        frame = frames[period, "traces"]
        frames[period, "traces"] = frame.with_columns((pl.col("duration") * swing).cast(pl.UInt64))
    write_datapack(tmp_path / "p", frames, make_incident(), {})
    diagnosis = method_named("max-z").diagnose(Datapack.open(tmp_path / "p"))
    assert top(diagnosis) == [("cart", K.HTTP_SLOW)]
    assert edges(diagnosis) == [("cart", "frontend")]
    assert diagnosis.ranking[-1].service == "store"
    # Bins of 5 s hold 3 and 2 fast traces in turn: means 20 -+ 0.4 ms, deviation 0.4; the slowest bin is 420 ms x 1.02.
    assert diagnosis.ranking[0].score == pytest.approx((420 * 1.02 - 20) / 0.4, rel=1e-6)


@pytest.mark.parametrize(
    ("signal", "z", "kind"),
    [
        ("latency_p95_ms", 9, K.HTTP_SLOW),
        ("failed_spans_per_s", 9, K.HTTP_ABORTED),
        ("spans_per_s", -9, K.POD_UNAVAILABLE),
        ("spans_per_s", 9, None),
        ("metric container.cpu.usage", 9, K.CPU_STRESS),
        ("metric k8s.pod.memory.working_set", 9, K.MEM_STRESS),
        ("metric jvm.memory.used", 9, K.JVM_HEAP_STRESS),
        ("metric queue.depth", 9, None),
    ],
)
def test_the_signal_decides_the_kind(signal: str, z: float, kind: K | None) -> None:
    assert kind_of(signal, z) is kind


def test_gap_finds_the_service_that_fell_silent(packs: dict[str, Datapack]) -> None:
    diagnosis = method_named("gap").diagnose(packs["silent"])
    # cart and store lose a span and a log line per second each: alphabetical
    assert top(diagnosis) == [("cart", K.POD_UNAVAILABLE)]
    assert [(r.service, r.score) for r in diagnosis.ranking] == [("cart", 2.0), ("store", 2.0), ("frontend", 0.0)]


def test_constant_never_looks_at_the_abnormal_period(tmp_path: Path) -> None:
    answers = set()
    for number, knobs in enumerate(({}, {"error_in": "store"}, {"silent": "cart"})):
        pack = make_pack(tmp_path / str(number), **knobs)
        for file in pack.path.glob("abnormal_*.parquet"):
            file.write_bytes(b"cannot be read")
        answers.add(method_named("constant").diagnose(pack).pretty_json())
    assert len(answers) == 1
    assert '"cart"' in answers.pop()


@pytest.mark.slow
def test_chance_follows_from_the_id_alone_and_is_fair(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "p")
    drawn = []
    for number in range(600):
        incident = pack.incident.model_copy(update={"id": f"incident {number}"})
        drawn.append(top(method_named("chance").diagnose(Datapack(pack.path, incident)))[0])
    counts = pl.Series([service for service, _ in drawn]).value_counts().get_column("count")
    assert counts.min() > 150  # 200 expected, standard deviation 11.5
    assert len({kind for _, kind in drawn}) == len(K)
    again = make_pack(tmp_path / "q", error_in="cart")
    assert top(method_named("chance").diagnose(again)) == top(method_named("chance").diagnose(pack))


def test_edges_lead_from_the_root_through_callers_that_got_worse(tmp_path: Path) -> None:
    services = ["a", "b", "c", "d", "e"]
    pack = make_pack(tmp_path / "p", services=services, error_in="d")
    assert [(e.source, e.target) for e in propagation(pack, "d")] == [("d", "c"), ("c", "b"), ("b", "a")]
    assert propagation(pack, "a") == ()  # its only caller is the load generator
    quiet = make_pack(tmp_path / "q", services=services)
    assert propagation(quiet, "d") == ()


def test_a_service_that_fell_silent_keeps_its_callers(tmp_path: Path) -> None:
    frames = make_frames(silent="cart")
    failing = frames["abnormal", "traces"].with_columns(pl.lit("Error").alias("attr.status_code"))
    frames["abnormal", "traces"] = failing
    write_datapack(tmp_path / "p", frames, make_incident(), {})
    found = propagation(Datapack.open(tmp_path / "p"), "cart")
    assert [(e.source, e.target) for e in found] == [("cart", "frontend")]
    assert "normal_traces" in found[0].evidence[0].sql
    assert "abnormal_traces" not in found[0].evidence[0].sql


def test_calls_in_a_circle_end(tmp_path: Path) -> None:
    frames = make_frames(error_in="store")
    back = frames["abnormal", "traces"].filter(pl.col("service_name") == "store")
    frames["abnormal", "traces"] = pl.concat(
        [
            frames["abnormal", "traces"],
            back.with_columns(
                service_name=pl.lit("cart"), parent_span_id=pl.col("span_id"), span_id=pl.col("span_id") + "/back"
            ),
        ]
    )
    write_datapack(tmp_path / "p", frames, make_incident(), {})
    found = [(e.source, e.target) for e in propagation(Datapack.open(tmp_path / "p"), "cart")]
    assert found == [("cart", "frontend"), ("cart", "store")]


def test_names_with_quotes_are_quoted(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "p", services=["web", "o'brien"], error_in="o'brien")
    diagnosis = method_named("loudest").diagnose(pack)
    assert top(diagnosis) == [("o'brien", K.HTTP_ABORTED)]
    assert edges(diagnosis) == [("o'brien", "web")]
    items = itertools.chain.from_iterable(part.evidence for part in (*diagnosis.root_causes, *diagnosis.propagation))
    with LockedSql(pack) as sql:
        assert {sql.query(item.sql).status for item in items} == {"ok"}


def test_an_unknown_method_is_named_with_the_nearest_one() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'loudest'"):
        method_named("loudes")


def test_code_that_cannot_be_imported_or_is_no_method_is_one_sentence() -> None:
    for path in ("no.such.module:Method", "pathlib:NoSuchClass", "collections:OrderedDict"):
        with pytest.raises(UserError, match=path.replace(".", r"\.")):
            method_named(path)
