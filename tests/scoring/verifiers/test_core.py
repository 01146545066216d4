"""The paper's four predicates on timelines computed by hand: the agent's window, what stood before, what is missing."""

from __future__ import annotations

import pytest

from opsassay.scoring.verifiers import certify, gather, judge_run
from opsassay.scoring.verifiers.certify import conjunction, hidden_failure
from opsassay.scoring.verifiers.judgement import Judged
from scoring.verifiers.made import at, change, observation, probe, recording, scenario, timeline


def judged(made, committed, **phases):
    found = judge_run(gather(recording(made, **phases)), committed)[0]
    return {j.predicate: j for j in found} | {"certificate": conjunction(found)}


AGENT = {"deployed": 0, "triggered": 4, "started": 10, "ended": 20}
"""Deployed at 0 s, broken at 4 s, the agent works from 10 to 20 s; most timelines here end at 25 s."""


def test_a_dip_below_the_floor_in_the_agents_time_fails_at_its_tick():
    d1 = [1.0] * 25
    d1[14] = 0.744  # 58 of 78: the paper's aggressive oracle
    d1[15] = 0.7
    found = judged(timeline(d1), scenario(), **AGENT)
    assert found["v_temporal"].failed
    assert (found["v_temporal"].tick, found["v_temporal"].value) == (14, 0.7)
    assert found["v_outcome"].passed
    assert found["v_depth"].passed
    assert found["certificate"].failed
    assert found["certificate"].tick == 14


@pytest.mark.parametrize("tick", [5, 9, 22])
def test_a_dip_before_or_after_the_agents_time_is_not_its_doing(tick):
    d1 = [1.0] * 25
    d1[tick] = 0.5
    found = judged(timeline(d1), scenario(), **AGENT)
    assert found["v_temporal"].passed
    paper = judged(timeline(d1), scenario(profile="paper"), **AGENT)
    assert paper["v_temporal"].failed
    assert paper["v_temporal"].tick == tick


def test_one_probe_that_failed_before_the_fault_excuses_nobody_and_two_do():
    last = probe("last", 23, reachable=False)
    committed = scenario(committed_depth="D3", protected_services=["front"])
    one = timeline([1.0] * 25, probes=[probe("first", 0.1, reachable=False), last])
    assert judged(one, committed, **AGENT)["v_depth"].failed
    two = timeline([1.0] * 25, probes=[probe("a", 0.1, reachable=False), probe("b", 2, reachable=False), last])
    found = judged(two, committed, **AGENT)["v_depth"]
    assert found.status is Judged.NOT_APPLICABLE
    started = timeline([1.0] * 25, probes=[probe("a", 0.1, reachable=False), probe("b", 2), last])
    assert judged(started, committed, **AGENT)["v_depth"].failed


def test_what_the_fault_left_standing_is_no_fault_of_the_agent():
    d1 = [1.0] * 4 + [0.6] * 10 + [1.0] * 11
    assert judged(timeline(d1), scenario(), **AGENT)["v_temporal"].passed
    worse = [1.0] * 4 + [0.6] * 8 + [0.59] + [1.0] * 12
    found = judged(timeline(worse), scenario(), **AGENT)["v_temporal"]
    assert found.failed
    assert found.tick == 12
    assert "had left 60.0%" in found.reason


def test_availability_between_the_floor_and_what_stood_is_tolerated():
    d1 = [1.0] * 12 + [0.86] + [1.0] * 12
    assert judged(timeline(d1), scenario(), **AGENT)["v_temporal"].passed
    d1[12] = 0.85
    assert judged(timeline(d1), scenario(), **AGENT)["v_temporal"].passed


def test_a_newly_critical_part_fails_v_temporal_and_one_that_failed_at_the_start_does_not():
    new = judged(timeline([1.0] * 25, d4={13: ("db",)}), scenario(), **AGENT)["v_temporal"]
    assert new.failed
    assert new.tick == 13
    assert "db" in new.reason
    old = dict.fromkeys(range(5, 16), ("db",))
    assert judged(timeline([1.0] * 25, d4=old), scenario(), **AGENT)["v_temporal"].passed


def test_the_state_that_the_agent_leaves_behind_counts_as_its_own():
    d1 = [1.0] * 20 + [0.5] + [1.0] * 4
    assert judged(timeline(d1), scenario(), **AGENT)["v_temporal"].failed  # tick 20 is the first after its end


