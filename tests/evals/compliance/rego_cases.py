"""400 policies of Rego with their inputs, drawn by one seed: what OPA documents of its built-ins, what the fifty tasks ask,
and the constructs in which engines differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from opsassay.evals.compliance.scripts.collected import right_policy
from opsassay.evals.compliance.tasks import ANSIBLE, KUBECTL, published

SEED, COUNT = 20, 400

WORDS = ["", "a", "aaa", "Ab c", "x.y.z", "über", "10", "/api/{id}", "a,b,,c"]
NUMBERS: list[Any] = [0, 1, -1, 2.5, 7, 100, 1e6, -0.5]
LISTS: list[Any] = [[], [1, 2, 3], [3, 1, 2, 1], ["b", "a"], [[1], [2, [3]]], [None, True, "x", 0]]
OBJECTS: list[Any] = [{}, {"a": 1}, {"a": {"b": 1}}, {"b": [1, {"c": 2}]}]
ODD: list[Any] = [None, True, [], {}, 5, "abc"]

BUILT_INS: dict[str, list[tuple[str, list[list[Any]]]]] = {
    "Numbers": [
        ("abs(input.x)", [NUMBERS]), ("round(input.x)", [NUMBERS]), ("ceil(input.x)", [NUMBERS]),
        ("floor(input.x)", [NUMBERS]), ("input.x / input.y", [NUMBERS, NUMBERS]), ("input.x % input.y", [NUMBERS, [0, 2, 3, 2.5]]),
        ("input.x * input.y", [NUMBERS, NUMBERS]), ("input.x - input.y", [NUMBERS, ODD]),
        ("numbers.range(input.x, input.y)", [[1, 3, -1, 2.5], [0, 3, 5]]),
        ("numbers.range_step(input.x, 10, input.y)", [[1, 20], [0, 2, 3, -1]]),
    ],
    "Aggregates": [
        (f"{name}(input.x)", [[*LISTS, *ODD]]) for name in ("count", "sum", "product", "max", "min", "sort")
    ],
    "Texts": [
        ("contains(input.x, input.y)", [WORDS, WORDS]), ("startswith(input.x, input.y)", [WORDS, [*WORDS, None]]),
        ("endswith(input.x, input.y)", [WORDS, WORDS]), ("indexof(input.x, input.y)", [WORDS, WORDS]),
        ("indexof_n(input.x, input.y)", [WORDS, ["a", ".", "aa"]]), ("lower(input.x)", [[*WORDS, *ODD]]), ("upper(input.x)", [[*WORDS, *ODD]]),
        ("split(input.x, input.y)", [WORDS, [",", ".", "", "a"]]), ("concat(input.y, input.x)", [[["a", "b"], [], ["x"], [1]], [",", ""]]),
        ("replace(input.x, input.y, \"-\")", [WORDS, ["a", "aa", "", "."]]), ("substring(input.x, input.y, 2)", [WORDS, [0, 1, -1, 9]]),
        ("trim(input.x, input.y)", [WORDS, ["a", "c/", ""]]), ("trim_space(input.x)", [[" a ", "\tb\n", ""]]),
        ("trim_prefix(input.x, input.y)", [WORDS, WORDS]), ("strings.reverse(input.x)", [WORDS]), ("strings.count(input.x, input.y)", [WORDS, ["a", "aa", "", "."]]),
        ("strings.replace_n({\"a\": \"b\", \"b\": \"c\"}, input.x)", [WORDS]), ("strings.any_prefix_match(input.x, [\"a\", \"/api\"])", [WORDS]),
        ("format_int(input.x, input.y)", [NUMBERS, [2, 8, 10, 16, 7]]),
    ],
    "sprintf": [
        (f'sprintf("{verb}", [input.x])', [[*NUMBERS[:5], "a", None, True, [1, "a"], {"a": 1}]])
        for verb in ("%v", "%s", "%d", "%t", "%5.1f", "%q", "%x", "%05d", "%+v", "%%")
    ],
    "Regular expressions": [
        ("regex.match(input.x, input.y)", [["^a+$", "^/api/{id}$", "^x{,3}$", "[1&&2]", "(", "(?i)AB", "^\\d+$", "\\bc\\b"], WORDS]),
        ("regex.is_valid(input.x)", [["a", "(", "{id}", "\\Qa.b\\E", "(?P<n>a)", "(?<n>a)", "a{1001}"]]),
        ("regex.split(\"[.,]\", input.x)", [WORDS]), ("regex.find_n(input.x, \"a1b22c333\", input.y)", [["[a-z]", "[0-9]+", "("], [-1, 0, 2]]),
        ("regex.replace(input.x, \"a+\", \"<$0>\")", [WORDS]), ("regex.find_all_string_submatch_n(\"(a)(.?)\", input.x, -1)", [WORDS]),
        ("regex.template_match(\"urn:{[a-z]+}:x\", input.x, \"{\", \"}\")", [["urn:foo:x", "urn:1:x"]]),
        ("glob.match(input.x, [\".\"], input.y)", [["*.z", "x.*.z", "**", "x.?.z", "{a,x.y.z}"], ["x.y.z", "x.y", "a"]]),
    ],
    "Collections": [
        ("array.concat(input.x, input.y)", [LISTS, LISTS]), ("array.slice(input.x, input.y, 2)", [LISTS, [-1, 0, 1, 3]]),
        ("array.reverse(input.x)", [LISTS]), ("array.flatten(input.x)", [LISTS]), ("object.get(input.x, input.y, \"none\")", [OBJECTS, ["a", ["a", "b"], ["b", 1, "c"]]]),
        ("object.keys(input.x)", [OBJECTS]), ("object.remove(input.x, [\"a\"])", [OBJECTS]), ("object.filter(input.x, [\"a\"])", [OBJECTS]),
        ("object.union(input.x, input.y)", [OBJECTS, OBJECTS]), ("object.union_n([input.x, {\"a\": {\"c\": 2}}])", [OBJECTS]),
        ("object.subset(input.x, input.y)", [OBJECTS, OBJECTS]), ("json.filter(input.x, [\"a/b\"])", [OBJECTS]), ("json.remove(input.x, [\"a/b\"])", [OBJECTS]),
        ("json.patch(input.x, [{\"op\": \"add\", \"path\": \"/z\", \"value\": 1}])", [[*OBJECTS, []]]),
        ("sort({one | some one in input.x} & {1, 2, \"a\"})", [LISTS]), ("sort(union({{1}, {one | some one in input.x}}))", [LISTS]),
        ("1 in input.x", [[*LISTS, *ODD]]), ("walk(input.x, [[], value])", [OBJECTS]), ("[path | walk(input.x, [path, 1])]", [OBJECTS]),
    ],
    "Types and conversions": [
        *((f"{name}(input.x)", [[*ODD, 2.5]]) for name in ("type_name", "is_number", "is_string", "is_null", "is_array", "is_object", "is_boolean")),
        ("to_number(input.x)", [["5", "-1.5", "abc", "", "1e3", " 5", None, True, [], "0x10"]]), ("to_number(\"0644\") == 644", []),
        ("units.parse(input.x)", [["10K", "1Ki", "100m", "lots", "", "1.5G", "10"]]), ("units.parse_bytes(input.x)", [["10KB", "1KiB", "lots", "", "1.5G", "5"]]),
        ("bits.and(input.x, input.y)", [[1, 6, 2.5], [3, 4]]), ("bits.lsh(input.x, input.y)", [[1, 6], [3, -1]]),
        ("bits.negate(input.x)", [[1, 0]]),
    ],
    "Encodings": [
        ("base64.encode(input.x)", [WORDS]), ("base64.decode(input.x)", [["YQ==", "%", "YQ", ""]]), ("base64url.encode_no_pad(input.x)", [WORDS]),
        ("hex.encode(input.x)", [WORDS]), ("hex.decode(input.x)", [["61", "6", "zz"]]), ("urlquery.encode(input.x)", [WORDS]),
        ("urlquery.decode_object(input.x)", [["a=1&b=2", "a=1&a=2", "%zz"]]), ("json.marshal(input.x)", [[*ODD, 2.5, {"b": 1, "a": [1]}, "<&>"]]),
        ("json.unmarshal(input.x)", [['{"a": 1}', "{", "5", ""]]), ("json.is_valid(input.x)", [['{"a": 1}', "{"]]),
        ("yaml.unmarshal(input.x)", [["a: 1", "{", "[1, 2]", "yes"]]), ("yaml.marshal(input.x)", [OBJECTS]),
    ],
    "Times": [
        ("time.parse_rfc3339_ns(input.x)", [["2026-01-31T00:00:00Z", "yesterday", "2026-01-31", "2026-01-31T00:00:00.5+02:00"]]),
        ("time.add_date(input.x, 0, input.y, 0)", [[1769817600000000000, 1709164800000000000], [1, -1, 13]]), ("time.date(input.x)", [[0, 1769817600000000000]]),
        ("time.clock([input.x, \"UTC\"])", [[0, 1769817661000000000]]), ("time.weekday(input.x)", [[0, 1769817600000000000]]),
        ("time.parse_duration_ns(input.x)", [["1h30m", "5s", "5", "1d", "-2ms"]]), ("time.diff(input.x, 0)", [[1769817600000000000, 1]]),
        ("time.format(input.x)", [[0, 1769817661000000000]]), ("time.parse_ns(\"2006-01-02\", input.x)", [["2026-01-31", "31.01.2026"]]),
    ],
    "Networks": [
        ("net.cidr_contains(input.x, input.y)", [["10.0.0.0/8", "10.0.0.0/99", "::/0"], ["10.1.2.3", "10.1.0.0/16", "x"]]),
        ("net.cidr_intersects(input.x, \"10.1.0.0/16\")", [["10.0.0.0/8", "11.0.0.0/8", "x"]]), ("net.cidr_is_valid(input.x)", [["10.0.0.0/8", "10.0.0.1", "x"]]),
        ("sort(net.cidr_merge(input.x))", [[["10.0.0.0/9", "10.128.0.0/9"], ["10.0.0.0/8"]]]), ("count(net.cidr_expand(input.x))", [["10.0.0.0/30", "x"]]),
    ],
    "Versions": [
        ("semver.compare(input.x, input.y)", [["1.0.0", "1.0.0-rc.1", "1.2.0", "v1.0.0", "one"], ["1.0.0", "1.0.0-rc.2", "1.10.0"]]),
        ("semver.is_valid(input.x)", [["1.0.0", "1.0", "v1.0.0", "01.0.0", "1.0.0+b"]]),
    ],
    "Digests": [
        (f"crypto.{name}(input.x)", [WORDS[:4]]) for name in ("md5", "sha1", "sha256")
    ] + [("crypto.hmac.sha256(input.x, \"k\")", [WORDS[:3]])],
    "Graphs and schemas": [
        ("sort(graph.reachable({\"a\": [\"b\"], \"b\": [\"c\"], \"d\": []}, {input.x}))", [["a", "c", "d", "z"]]),
        ("json.match_schema(input.x, {\"type\": \"object\", \"required\": [\"a\"]})[0]", [OBJECTS]),
    ],
}  # fmt: skip

PODS = [
    {"name": "a", "bad": True, "labels": {"team": "red"}}, {"bad": True}, {"name": "b", "bad": False}, {"name": None, "bad": True},
    {"name": "a", "bad": True, "labels": None}, {}, {"name": "c", "bad": "yes", "labels": {}},
]  # fmt: skip
CONSTRUCTS: dict[str, list[str]] = {
    "Heads with a missing field": [
        "deny contains p.name if { some p in input.pods; p.bad }\ncompliant := count(deny)",
        'deny contains sprintf("%s", [p.name]) if { some p in input.pods; p.bad }\ncompliant := count(deny)',
        "by[p.name] := p.bad if { some p in input.pods }\ncompliant := count(by)",
        "by contains p.labels.team if { some p in input.pods }\ncompliant := count(by)",
        'deny contains {"n": p.name} if { some p in input.pods }\ncompliant := count(deny)',
    ],
    "Negation and every": [
        "compliant if { every p in input.pods { not p.bad } }", "compliant if { every p in input.pods { p.name } }",
        "compliant if { not any_bad }\nany_bad if { some p in input.pods; p.bad == true }",
        "compliant if { every i, p in input.pods { i < 5; p != {} } }", "compliant if not input.pods[_].labels.team",
    ],
    "Comprehensions": [
        "compliant := [p.name | some p in input.pods]", "compliant := count({p.name | some p in input.pods})",
        "compliant := {i: p.name | some i, p in input.pods; p.bad}", "compliant := count([1 | some p in input.pods; not p.name])",
        "compliant := sum([i | some i, p in input.pods; p.labels.team])",
    ],
    "Functions and else": [
        'name_of(p) := p.name if { p.name } else := "none"\ncompliant := [name_of(p) | some p in input.pods]',
        "f(x) := y if { y := x.labels.team }\ncompliant := [f(p) | some p in input.pods]",
        "default f(_) := 0\nf(p) := count(p.labels)\ncompliant := [f(p) | some p in input.pods]",
        "compliant if { input.pods[0].bad } else := false if { count(input.pods) > 2 }",
        'compliant := x if { x := input.pods[0].name } else := "e"',
    ],
    "Defaults, with and references": [
        "default compliant := false\ncompliant if input.pods[_].name == \"a\"", "compliant := input.pods[0][\"name\"]",
        "compliant if { x with input.pods as [] }\nx if count(input.pods) == 0", "compliant := count(data.compliance.names)\nnames contains p.name if some p in input.pods",
        "compliant if { [a, b] := [input.pods[0], input.pods[1]]; a != b }", "compliant if { p := input.pods[_]; p.name > \"a\" }",
        "compliant := object.get(input.pods[0], [\"labels\", \"team\"], \"none\")", "compliant if is_string(input.pods[count(input.pods) - 1].name)",
    ],
}  # fmt: skip


@dataclass(frozen=True)
class RegoCase:
    """One policy with one input; *kind* is the row of the table that it counts in."""

    kind: str
    policy: str
    given: str


def rego_cases() -> list[RegoCase]:
    """Return the cases, the same ones whenever they are asked for."""
    draw = Random(SEED)
    tasks = list(_of_tasks(draw))
    templates = [(kind, *one) for kind, some in BUILT_INS.items() for one in some]
    built_in = [
        _asking(kind, f"compliant := {one}", {name: draw.choice(pool) for name, pool in zip("xy", pools, strict=False)})
        for kind, one, pools in templates * 2
    ]
    constructs = [(kind, body) for kind, some in CONSTRUCTS.items() for body in some]
    drawn = []
    while len(tasks) + len(built_in) + len(drawn) < COUNT:
        kind, body = constructs[len(drawn) % len(constructs)]
        drawn.append(_asking(kind, body, {"pods": draw.sample(PODS, draw.randint(1, 5))}))
    return [*tasks, *built_in, *drawn]


def _asking(kind: str, body: str, given: object) -> RegoCase:
    return RegoCase(kind, f"package compliance\n{body}\n", json.dumps(given))


def _of_tasks(draw: Random) -> Iterator[RegoCase]:
    """Yield the right policy of every task that collects, with a compliant and a violating world, or lines of a host."""
    for task in published():
        if task.task_class == KUBECTL:
            for world in draw.sample(list(task.judged()), 2):
                yield RegoCase(
                    "The tasks' own policies", right_policy(task), json.dumps({"items": list(world.objects)})
                )
        elif task.task_class == ANSIBLE:
            words = [
                word.strip('"')
                for word in right_policy(task).replace("{", " ").replace("}", " ").split()
                if '"' in word
            ]
            lines = [" ".join(draw.sample(words, min(2, len(words)))) for _ in range(3)]
            yield RegoCase("The tasks' own policies", right_policy(task), json.dumps({"lines": lines}))
