"""The declared subset of Kyverno: what its documentation says of patterns, anchors, operators, matching and controllers."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from opsassay.evals.compliance.kyverno.documents import UnsupportedError, documents
from opsassay.evals.compliance.kyverno.judge import admitted, judge_objects
from opsassay.evals.compliance.kyverno.patterns import satisfies
from opsassay.evals.compliance.kyverno.policy import read_policies
from opsassay.evals.compliance.kyverno.values import duration, matches, quantity, wildcard

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "a", "image": "nginx:1.2"}, {"name": "b", "image": "redis:latest"}]},
}


def policies(validate, *, spec=None, annotations=None, **rule):
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    document = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p", "annotations": annotations or {}},
        "spec": {
            "validationFailureAction": "Enforce",
            **(spec or {}),
            "rules": [{"name": "r", "match": match, "validate": validate, **rule}],
        },
    }
    return read_policies([("p.yaml", json.dumps(document).encode())])


@pytest.mark.parametrize(
    ("pattern", "value", "right"),
    [
        ("nginx:*", "nginx:1.2", True),
        ("nginx:?", "nginx:12", False),
        ("!*:latest", "a:latest", False),
        ("!*:latest", "a:1", True),
        ("a|b", "b", True),
        ("a|b", "c", False),
        (">=2 & <5", 4, True),
        (">=2 & <5", 5, False),
        ("1-5", 5, True),
        ("1-5", 6, False),
        ("1!-5", 6, True),
        ("1!-5", 3, False),
        ("<=1Gi", "900Mi", True),
        ("<=1Gi", "2Gi", False),
        ("<500m", "0.4", True),
        (0, 0, True),
        (0, "0", True),
        (False, False, True),
        (False, "false", False),
        (True, 1, False),
        ("?*", "", False),
        ("?*", "x", True),
        ("*", None, False),
        ("true", True, True),
        ("registry.test/*", "registry.test.evil/x", False),
        ("<10m", "5m", True),
        ("<1h", "30m30s", True),
    ],
)
def test_leaves_are_matched_as_the_documentation_says(pattern, value, right):
    assert matches(pattern, value) is right


@pytest.mark.parametrize(
    ("pattern", "right"),
    [("0", True), ("<5", True), ("!5", True), (0, False), ("!*:latest", False), ("*", False), ("?*", False)],
)
def test_what_is_not_there_amounts_to_nothing_for_a_text_and_is_no_text(pattern, right):
    assert satisfies({}, {"port": pattern}) is right


def test_equal_amounts_are_alike_however_they_are_written():
    assert not matches("!1", "1.0")
    assert not matches("!1h", "60m")
    assert matches("!1h", "60s")
    assert matches(0, "0")
    assert not matches(0, "0Ki")


DURATIONS = [
    (">1h", "90m", True),
    (">=1h", "60m", True),
    ("<=1h", "90m", False),
    ("<1m", "30s", True),
    (">10s", "1m", True),
    ("10s-1h", "5m", True),
    ("10s!-1h", "5m", False),
    ("1h", "60m", True),
    ("<=.5h", "1800s", True),
    (">-1m", "-90s", False),
    (">1s", "1500ms", True),
    (">1us", "2\u00b5s", True),
    ("<=1h", None, True),  # what is not there is 0
    (">500m", "1", True),  # one of them is no duration: both are quantities
    ("<1", "500m", True),
]


@pytest.mark.parametrize(("pattern", "value", "right"), DURATIONS)
def test_two_durations_are_held_against_each_other_as_durations(pattern, value, right):
    assert matches(pattern, value) is right


@pytest.mark.parametrize(
    ("key", "operator", "value", "right"),
    [
        ("90m", "GreaterThan", "1h", True),
        ("60m", "GreaterThanOrEquals", "1h", True),
        ("120m", "LessThanOrEquals", "1h", False),
        ("1m", "LessThan", "10s", False),
        ("60m", "Equals", "1h", True),
        ("60m", "NotEquals", "1h", False),
        ("2h", "GreaterThan", 3600, True),  # a number beside a duration is seconds
        ("1h", "Equals", 3600, True),
        (3600, "Equals", "1h", False),  # unless it is the key
        ("500m", "LessThan", "1", True),
        ("1.10.0", "GreaterThan", "1.2.3", True),
        ("1.2.3-rc.1", "LessThan", "1.2.3", True),
        ("1.2.3", "GreaterThan", "1Gi", False),
        ("500m", "AnyIn", "10s-1h", False),  # 500 minutes
        ("50m", "AnyIn", "10s-1h", True),
    ],
)
def test_conditions_order_durations_before_quantities_and_versions_last(key, operator, value, right):
    condition = {"key": key, "operator": operator, "value": value}
    assert admitted(policies({"deny": {"conditions": {"any": [condition]}}}), [POD]) is not right


@pytest.mark.parametrize("anchor", ["{}", "=({})", "X({})", "({})"])
@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_a_wildcard_under_any_anchor_stands_for_the_keys_that_match(anchor, part, kind):
    def let_in(notes):
        one = {**POD, "metadata": {"name": "a", "namespace": "b", part: notes}}
        if kind == "Deployment":
            template = {"metadata": {part: notes}, "spec": POD["spec"]}
            one = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "a"}, "spec": {"template": template}}
        return admitted(found, [one])

    expected = {anchor.format("a.io/*"): None if anchor.startswith("X") else "good"}
    if anchor == "({})":
        expected["b"] = "needed"
    found = policies({"pattern": {"metadata": {f"=({part})": expected}}})
    bad = {"a.io/x": "bad"}
    right = {"{}": [False, True], "=({})": [False, True], "X({})": [False, False], "({})": [True, False]}[anchor]
    assert [let_in(bad), let_in({"a.io/x": "good"})] == right
    assert let_in({"c": "d"}) is (anchor != "{}")
    if anchor == "=({})":
        assert not let_in({"a.io/x": "good", "a.io/y": "bad"})


def test_a_rule_is_not_about_an_object_when_no_element_of_a_list_is_meant():
    pattern = {"metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"(name)": "z", "image": "x"}]}}
    assert satisfies(POD, pattern)
    assert satisfies(POD, dict(reversed(pattern.items())))
    assert not satisfies(POD, {**pattern, "spec": {"containers": [{"(name)": "a", "image": "nginx:*"}]}})
    assert satisfies({"spec": {}}, {"spec": {"^(containers)": [{"image": "*"}]}})
    both = {"spec": {"^(containers)": [{"name": "a"}, {"name": "b"}]}}
    assert satisfies(POD, both)
    assert not satisfies({"spec": {"containers": POD["spec"]["containers"][:1]}}, both)


def test_rules_are_made_for_controllers_of_a_whole_policy_or_not_at_all():
    by_name = {
        "name": "other",
        "match": {"any": [{"resources": {"kinds": ["Service"], "names": ["x"]}}]},
        "validate": LATEST,
    }
    document = yaml.safe_load(json.dumps(policies(LATEST)[0].document))
    assert policies(LATEST)[0].rules[0].controllers
    document["spec"]["rules"].append(by_name)
    assert not read_policies([("p.yaml", yaml.safe_dump(document).encode())])[0].rules[0].controllers
    for kinds in (["v1/Pod"], ["Pod", "Deployment"]):
        assert not policies(LATEST, match={"any": [{"resources": {"kinds": kinds}}]})[0].rules[0].controllers


def test_wildcards_of_a_membership_count_on_either_side():
    for key, value in (("*", ["pods"]), ("pods", ["*"]), ("web-1", ["web-?"])):
        condition = {"key": key, "operator": "AnyIn", "value": value}
        assert not admitted(policies({"deny": {"conditions": {"any": [condition]}}}), [POD])


def test_a_wildcard_in_a_key_is_for_labels_and_annotations():
    assert admitted(policies({"pattern": {"metadata": {"labels": {"a*": "web"}}}}), [POD])
    assert not admitted(policies({"pattern": {"metadata": {"=(labels)": {"a*": "no"}}}}), [POD])
    with pytest.raises(UnsupportedError, match="wildcard"):
        policies({"pattern": {"spec": {"c*": [{"image": "x"}]}}})


def test_amounts_are_of_base_units():
    assert quantity("1Ki") == 1024
    assert quantity("250m") == quantity(0.25)
    assert [quantity(one) for one in ("2u", "3n", "1e3", "1E")] == [Decimal("2e-6"), Decimal("3e-9"), 1000, 10**18]
    assert [duration(one) for one in ("1h30m", "-1.5s", ".5m", "0", "1", "h", "1d")] == [
        5400,
        Decimal("-1.5"),
        30,
        0,
        None,
        None,
        None,
    ]
    assert [quantity(one) for one in (True, None, "x", "9" * 5000, 10**5000, [], "1e9e9")] == [None] * 7


@given(st.text(alphabet="ab*?", max_size=8), st.text(alphabet="ab", max_size=8))
def test_wildcards_are_those_of_a_shell_without_brackets(pattern, text):
    from fnmatch import fnmatchcase

    assert wildcard(pattern, text) is fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "right"),
    [
        ({"spec": {"containers": [{"image": "*:*"}]}}, True),
        ({"spec": {"containers": [{"image": "!*:latest"}]}}, False),
        ({"spec": {"containers": [{"(name)": "a", "image": "!*:latest"}]}}, True),  # b is not meant
        ({"spec": {"containers": [{"=(securityContext)": {"=(privileged)": False}}]}}, True),
        ({"spec": {"containers": [{"securityContext": {"privileged": False}}]}}, False),
        ({"spec": {"^(containers)": [{"image": "redis:*"}]}}, True),
        ({"spec": {"^(containers)": [{"image": "mysql:*"}]}}, False),
        ({"spec": {"X(hostNetwork)": "null"}}, True),
        ({"spec": {"X(containers)": "null"}}, False),
        ({"metadata": {"labels": {"app": "?*"}}}, True),
        ({"metadata": {"labels": {"team": "?*"}}}, False),
        ({"(kind)": "Service", "spec": {"type": "ClusterIP"}}, True),  # no condition, nothing is asked
        ({"spec": {"=(initContainers)": [{"image": "!*:latest"}]}}, True),
    ],
)
def test_patterns_and_anchors(pattern, right):
    assert satisfies(POD, pattern) is right
    assert admitted(policies({"pattern": pattern}), [POD]) is right


@pytest.mark.parametrize(
    ("condition", "denied"),
    [
        ({"key": "{{ request.object.metadata.name }}", "operator": "Equals", "value": "web-*"}, True),
        ({"key": "{{ request.object.spec.containers[].image }}", "operator": "AnyIn", "value": ["*:latest"]}, True),
        ({"key": "{{ request.object.spec.containers[].image }}", "operator": "AllIn", "value": ["*:latest"]}, False),
        ({"key": "{{ request.object.spec.containers[].image }}", "operator": "AllNotIn", "value": ["mysql"]}, True),
        ({"key": "{{ request.object.spec.containers[].image }}", "operator": "AnyNotIn", "value": ["nginx:*"]}, True),
        ({"key": "{{ request.object.spec.hostPID || `false` }}", "operator": "Equals", "value": True}, False),
        ({"key": "{{ length(request.object.spec.containers) }}", "operator": "GreaterThan", "value": 1}, True),
        ({"key": "{{ request.operation }}", "operator": "NotEquals", "value": "CREATE"}, False),
    ],
)
def test_deny_conditions(condition, denied):
    assert admitted(policies({"deny": {"conditions": {"any": [condition]}}}), [POD]) is not denied


def test_each_element_is_looked_at_and_preconditions_leave_some_out():
    loop = {"list": "request.object.spec.containers", "pattern": {"image": "!*:latest"}}
    assert not admitted(policies({"foreach": [loop]}), [POD])
    only_a = {"all": [{"key": "{{ element.name }}", "operator": "Equals", "value": "a"}]}
    assert admitted(policies({"foreach": [{**loop, "preconditions": only_a}]}), [POD])


LATEST = {"pattern": {"spec": {"containers": [{"image": "!*:latest"}]}}}


@pytest.mark.parametrize(
    ("resources", "kept_out"),
    [
        ({"kinds": ["Pod"]}, True),
        ({"kinds": ["v1/Pod"]}, True),
        ({"kinds": ["apps/v1/Pod"]}, False),
        ({"kinds": ["*"]}, True),
        ({"kinds": ["Pod"], "namespaces": ["sh*"]}, True),
        ({"kinds": ["Pod"], "namespaces": ["billing"]}, False),
        ({"kinds": ["Pod"], "names": ["web-*"]}, True),
        ({"kinds": ["Pod"], "operations": ["DELETE"]}, False),
        ({"kinds": ["Pod"], "selector": {"matchLabels": {"app": "w*"}}}, True),
        (
            {
                "kinds": ["Pod"],
                "selector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
            },
            False,
        ),
    ],
)
def test_objects_are_matched_and_excluded(resources, kept_out):
    assert admitted(policies(LATEST, match={"any": [{"resources": resources}]}), [POD]) is not kept_out
    assert admitted(policies(LATEST, exclude={"any": [{"resources": resources}]}), [POD]) is kept_out


def controller(kind):
    template = {"metadata": {}, "spec": POD["spec"]}
    spec = {"jobTemplate": {"spec": {"template": template}}} if kind == "CronJob" else {"template": template}
    return {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "c", "namespace": "shop"}, "spec": spec}


@pytest.mark.parametrize("kind", ["Deployment", "CronJob", "StatefulSet", "DaemonSet", "Job"])
def test_rules_about_pods_are_for_what_makes_them(kind):
    annotation = "pod-policies.kyverno.io/autogen-controllers"
    assert not admitted(policies(LATEST), [controller(kind)])
    assert admitted(policies(LATEST, annotations={annotation: "none"}), [controller(kind)])
    assert not admitted(policies(LATEST, annotations={annotation: f"{kind}, ReplicaSet"}), [controller(kind)])
    assert admitted(
        policies(LATEST, match={"any": [{"resources": {"kinds": ["Pod"], "names": ["*"]}}]}), [controller(kind)]
    )


def test_what_only_reports_keeps_nothing_out():
    found = policies(LATEST, spec={"validationFailureAction": "Audit"})
    assert [one.result for one in judge_objects(found, [POD])] == ["fail"]
    assert admitted(found, [POD])
    assert not admitted(
        policies({**LATEST, "failureAction": "Enforce"}, spec={"validationFailureAction": "Audit"}), [POD]
    )


@pytest.mark.parametrize(
    ("validate", "rule", "said"),
    [
        ({"cel": {}}, {}, "cel is not of the subset"),
        (LATEST, {"mutate": {}}, "mutate is not of the subset"),
        (LATEST, {"context": []}, "context is not of the subset"),
        ({**LATEST, "deny": {}}, {}, "not exactly one of"),
        (LATEST, {"match": {"any": []}}, "match.any is no list of resources"),
        (LATEST, {"match": {"any": [{"subjects": []}]}}, "subjects"),
        ({**LATEST, "failureAction": "Maybe"}, {}, "neither Audit nor Enforce"),
        ({**LATEST, "failureAction": "ENFORCE"}, {}, "neither Audit nor Enforce"),
        ({**LATEST, "allowExistingViolations": "no"}, {}, "allowExistingViolations"),
        (LATEST, {"match": {"any": [{"resources": {"kinds": ["Pod"], "operations": ["create"]}}]}}, "operations"),
        (LATEST, {"match": {"any": [{"resources": {"kinds": ["Pod"], "namespaces": ["!a", "*"]}}]}}, "!a"),
        (LATEST, {"spec": {"admission": "false"}}, "admission"),
        (LATEST, {"spec": {"admission": 0}}, "admission"),
        (LATEST, {"spec": {"background": None}}, "background"),
        (LATEST, {"spec": {"failurePolicy": "ignore"}}, "failurePolicy"),
        (LATEST, {"spec": {"webhookTimeoutSeconds": 31}}, "webhookTimeoutSeconds"),
        (LATEST, {"spec": {"validationFailureAction": "enFORCE"}}, "validationFailureAction"),
        (LATEST, {"spec": {"webhookConfiguration": {}}}, "webhookConfiguration"),
        (LATEST, {"annotations": {"policies.kyverno.io/scored": "false"}}, "scored"),
    ],
)
def test_what_is_outside_of_the_subset_is_said_before_anything_is_judged(validate, rule, said):
    with pytest.raises(UnsupportedError, match=said):
        policies(validate, **rule)


@pytest.mark.parametrize(
    ("validate", "said"),
    [
        ({"pattern": {"metadata": {"+(labels)": {"a": "b"}}}}, "anchor"),
        ({"pattern": {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}}, "lists 2 values"),
        ({"pattern": {"metadata": {"name": "{{ request.namespace }}"}}}, "variable"),
        ({"pattern": {"metadata": {"name": "x" * 2000}}}, "longer than"),
        (
            {"deny": {"conditions": {"any": [{"key": "{{ request.object.nope }}", "operator": "Equals", "value": 1}]}}},
            "finds nothing",
        ),
        (
            {"deny": {"conditions": {"any": [{"key": "{{ nope( }}", "operator": "Equals", "value": 1}]}}},
            "cannot be evaluated",
        ),
        (
            {"deny": {"conditions": {"any": [{"key": "{{ parse_yaml('a') }}", "operator": "Equals", "value": 1}]}}},
            "parse_yaml",
        ),
        ({"deny": {"conditions": {"any": [{"key": "a", "operator": "Matches", "value": 1}]}}}, "operator"),
        (
            {"deny": {"conditions": {"any": [{"key": "a", "operator": "GreaterThan", "value": "b"}]}}},
            "compares nothing",
        ),
        ({"pattern": {"metadata": {"name": ">web"}}}, "nothing that is a number"),
        *(
            (
                {
                    "deny": {
                        "conditions": {"any": [{"key": f"{{{{ {part} || 'x' }}}}", "operator": "Equals", "value": 1}]}
                    }
                },
                "not known here",
            )
            for part in (
                "request.userInfo.username",
                "request.dryRun",
                "request.oldObject.kind",
                "request.roles",
                "serviceAccountName",
            )
        ),
        (
            {"deny": {"conditions": {"any": [{"key": "{{" + "[" * 900 + "}}", "operator": "Equals", "value": 1}]}}},
            "evaluated",
        ),
    ],
)
def test_what_cannot_be_judged_is_an_error_and_never_a_pass(validate, said):
    with pytest.raises(UnsupportedError, match=said):
        admitted(policies(validate), [POD])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a: &x 1\nb: *x\n", "anchors"),
        (b"a: !!python/object:os.system 1\n", "tag"),
        (b"a: 1\na: 2\n", "stands twice"),
        (b"- 1\n", "something else"),
        (b"\xff", "UTF-8"),
        (b"a: [", "no YAML"),
        (b"[" * 100, "nests deeper|no YAML"),
        (b"a" * 300_000, "larger than"),
        (b"? [1]\n: 2\n", "no text"),
        (b"a: 2020-13-45\n", "no YAML"),
    ],
)
def test_yaml_from_strangers_is_bounded(text, said):
    with pytest.raises(UnsupportedError, match=said):
        documents(text, "p.yaml")


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.text(max_size=6) | st.sampled_from(["(a)", "=(spec)", "^(b)", "X(c)"]), inner, max_size=3
            )
        ),
    )
)
def test_no_pattern_raises_anything_else(pattern):
    try:
        admitted(policies({"pattern": pattern}), [POD])
    except UnsupportedError:
        return


@pytest.mark.slow
@given(st.text(max_size=30), st.sampled_from(["Equals", "AnyIn", "GreaterThan", "AllNotIn"]), st.text(max_size=5))
def test_no_expression_raises_anything_else(expression, operator, value):
    condition = {"key": f"{{{{ {expression} }}}}", "operator": operator, "value": value}
    try:
        admitted(policies({"deny": {"conditions": {"any": [condition]}}}), [POD])
    except UnsupportedError:
        return


@pytest.mark.parametrize("literal", ["``", "`default`", "`{a}`"])
def test_a_literal_that_is_not_json_is_refused_as_kyverno_refuses_it(literal):
    condition = {"key": f"{{{{ {literal} }}}}", "operator": "Equals", "value": "default"}
    with pytest.raises(UnsupportedError, match="cannot be evaluated"):
        admitted(policies({"deny": {"conditions": {"any": [condition]}}}), [POD])


def test_no_expression_grows_beyond_all_bounds():
    doubling = "request.object.spec.containers" + "|[@,@][]" * 60
    condition = {"key": f"{{{{ {doubling} }}}}", "operator": "AnyIn", "value": ["x"]}
    with pytest.raises(UnsupportedError, match="more than 4 lists"):
        admitted(policies({"deny": {"conditions": {"any": [condition]}}}), [POD])
    condition = {"key": "a", "operator": "Equals", "value": "b"}
    with pytest.raises(UnsupportedError, match="501 conditions"):
        policies({"deny": {"conditions": {"any": [condition] * 501}}})
    with pytest.raises(UnsupportedError, match="larger than 524288 bytes together"):
        read_policies([(f"{n}.yaml", b"#" * 200_000) for n in range(3)])


def test_policies_are_whole_documents_of_kyverno_and_none_is_there_twice():
    one = {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": {"rules": []}}
    with pytest.raises(UnsupportedError, match=r"rules is no list"):
        read_policies([("a.yaml", yaml.safe_dump(one).encode())])
    for version in ("v1", "kyverno.io/v9", "kyverno.io/"):
        with pytest.raises(UnsupportedError, match="is no ClusterPolicy or Policy"):
            read_policies([("a.yaml", yaml.safe_dump({**one, "apiVersion": version}).encode())])
    for kind in ("ValidatingPolicy", "PolicyException", "ValidatingAdmissionPolicy"):
        with pytest.raises(UnsupportedError, match=kind):
            read_policies([("a.yaml", yaml.safe_dump({**one, "kind": kind}).encode())])
    with pytest.raises(UnsupportedError, match="extra is not of the subset"):
        read_policies([("a.yaml", yaml.safe_dump({**one, "extra": 1}).encode())])
    with pytest.raises(UnsupportedError, match="ownerReferences is not of the subset"):
        read_policies([("a.yaml", yaml.safe_dump({**one, "metadata": {"name": "p", "ownerReferences": []}}).encode())])
    rule = {"name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]}, "validate": LATEST}
    text = yaml.safe_dump({**one, "spec": {"rules": [rule]}}).encode()
    with pytest.raises(UnsupportedError, match="is there twice"):
        read_policies([("a.yaml", text), ("b.yaml", text)])


def test_a_rule_that_excludes_another_kind_is_not_made_for_controllers():
    for kind, is_made in (("Service", False), ("Pod", True), ("v1/Pod", True)):
        exclude = {"any": [{"resources": {"kinds": [kind], "namespaces": ["x"]}}]}
        assert bool(policies(LATEST, exclude=exclude)[0].rules[0].controllers) is is_made
