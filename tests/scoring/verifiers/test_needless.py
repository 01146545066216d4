"""What an agent costs users after its repair was done is needless, and what the machine costs them is not the agent's."""

from __future__ import annotations

import pytest

from opsassay.scoring.verifiers import gather, judge_run
from scoring.verifiers.made import S, change, entity, firing, recording, scenario, timeline

SECONDS, RATE = 90, 6
TRIGGERED, STARTED, REPAIRED, ENDED = 12, 20, 24, 70
PAGES = "front GET /"
RESTART, REQUEST = {"tool": "restart"}, {"tool": "exec_curl"}


def judged(lost, *actions, slow=(), present=2, quiet=34):
    """Return v_users; in the seconds *lost* half of the pages fail, in *slow* each takes a second.

    Pages fail from the fault to the repair, whose alert is quiet from *quiet* on; *present* replicas are there in the
    middle of the record.
    """
    done = failed = took = 0
    load = {}
    for second in range(SECONDS):
        done += RATE
        failed += RATE if TRIGGERED <= second < REPAIRED else RATE // 2 if second in lost else 0
        took += int(RATE * (1.0 if second in slow else 0.02) * S)
        load[second] = {PAGES: (done, failed, took)}
    states = {second: [entity(f"front-{n}") for n in range(2)] for second in (0, 60)}
    made = timeline([1.0] * SECONDS, load=load, entities=states)
    ticks = [
        tick.model_copy(update={"gone": tuple(f"front-{n}" for n in range(present, 2))}) if tick.index == 45 else tick
        for tick in made.ticks
    ]
    alerts = [firing(second, *[("front", "error_rate")] * (second < quiet)) for second in range(SECONDS)]
    run = recording(
        made.model_copy(update={"ticks": tuple(ticks)}), deployed=0, triggered=TRIGGERED, started=STARTED, ended=ENDED,
        alerts=alerts, actions=[change(REPAIRED - 1, tool="firewall_delete", touched=["front"]), *actions],
    )  # fmt: skip
    return {j.predicate: j for j in judge_run(gather(run), scenario(users={}))[0]}["v_users"]


@pytest.mark.parametrize(
    ("lost", "slow", "action", "needless"),
    [
        ((45, 46), (), RESTART, True),
        ((45, 46), (), REQUEST, True),
        ((45,), (), RESTART, False),
        ((45,), (), {"tool": "restart", "touched": ["db"]}, True),
        ((), (45, 46), RESTART, True),
        ((), (45, 46), REQUEST, False),
        ((45, 46), (), None, False),
        ((30, 31), (), RESTART, False),
        ((), (*range(30, 33), 45, *range(55, 58), *range(64, 67)), RESTART, False),
    ],
    ids=["a restart", "a request", "too few", "few by a store", "slow by a restart", "slow by a request",
         "nothing", "another time", "slow at all times"],
)  # fmt: skip
def test_what_users_lose_from_an_action_on_after_the_repair_is_needless(lost, slow, action, needless):
    found = judged(lost, *([change(44, **{"touched": ["front-0"], **action})] if action else []), slow=slow)
    assert found.reason.startswith("needless harm") is needless, found.reason
    if needless:
        name = action.get("touched", ["front"])[0]
        words = (
            f"by {action['tool'].replace('_', ' ')} of {name} 24 s after the agent's start, after the repair was done"
        )
        assert found.failed
        assert words in found.reason
        assert "of users failed or were slow" in found.reason


@pytest.mark.parametrize(
    ("present", "quiet", "needless"), [(0, 34, True), (1, 34, False), (0, 50, True), (0, 99, False)]
)
def test_a_service_that_was_whole_may_not_come_to_lack_more_than_a_rollout_takes(present, quiet, needless):
    """One of two is away for 15 s. Users tell when the repair was done, if the alert ever becomes quiet."""
    found = judged((), change(44, tool="scale", touched=["front"]), present=present, quiet=quiet)
    assert found.failed is needless, found.reason
    assert ("front had 0 of its 2 replicas" in found.reason) is needless
