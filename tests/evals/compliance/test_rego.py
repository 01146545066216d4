"""OPA judges Rego, in a seal; without it two engines have to agree, and what they do not agree on is not judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache
from opsassay.evals.compliance.evidence_collection.cluster import FETCHER
from opsassay.evals.compliance.rego.engines import engines_here, judges
from opsassay.evals.compliance.rego.judging import NotJudgedError, RegoQuestion, judge_by_rego
from opsassay.evals.compliance.rego.worker import UNSURE
from opsassay.evals.compliance.score import JUDGED, SUBSET, grade_files
from opsassay.evals.compliance.scripts.oracles import ORACLES
from opsassay.evals.compliance.tasks import POLICY, ComplianceTask
from opsassay.solvers.sandbox import sealing_refusal

pytestmark = pytest.mark.skipif(
    sealing_refusal() is not None, reason=f"nothing can be sealed here: {sealing_refusal()}"
)
HERE = {one.key: one for one in engines_here()}
OPA = [HERE[key] for key in ("opa", "library") if key in HERE]
PAIR = [HERE[key] for key in ("regorus", "rego-cpp") if key in HERE]
by_opa = pytest.mark.skipif(not OPA, reason="OPA IS NOT HERE: run `python install.py --opa`, or put opa on the PATH")


def said(body: str, given: object, engines=None) -> str:
    """Return what a policy of this *body* says of one input, or what is wrong with it."""
    policy = f"package compliance\n{body}\n".encode()
    found = judge_by_rego(policy, [json.dumps(given).encode()], engines=engines)
    return found.problem or found.outcomes[0].kind


HEADS = {
    "a message in the head": 'deny contains sprintf("%s is privileged", [c.name]) if { some c in input.list; c.bad }',
    "a field in the head": "deny contains c.name if { some c in input.list; c.bad }",
    "a key in the head": "deny[c.name] := 1 if { some c in input.list; c.bad }",
    "an object in the head": 'deny contains {"name": c.name} if { some c in input.list; c.bad }',
    "a nested field in the head": "deny contains c.name.first if { some c in input.list; c.bad }",
}


@pytest.mark.sampled(every=5)
@by_opa
@pytest.mark.parametrize("order", ["last", "first"])
@pytest.mark.parametrize("how", HEADS)
def test_an_element_without_a_field_leaves_out_itself_and_no_other(how, order):
    whole, partial = {"name": {"first": "a"} if "nested" in how else "a", "bad": True}, {"bad": True}
    listed = [whole, partial] if order == "last" else [partial, whole]
    body = f"default compliant := false\n{HEADS[how]}\ncompliant if count(deny) == 0"
    assert [said(body, {"list": some}) for some in (listed, [partial], [])] == ["false", "true", "true"]


ERRORS = {
    "a number of a word": ("to_number(input.x) > 3", "abc"),
    "a division by zero": ("1 / input.x > 3", 0),
    "a modulo of zero": ("7 % input.x == 3", 0),
    "bytes of a word": ("units.parse_bytes(input.x) > 3", "lots"),
    "a quantity of a word": ("units.parse(input.x) > 3", "lots"),
    "lower case of a number": ('lower(input.x) == "5"', 5),
    "the start of nothing": ('startswith(input.x, "x")', None),
    "a count of a number": ("count(input.x) == 1", 5),
    "a member of nothing": ("some y in input.x; y > 1", None),
    "broken JSON": ('json.unmarshal(input.x) == "x"', "{"),
    "broken YAML": ('yaml.unmarshal(input.x) == "x"', "{"),
    "a word as a time": ("time.parse_rfc3339_ns(input.x) > 1", "yesterday"),
    "broken base64": ('base64.decode(input.x) == "x"', "%"),
    "a broken expression": ('regex.match(input.x, "a")', "("),
    "a broken network": ('net.cidr_contains(input.x, "10.0.0.1")', "10.0.0.0/99"),
    "a broken version": ('semver.compare(input.x, "1.0.0") == 0', "one"),
}


@pytest.mark.sampled(every=3)
@by_opa
@pytest.mark.parametrize("how", ERRORS)
def test_an_error_of_a_built_in_leaves_its_expression_undefined(how):
    expression, value = ERRORS[how]
    assert said(f"bad if {{ {expression} }}\ncompliant if not bad", {"x": value}) == "true"
    assert said(f"compliant if {{ {expression} }}", {"x": value}) == "undefined"
    assert said(f"default compliant := false\ncompliant if {{ {expression} }}", {"x": value}) == "false"


VALUES = {
    "the verbs of a text": ('sprintf("%v %s %d", [input.yes, "a", 3]) == "true a 3"', ""),
    "the verb of a boolean": ('sprintf("%t", [input.yes]) == "%!t(string=true)"', ""),
    "counts that overlap": ('strings.count("aaa", "aa") == 1', ""),
    "a month's end": ("time.add_date(time.parse_rfc3339_ns(input.day), 0, 1, 0) == time.parse_rfc3339_ns(input.later)", ""),
    "a number with zeros": ("to_number(input.mode) == 644", ""),
    "braces in an expression": ('regex.match("^/api/{id}$", input.path)', ""),
    "braces without a lower bound": ('regex.match("^x{,3}$", "x{,3}")', ""),
    "quoted text in an expression": ('regex.match(`^\\Qa.b\\E$`, "a.b")', ""),
    "two ampersands in a class": ('regex.match("^[1&&2]$", "1")', ""),
    "sha256": ('crypto.sha256("a") == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"', ""),
    "md5": ('crypto.md5("a") == "0cc175b9c0f1b6a831c399e269772661"', ""),
    "networks that meet": ('net.cidr_intersects("10.0.0.0/8", "10.1.0.0/16")', ""),
    "networks merged": ('net.cidr_merge(["10.0.0.0/9", "10.128.0.0/9"]) == {"10.0.0.0/8"}', ""),
    "a flat list": ("array.flatten([1, [2], [3]]) == [1, 2, 3]", ""),
    "objects merged to their depth": ('object.union({"a": {"b": 1}}, {"a": {"c": 2}}) == {"a": {"b": 1, "c": 2}}', ""),
    "versions before a release": ('semver.compare("1.0.0-rc.1", "1.0.0") == -1', ""),
    "JSON of an object": ('json.marshal({"a": 1}) == "{\\"a\\":1}"', ""),
    "every with a negation": ("every x in input.numbers { not x > 5 }", ""),
}  # fmt: skip
GIVEN = {
    "yes": True, "day": "2026-01-31T00:00:00Z", "later": "2026-03-03T00:00:00Z", "mode": "0644", "path": "/api/{id}",
    "numbers": [1, 2, 9],
}  # fmt: skip


@pytest.mark.sampled(every=5)
@by_opa
@pytest.mark.parametrize("how", VALUES)
def test_functions_have_the_values_of_opa(how):
    expected = "undefined" if how == "every with a negation" else "true"
    assert said(f"compliant if {{ {VALUES[how][0]} }}", GIVEN) == expected


@by_opa
@pytest.mark.parametrize(
    "body", ["compliant := true\ncompliant := false", "compliant := 3", "f(1)\nf(x) := 1\nf(x) := 2\ncompliant if f(1)"]
)
def test_what_is_no_boolean_or_two_values_is_an_error(body):
    """An error of a built-in beside it does not hide that."""
    assert said(body, {"x": "abc"}) == "error"
    assert said(f"{body}\nbad if to_number(input.x) > 3", {"x": "abc"}) == "error"


@by_opa
def test_types_that_cannot_be_are_no_policy():
    assert "rego_type_error" in said("compliant if count(5) == 1", {})


@by_opa
def test_a_reason_is_one_line_and_names_the_place():
    found = judge_by_rego(b"package compliance\ncompliant if {", [])
    assert found.problem is not None
    assert "policy.rego:2" in found.problem
    assert "\n" not in found.problem


pair = pytest.mark.skipif(len(PAIR) < 2, reason="REGORUS OR REGOPY IS NOT HERE: install the extra ciso")


@pair
@pytest.mark.parametrize("body", [
    "bad if 1 / count(input.x) > 3\ncompliant if not bad",
    "deny contains c.name if { some c in input.list }\ndefault compliant := false\ncompliant if count(deny) == 0",
    'compliant if crypto.sha256(input.x) != ""',
    "compliant if every x in input.numbers { not x > 5 }",
    'compliant if object.union({"a": {"b": 1}}, {"a": {"c": 2}}).a.b == 1',
])  # fmt: skip
def test_what_two_engines_disagree_on_is_not_judged(body):
    given = {"x": "abc", "list": [{"name": "a"}, {}], "numbers": [9]}
    policy = f"package compliance\n{body}\n".encode()
    found = judge_by_rego(policy, [json.dumps(given).encode()], engines=PAIR)
    if (one := found.outcomes[0]).kind != "not judged":
        assert len({said(body, given, [engine]) for engine in PAIR}) == 1
        return
    assert one.reason.startswith("not judged: the engines disagree (regorus ")
    assert "rego-cpp (regopy" in one.reason
    with pytest.raises(NotJudgedError, match="put `opa` on the PATH"):
        found.required()


UNSURE_OF = {
    "a text of a list": ('compliant if sprintf("%s", [1]) == "1"', "sprintf with a verb"),
    "a text of what may be no number": ('compliant if sprintf("%d", ["x"]) == "%!d(string=x)"', "sprintf with a verb"),
    "a text of a large number": ('compliant if sprintf("%v", [1e21]) == "1e21"', "sprintf make of numbers"),
    "a text of a decimal": ('compliant if sprintf("%v", [input.y]) == "0.7"', "sprintf make of numbers"),
    "a text by a format that is not known": ("compliant if sprintf(input.x, [1]) == \"1\"", "sprintf with a verb"),
    "a version with a v": ('compliant if not semver.is_valid("v1.2.0")', "semver.is_valid"),
    "a negative number rounded down": ("compliant if floor(-0.5) == -1", "floor"),
    "an index of nothing": ('compliant if indexof("ab", "") == 0', "indexof"),
    "JSON of signs": ('compliant if json.marshal("<") == "\\"<\\""', "json.marshal"),
    "a word of YAML": ('compliant if yaml.unmarshal("yes") == "yes"', "yaml.unmarshal"),
    "parts of other kinds": ("compliant if object.subset({}, []) == false", "object.subset"),
    "replaced one after another": ('compliant if strings.replace_n({"a": "b", "b": "c"}, "a") == "c"', "strings.replace_n"),
    "a day that a month has not": ("compliant if time.add_date(1769817600000000000, 0, 1, 0) != 1", "time.add_date"),
    "a time that ends with Z": ('compliant if time.parse_rfc3339_ns("2026-03-03T00:00:00Z") > 1', "time.parse_rfc3339_ns"),
    "a wildcard that nothing binds": ("compliant if { not input.list[_] == 1 }", "a variable under `not`"),
    "a variable that nothing binds": ("compliant if { some x; not x == 1 }", "a variable under `not`"),
    "a difference of decimals": ("compliant if input.y - 0.1 == 0.6", "numbers that are not whole"),
    "a product of decimals": ("compliant if input.y * 3 != 2.1", "numbers that are not whole"),
    "an index below 0": ("compliant if not input.list[-1]", "an index below 0"),
}  # fmt: skip


def test_the_documentation_names_every_function_that_is_not_judged_without_opa():
    text = (Path(__file__).parents[3] / "docs" / "compliance.md").read_text(encoding="utf-8")
    assert [name for name in UNSURE if f"`{name}`" not in text] == []


@pair
@pytest.mark.parametrize("how", UNSURE_OF)
def test_what_two_engines_can_agree_on_wrongly_is_not_judged(how):
    body, about = UNSURE_OF[how]
    given = json.dumps({"x": "%v", "list": [{"name": "a"}, {}], "y": 0.7}).encode()
    (one,) = judge_by_rego(f"package compliance\n{body}\n".encode(), [given], engines=PAIR).outcomes
    assert one.kind == "not judged"
    assert about in one.reason


@pair
@pytest.mark.parametrize(
    "body",
    [
        'compliant if sprintf("%v is %v%%", ["a", 3]) == "a is 3%"', "compliant if input.n - 1 == 2",
        "compliant if { some i; input.list[i]; not input.list[i].bad }",
        "compliant if { not count([1 | input.list[_]]) > 2 }", "compliant if { every x in input.list { not x.bad } }",
    ],
)  # fmt: skip
def test_what_two_engines_say_as_opa_is_judged(body):
    given = {"n": 3, "version": "1.5", "list": [{"name": "a"}, {}]}
    assert said(body, given, PAIR) == "true"
    assert not OPA or said(body, given, OPA) == "true"


@pair
def test_one_engine_that_has_an_error_is_enough_for_no_judgement():
    assert said("compliant if 1 / input.x > 3", {"x": 0}, PAIR) == "not judged"
    assert said("compliant if input.x == 1", {"x": 1}, PAIR) == "true"
    assert said("compliant := 3", {}, PAIR) == "error"  # both say so
    assert "package" in said("compliant if {", {}, PAIR) or "policy.rego" in said("compliant if {", {}, PAIR)


@pair
def test_a_policy_for_one_engine_alone_is_not_judged():
    """regorus takes what has no types, rego-cpp does not read a word that is none of its functions."""
    found = judge_by_rego(b"package compliance\ncompliant if no.such.function(1)", [b"{}"], engines=PAIR)
    assert found.problem or {one.kind for one in found.outcomes} == {"not judged"}


@pytest.mark.slow
def test_the_judge_stands_in_every_verdict_and_what_is_not_judged_has_none(tmp_path, monkeypatch):
    task = ComplianceTask(name="new-opa-kubectl-host-ports", seed=5, held_out=1)
    files = ORACLES[task.task_class]["right"][0](task)
    found = grade_files(files, task, EvidenceCache(tmp_path))
    assert found["passed"].value == 1.0
    assert {found[name].judge for name in JUDGED} == {" and ".join(one.label for one in judges())}
    stored = Metric.model_validate_json(found["passed"].model_dump_json())
    assert stored == found["passed"]
    assert "judge" not in found["kept"].model_dump()
    unsure = {**files, POLICY: b"package compliance\nbad if 1 / count(input.none) > 1\ncompliant if 1 / 0 > 1"}
    monkeypatch.setattr("opsassay.evals.compliance.rego.judging.judges", lambda _="v1": PAIR)
    with pytest.raises(NotJudgedError, match="the engines disagree"):
        grade_files(unsure, task, EvidenceCache(tmp_path))
    assert FETCHER in unsure


def test_policies_of_kyverno_name_their_judge(tmp_path):
    task = ComplianceTask(name="new-kyverno-host-network", seed=5, held_out=1)
    found = grade_files(ORACLES[task.task_class]["right"][0](task), task, EvidenceCache(tmp_path))
    assert found["passed"].judge == found["posture"].judge == SUBSET
    assert found["passed"].status is MetricStatus.SCORED


def test_the_older_syntax_is_read_where_it_is_asked_for():
    policy = b"package check\ndefault result = false\nresult { input.x == 1 }"
    found = judge_by_rego(policy, [b'{"x": 1}', b"{}"], question=RegoQuestion("check", "result", "v0"))
    assert [one.kind for one in found.outcomes] == ["true", "false"]