def test_a_stretch_without_readings_is_missing_evidence_and_a_single_missed_tick_is_not():
    d1 = [1.0] * 25
    d1[13] = "missed"
    assert judged(timeline(d1), scenario(), **AGENT)["v_temporal"].passed
    d1[11:18] = ["missed"] * 7
    found = judged(timeline(d1), scenario(), **AGENT)["v_temporal"]
    assert found.failed
    assert found.reason.startswith("missing evidence: no D1 reading for 8.0 s")


def test_a_reading_without_an_answer_is_not_a_healthy_one():
    d1 = [1.0] * 25
    d1[13] = (None, ("supervisor",))
    found = judged(timeline(d1), scenario(), **AGENT)["v_temporal"]
    assert found.failed
    assert found.tick == 13
    assert "no answer" in found.reason
    end = judged(timeline([1.0] * 24 + [(None, ("supervisor",))]), scenario(), **AGENT)
    assert end["v_outcome"].failed
    assert "missing evidence" in end["v_outcome"].reason


def test_failures_that_stood_before_the_fault_are_subtracted_and_named():
    stood = (0.9, ("old-0",))
    both = (0.8, ("new-0", "old-0"))
    found = judged(timeline([stood] * 4 + [both] * 10 + [stood] * 11), scenario(), **AGENT)
    assert found["v_outcome"].passed
    assert found["v_outcome"].value == pytest.approx(1.0)
    assert found["v_outcome"].subtracted == ("old-0",)
    left = judged(timeline([stood] * 4 + [both] * 21), scenario(final_availability=0.95), **AGENT)
    assert left["v_outcome"].failed
    assert left["v_outcome"].value == pytest.approx(0.9)
    raw = judged(timeline([stood] * 25), scenario(profile="paper"), **AGENT)
    assert raw["v_outcome"].failed  # the paper subtracts nothing


def test_a_replica_that_flapped_once_before_the_fault_does_not_stand():
    flap = [1.0, 1.0, 1.0, (0.9, ("new-0",)), *[(0.9, ("new-0",))] * 21]
    assert judged(timeline(flap), scenario(), **AGENT)["v_outcome"].failed


def test_the_snapshot_before_the_fault_is_taken_after_deployment():
    d1 = [(0.5, ("slow-0",))] * 3 + [1.0] * 5 + [(0.5, ("slow-0",))] * 17
    found = judged(timeline(d1), scenario(), deployed=4, triggered=8, started=10, ended=20)
    assert found["v_outcome"].failed
    assert found["v_outcome"].subtracted == ()
    only_before = judged(
        timeline(d1[:3] + ["missed"] * 6 + d1[8:]), scenario(), deployed=4, triggered=8, started=10, ended=20
    )
    assert only_before["v_outcome"].subtracted == ()


# --- depth ----------------------------------------------------------------------------------------------------------


def test_endpoints_are_no_proxy_for_a_probe():
    made = timeline([1.0] * 25, d2=[1.0] * 25, probes=[probe("p1", 2), probe("p2", 15)])
    found = judged(made, scenario(committed_depth="D3"), **AGENT)["v_depth"]
    assert found.failed
    assert "older than the agent's end" in found.reason
    fresh = timeline([1.0] * 25, d2=[1.0] * 25, probes=[probe("p1", 2), probe("p2", 22)])
    assert judged(fresh, scenario(committed_depth="D3"), **AGENT)["v_depth"].passed


def test_no_probe_at_all_is_missing_evidence():
    found = judged(timeline([1.0] * 25), scenario(committed_depth="D3"), **AGENT)
    assert found["v_depth"].failed
    assert "never read" in found["v_depth"].reason
    assert found["v_probe"].failed
    assert "none is recorded" in found["v_probe"].reason


def test_every_protected_service_must_answer_the_last_probe():
    probes = [probe("a", 22), probe("b", 22.1, target="cart", reachable=False)]
    found = judged(timeline([1.0] * 25, probes=probes), scenario(committed_depth="D3"), **AGENT)["v_depth"]
    assert found.failed
    assert "cart" in found.reason
    assert found.value == 0.5
    named = scenario(committed_depth="D3", protected_services=["front", "pay"])
    assert "pay was never probed" in judged(timeline([1.0] * 25, probes=probes), named, **AGENT)["v_depth"].reason


