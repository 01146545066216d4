"""One answer never holds up the grading: its statements have a time together, and a signal ends it with what was graded kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from opsassay.core.schema.diagnosis import Diagnosis, Evidence, PropagationClaim, RootCauseClaim
from opsassay.evals.diagnosis.solve import run_method
from opsassay.evals.runner.store import DIAGNOSIS, RunStore, read_diagnosis
from opsassay.scoring.budget import GradingEndedError, TimeBudget
from opsassay.scoring.evidence import evidence_metrics
from opsassay.scoring.profiles import PROFILES
from opsassay.solvers.agents.contract import MAX_BYTES, MAX_EDGES, MAX_EVIDENCE, MAX_ROOTS, read_answer
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.sql import LockedSql
from opsassay.telemetry.tree import resolve
from telemetry.packs import make_pack, make_tree

CLASS = "7 time of grading"

HOURS = {
    "counting": "SELECT count(*) FROM range(10000000000) r(i) WHERE i % {n} = 1 AND EXISTS (FROM abnormal_traces)",
    "joining": "SELECT count(*) + {n} FROM abnormal_traces a, abnormal_traces b, abnormal_traces c, abnormal_traces d, "
    "normal_traces e WHERE hash(a.span_id, b.span_id, c.span_id, d.span_id, e.span_id) = 1",
    "recursion": "WITH RECURSIVE t(n) AS (SELECT {n} UNION ALL SELECT n + 1 FROM t WHERE n < 10000000000) SELECT max(n) FROM t",
    "long text": "SELECT count(*) FROM abnormal_logs a, abnormal_logs b WHERE levenshtein(repeat(a.message, 300), repeat(b.message, 300)) = {n}",
}  # fmt: skip


def largest(statement: str) -> Diagnosis:
    """Return an answer with as much evidence as the contract allows, each item another statement."""
    numbers = iter(range(1, 10**6))

    def evidence() -> tuple[Evidence, ...]:
        return tuple(
            Evidence(kind="trace", sql=statement.format(n=next(numbers)), claim="c") for _ in range(MAX_EVIDENCE)
        )

    roots = tuple(
        RootCauseClaim(service=f"s{i}", fault_kind="cpu_stress", evidence=evidence()) for i in range(MAX_ROOTS)
    )
    edges = tuple(PropagationClaim(source=f"s{i}", target=f"s{i + 1}", evidence=evidence()) for i in range(MAX_EDGES))
    answer = Diagnosis(root_causes=roots, propagation=edges)
    assert len(answer.pretty_json()) < MAX_BYTES
    return answer


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Datapack:
    return make_pack(tmp_path_factory.mktemp("pack") / "p", slow_in="cart")


@pytest.mark.slow
@pytest.mark.parametrize("what", HOURS)
def test_the_largest_legal_answer_is_graded_within_its_time(pack: Datapack, what: str) -> None:
    answer = largest(HOURS[what])
    begun = time.monotonic()
    with LockedSql(pack, max_rows=500) as sql:
        metrics, results = evidence_metrics(answer, sql, PROFILES["default"], TimeBudget(seconds=2))
    assert time.monotonic() - begun < 12
    assert len(results) == (MAX_ROOTS + MAX_EDGES) * MAX_EVIDENCE
    assert metrics["sql_exec"].value == 0.0  # a grade, not a failure to grade
    assert {result.status for result in results} <= {"timeout", "error"}
    assert "used up" in results[-1].message


def test_an_honest_answer_is_graded_in_the_same_time(pack: Datapack) -> None:
    honest = Evidence(kind="trace", sql="SELECT avg(duration) FROM abnormal_traces WHERE service_name = 'cart'")
    answer = Diagnosis(root_causes=(RootCauseClaim(service="cart", evidence=(honest,)),))
    with LockedSql(pack, max_rows=500) as sql:
        metrics, _ = evidence_metrics(answer, sql, PROFILES["default"], TimeBudget(seconds=20))
    assert (metrics["sql_exec"].value, metrics["evidence_relevant"].value) == (1.0, 1.0)


def test_a_grading_is_ended_from_another_thread(pack: Datapack) -> None:
    ended = threading.Event()
    with LockedSql(pack, max_rows=500) as sql:
        threading.Timer(1, lambda: (ended.set(), sql.cancel())).start()
        begun = time.monotonic()
        with pytest.raises(GradingEndedError):
            evidence_metrics(largest(HOURS["joining"]), sql, PROFILES["default"], TimeBudget(600, ended))
    assert time.monotonic() - begun < 60, "its time was ten minutes"


@pytest.mark.slow
def test_a_signal_ends_the_command_and_keeps_what_was_graded(tmp_path: Path) -> None:
    cases = resolve(make_tree(tmp_path / "t", count=2).root)
    store = RunStore(tmp_path / "s")
    quick, slow = (run_method(store, case.datapack, "loudest") for case in cases)
    answer = read_diagnosis(slow)
    assert answer is not None
    (slow / DIAGNOSIS).write_text(largest(HOURS["joining"]).pretty_json(), encoding="utf-8")
    command = [sys.executable, "-m", "opsassay", "score", "run", str(store.root), "--cases", str(tmp_path / "t")]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + 60
        while not (quick / "verdicts" / "default.json").exists():
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(1)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 130
        assert time.monotonic() - begun < 2.5
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert not (slow / "verdicts").exists()
    (slow / DIAGNOSIS).write_text(answer.pretty_json(), encoding="utf-8")  # the control: it is graded when it can be
    subprocess.run(command, check=False, capture_output=True)
    assert (slow / "verdicts" / "default.json").exists()


def test_the_contract_takes_no_more_than_the_largest_answer() -> None:
    answer = largest("SELECT {n}").model_dump(mode="json", by_alias=True)
    text = {key: answer[key] for key in ("root_causes", "propagation")}
    assert len(read_answer(json.dumps(text), ["s1"]).diagnosis.propagation) == MAX_EDGES
