"""Policies under a prefix: they say the same of what is under it, and nothing of others."""

from __future__ import annotations

import json

import pytest
import yaml
from tests.kubernetes.compliance.prefixes import prefixed
from tests.kubernetes.compliance.renamed import renamed

from opsassay.evals.compliance.clusters.controls import controls
from opsassay.evals.compliance.kyverno.documents import UnsupportedError
from opsassay.evals.compliance.kyverno.judge import admitted
from opsassay.evals.compliance.kyverno.policy import read_policies
from opsassay.evals.compliance.scripts.oracles import ORACLES
from opsassay.evals.compliance.tasks import NEW, ComplianceTask, names


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in names() if name.startswith(NEW)])
def test_a_renamed_policy_says_the_same_under_the_prefix_and_nothing_of_others(name):
    task = ComplianceTask(name=name, seed=9)
    worlds = [*task.judged(), *task.mutants()]
    for oracle, (play, stage) in ORACLES[NEW].items():
        files = {path: text for path, text in play(task).items() if path.startswith("policies/")}
        try:
            policies = read_policies(files.items())
            before = [admitted(policies, world.objects) for world in worlds]
        except UnsupportedError:
            continue
        text = "\n---\n".join(json.dumps(renamed(one, "opsassay-1f3a")) for one in policies)
        there = read_policies([("all.yaml", text.encode())])
        put = [[prefixed(one, "opsassay-1f3a") for one in world.objects] for world in worlds]
        assert [admitted(there, objects) for objects in put] == before, oracle
        assert all(admitted(there, world.objects) for world in worlds), f"{oracle}: others' objects are let in"
        assert stage or not all(before)


PLACES = {
    "names": {"kinds": ["Role", "ClusterRole"], "names": ["bad-*"]},
    "namespaces": {"kinds": ["Role", "ClusterRole"], "namespaces": ["leg*"]},
    "all kinds": {"names": ["bad-*"]},
    "wildcard": {"kinds": ["*Role"], "name": "bad-a"},
}


@pytest.mark.parametrize("block", ["match", "exclude"])
@pytest.mark.parametrize("place", PLACES)
def test_names_and_namespaces_of_match_and_exclude_mean_the_same_under_the_prefix(place, block):
    rule = controls()["wildcards-in-roles"].policy("mine")["spec"]["rules"][0]
    rule[block] = {"any": [{"resources": PLACES[place]}]}
    policy = controls()["wildcards-in-roles"].policy("mine", **{block: rule[block]})
    objects = [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "rules": [{"verbs": ["*"]}],
         "metadata": {"name": name, **({"namespace": space} if kind == "Role" else {})}}
        for kind in ("Role", "ClusterRole") for name in ("bad-a", "good") for space in ("legacy", "shop")
    ]  # fmt: skip
    before = read_policies([("a.yaml", yaml.safe_dump(policy).encode())])
    after = read_policies([("a.yaml", yaml.safe_dump(renamed(before[0], "p")).encode())])
    said = [admitted(before, [one]) for one in objects]
    assert [admitted(after, [prefixed(one, "p")]) for one in objects] == said
    assert len(set(said)) == 2
    assert all(admitted(after, [one]) for one in objects)


def test_a_policy_about_pods_beside_other_kinds_is_not_for_controllers_under_the_prefix_either():
    kinds = {"any": [{"resources": {"kinds": ["Pod", "ClusterRole"]}}]}
    policy = controls()["host-network"].policy("mine", match=kinds)
    template = {"metadata": {}, "spec": {"hostNetwork": True, "containers": []}}
    metadata = {"name": "a", "namespace": "shop"}
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": template}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    before = read_policies([("a.yaml", yaml.safe_dump(policy).encode())])
    after = read_policies([("a.yaml", yaml.safe_dump(renamed(before[0], "p")).encode())])
    assert [admitted(before, [one]) for one in (made, pod)] == [True, False]
    assert [admitted(after, [prefixed(one, "p")]) for one in (made, pod)] == [True, False]
    apart = {"any": [{"resources": {"kinds": [kind]}} for kind in ("Pod", "ClusterRole")]}
    written = yaml.safe_dump(controls()["host-network"].policy("mine", match=apart)).encode()
    with pytest.raises(UnsupportedError, match="one or the other"):
        renamed(read_policies([("a.yaml", written)])[0], "p")