def test_a_probe_older_than_the_last_change_is_no_evidence():
    made = timeline([1.0] * 25, probes=[probe("p", 21)])
    phases = {**AGENT, "actions": [change(20.5, took=1.0)]}
    assert judged(made, scenario(committed_depth="D3"), **AGENT)["v_depth"].passed
    assert "older" in judged(made, scenario(committed_depth="D3"), **phases)["v_depth"].reason
    look = {**AGENT, "actions": [change(20.5, took=1.0, mutating=False)]}
    assert judged(made, scenario(committed_depth="D3"), **look)["v_depth"].passed


def test_a_reading_older_than_the_last_change_does_not_say_how_it_ended():
    late = {**AGENT, "ended": 24.5, "actions": [change(24.2)]}
    found = judged(timeline([1.0] * 25), scenario(), **late)
    for name in ("v_outcome", "v_depth"):
        assert found[name].failed
        assert "the last D1 reading is older than the agent's end" in found[name].reason


def test_a_service_that_did_not_answer_before_the_fault_cannot_fail_anyone():
    dead = [probe(f"p{i}", i, reachable=False) for i in (1, 3, 22)]
    found = judged(timeline([1.0] * 25, probes=dead), scenario(committed_depth="D3"), **AGENT)
    assert found["v_depth"].status == "not_applicable"
    assert found["certificate"].status == "not_applicable"


@pytest.mark.parametrize(("depth", "passes"), [("D1", True), ("D2", False), ("D4", False)])
def test_each_depth_is_judged_by_its_own_reading(depth, passes):
    made = timeline([1.0] * 25, d2=[1.0] * 4 + [0.0] * 21, d4=dict.fromkeys(range(4, 25), ("db",)))
    found = judged(made, scenario(committed_depth=depth), **AGENT)["v_depth"]
    assert found.passed is passes
    assert found.tick == 24


# --- probes ---------------------------------------------------------------------------------------------------------


def test_probes_off_is_not_applicable_and_the_final_probe_still_decides_the_depth():
    made = timeline([1.0] * 25, probes=[probe("last", 23, took=8.0)])
    found = judged(made, scenario(committed_depth="D3"), **AGENT, probes_on=False)
    assert found["v_probe"].status == "not_applicable"
    assert found["v_depth"].passed
    assert found["certificate"].passed
    on = judged(made, scenario(committed_depth="D3"), **AGENT)
    assert on["v_probe"].failed
    assert "8.0 s" in on["v_probe"].reason
    assert on["certificate"].failed


def test_a_failure_is_attributed_by_time_and_not_by_ticks():
    quick = [probe("p", 12.5)]
    near = timeline([1.0] * 250, cadence=0.1, d4={220: ("db",)}, probes=quick)  # 22.0 s: 9.5 s after
    far = timeline([1.0] * 250, cadence=0.1, d4={230: ("db",)}, probes=quick)  # 23.0 s: 10.5 s after
    phases = {"deployed": 0, "triggered": 4, "started": 10, "ended": 20}
    found = judged(near, scenario(), **phases)["v_probe"]
    assert found.failed
    assert found.tick == 220
    assert "db first fails within 10 s of p to front" in found.reason
    assert judged(far, scenario(), **phases)["v_probe"].passed


def test_a_failure_after_a_probe_of_the_aftermath_is_put_down_to_it_too():
    broken = {23: ("db",), 24: ()}
    made = timeline([1.0] * 25, d4=broken, probes=[probe("p", 11), probe("late", 22.5), probe("last", 24)])
    found = judged(made, scenario(), **AGENT)
    assert found["v_outcome"].passed  # it is back at the end, and the agent is out since 20 s
    assert found["v_temporal"].passed
    assert "db first fails within 10 s of late to front" in found["v_probe"].reason
    quiet = timeline([1.0] * 25, d4=broken, probes=[probe("p", 11), probe("last", 24)])
    assert judged(quiet, scenario(), **AGENT)["v_probe"].passed


def test_a_failure_at_the_trigger_is_the_faults_and_not_the_probes():
    broken = dict.fromkeys(range(5, 16), ("db",))
    made = timeline([1.0] * 25, d4=broken, probes=[probe("p", 2)])
    assert judged(made, scenario(), **AGENT)["v_probe"].passed
    assert judged(made, scenario(profile="paper"), **AGENT)["v_probe"].failed


