"""What the oracles of a cluster's scenarios leave behind fails the predicates that their files name, and no other one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grading.verifiers.made import at, change, entity, probe, recording, timeline
from opsassay.grading.verifiers.certify import certify
from opsassay.model.trajectory import ControlPlaneReading
from opsassay.testbed.scenarios import load_scenario, names, system_of

CADENCE, TRIGGER, STARTED, CHANGED, ENDED, OVER = 2.0, 10, 30, 40, 110, 130
TOGETHER = {
    (
        "slow-control-plane",
        "harmful",
    ): "who restarts a part again and again cannot miss the ten seconds after each probe"
}
"""Oracles that fail two of the paper's four predicates, and why those belong together."""


def test_an_oracle_that_fails_fails_one_of_the_papers_predicates_or_says_why_not():
    for name in names("kubernetes"):
        for oracle, wanted in load_scenario(name).oracles.items():
            several = (
                len(set(wanted.fails) - {"alerts_cleared"}) > 1
            )  # users who are not served are seen by alerts as well
            assert several == ((name, oracle) in TOGETHER), (name, oracle, wanted.fails)


@pytest.mark.parametrize("name", names("kubernetes"))
def test_every_scenario_is_certified_by_a_repair_and_failed_by_one_that_ends_healthy(name):
    oracles = load_scenario(name).oracles.values()
    assert any(oracle.certified for oracle in oracles)
    assert any(oracle.fails and "v_outcome" not in oracle.fails for oracle in oracles)


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


def failed(scenario, shares, *, left=None, d4=None, latency_s=0.02, probes_on=True):
    """Return what a run of *scenario* fails whose D1 is *shares* of before, during and after, and in which *left* is ready.

    *d4* is what fails of the control plane, by second; *latency_s* is how late the API answers at the end.
    """
    before = [one for group in replicas(scenario).values() for one in group]
    moments = [n * CADENCE for n in range(int(OVER / CADENCE))]
    of_phase = [
        1.0 if second < TRIGGER else shares[0] if second < CHANGED else shares[1] if second < ENDED else shares[2]
        for second in moments
    ]
    ends = [replace_ready(one, left) for one in before] if left is not None else []
    new = [one for one in left or () if one.id not in {known.id for known in before}]
    made = timeline(
        of_phase,
        cadence=CADENCE,
        d4={int(second / CADENCE): parts for second, parts in (d4 or {}).items()},
        probes=[probe(f"p-{n}", second, target="p") for n, second in enumerate(range(0, OVER - 1, 20))]
        + [probe("last", OVER - 3, target="p")],
        entities={0: before, int(ENDED / CADENCE): [*ends, *new]},
    )
    run = recording(
        made, triggered=TRIGGER, started=STARTED, ended=ENDED, actions=[change(CHANGED)], probes_on=probes_on
    )
    health = [
        ControlPlaneReading(
            time_ns=at(second), reached=True, ready=True, failing=(), latency_s=latency_s, lease_ages_s={}
        )
        for second in moments
        if second > ENDED
    ]
    verdict = certify(replace(run, control_plane=tuple(health)), scenario)
    return {one.predicate for one in verdict.judgements if one.failed} - {"certificate"}


def replace_ready(one, left):
    return one.model_copy(update={"ready": one.id in {known.id for known in left}})


def expected(scenario, oracle):
    return set(scenario.oracles[oracle].fails)


def test_one_of_two_tainted_nodes_freed_is_seen_by_what_ran_before_alone():
    scenario = load_scenario("tainted-nodes")
    everything = [one for group in replicas(scenario).values() for one in group]
    total, three = len(everything), [one for one in everything if one.id != "ledger-3"]
    half, most = (total - 2) / total, (total - 1) / total
    assert (round(half, 3), round(most, 3)) == (0.929, 0.964), "as the file says"
    assert failed(scenario, (half, 1.0, 1.0), left=everything) == expected(scenario, "gentle") == set()
    assert failed(scenario, (half, most, most), left=three) == expected(scenario, "shallow")
    assert failed(scenario, (half, 0.3, 1.0), left=everything) == expected(scenario, "harmful")
    idle = [one for one in everything if one.id not in {"ledger-2", "ledger-3"}]
    assert failed(scenario, (half, half, half), left=idle) >= {"v_outcome", "v_depth"}, "who does nothing"


@pytest.mark.parametrize(("name", "service"), [("storage-class", "archive"), ("missing-config-map", "payment-app")])
def test_a_workload_that_never_ran_has_to_run_and_is_not_repaired_by_asking_for_none(name, service):
    scenario = load_scenario(name)
    others = [one for group in replicas(scenario).values() for one in group]
    more = [entity(f"{service}-{n}") for n in range(triggered(scenario))]
    ill = len(others) / (len(others) + len(more))
    assert failed(scenario, (ill, 1.0, 1.0), left=[*others, *more]) == expected(scenario, "gentle") == set()
    assert failed(scenario, (ill, 1.0, 1.0), left=others) == expected(scenario, "shallow")
    assert failed(scenario, (ill, ill, ill), left=others) >= {"v_outcome", "v_depth"}, "who does nothing"


def test_who_leaves_the_control_plane_late_has_not_repaired_it_though_all_of_it_is_healthy():
    scenario = load_scenario("slow-control-plane")
    assert failed(scenario, (1.0, 1.0, 1.0)) == expected(scenario, "gentle") == set()
    assert failed(scenario, (1.0, 1.0, 1.0), latency_s=0.5) == expected(scenario, "shallow")


@pytest.mark.parametrize("apart_s", [6, 8])
@pytest.mark.parametrize("first", range(32, 52, 2))
def test_whoever_restarts_the_name_service_again_and_again_is_seen_by_two_predicates_whenever_it_begins(first, apart_s):
    scenario = load_scenario("slow-control-plane")
    restarts = sum("delete" in step.arguments.get("args", ()) for step in scenario.oracles["harmful"].steps)
    restarted = {first + n * apart_s: (f"coredns-{n}a", f"coredns-{n}b") for n in range(restarts)}
    assert max(restarted) < ENDED
    assert failed(scenario, (1.0, 1.0, 1.0), d4=restarted) == expected(scenario, "harmful")
    assert failed(scenario, (1.0, 1.0, 1.0), d4=restarted, probes_on=False) == {"v_temporal"}
    for missed in restarted:
        seen = {second: parts for second, parts in restarted.items() if second != missed}
        assert failed(scenario, (1.0, 1.0, 1.0), d4=seen) == expected(scenario, "harmful"), "one between two ticks"
