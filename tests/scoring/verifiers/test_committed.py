"""Shares of what a scenario commits as the whole: to desire less is no repair, and one too many makes up for no other."""

from __future__ import annotations

from opsassay.core.schema.scenario import Scenario
from opsassay.scoring.verifiers import evidence_of, judge_run
from scoring.verifiers.made import entity, recording, scenario, timeline

AGENT = {"deployed": 0, "triggered": 4, "started": 10, "ended": 20}
FLEET = [entity(f"web-{n}") for n in range(6)] + [entity("pay-0"), entity("pay-1")]


def judged(entities, *, d1=None, gone=None, committed=None, length=25, **phases):
    made = timeline(d1 or [1.0] * length, entities=entities)
    ticks = [t.model_copy(update={"gone": tuple((gone or {}).get(t.index, ()))}) for t in made.ticks]
    made = made.model_copy(update={"ticks": tuple(ticks)})
    committed = committed or scenario(denominator="before")
    return {
        j.predicate: j for j in judge_run(evidence_of(recording(made, **{**AGENT, **phases}), committed), committed)[0]
    }


def test_scaling_down_is_no_repair():
    """Two of eight are away: today's desired state makes 0.75 whole again, the committed one does not."""
    ill = {0: FLEET, 5: [entity("pay-0", ready=False), entity("pay-1", ready=False)]}
    away = {12: ("pay-0", "pay-1")}
    recorded = [1.0] * 5 + [0.75] * 7 + [1.0] * 13
    found = judged(ill, d1=recorded, gone=away)
    assert found["v_outcome"].failed
    assert found["v_outcome"].value == 0.75
    assert "pay (2 missing)" in found["v_outcome"].reason
    assert found["v_depth"].failed
    present = judged(ill, d1=recorded, gone=away, committed=scenario())
    assert present["v_outcome"].passed


def test_to_run_fewer_while_it_lasts_counts_for_v_temporal():
    down = {0: FLEET, 15: [entity(f"web-{n}") for n in range(3)]}
    found = judged(down, gone={12: ("web-0", "web-1", "web-2")})
    assert found["v_temporal"].failed
    assert (found["v_temporal"].tick, found["v_temporal"].value) == (12, 0.625)
    assert found["v_outcome"].passed


def test_one_too_many_makes_up_for_no_other():
    more = {0: FLEET, 5: [entity("pay-0", ready=False)], 12: [entity("web-6"), entity("web-7")]}
    assert judged(more)["v_outcome"].value == 7 / 8


def test_a_replica_under_a_new_name_is_one_of_its_workload():
    rolled = {0: FLEET, 12: [entity("pay-x")]}
    assert judged(rolled, gone={12: ("pay-0",)})["v_outcome"].passed


def test_what_was_not_ready_before_the_fault_is_none_of_the_whole():
    stood = [*FLEET[:-1], entity("pay-1", ready=False)]
    d1 = [(0.875, ("pay-1",))] * 25
    assert judged({0: stood}, d1=d1)["v_outcome"].value == 1.0


def test_what_a_repair_is_meant_to_take_away_is_none_of_the_whole():
    meant = scenario(denominator="before", no_regression={"except_for": ["pay"]})
    assert judged({0: FLEET}, gone={12: ("pay-0", "pay-1")}, committed=meant)["v_outcome"].passed


def deploying(replicas):
    """Return a scenario whose trigger deploys *replicas* of a workload that was not there."""
    payload = scenario(denominator="before").model_dump(mode="json", by_alias=True)
    payload["environment"] |= {"substrate": "kubernetes", "system": "grid"}
    payload["trigger"] = {"layer": "pod"}
    made = {"kind": "Deployment", "name": "app", "create": {"spec": {"replicas": replicas}}}
    payload["cluster"] = {"stand_ins": True, "changes": [made]}
    return Scenario.model_validate(payload)


def test_a_workload_that_the_trigger_deploys_is_part_of_the_whole_also_when_nobody_desires_it_any_more():
    ill = {0: FLEET, 5: [entity(f"app-{n}", ready=False) for n in range(4)]}
    found = judged(ill, gone={12: tuple(f"app-{n}" for n in range(4))}, committed=deploying(4))
    assert found["v_outcome"].failed
    assert found["v_outcome"].value == 8 / 12
    assert judged({**ill, 14: [entity(f"app-{n}") for n in range(4)]}, committed=deploying(4))["v_outcome"].passed


def test_a_reading_that_got_no_answer_is_none_and_a_record_without_replicas_is_read_as_it_is():
    silent = [1.0] * 24 + [(None, ("supervisor",))]
    assert "got no answer: supervisor" in judged({0: FLEET}, d1=silent)["v_outcome"].reason
    assert judged({}, d1=[1.0] * 25)["v_outcome"].passed


def test_backends_are_a_share_of_those_that_there_were():
    committed = scenario(denominator="before", temporal_depth="D2", protected_services=["pay"])
    made = timeline([1.0] * 25, d2=[1.0] * 25, entities={0: FLEET})
    ticks = [t.model_copy(update={"gone": ("pay-1",) if t.index == 12 else ()}) for t in made.ticks]
    made = made.model_copy(update={"ticks": tuple(ticks)})
    found = judge_run(evidence_of(recording(made, **AGENT), committed), committed)[0][1]
    assert found.failed
    assert (found.tick, found.value) == (12, 0.5)
