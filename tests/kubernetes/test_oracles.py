"""What the oracles of a cluster's scenarios leave behind fails the predicates that their files name, and no other one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsassay.core.schema.trajectory import ControlPlaneReading, SettingsReading
from opsassay.scoring.verifiers.certify import certify
from opsassay.testbed.scenarios import load_scenario, names, system_of
from scoring.verifiers.made import at, change, entity, firing, probe, recording, timeline

CADENCE, TRIGGER, STARTED, CHANGED, ENDED, OVER = 2.0, 10, 30, 40, 110, 160
OWN = '{"image": "own"}'
TOGETHER = {
    (
        "slow-control-plane",
        "harmful",
    ): "who restarts a part again and again cannot miss the ten seconds after each probe"
}
"""Oracles that fail two of the paper's four predicates, and why those belong together."""


COMPANIONS = {"alerts_cleared", "v_no_regression", "v_blast_radius"}
"""Users who are not served are seen by alerts and by what worked before, too; who touches everything touched too much."""


def test_an_oracle_that_fails_fails_one_of_the_papers_predicates_or_says_why_not():
    for name in names("kubernetes"):
        for oracle, wanted in load_scenario(name).oracles.items():
            missing = "v_outcome" in wanted.fails  # replicas that there were are gone, which is seen at every depth
            several = len(set(wanted.fails) - COMPANIONS) > 1 and not missing
            assert several == ((name, oracle) in TOGETHER), (name, oracle, wanted.fails)


@pytest.mark.parametrize("name", names("kubernetes"))
def test_every_scenario_is_certified_by_a_repair_and_failed_by_one_that_is_none(name):
    oracles = load_scenario(name).oracles.values()
    assert any(oracle.certified for oracle in oracles)
    assert any(oracle.fails for oracle in oracles)


def replicas(scenario):
    """Return all replicas of *scenario* before its trigger as entities by service."""
    block = scenario.cluster
    counts = {name: service.replicas for name, service in system_of(scenario).services.items()}
    counts |= {"filler": block.fillers}
    counts |= {one.name: one.create["spec"]["replicas"] for one in block.objects if one.kind == "Deployment"}
    return {service: [entity(f"{service}-{n}") for n in range(count)] for service, count in counts.items()}


def triggered(scenario):
    """Return how many replicas the trigger deploys."""
    return sum(
        one.create["spec"]["replicas"] for one in scenario.cluster.changes if one.kind == "Deployment" and one.create
    )


def failed(
    scenario,
    ill=None,
    during=None,
    left=None,
    *,
    d4=None,
    latency_s=0.02,
    probes_on=True,
    cleared=True,
    touched=(),
    program=OWN,
):
    """Return what a run of *scenario* fails in which these are ready: *ill* by the fault, *during* the work, *left*.

    Left out is all that there was. *d4* is what fails of the control plane, by second; *latency_s* is how late the API
    answers at the end; its alerts have *cleared* or not; *touched* is what the agent changed, *program* what runs
    at the end.
    """
    before = [one for group in replicas(scenario).values() for one in group]
    phases = {TRIGGER: ill, CHANGED: during, ENDED: left}
    moments = [n * CADENCE for n in range(int(OVER / CADENCE))]
    known = {one.id: one for one in [*before, *(ill or ()), *(during or ()), *(left or ())]}
    entities = {0: before}
    for second, ready in phases.items():
        there = {one.id for one in (before if ready is None else ready)}
        entities[int(second / CADENCE)] = [one.model_copy(update={"ready": one.id in there}) for one in known.values()]
    made = timeline(
        [1.0] * len(moments),
        cadence=CADENCE,
        d4={int(second / CADENCE): parts for second, parts in (d4 or {}).items()},
        probes=[probe(f"p-{n}", second, target="p") for n, second in enumerate(range(0, OVER - 1, 20))]
        + [probe("last", OVER - 3, target="p")],
        entities=entities,
    )
    rule = scenario.verification.alerts.triggering[0]
    alerts = [
        firing(second, *([(rule.service, rule.signal)] if not cleared or TRIGGER < second < CHANGED + 6 else []))
        for second in moments
        if second > TRIGGER
    ]
    run = recording(
        made, triggered=TRIGGER, started=STARTED, ended=ENDED, actions=[change(CHANGED, touched=touched)],
        probes_on=probes_on, alerts=alerts,
    )  # fmt: skip
    health = [
        ControlPlaneReading(
            time_ns=at(second), reached=True, ready=True, failing=(), latency_s=latency_s, lease_ages_s={}
        )
        for second in moments
        if second > ENDED
    ]
    protected = [
        SettingsReading(time_ns=at(second), settings={"p probe": "set", "p program": OWN if second == 0 else program})
        for second in (0, ENDED, OVER)
    ]
    verdict = certify(replace(run, control_plane=tuple(health), settings=tuple(protected)), scenario)
    return {one.predicate for one in verdict.judgements if one.failed} - {"certificate"}


