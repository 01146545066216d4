"""Until when an agent answers for the system: what it left behind counts, and what never settles is no repair."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsassay.core.schema.scenario import Settling
from opsassay.scoring.verifiers import evidence_of, gather, judge_run
from opsassay.scoring.verifiers.settling import changed_since, settled, unsteady
from scoring.verifiers.made import at, change, probe, recording, scenario, timeline

HOLD = {"hold_s": 30, "limit_s": 150}
AGENT = {"deployed": 0, "triggered": 4, "started": 10, "ended": 18}


def judged(made, committed=None, **phases):
    committed = committed or scenario(settling=HOLD)
    return {j.predicate: j for j in judge_run(gather(recording(made, **{**AGENT, **phases})), committed)[0]}


def dip(value, start, end, length=100):
    return [value if start <= second < end else 1.0 for second in range(length)]


def test_an_action_that_takes_effect_when_its_author_is_gone_is_its_authors():
    """S-8: the agent is out at 18 s, its `Recreate` takes 20 of 78 pods down from 22 to 36 s, and then all is well."""
    made = timeline(dip(0.744, 22, 36))
    found = judged(made)["v_temporal"]
    assert found.failed
    assert (found.tick, found.value) == (22, 0.744)
    assert judged(made, scenario())["v_temporal"].passed, "without a hold nobody answers for it"
    assert judged(timeline(dip(0.9, 22, 36)))["v_temporal"].passed, "a dip that the floor bears"


def test_it_is_over_when_nothing_has_changed_for_the_hold_and_not_before():
    late = timeline(dip(0.7, 47, 50))  # 29 s after the end
    assert judged(late)["v_temporal"].failed
    later = timeline(dip(0.7, 49, 52))  # 31 s after it: this is no longer the agent's
    assert judged(later)["v_temporal"].passed
    small = dip(0.9, 40, 44)  # a change at 44 s: the hold begins anew
    assert judged(timeline([0.7 if 70 <= s < 73 else v for s, v in enumerate(small)]))["v_temporal"].failed
    assert judged(timeline([0.7 if 76 <= s < 79 else v for s, v in enumerate(small)]))["v_temporal"].passed


def test_the_hold_counts_from_a_change_that_was_still_under_way_at_the_end():
    made = timeline(dip(0.7, 60, 63))
    assert judged(made, actions=[change(17, took=1)])["v_temporal"].passed
    assert judged(made, actions=[change(17, took=20)])["v_temporal"].failed


def test_a_system_that_never_settles_certifies_nothing():
    flapping = [0.95 if second % 20 > 15 else 1.0 for second in range(260)]
    found = judged(timeline(flapping))["v_temporal"]
    assert found.failed
    assert "not settled: D1 still changed" in found.reason


def test_a_record_that_ends_before_the_hold_does_is_missing_evidence():
    found = judged(timeline([1.0] * 30))["v_temporal"]
    assert found.failed
    assert "steady for 11 s of the 30 s hold when the record ends" in found.reason
    assert judged(timeline([1.0] * 49))["v_temporal"].passed


@pytest.mark.parametrize("depth", ["D4", "D2", "D3"])
def test_every_depth_that_is_judged_has_to_be_steady(depth):
    parts = {100: ("db",)} if depth == "D4" else None
    backends = [0.5 if depth == "D2" and second == 100 else 1.0 for second in range(125)]
    probes = [probe(f"p{i}", second, reachable=not (depth == "D3" and second == 100)) for i, second in
              enumerate(range(0, 125, 20))]  # fmt: skip
    made = timeline([1.0] * 125, d2=backends, d4=parts, probes=probes)
    committed = scenario(committed_depth=depth, settling=HOLD)
    seen = gather(recording(made, **{**AGENT, "ended": 95}))
    assert settled(seen, committed.verification).problem != ""
    quiet = gather(recording(timeline([1.0] * 130, probes=[*probes[:5], probe("p", 126)]), **{**AGENT, "ended": 95}))
    assert settled(quiet, committed.verification).problem == ""


def test_two_services_that_are_probed_at_different_times_are_no_change():
    probes = [
        probe(f"p{s}", s, target="front" if s % 20 else "cart", reachable=bool(s % 20)) for s in range(0, 120, 10)
    ]
    seen = gather(recording(timeline([1.0] * 120, probes=probes), **AGENT))
    assert settled(seen, scenario(committed_depth="D3", settling=HOLD).verification).problem == ""


def test_waiting_for_the_system_to_settle_dilutes_no_share_of_ticks():
    committed = scenario(committed_depth="D3", temporal_depth="D3", probe_every_s=1, settling=HOLD)
    probes = [probe(f"p{i}", i + 0.5, reachable=not 20 <= i < 30) for i in range(120)]
    found = judged(timeline([1.0] * 121, probes=probes), committed, actions=[change(12)])["v_temporal"]
    assert found.failed  # 10 of 30 s, and not of the 50 that were waited for
    assert found.value == pytest.approx(2 / 3, abs=0.02)


def test_the_papers_profile_knows_no_settling():
    made = timeline(dip(0.744, 22, 36))
    with_hold, without = (
        judge_run(evidence_of(recording(made, **AGENT), one), one)[0]
        for one in (scenario(profile="paper", settling=HOLD, denominator="before"), scenario(profile="paper"))
    )
    assert with_hold == without


@settings(max_examples=60, deadline=None)
@given(
    d1=st.lists(st.sampled_from([0.7, 0.9, 1.0]), min_size=70, max_size=90),
    hold=st.integers(1, 20),
    end=st.integers(11, 30),
)
def test_what_it_says_is_steady_is_and_a_longer_hold_never_ends_earlier(d1, hold, end):
    d1[:5] = [1.0] * 5  # what stood before the fault would be subtracted
    committed = scenario(settling={"hold_s": hold, "limit_s": 40}).verification
    seen = gather(recording(timeline(d1), **{**AGENT, "ended": end}))
    found = settled(seen, committed)
    if not found.problem:
        until = round((found.time_ns - at(0)) / 1e9)
        assert until >= end + hold or until >= len(d1) - 1
        steady = d1[max(end, until - hold) : min(until, len(d1))]
        assert len(set(steady)) <= 1
    longer = settled(seen, committed.model_copy(update={"settling": Settling(hold_s=hold + 5, limit_s=45)}))
    assert longer.problem or found.problem or longer.time_ns >= found.time_ns


def test_what_changed_with_a_reading_is_named():
    committed = scenario(settling=HOLD, committed_depth="D3", temporal_depth="D1")
    probes = [probe(f"p{second}", second, reachable=second != 40) for second in range(0, 50, 5)]
    evidence = evidence_of(recording(timeline(dip(0.7, 44, 99, 50), probes=probes), **AGENT), committed)
    since = {second: changed_since(evidence, committed.verification, at(second)) for second in (40, 44, 45, 46)}
    assert since == {40: "D1, front at D3", 44: "D1, front at D3", 45: "front at D3", 46: ""}


def test_a_change_in_the_last_reading_is_never_outlasted_by_silence():
    committed = scenario(settling=HOLD, committed_depth="D1", temporal_depth="D1")
    broken_last = evidence_of(recording(timeline(dip(0.7, 49, 99, 50)), **AGENT), committed)
    steady_since = evidence_of(recording(timeline(dip(0.7, 40, 99, 50)), **AGENT), committed)
    assert unsteady(broken_last, committed.verification, 5) == "D1"
    assert (unsteady(steady_since, committed.verification, 5), unsteady(steady_since, committed.verification, 12)) == (
        "",
        "D1",
    )
