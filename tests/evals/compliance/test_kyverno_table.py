"""The subset of Kyverno against a table of what Kyverno says, case by case; what is not judged is an error."""

from __future__ import annotations

import json

import pytest
import yaml
from tests.evals.compliance.kyverno_cases import (
    ANCHORS,
    CONDITIONS,
    ERROR,
    PATTERNS,
    REFUSED_PATTERNS,
    REFUSED_POLICIES,
)

from opsassay.evals.compliance.kyverno.conditions import hold
from opsassay.evals.compliance.kyverno.documents import UnsupportedError
from opsassay.evals.compliance.kyverno.judge import judge_objects
from opsassay.evals.compliance.kyverno.patterns import satisfies
from opsassay.evals.compliance.kyverno.policy import read_policies


def rows(groups, *, wrapped):
    """Return group, pattern, value and result of each case; a leaf stands under a key, as in a policy."""
    for group, some in groups.items():
        for pattern, holding, failing in some:
            for value, expected in (*((one, True) for one in holding), *((one, False) for one in failing)):
                yield group, {"key": pattern} if wrapped else pattern, {"key": value} if wrapped else value, expected


CASES = [*rows(PATTERNS, wrapped=True), *rows(ANCHORS, wrapped=False)]
ASKED = [(group, *one) for group, some in CONDITIONS.items() for one in some]


def shown(value):
    return json.dumps(value) if not isinstance(value, str) else value


def test_there_are_three_hundred_cases():
    assert len(CASES) + len(ASKED) + len(REFUSED_PATTERNS) + len(REFUSED_POLICIES) >= 300


@pytest.mark.parametrize(("group", "pattern", "value", "expected"), CASES, ids=lambda one: shown(one)[:40])
def test_a_pattern_holds_as_kyverno_has_it(group, pattern, value, expected):
    assert satisfies(value, pattern) is expected, group


@pytest.mark.parametrize(("group", "key", "operator", "value", "expected"), ASKED, ids=lambda one: shown(one)[:40])
def test_a_condition_holds_as_kyverno_has_it(group, key, operator, value, expected):
    condition = [{"key": key, "operator": operator, "value": value}]
    if expected == ERROR and isinstance(expected, str):
        with pytest.raises(UnsupportedError):
            hold(condition, {}, "deny")
    else:
        assert hold(condition, {}, "deny") is expected, group


@pytest.mark.parametrize(("pattern", "value"), REFUSED_PATTERNS, ids=lambda one: shown(one)[:40])
def test_a_pattern_that_is_not_judged_is_an_error(pattern, value):
    with pytest.raises(UnsupportedError):
        satisfies({"key": value}, {"key": pattern})


@pytest.mark.parametrize(("name", "changed"), REFUSED_POLICIES, ids=lambda one: shown(one)[:40])
def test_what_is_not_of_the_subset_is_refused_by_its_name(name, changed):
    validate = {"message": "m", "pattern": {"spec": {"a": "b"}}}
    if "validate" in changed:
        validate = {
            **(
                {"message": "m"}
                if set(changed["validate"]) & {"cel", "podSecurity", "manifests", "assert"}
                else validate
            ),
            **changed["validate"],
        }
    rule = {
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "validate": validate,
        **changed.get("rule", {}),
    }
    document = {
        "apiVersion": changed.get("apiVersion", "kyverno.io/v1"), "kind": changed.get("kind", "ClusterPolicy"),
        "metadata": {"name": "p"}, "spec": {"rules": [rule], **changed.get("spec", {})},
    }  # fmt: skip
    with pytest.raises(UnsupportedError, match=name):
        judge_objects(read_policies([("a.yaml", yaml.safe_dump(document).encode())]), [])


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "gen-", "namespace": "dev"}, "spec": {}}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {"template": {"spec": {}}},
}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prod"}}
BOTH = ["Pod", "Deployment"]


@pytest.mark.parametrize(
    ("resources", "meant"),
    [
        # ParseKindSelector (pkg/utils/kube/kind.go): a version alone is of any group; autogen wants a kind alone.
        *(({"kinds": [kind]}, ["Deployment"]) for kind in ("v1/Deployment", "*/Deployment", "apps/*/Deployment")),
        *(({"kinds": [kind]}, ["Pod"]) for kind in ("v1/Pod", "*/Pod", "/v1/Pod", "Po?")),
        ({"kinds": ["Pod"]}, BOTH),
        *(({"kinds": [kind]}, []) for kind in ("v2/Deployment", "apps/v2/Deployment", "core/v1/Pod")),
        ({"kinds": ["*/*"]}, [*BOTH, "Namespace"]),
        *(({"kinds": [kind]}, ERROR) for kind in ("Pod.exec", "Pod/*", "*/*/Pod", "apps/Deployment", "*/scale")),
        # checkResourceDescription (pkg/utils/match/match.go): generateName, and a Namespace is in itself.
        ({"kinds": ["Pod"], "names": ["gen-*"]}, ["Pod"]),
        ({"kinds": ["*"], "namespaces": ["pr*"]}, ["Namespace"]),
        ({}, ERROR),
    ],
    ids=lambda one: shown(one)[:40],
)  # fmt: skip
def test_a_filter_is_about_what_kyverno_has_it_about(resources, meant):
    asked = {"message": "m", "pattern": {"metadata": {"labels": {"none": "?*"}}}}
    rule = {"name": "r", "match": {"any": [{"resources": resources}]}, "validate": asked}
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [rule]},
    }
    if meant == ERROR:
        with pytest.raises(UnsupportedError):
            read_policies([("a.yaml", yaml.safe_dump(policy).encode())])
        return
    found = judge_objects(read_policies([("a.yaml", yaml.safe_dump(policy).encode())]), [POD, DEPLOYMENT, NAMESPACE])
    assert [one.object.partition("/")[0] for one in found] == meant
