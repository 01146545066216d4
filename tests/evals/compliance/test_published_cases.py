"""What Kyverno's published tests of its pod security policies expect, in our own words: checks, shapes of pods, results.

Read from the repository `kyverno/policies` (`pod-security`, the cases of `kyverno-test.yaml`). Every pod is judged by
itself, as the template of a Deployment and as that of a CronJob, as those tests do.
"""

from __future__ import annotations

import json

import pytest

from opsassay.evals.compliance.kyverno.judge import judge_objects
from opsassay.evals.compliance.kyverno.policy import read_policies

ANY = "request.object.spec.[ephemeralContainers, initContainers, containers][]"
PROFILE = "RuntimeDefault | Localhost"


def denied_when(key, operator, value):
    return {"deny": {"conditions": {"all": [{"key": key, "operator": operator, "value": value}]}}}


def set_(**fields):
    return {"securityContext": fields}


def either(name, *, value, inner):
    """Return the two patterns of fields that the pod sets, or each container does."""
    loose, strict = {"=(securityContext)": {f"=({name})": inner}}, set_(**{name: value})
    groups = ("=(ephemeralContainers)", "=(initContainers)", "containers")
    return {
        "anyPattern": [
            {"spec": {"securityContext": {name: value}, **{group: [loose] for group in groups}}},
            {"spec": {group: [strict] for group in groups}},
        ]
    }


CHECKS = {
    "port range": denied_when("{{ " + ANY + ".ports[].hostPort }}", "AnyNotIn", "5000-6000"),
    "volume types": denied_when(
        "{{ request.object.spec.volumes[].keys(@)[] || '' }}",
        "AnyNotIn",
        ["name", "configMap", "emptyDir", "secret", ""],
    ),
    "no root": either("runAsNonRoot", value=True, inner=True),
    "seccomp": either("seccompProfile", value={"type": PROFILE}, inner={"=(type)": PROFILE}),
    "drop all": {
        "foreach": [
            {"list": ANY, **denied_when("ALL", "AnyNotIn", "{{ element.securityContext.capabilities.drop || '' }}")}
        ]
    },
    "add none": {
        "foreach": [
            {
                "list": ANY,
                **denied_when(
                    "{{ element.securityContext.capabilities.add[] || '' }}", "AnyNotIn", ["NET_BIND_SERVICE", ""]
                ),
            }
        ]
    },
}


def one(**fields):
    return {"name": "c", "image": "i", **fields}


def port(number=None):
    return {"containerPort": 8000, **({} if number is None else {"hostPort": number})}


def capable(**capabilities):
    return one(securityContext={"capabilities": capabilities})


def profiled(type_):
    return {"seccompProfile": {"type": type_}}


PASSING = {
    "port range": [
        {"containers": [one()]},
        {"containers": [one(ports=[port(5555)])]},
        {"containers": [one(ports=[port(5555), port()])]},
        {"containers": [one(ports=[port()]), one(ports=[port(5555)])]},
        {"initContainers": [one(ports=[port(5555)])], "containers": [one(ports=[port()])]},
    ],
    "volume types": [
        {"containers": [one()]},
        {"containers": [one()], "volumes": [{"name": "v", "emptyDir": {}}]},
        {"containers": [one()], "volumes": [{"name": "v", "secret": {}}, {"name": "w", "configMap": {}}]},
    ],
    "no root": [
        {"securityContext": {"runAsNonRoot": True}, "containers": [one()]},
        {"securityContext": {"runAsNonRoot": True}, "containers": [one(**set_(runAsNonRoot=True)), one()]},
        {"containers": [one(**set_(runAsNonRoot=True))]},
        {"initContainers": [one(**set_(runAsNonRoot=True))], "containers": [one(**set_(runAsNonRoot=True))]},
    ],
    "seccomp": [
        {"securityContext": profiled("RuntimeDefault"), "containers": [one()]},
        {"containers": [one(securityContext=profiled("Localhost"))]},
        {"securityContext": profiled("Localhost"), "containers": [one(securityContext=profiled("RuntimeDefault"))]},
    ],
    "drop all": [
        {"containers": [capable(drop=["ALL"])]},
        {"containers": [capable(drop=["SETUID", "ALL"])]},
        {"initContainers": [capable(drop=["ALL"])], "containers": [capable(drop=["ALL"])]},
    ],
    "add none": [
        {"containers": [one()]},
        {"containers": [capable(add=["NET_BIND_SERVICE"])]},
        {"initContainers": [capable(drop=["ALL"])], "containers": [one()]},
    ],
}
FAILING = {
    "port range": [
        {"containers": [one(ports=[port(53)])]},
        {"containers": [one(ports=[port(), port(53)])]},
        {"containers": [one(), one(ports=[port(), port(53)])]},
        {"containers": [one(ports=[port(443)]), one(ports=[port(53)])]},
        {"initContainers": [one(ports=[port(53)])], "containers": [one()]},
        {"initContainers": [one(ports=[port(443)]), one(ports=[port()])], "containers": [one(ports=[port(53)])]},
    ],
    "volume types": [
        {"containers": [one()], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
        {"containers": [one()], "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "nfs": {}}]},
    ],
    "no root": [
        {"containers": [one()]},
        {"securityContext": {"runAsNonRoot": False}, "containers": [one()]},
        {"securityContext": {"runAsNonRoot": True}, "containers": [one(**set_(runAsNonRoot=False))]},
        {"containers": [one(**set_(runAsNonRoot=True)), one()]},
        {"initContainers": [one()], "containers": [one(**set_(runAsNonRoot=True))]},
    ],
    "seccomp": [
        {"containers": [one()]},
        {"securityContext": profiled("Unconfined"), "containers": [one()]},
        {"securityContext": profiled("RuntimeDefault"), "containers": [one(securityContext=profiled("Unconfined"))]},
        {"containers": [one(securityContext=profiled("RuntimeDefault")), one()]},
    ],
    "drop all": [
        {"containers": [one()]},
        {"containers": [capable(drop=["SETUID"])]},
        {"containers": [capable(drop=["ALL"]), one()]},
        {"initContainers": [one()], "containers": [capable(drop=["ALL"])]},
    ],
    "add none": [
        {"containers": [capable(add=["SYS_ADMIN"])]},
        {"containers": [capable(add=["NET_BIND_SERVICE", "SYS_ADMIN"])]},
        {"initContainers": [capable(add=["SETGID"])], "containers": [one()]},
    ],
}
CASES = [
    (name, result, spec)
    for result, group in (("pass", PASSING), ("fail", FAILING))
    for name, specs in group.items()
    for spec in specs
]


def objects(spec):
    template = {"template": {"metadata": {"labels": {"app": "a"}}, "spec": spec}}
    metadata = {"name": "x", "namespace": "default"}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": template},
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": metadata,
            "spec": {"jobTemplate": {"spec": template}},
        },
    ]


@pytest.mark.parametrize(("name", "result", "spec"), CASES)
def test_a_published_case_ends_as_its_authors_say(name, result, spec):
    rule = {
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "validate": {"message": "m", **CHECKS[name]},
    }
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [rule]},
    }
    policies = read_policies([("p.yaml", json.dumps(policy).encode())])
    for body in objects(spec):
        found = {one.result for one in judge_objects(policies, [body])}
        assert found == {result}, body["kind"]