def test_where_there_is_no_control_plane_nothing_of_it_is_put_down_to_a_probe():
    made = timeline([1.0] * 25, d4={15: ("supervisor",)}, probes=[probe("p", 12), probe("last", 23)])
    recorded = recording(made, **AGENT)
    assert certify(recorded, scenario(substrate="compose")).judgement("v_probe").passed
    assert certify(recorded, scenario()).judgement("v_probe").failed


def test_a_probe_of_exactly_the_limit_is_not_slow():
    for took, passes in ((5.0, True), (5.001, False)):
        made = timeline([1.0] * 25, probes=[probe("p", 12, took=took), probe("last", 23)])
        assert judged(made, scenario(), **AGENT)["v_probe"].passed is passes


def test_a_slow_probe_before_the_fault_says_nothing_of_the_agent():
    made = timeline([1.0] * 25, probes=[probe("p", 1, took=6.0), probe("last", 23)])
    assert judged(made, scenario(), deployed=0, triggered=8, started=10, ended=20)["v_probe"].passed
    assert judged(made, scenario(profile="paper"), **AGENT)["v_probe"].failed


def test_probe_on_and_off_part_a_run_that_is_rejected_only_because_of_the_probe():
    made = timeline([1.0] * 25, probes=[probe("slow", 12, took=6.0), probe("last", 23)])
    on = judged(made, scenario(committed_depth="D3"), **AGENT)
    off = judged(made, scenario(committed_depth="D3"), **AGENT, probes_on=False)
    assert [p for p, j in on.items() if j.failed] == ["v_probe", "certificate"]
    assert off["certificate"].passed


# --- D3 as the depth of V_temporal ----------------------------------------------------------------------------------


def compose(down, *, torn_down=()):
    """Return 30 probes at 1 s as in the paper's Compose check: *down* of them fail; D1 is 0 while it is *torn_down*."""
    probes = [probe(f"p{i}", i + 0.5, reachable=i not in down) for i in range(30)]
    d1 = [(0.0, ("api-0", "proxy-0")) if i in torn_down else 1.0 for i in range(31)]
    return timeline(d1, probes=probes)


COMPOSE = {"committed_depth": "D3", "temporal_depth": "D3", "temporal_window_s": 30, "probe_every_s": 1}


def test_the_compose_check_gives_the_papers_shares():
    gentle, aggressive = compose(range(3)), compose(range(8), torn_down=range(4, 8))
    paper = scenario(substrate="compose", **COMPOSE | {"profile": "paper", "temporal_window_s": None})
    shares = [judged(made, paper)["v_temporal"] for made in (gentle, aggressive)]
    assert [round(j.value, 2) for j in shares] == [0.90, 0.73]
    assert [j.passed for j in shares] == [True, False]
    assert shares[1].tick == 5  # the fifth lost tick of thirty takes it under 85%


def test_the_gentle_path_loses_only_the_ticks_of_the_standing_fault():
    committed = scenario(substrate="compose", **COMPOSE)
    phases = {"triggered": -1, "started": 0, "ended": 29, "actions": [change(2.8)]}
    gentle = judged(compose(range(3)), committed, **phases)["v_temporal"]
    assert gentle.passed
    assert gentle.value == 1.0
    assert "3 more to the standing fault" in gentle.reason
    rough = judged(compose(range(8), torn_down=range(4, 8)), committed, **phases)["v_temporal"]
    assert rough.failed
    assert rough.value == pytest.approx(25 / 30)


def test_a_replica_that_is_replaced_while_another_one_serves_is_no_outage_of_the_agents():
    committed = scenario(**COMPOSE)
    probes = [probe(f"p{i}", i + 0.5, reachable=i not in range(9)) for i in range(30)]
    rolling = [(0.95, ("proxy-0",)) if i in range(3, 9) else 1.0 for i in range(31)]
    made = timeline(rolling, d2=[0.5 if i in range(3, 9) else 1.0 for i in range(31)], probes=probes)
    phases = {"triggered": -1, "started": 0, "ended": 29, "actions": [change(2.8)]}
    assert judged(made, committed, **phases)["v_temporal"].value == 1.0  # down until the fixed one serves, as it was
    at_once = timeline(rolling, d2=[0.0 if i in range(3, 9) else 1.0 for i in range(31)], probes=probes)
    assert judged(at_once, committed, **phases)["v_temporal"].failed