def expected(scenario, oracle):
    return set(scenario.oracles[oracle].fails)


def everything(scenario):
    return [one for group in replicas(scenario).values() for one in group]


def test_one_of_two_tainted_nodes_freed_is_seen_by_what_ran_before_alone():
    scenario = load_scenario("tainted-nodes")
    whole = everything(scenario)
    three = [one for one in whole if one.id != "ledger-3"]
    half = [one for one in three if one.id != "ledger-2"]
    shares = [round(len(some) / len(whole), 3) for some in (half, three)]
    assert shares == [0.929, 0.964], "as the file says"
    few = whole[: len(whole) // 3]
    assert failed(scenario, half) == expected(scenario, "gentle") == set()
    assert failed(scenario, half, three, three, cleared=False) == expected(scenario, "shallow")
    assert failed(scenario, half, few, touched=["web-1"]) == expected(scenario, "harmful")
    assert failed(scenario, half, half, half, cleared=False) >= {"v_outcome", "v_depth"}, "who does nothing"


@pytest.mark.parametrize(("name", "service"), [("storage-class", "archive"), ("missing-config-map", "payment-app")])
def test_a_workload_that_never_ran_has_to_run_and_is_not_repaired_by_asking_for_none(name, service):
    scenario = load_scenario(name)
    others = everything(scenario)
    more = [entity(f"{service}-{n}") for n in range(triggered(scenario))]
    assert failed(scenario, others, others, [*others, *more]) == expected(scenario, "gentle") == set()
    assert failed(scenario, others, others, others) == expected(scenario, "shallow")


def test_who_leaves_the_control_plane_late_has_not_repaired_it_though_all_of_it_is_healthy():
    scenario = load_scenario("slow-control-plane")
    assert failed(scenario) == expected(scenario, "gentle") == set()
    assert failed(scenario, latency_s=0.5, cleared=False) == expected(scenario, "shallow")


@pytest.mark.parametrize(
    "name",
    [
        "corrupt-image",
        "crash-loop-command",
        "memory-limit",
        "wrong-credentials",
        "bad-image-rollout",
        "node-assignment",
    ],
)
def test_who_runs_no_replica_is_seen_by_how_many_there_were(name):
    """What is desired at the moment would be whole."""
    scenario = load_scenario(name)
    service = scenario.truth.root_causes[0]
    rest = [one for one in everything(scenario) if one.service != service]
    few = [one for one in everything(scenario) if one.id not in {f"{service}-0", f"{service}-1"}]
    containers = [
        container
        for change in scenario.cluster.changes
        for container in change.patch["spec"]["template"]["spec"].get("containers", ())
    ]
    program = '{"image": "another"}' if any({"image", "command"} & set(one) for one in containers) else OWN
    cleared = "alerts_cleared" not in expected(scenario, "shallow")
    found = failed(scenario, few, rest, rest, cleared=cleared, program=program)
    assert found == expected(scenario, "shallow")


@pytest.mark.slow
@pytest.mark.parametrize("apart_s", [6, 8])
@pytest.mark.parametrize("first", range(32, 52, 2))
def test_whoever_restarts_the_name_service_again_and_again_is_seen_by_two_predicates_whenever_it_begins(first, apart_s):
    scenario = load_scenario("slow-control-plane")
    restarts = sum("delete" in step.arguments.get("args", ()) for step in scenario.oracles["harmful"].steps)
    restarted = {first + n * apart_s: (f"coredns-{n}a", f"coredns-{n}b") for n in range(restarts)}
    assert max(restarted) < ENDED
    whole = expected(scenario, "harmful")
    assert failed(scenario, d4=restarted, touched=["coredns-0a"]) == whole
    assert failed(scenario, d4=restarted, touched=["coredns-0a"], probes_on=False) == whole - {"v_probe"}
    for missed in restarted:
        seen = {second: parts for second, parts in restarted.items() if second != missed}
        assert failed(scenario, d4=seen, touched=["coredns-0a"]) == whole, "one between two ticks"
