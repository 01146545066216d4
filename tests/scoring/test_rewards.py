"""Process rewards, on a trace whose worth is counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from opsassay.core.schema.run import EvidenceResult
from opsassay.core.schema.trajectory import ToolCall, Trace, TraceStep
from opsassay.scoring.metrics import failed, scored
from opsassay.scoring.process import ServiceGraph
from opsassay.scoring.profiles import PROFILES
from opsassay.scoring.rewards import step_rewards

CASCADE = ServiceGraph(frozenset({"store", "cart", "web"}), frozenset({("store", "cart"), ("cart", "web")}))
GOOD = "SELECT count(*) FROM abnormal_traces WHERE service_name = 'store'"


def query(sql: str, status: Any = "ok") -> ToolCall:
    return ToolCall(tool="query_sql", arguments={"sql": sql}, output="1", status=status)


def on(service: str, status: Any = "ok") -> ToolCall:
    return query(f"SELECT 1 FROM abnormal_logs WHERE service_name = '{service}'", status)


def trace(*steps: tuple[ToolCall, ...]) -> Trace:
    made = tuple(
        TraceStep(step_id=n, agent_id="0", agent_name="a", input_context="", output_content="", tool_logs=calls)
        for n, calls in enumerate(steps, 1)
    )
    return Trace(task_id="t", task_instruction="", system_name="s", steps=made)


def evidence(sql: str, **changes: Any) -> EvidenceResult:
    given = {"sql": sql, "claim": "", "status": "ok", "relevant": True, "vacuous": False, **changes}
    return EvidenceResult.model_validate(given)


def parts(found: Trace, cascade: ServiceGraph = CASCADE, *results: EvidenceResult, f1: Any = None) -> list[Any]:
    services = ("web", "cart", "store", "other")
    rewards = step_rewards(found, services, cascade, results, f1, PROFILES["default"])
    return [(r.edges, r.evidence, r.answer, r.wasted) for r in rewards]


def test_an_edge_counts_at_the_step_after_which_both_its_ends_are_known():
    steps = ((on("web"),), (on("other"),), (on("ts-cart"), on("store")), ())
    assert [edges for edges, *_ in parts(trace(*steps))] == [0, 0, 1, 0]
    assert [edges for edges, *_ in parts(trace((on("web"),), (on("cart"),), (on("store"),)))] == [0, 0.5, 0.5]
    alone = ServiceGraph(frozenset({"store"}), frozenset())
    assert [edges for edges, *_ in parts(trace((on("web"),), (on("store"),)), alone)] == [0, 1]


def test_a_failed_call_looks_at_nothing_and_is_wasted_as_is_a_repeated_one():
    found = parts(trace((on("web"), on("cart", "error")), (on("web"),), (on("cart"),)))
    assert [edges for edges, *_ in found] == [0, 0, 0.5]
    # on("cart") was made before, though it failed: 4 calls, of which one failed and two are repeats
    assert [wasted for *_, wasted in found] == [0.25, 0.25, 0.25]


def test_evidence_is_credited_to_the_step_that_ran_it_first_and_else_to_the_answer():
    steps = ((query(GOOD, "error"),), (query(f"  {GOOD};\n"),), (query(GOOD),), ())
    results = (
        evidence(GOOD),
        evidence("SELECT 2", relevant=False),
        evidence("SELECT count(*) FROM abnormal_logs"),  # which no step ran
        evidence(GOOD, vacuous=True),
    )
    assert [share for _, share, *_ in parts(trace(*steps), CASCADE, *results)] == [0, 0.25, 0, 0.25]


def test_the_answer_counts_at_the_last_step_and_a_run_without_one_keeps_what_it_found():
    steps = ((on("cart"),), (on("store"),))
    assert [answer for *_, answer, _ in parts(trace(*steps), f1=scored(0.4))] == [0, 0.4]
    none = failed(("edge_f1",), "the run is timeout")["edge_f1"]
    assert parts(trace(*steps), f1=none) == [(0, 0, 0, 0), (0.5, 0, 0, 0)]


def test_the_reward_is_the_sum_and_each_part_sums_to_one_at_most():
    found = trace((on("web"), on("web")), (query(GOOD), on("cart")), (on("store", "error"),), ())
    results, profile = (evidence(GOOD), evidence(GOOD)), PROFILES["default"]
    rewards = step_rewards(found, (), CASCADE, results, scored(1.0), profile)
    assert [r.reward for r in rewards] == pytest.approx([-1 / 5, 1 + 1, -1 / 5, 1])
    for part in ("edges", "evidence", "answer", "wasted"):
        assert 0 <= sum(getattr(r, part) for r in rewards) <= 1
    assert step_rewards(trace(), (), CASCADE, results, None, profile) == ()