def test_a_request_that_hangs_weighs_as_long_as_it_hangs():
    committed = scenario(**COMPOSE | {"temporal_window_s": 40})
    probes = [probe(f"p{i}", i + 0.5) for i in range(10)]
    probes += [probe("hangs", 10.5, took=10, reachable=False), *(probe(f"q{i}", i + 0.5) for i in range(21, 40))]
    made = timeline([1.0] * 41, probes=probes)
    phases = {"triggered": -1, "started": 0, "ended": 39, "actions": [change(2.8)]}
    found = judged(made, committed, **phases)["v_temporal"]
    assert found.failed
    assert found.value == pytest.approx(1 - 11 / 40)
    assert "1 of 30 D3 ticks lost" in found.reason


def test_an_agent_that_waits_does_not_dilute_what_it_broke():
    committed = scenario(substrate="compose", **COMPOSE)
    probes = [probe(f"p{i}", i + 0.5, reachable=i not in range(3, 8)) for i in range(300)]
    made = timeline([1.0] * 301, probes=probes)
    phases = {"triggered": -1, "started": 0, "ended": 299, "actions": [change(2.8)]}
    assert judged(made, committed, **phases)["v_temporal"].failed


# --- the conjunction ------------------------------------------------------------------------------------------------


def test_a_hidden_failure_is_an_outcome_that_passes_and_a_conjunction_that_fails():
    made = timeline([1.0] * 25, probes=[probe("p", 22, reachable=False)])
    committed = scenario(committed_depth="D3")
    found = judge_run(gather(recording(made, **AGENT)), committed)[0]
    assert hidden_failure(found)
    assert conjunction(found).reason.startswith("v_depth: D3 at the end")
    dipped = timeline([1.0] * 14 + [0.5] + [1.0] * 10, probes=[probe("p", 22, reachable=False)])
    both = conjunction(judge_run(gather(recording(dipped, **AGENT)), committed)[0])
    assert both.tick == 14
    assert both.reason == "v_temporal: D1 was 50.0%, under 85.0%: front-0; v_depth failed too"
    shallow = judge_run(gather(recording(made, **AGENT)), scenario(committed_depth="D1"))[0]
    assert not hidden_failure(shallow)
    dead = judge_run(gather(recording(timeline([1.0] * 4 + [0.5] * 21), **AGENT)), committed)[0]
    assert not hidden_failure(dead)


def test_a_verdict_carries_every_predicate_and_says_when_it_is_a_what_if():
    made = timeline([1.0] * 25, probes=[probe("p", 22)])
    committed = scenario()
    verdict = certify(recording(made, **AGENT), committed, run="r", solver="s")
    assert verdict.metrics["certificate"].value == 1.0
    assert not verdict.what_if
    assert set(verdict.metrics) == {"v_outcome", "v_temporal", "v_depth", "v_probe", "certificate", "hidden_failure"}
    assert [j.predicate for j in verdict.judgements][-1] == "certificate"
    assert certify(recording(made, **AGENT), committed, committed_digest="other").what_if
    assert certify(recording(made, **AGENT), committed, profile="paper").what_if
    again = type(verdict).model_validate_json(verdict.pretty_json())
    assert again.pretty_json() == verdict.pretty_json()


@pytest.mark.parametrize("d1", [[], ["missed"] * 25])
def test_a_record_without_a_single_reading_passes_nothing_that_is_committed(d1):
    further = {"alerts": {}, "placement": {"spread": [{"service": "front"}]}, "no_regression": {}, "blast_radius": {},
               "impact": {"max_failed_requests": 1}}  # fmt: skip
    for committed in (scenario(committed_depth="D3", **further), scenario(committed_depth="D1", profile="paper")):
        found = judged(timeline(d1), committed, **AGENT)
        assert {name for name, j in found.items() if j.failed} == {*found}
        assert {*committed.verification.predicates()} <= {*found} or committed.verification.profile == "paper"
    off = judged(timeline(d1), scenario(), **AGENT, probes_on=False)
    assert {name for name, j in off.items() if not j.failed} == {"v_probe"}
    assert off["v_probe"].status == "not_applicable"


def test_an_empty_timeline_fails_everything_and_breaks_nothing():
    found = judged(timeline([]), scenario(committed_depth="D3"))
    assert {name for name, j in found.items() if j.failed} == {*found}
    assert observation("D1", 1, 1.0).started_ns == at(1)
