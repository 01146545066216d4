"""What a scenario commits of a cluster's control plane is read after the agent's last change, and counts only then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.trajectory import ControlPlaneReading
from opsassay.evals.remediation.authoring.checks import findings
from opsassay.scoring.verifiers.certify import certify
from opsassay.testbed.scenarios import load_scenario, system_of
from scoring.verifiers.made import at, change, recording, scenario, timeline

LEASES = {"kube-scheduler": 2.0, "kube-controller-manager": 1.5, "apiserver-gone": 5_000.0}


def reading(seconds, latency_s=0.02, *, ready=True, failing=(), leases=LEASES):
    return ControlPlaneReading(
        time_ns=at(seconds), reached=True, ready=ready, failing=failing, latency_s=latency_s, lease_ages_s=leases
    )


def judged(readings, **committed):
    """Judge twenty healthy ticks in which the agent changes something at 10 s and ends at 12 s."""
    made = recording(timeline([1.0] * 20), triggered=2, started=4, ended=12, actions=[change(10)])
    return certify(replace(made, control_plane=tuple(readings)), scenario(control_plane=committed, probe_every_s=None))


@pytest.mark.parametrize(
    ("readings", "committed", "words"),
    [
        ([reading(13), reading(15)], {}, None),
        ([reading(9, 3.0, ready=False), reading(13)], {"api_latency_s": 0.5}, None),
        ([reading(13), reading(15, ready=False, failing=("etcd",))], {}, "ready: etcd"),
        ([reading(13, ready=False, failing=("etcd",))], {"ready": False}, None),
        ([reading(13, 0.9), reading(15, 0.8), reading(17, 0.1)], {"api_latency_s": 0.5}, "in 0.80 s, more than 0.5 s"),
        ([reading(13, 0.1), reading(15, 0.9), reading(17, 0.1)], {"api_latency_s": 0.5}, None),
        ([reading(13), reading(15, leases={"kube-scheduler": 40.0})], {"lease_age_s": 20}, "before 40.00 s"),
        ([reading(13)], {"lease_age_s": 20}, None),
        ([reading(13, leases={"apiserver-gone": 5_000.0})], {"lease_age_s": 20}, "missing evidence: no lease of"),
        ([reading(13, leases={"kube-scheduler": None})], {"lease_age_s": 20}, "missing evidence: no lease of"),
        ([reading(9)], {}, "missing evidence: no reading of the control plane"),
        ([], {}, "missing evidence: no reading of the control plane"),
    ],
)
def test_the_control_plane_is_held_against_what_was_committed(readings, committed, words):
    verdict = judged(readings, **committed)
    found = verdict.judgement("v_control_plane")
    assert found.passed == (words is None), found.reason
    assert (words or "") in found.reason
    assert verdict.judgement("certificate").passed == found.passed
    assert verdict.metrics["v_control_plane"].value == float(found.passed)


def test_nothing_of_it_counts_where_nobody_commits_to_it():
    made = recording(timeline([1.0] * 20), triggered=2, started=4, ended=12, actions=[change(10)])
    verdict = certify(replace(made, control_plane=(reading(13, 9.0, ready=False),)), scenario(probe_every_s=None))
    assert verdict.judgement("certificate").passed
    assert "v_control_plane" not in verdict.metrics


def test_it_leaves_no_trace_in_the_digest_of_a_scenario_that_does_not_have_it_and_belongs_to_a_cluster():
    without = load_scenario("unreachable-service")
    payload = without.model_dump(mode="json")
    assert Scenario.model_validate(payload).digest() == without.digest()
    payload["verification"]["control_plane"] = {"api_latency_s": 0.4}
    committing = Scenario.model_validate(payload)
    assert committing.digest() != without.digest()
    assert not [one for one in findings(committing, system_of(committing), {}) if one.error]
    local = scenario(control_plane={}).model_copy(
        update={"environment": load_scenario("wrong-upstream-port").environment}
    )
    told = {one.field: one.message for one in findings(local, system_of(local), {})}
    assert "only a cluster" in told["verification.control_plane"]
