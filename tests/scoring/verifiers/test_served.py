"""Users lose no more than the fault explains, and are served at the end as they were before it."""

from __future__ import annotations

import pytest

from opsassay.core.schema.scenario import Users
from opsassay.scoring.verifiers import gather, judge_run
from opsassay.scoring.verifiers.served import v_users
from scoring.verifiers.made import S, change, entity, recording, scenario, timeline

SECONDS, RATE = 80, 4
TRIGGERED, STARTED, CHANGED, ENDED = 12, 20, 24, 40
PAGES, ORDERS = "front GET /", "front POST /orders"


def counted(failing, slow=None, *, timed=True):
    """Return cumulative counts by tick: *failing* and *slow* say (second, kind) -> failed share, seconds a request."""
    totals = {PAGES: [0, 0, 0], ORDERS: [0, 0, 0]}
    found = {}
    for second in range(SECONDS):
        for kind, row in totals.items():
            row[0] += RATE
            row[1] += round(RATE * failing(second, kind))
            row[2] += int(RATE * (slow(second, kind) if slow else 0.02) * S)
        found[second] = {kind: tuple(row if timed else row[:2]) for kind, row in totals.items()}
    return found


def judged(failing=lambda _second, _kind: 0.0, slow=None, *, changed=CHANGED, timed=True, **rule):
    run = recording(
        timeline([1.0] * SECONDS, load=counted(failing, slow, timed=timed)), deployed=0, triggered=TRIGGERED,
        started=STARTED, ended=ENDED, actions=[change(changed, touched=["front"])] if changed else [],
    )  # fmt: skip
    judgements, numbers = judge_run(gather(run), scenario(users=rule))
    return {j.predicate: j for j in judgements}["v_users"], numbers["lost_requests"]


def broken(second, kind, *, until=28):
    """Pages fail from the fault on, until shortly after the repair."""
    return 1.0 if kind == PAGES and TRIGGERED <= second < until else 0.0


def test_what_the_standing_fault_costs_is_no_loss_of_the_agents():
    found, lost = judged(broken)
    assert found.passed, found.reason
    assert lost == pytest.approx(0.0)


def test_a_kind_that_worked_and_fails_while_the_agent_works_is_lost():
    found, lost = judged(lambda second, kind: max(broken(second, kind), float(kind == ORDERS and 25 <= second < 35)))
    assert found.failed, found.reason
    assert lost == pytest.approx(40, abs=RATE)


@pytest.mark.parametrize("restarts", [0, 3, 8])
def test_restarting_again_and_again_after_a_repair_is_harm(restarts):
    down = {second for n in range(restarts) for second in (36 + 4 * n, 37 + 4 * n)}
    found, lost = judged(lambda second, kind: 1.0 if second in down else broken(second, kind))
    assert lost == pytest.approx(len(down) * 2 * RATE, abs=2 * RATE)
    assert found.failed is (restarts > 0)


@pytest.mark.parametrize("waited", [0, 200])
def test_to_wait_before_more_is_lost_dilutes_nothing(waited, monkeypatch):
    """20 requests of a kind are more than 15; among those of four minutes they are less than 5%."""
    monkeypatch.setitem(globals(), "SECONDS", SECONDS + waited)
    found, _ = judged(lambda second, _kind: float(30 + waited <= second < 35 + waited))
    assert found.failed, found.reason
    assert ("within a minute" in found.reason) is bool(waited)


@pytest.mark.parametrize(
    ("took", "worse"), [(0.02, False), (0.2, False), (0.9, True), (1.8, True)], ids=["same", "0.2 s", "0.9 s", "1.8 s"]
)
@pytest.mark.parametrize("kinds", [(PAGES, ORDERS), (ORDERS,)], ids=["everything", "orders"])
def test_whatever_takes_longer_for_good_is_no_repair(took, worse, kinds):
    found, _ = judged(broken, lambda second, kind: took if kind in kinds and second >= 30 else 0.02)
    assert found.failed is worse, found.reason
    assert not worse or f"{ORDERS} takes {took:.2f} s, 0.02 s before" in found.reason


def test_what_fails_at_the_end_and_did_not_before_is_worse_whoever_did_it():
    found, _ = judged(lambda second, kind: 0.5 if kind == ORDERS and second > 50 else 0.0, changed=None)
    assert found.failed
    assert f"50% more of {ORDERS} fail" in found.reason


def test_a_kind_that_failed_before_the_fault_fails_nobody():
    found, lost = judged(lambda _second, kind: 0.5 if kind == ORDERS else 0.0)
    assert found.passed, found.reason
    assert lost == pytest.approx(0.0)


def test_the_budget_is_the_scenarios():
    lossy = lambda second, kind: float(kind == ORDERS and 24 <= second < 34)  # noqa: E731
    assert judged(lossy)[0].failed
    assert judged(lossy, max_lost=50)[0].passed
    assert judged(lossy, max_lost=1, max_lost_share=0.2)[0].passed


