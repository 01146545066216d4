"""What a scenario may commit beyond the paper: alerts, placement, no-regression, impact, blast radius; by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsassay.core.schema.trajectory import ControlPlaneReading
from opsassay.scoring.verifiers import certify, gather, judge_run
from scoring.verifiers.made import at, change, entity, firing, probe, recording, scenario, timeline

AGENT = {"deployed": 0, "triggered": 4, "started": 10, "ended": 20}
ERRORS, SLOW = ("front", "error_rate"), ("cart", "latency_p99_ms")


def judged(made, committed, **phases):
    return {j.predicate: j for j in judge_run(gather(recording(made, **{**AGENT, **phases})), committed)[0]}


def quiet_from(seconds, *rules, until=40, every=2):
    return [firing(s, *(rules if s < seconds else ())) for s in range(4, until + 1, every)]


ALERTS = {"triggering": [{"service": "front", "signal": "error_rate"}], "hold_s": 10}


def cleared(readings, *, alerts=None, **phases):
    committed = scenario(alerts=ALERTS if alerts is None else alerts)
    return judged(timeline([1.0] * 45), committed, alerts=readings, **phases)["alerts_cleared"]


def test_an_alert_that_clears_and_stays_so_for_its_hold_is_a_mitigation():
    found = cleared(quiet_from(18, ERRORS))
    assert found.passed
    assert found.value == 8.0
    assert found.tick == 18
    verdict = certify(recording(timeline([1.0] * 45), **AGENT, alerts=quiet_from(18, ERRORS)), scenario(alerts=ALERTS))
    assert verdict.metrics["time_to_repair_s"].value == 8.0


def test_a_hold_that_the_record_does_not_cover_is_missing_evidence():
    found = cleared(quiet_from(34, ERRORS))
    assert found.failed
    assert found.reason == "missing evidence: quiet for 6 s of the 10 s hold when the record ends"


def test_an_alert_that_comes_back_counts_from_its_last_firing():
    readings = [firing(s, *([ERRORS] if s < 12 or s == 24 else ())) for s in range(4, 41, 2)]
    found = cleared(readings)
    assert found.passed
    assert found.value == 16.0
    late = [firing(s, *([ERRORS] if s < 12 or s == 40 else ())) for s in range(4, 41, 2)]
    assert "front error_rate still fires at the end" in cleared(late).reason


def test_what_had_not_fired_before_the_agent_was_let_in_is_no_trigger():
    assert "front error_rate had not fired" in cleared([firing(s) for s in range(4, 41, 2)]).reason
    assert "had not fired" in cleared([firing(s, *([ERRORS] if s == 12 else ())) for s in range(4, 41, 2)]).reason
    early = [firing(s, *([ERRORS] if s == 2 else ())) for s in range(0, 41, 2)]  # before the fault
    assert "had not fired" in cleared(early).reason
    assert "no alert had fired" in cleared([], alerts={"hold_s": 10}).reason


def test_without_a_list_whatever_fired_must_clear():
    assert cleared(quiet_from(18, ERRORS, SLOW), alerts={"hold_s": 10}).passed
    half = [firing(s, *([ERRORS, SLOW] if s < 12 else [SLOW])) for s in range(4, 41, 2)]
    assert "cart latency_p99_ms still fires" in cleared(half, alerts={"hold_s": 10}).reason


def test_quiet_before_the_last_change_is_no_evidence_of_the_repair():
    late = {"actions": [change(32)], "ended": 33}
    found = cleared(quiet_from(18, ERRORS), **late)
    assert found.failed
    assert "quiet for 7 s of the 10 s hold" in found.reason


def test_rules_that_were_not_evaluated_for_long_are_missing_evidence():
    readings = [firing(s, *([ERRORS] if s < 12 else ())) for s in (4, 6, 8, 10, 12, 40)]
    found = cleared(readings)
    assert found.failed
    assert "not evaluated for 28 s" in found.reason


def test_a_rule_of_anybody_is_about_whoever_had_fired():
    anybody = {"triggering": [{"signal": "node_not_ready"}], "hold_s": 10}
    lost = ("worker2", "node_not_ready")
    assert cleared(quiet_from(18, lost), alerts=anybody).passed
    assert "worker2 node_not_ready still fires" in cleared(quiet_from(99, lost), alerts=anybody).reason
    assert "node_not_ready had not fired" in cleared(quiet_from(18, ERRORS), alerts=anybody).reason


def test_alerts_of_probes_say_nothing_where_none_are_sent():
    probed = {"triggering": [{"service": "front", "signal": "probe_failed"}]}
    assert cleared([], alerts=probed, probes_on=False).status == "not_applicable"
    assert cleared([], alerts=probed).failed


# --- placement ------------------------------------------------------------------------------------------------------


def placed(*hosts, **rule):
    first = [entity(f"pay-{i}", host="w1") for i in range(len(hosts))]
    last = [entity(f"pay-{i}", host=host) for i, host in enumerate(hosts)]
    committed = scenario(placement={"spread": [{"service": "pay", **rule}]})
    return judged(timeline([1.0] * 25, entities={0: first, 15: last}), committed)["v_placement"]


def test_twenty_replicas_on_one_worker_pass_every_check_of_the_paper_and_fail_placement():
    found = placed(*["w3"] * 20)  # Finding 4b
    assert found.failed
    assert "pay runs on w3 only, not on 2 hosts" in found.reason
    assert placed(*["w1", "w2", "w3", "w4"] * 5, min_hosts=4, max_skew=0).passed


def test_an_uneven_spread_is_named():
    found = placed("w1", "w1", "w1", "w2", max_skew=1)
    assert found.failed
    assert "uneven by 2, more than 1: w1 3, w2 1" in found.reason


def test_replicas_that_are_not_ready_hold_no_place_and_unknown_hosts_are_missing_evidence():
    dead = [entity("pay-0", host="w1"), entity("pay-1", host="w2", ready=False)]
    committed = scenario(placement={"spread": [{"service": "pay"}], "apart": [("pay", "db")]})
    found = judged(timeline([1.0] * 25, entities={0: dead}), committed)["v_placement"]
    assert found.failed
    assert "pay runs on w1 only" in found.reason
    nowhere = judged(timeline([1.0] * 25), committed)["v_placement"]
    assert nowhere.reason == "missing evidence: no entities were recorded"
    both = [entity("pay-0", host="w1"), entity("pay-1", host="w2"), entity("db-0", host="w2")]
    shared = judged(timeline([1.0] * 25, entities={0: both}), committed)["v_placement"]
    assert shared.failed
    assert shared.reason == "pay and db share w2"


# --- no regression --------------------------------------------------------------------------------------------------

FLEET = [entity("front-0"), entity("cart-0"), entity("cart-1")]


def regressed(later, *, gone=(), d1=None, d4=None, probes=(), load=None, **rule):
    made = timeline(d1 or [1.0] * 25, entities={0: FLEET, 15: later}, d4=d4, probes=probes, load=load)
    if gone:
        ticks = [t.model_copy(update={"gone": gone}) if t.index == 15 else t for t in made.ticks]
        made = made.model_copy(update={"ticks": tuple(ticks)})
    return judged(made, scenario(no_regression=rule))["v_no_regression"]


def test_scaling_to_zero_is_not_a_repair():
    found = regressed([], gone=("cart-0", "cart-1"))
    assert found.failed
    assert "cart-0 is gone, cart-1 is gone" in found.reason
    assert found.value == 2
    assert regressed([], gone=("cart-1",)).failed
    assert regressed([], gone=("cart-0", "cart-1"), except_for=["cart"]).passed
    assert regressed([]).passed


def test_a_replica_that_was_replaced_is_made_good_one_for_one():
    assert regressed([entity("cart-x")], gone=("cart-0",)).passed
    assert regressed([entity("cart-x")], gone=("cart-0", "cart-1")).failed
    assert regressed([entity("pay-x")], gone=("cart-0",)).failed
    assert regressed([entity("cart-x", ready=False)], gone=("cart-0",)).failed
    assert regressed([entity("cart-x"), entity("cart-0", ready=False)]).failed  # it is there, and broken


def test_what_was_broken_before_may_be_broken_after():
    ill = [entity("front-0"), entity("cart-0", ready=False), entity("cart-1")]
    made = timeline([1.0] * 25, entities={0: ill})
    assert judged(made, scenario(no_regression={}))["v_no_regression"].passed
    assert judged(made, scenario(no_regression={}), triggered=None)["v_no_regression"].failed


def test_parts_and_services_that_fail_at_the_end_are_regressions_too():
    assert "db fails" in regressed([], d4={24: ("db",)}).reason
    dead = [probe("a", 1), probe("b", 1, target="pay"), probe("c", 22), probe("d", 22, target="pay", reachable=False)]
    assert "pay fails" in regressed([], probes=dead).reason


def test_what_was_last_seen_before_the_repair_is_no_evidence_that_it_works():
    old = [probe("a", 1), probe("b", 12), probe("c", 15, target="pay"), probe("d", 22)]
    assert "nothing was read of pay after the agent's end" in regressed([], probes=old).reason
    assert regressed([], probes=old).failed
    assert regressed([], probes=old, except_for=["pay"]).passed
    assert regressed([], probes=[*old, probe("e", 23, target="pay")]).passed


def test_a_kind_of_request_that_most_users_no_longer_get_is_a_regression():
    def load(end_failed):
        return {0: {"front GET /": (0, 0)}, 4: {"front GET /": (40, 1)}, 20: {"front GET /": (100, 30)},
                21: {"front GET /": (110, 30)}, 24: {"front GET /": (150, 30 + end_failed)}}  # fmt: skip

    assert regressed([], load=load(5)).passed
    assert "most of front GET / fail" in regressed([], load=load(40)).reason


def nodes(before, after, *, ready=(4, 4)):
    def reading(seconds, lost, count):
        return ControlPlaneReading(
            time_ns=at(seconds), ready=True, latency_s=0.01, nodes_not_ready=lost, nodes_ready=count
        )

    run = recording(timeline([1.0] * 25, entities={0: FLEET}), **AGENT)
    run = replace(run, control_plane=(reading(2, before, ready[0]), reading(23, after, ready[1])))
    return {j.predicate: j for j in judge_run(gather(run), scenario(no_regression={}))[0]}["v_no_regression"]


def test_a_node_that_is_not_ready_any_more_is_a_regression_however_many_pods_moved():
    found = nodes((), ("worker2",), ready=(4, 3))
    assert found.failed
    assert "node worker2 is not Ready" in found.reason
    assert nodes((), ()).passed
    assert nodes(("worker2",), ("worker2",), ready=(3, 3)).passed
    assert "1 nodes are gone" in nodes((), (), ready=(4, 3)).reason


def test_what_a_scenario_calls_by_an_open_name_is_known_by_the_name_that_stood_in_its_place():
    run = recording(timeline([1.0] * 25, entities={0: FLEET}), **AGENT, actions=[change(12, touched=["node-7"])])
    committed = scenario(truth={"root_causes": ["{worker2}"]}, blast_radius={})
    strange = {j.predicate: j for j in judge_run(gather(run), committed)[0]}["v_blast_radius"]
    known = judge_run(gather(replace(run, names={"{worker2}": "node-7"})), committed)[0]
    assert strange.failed
    assert {j.predicate: j for j in known}["v_blast_radius"].passed


# --- impact ---------------------------------------------------------------------------------------------------------

KINDS = ("front GET /", "front POST /checkout")


def lost(counts, **rule):
    """*counts*: {tick: ((done, failed) of GET, (done, failed) of POST)}, cumulative."""
    load = {tick: dict(zip(KINDS, both, strict=True)) for tick, both in counts.items()}
    made = timeline([1.0] * 71, load=load)
    return judge_run(gather(recording(made, deployed=0, triggered=4, started=10, ended=70)), scenario(impact=rule))


def test_user_minutes_by_hand():
    # From 10 to 70 s: 600 GET of which 60 fail, 60 POST of which 60 fail, evenly: 2 users wait for 120 of 660 requests.
    counts = {s: ((10 * s, max(0, s - 10)), (s, max(0, s - 10))) for s in range(71)}
    found, numbers = lost(counts, max_failed_requests=1000, users=100)
    assert numbers["impact_failed_requests"] == 120
    assert numbers["impact_user_minutes"] == pytest.approx(100 * 120 / 660)
    assert found[-1].passed
    # A checkout weighs ten: (60 + 600) of (600 + 600) weighted requests.
    _, heavy = lost(counts, max_failed_requests=1000, users=100, weights={KINDS[1]: 10})
    assert heavy["impact_failed_requests"] == 660
    assert heavy["impact_user_minutes"] == pytest.approx(100 * 660 / 1200)


def test_the_tick_at_which_the_bound_was_crossed_decides():
    counts = {s: ((10 * s, max(0, s - 10)), (s, 0)) for s in range(71)}
    found, _ = lost(counts, max_failed_requests=5)
    assert found[-1].failed
    assert found[-1].tick == 16


def test_what_failed_before_the_fault_is_subtracted_as_a_share():
    counts = {s: ((10 * s, 1 * s), (s, 0)) for s in range(71)}  # a tenth of GET fails from the start
    _, numbers = lost(counts, max_failed_requests=5)
    assert numbers["impact_failed_requests"] == pytest.approx(0)


def test_a_generator_that_was_started_anew_counts_from_zero():
    counts = {s: ((10 * s, max(0, s - 10)), (s, 0)) for s in range(40)}
    counts |= {s: ((10 * (s - 39), s - 35), (1, 0)) for s in range(40, 71)}
    _, numbers = lost(counts, max_failed_requests=5)
    assert numbers["impact_failed_requests"] == 29 + 35


def test_no_counts_are_missing_evidence():
    found, numbers = lost({}, max_failed_requests=5)
    assert found[-1].failed
    assert "not recorded" in found[-1].reason
    assert numbers["impact_user_minutes"] is None
    still, _ = lost({0: ((5, 0), (5, 0))}, max_failed_requests=5)
    assert still[-1].failed
    assert "no request was counted" in still[-1].reason


# --- blast radius ---------------------------------------------------------------------------------------------------


def touched(*actions, truth=None, later=(), **rule):
    made = timeline([1.0] * 25, entities={0: FLEET, 15: list(later)})
    committed = scenario(truth=truth or {"root_causes": ["front"]}, blast_radius=rule)
    return judged(made, committed, actions=actions)["v_blast_radius"]


def test_touching_what_the_truth_does_not_name_is_counted_once_per_service():
    assert touched(change(11, touched=["front-0"])).passed
    found = touched(change(11, touched=["front-0"]), change(12, touched=["cart-0"]), change(13, touched=["cart-1"]))
    assert found.failed
    assert (found.value, found.tick) == (1.0, 12)
    assert "cart (restart)" in found.reason
    assert touched(change(12, touched=["cart-0"]), max_entities=1).passed
    assert touched(change(12, touched=["cart-0"]), also_allowed=["cart"]).passed
    assert touched(change(12, touched=["cart-0"], mutating=False)).passed


def test_what_the_timeline_saw_change_counts_without_any_record_of_it():
    found = touched(later=[entity("cart-0", version="v2")])
    assert found.failed
    assert "cart-0 has another version" in found.reason
    assert found.tick == 15


def test_without_a_record_of_entities_nobody_saw_what_moved():
    committed = scenario(truth={"root_causes": ["front"]}, blast_radius={})
    blind = judged(timeline([1.0] * 25), committed)["v_blast_radius"]
    assert blind.failed
    assert blind.reason.startswith("missing evidence: no entities were recorded")
    seen = judged(timeline([1.0] * 25), committed, actions=[change(12, touched=["cart"])])["v_blast_radius"]
    assert "touched what the truth does not name: cart" in seen.reason


def test_a_false_alarm_forgives_no_change():
    committed = scenario(no_fault=True, blast_radius={})
    made = timeline([1.0] * 25, entities={0: FLEET})
    idle = judged(made, committed)
    assert idle["v_blast_radius"].passed
    assert judged(made, committed, actions=[change(12, touched=["front-0"])])["v_blast_radius"].failed


# --- properties -----------------------------------------------------------------------------------------------------

SHARES = st.lists(st.sampled_from([0.5, 0.8, 0.84, 0.85, 0.9, 0.95, 1.0]), min_size=26, max_size=30)


@settings(max_examples=60, deadline=None)
@given(d1=SHARES, floor=st.sampled_from([0.8, 0.85, 0.9, 0.95]))
def test_a_higher_floor_never_turns_a_failure_into_a_pass(d1, floor):
    made = timeline(d1)
    low = judged(made, scenario(floor_availability=floor))["v_temporal"]
    high = judged(made, scenario(floor_availability=min(1.0, floor + 0.05)))["v_temporal"]
    assert low.passed or high.failed


@settings(max_examples=60, deadline=None)
@given(d1=SHARES, worse=st.integers(0, 25), profile=st.sampled_from(["default", "paper"]))
def test_a_worse_reading_after_the_agents_start_never_helps(d1, worse, profile):
    committed = scenario(profile=profile)
    index = min(worse, len(d1) - 1)
    if index <= 9:
        return  # it would change what the fault had left standing
    lower = [*d1[:index], 0.4, *d1[index + 1 :]]
    for name in ("v_outcome", "v_temporal", "v_depth"):
        assert not (judged(timeline(lower), committed)[name].passed and judged(timeline(d1), committed)[name].failed)


@settings(max_examples=40, deadline=None)
@given(d1=SHARES, shift=st.integers(0, 10**12))
def test_judgements_do_not_depend_on_where_the_clock_stands(d1, shift):
    made = timeline(d1, d4={12: ("db",)}, probes=[probe("p", 11), probe("q", 24.5)])

    def moved(value):
        if isinstance(value, dict):
            return {k: v + shift if k in ("started_ns", "ended_ns", "time_ns") else moved(v) for k, v in value.items()}
        return [moved(v) for v in value] if isinstance(value, list | tuple) else value

    own = recording(made, **AGENT)
    later = type(own)(
        type(made).model_validate(moved(made.model_dump())),
        tuple(type(p).model_validate(moved(p.model_dump())) for p in own.phases),
    )
    a, b = (judge_run(gather(one), scenario(committed_depth="D3"))[0] for one in (own, later))
    assert [(j.predicate, j.status, j.reason, j.tick) for j in a] == [
        (j.predicate, j.status, j.reason, j.tick) for j in b
    ]


@pytest.mark.parametrize(("sent", "holds"), [(2, True), (3, True), (4, False), (30, False)])
@pytest.mark.parametrize("tool", ["exec_curl", "docker"])
def test_requests_that_write_are_a_test_of_what_the_truth_names_and_not_a_stream(tool, sent, holds):
    made = timeline([1.0] * 25, entities={0: [entity("front-0")]})
    by = {"arguments": {"args": ["exec", "front-0", "curl", "-X", "POST", "http://front:8000/"]}}
    posts = [
        change(12 + n / 10, tool=tool, touched=["front"]).model_copy(update=by if tool == "docker" else {})
        for n in range(sent)
    ]
    found = judged(made, scenario(truth={"root_causes": ["front"]}, blast_radius={}), actions=posts)["v_blast_radius"]
    assert found.passed is holds, found.reason


@pytest.mark.parametrize("url", ["http://[", "http://a]b/orders", "//[:", "http://\u2100/"])
def test_a_refused_request_to_what_is_no_url_is_judged(url):
    made = timeline([1.0] * 25, entities={0: [entity("front-0")]})
    post = change(12, tool="exec_curl").model_copy(update={"arguments": {"url": url, "method": "POST"}})
    found = judged(made, scenario(truth={"root_causes": ["front"]}, blast_radius={}), actions=[post])
    assert found["v_blast_radius"].passed