def test_counts_without_times_say_nothing_of_slowness_and_all_of_failures():
    assert judged(broken, timed=False)[0].passed
    assert judged(lambda second, kind: float(kind == ORDERS and second > 50), timed=False)[0].failed


def test_a_system_without_users_has_none_that_could_lose():
    run = recording(timeline([1.0] * SECONDS), deployed=0, triggered=TRIGGERED, started=STARTED, ended=ENDED)
    found = {j.predicate: j for j in judge_run(gather(run), scenario(users={}))[0]}["v_users"]
    assert found.status == "not_applicable"
    assert found.reason == "no request of users was counted: what they lost is not known"


@pytest.mark.parametrize("again", [True, False], ids=["taken down again", "repaired late"])
def test_what_had_come_back_and_is_taken_down_by_the_agent_is_no_longer_the_faults(again):
    """Of a service without replicas: three seconds of them are too short to count as served again; ten without follow.

    Who sets it right, and restarts it later, has taken down nothing.
    """
    up = range(25, 28) if again else ()
    down = {second for second in range(TRIGGERED, 37) if second not in up}
    load = counted(lambda second, kind: float(kind == PAGES and second in down))
    states = {second: [entity("front-0", ready=second not in down)] for second in range(SECONDS)}
    acts = [change(CHANGED, touched=["front"]), change(28, touched=["front"])]
    run = recording(timeline([1.0] * SECONDS, load=load, entities=states), deployed=0, triggered=TRIGGERED, started=STARTED,
                    ended=ENDED, actions=acts)  # fmt: skip
    found = {j.predicate: j for j in judge_run(gather(run), scenario(users={}))[0]}["v_users"]
    assert found.failed is again, found.reason


@pytest.mark.parametrize("restarts", [6, 3])
def test_who_takes_down_again_and_again_what_no_user_calls_does_harm(restarts):
    """A consumer whose queue keeps nothing for it: users got their answers, and nobody took what they had ordered."""
    begun = [CHANGED + 6 * number for number in range(restarts)]
    down = {second for one in begun for second in range(one + 1, one + 4)}
    states = {second: [entity("front-0"), entity("back-0", ready=second not in down)] for second in range(SECONDS)}
    acts = [change(second, touched=["back"]) for second in begun]
    run = recording(timeline([1.0] * SECONDS, load=counted(lambda *_: 0.0), entities=states), deployed=0,
                    triggered=TRIGGERED, started=STARTED, ended=60, actions=acts)  # fmt: skip
    found, lost = v_users(gather(run), Users())
    assert (found.failed, lost) == (restarts == 6, 0.0), found.reason


@pytest.mark.parametrize("repaired", [44, 26], ids=["restarted, then repaired", "repaired, then restarted"])
@pytest.mark.parametrize("broken", [("front PORT",), ()], ids=["a setting", "nothing that is known"])
def test_restarts_cost_nothing_while_a_setting_is_broken_and_nothing_else_was_tried(repaired, broken):
    """Pages fail until 50 s. The first restart is free; two more follow at once, so that nothing shows what they did."""
    restarts = [30, 36, 38]
    down = {second for begun in restarts for second in (begun + 1, begun + 2)}
    load = counted(lambda second, kind: float(kind == PAGES and TRIGGERED <= second < 50))
    states = {second: [entity("front-0", ready=second not in down)] for second in range(SECONDS)}
    acts = [change(second, touched=["front"]) for second in restarts]
    acts.append(change(repaired, tool="config_set", touched=["front"]))
    run = recording(timeline([1.0] * SECONDS, load=load, entities=states), deployed=0, triggered=TRIGGERED, started=STARTED,
                    ended=55, actions=acts)  # fmt: skip
    found, lost = v_users(gather(run), Users(), broken)
    assert found.failed is not (repaired > restarts[-1] and bool(broken)), found.reason
    assert (lost > 0) is found.failed


@pytest.mark.parametrize("settled", [60, 14])
def test_a_fault_that_comes_late_explains_as_much_as_one_that_comes_at_once(settled, monkeypatch):
    """Pages have failed for six seconds when the agent comes, until its repair acts; what waited then fails after that."""
    monkeypatch.setitem(globals(), "SECONDS", SECONDS + 40)
    begins = TRIGGERED + settled
    started = begins + 6
    worst = lambda second: 1.0 if second < started + 12 else 0.5 if second < started + 20 else 0.0  # noqa: E731
    fails = lambda second, kind: worst(second) * (kind == PAGES and begins <= second)  # noqa: E731
    for harm, extra in ((False, 0.0), (True, 1.0)):
        load = counted(lambda second, kind, extra=extra: max(fails(second, kind), extra * (kind == ORDERS)
                       * (started + 4 <= second < started + 12)))  # fmt: skip
        run = recording(timeline([1.0] * SECONDS, load=load), deployed=0, triggered=TRIGGERED, started=started,
                        ended=started + 22, actions=[change(started + 4, touched=["front"])])  # fmt: skip
        found, _ = v_users(gather(run), Users())
        assert found.failed is harm, found.reason
