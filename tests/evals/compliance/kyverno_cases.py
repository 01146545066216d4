"""What Kyverno says where durations, quantities, versions, wildcards, ranges, anchors and lists meet, by its source.

Written by hand from the rules in kyverno/kyverno (the files that each group names) and its documentation, never from what our
evaluator says. A value is `ERROR` where the subset does not judge.
"""

from __future__ import annotations

from typing import Any

ERROR = "error"
NONE = None

Rows = list[tuple[Any, list[Any], list[Any]]]
"""A pattern, the values that it holds of, and those that it does not hold of."""

PATTERNS: dict[str, Rows] = {
    # validateString asks compareDuration first: its answer stands when both are durations. Nothing is "0".
    "durations (pkg/engine/pattern, compareDuration)": [
        ("<=1h", ["60m", "3600s", "59m59s", "0", "1h0m0s", NONE, 0], ["61m", "1h1s", "90m", "2h", "abc", True, "3600", 3600]),
        (">=6m", ["6m", "360s", "0.1h", "7m", "6", 6], ["5m30s", "359s", "0.005", NONE]),
        ("<1h", ["59m", "-2h"], ["1h", "60m"]),
        ("!1h", ["61m", "1m", "abc", NONE, True], ["60m", "1h"]),
        ("1h", ["60m", "3600s", "1h"], ["1m", "3600", 3600, NONE]),
        ("1h-2h", ["60m", "90m", "2h", "7200s"], ["59m", "121m", "3h", "x", NONE]),
        ("1h!-2h", ["30m", "3h", NONE], ["1h", "90m", "2h"]),
        ("1.5h", ["90m"], ["1h"]),
        ("-5m-5m", ["0", "4m", "-5m"], ["6m", "-6m"]),
        ("500ms", ["0.5s", "500000us"], ["0.5", "501ms"]),
        ("5m|1h", ["300s", "60m"], ["10m"]),
        (">=5m & <=1h", ["5m", "30m", "1h"], ["4m", "61m"]),
        ("<= 1h", ["1h"], ["61m"]),
    ],
    # compareQuantity comes second; k8s.io/apimachinery rounds up below a nano and holds 2^63-1 at most.
    "quantities (pkg/engine/pattern, compareQuantity)": [
        ("<=1Gi", ["1024Mi", "1Gi", "1G", "500M", "0", 1073741824, NONE], ["1025Mi", "2Gi", 1073741825, "abc", "1.1Gi", True]),
        (">100m", ["0.2", "1", 1, 0.5, "101m"], ["100m", "0.1", 0.1, "50m", "1h", "200s", "0"]),
        ("1", ["1", "1000m", "1.0", 1, 1.0, "1e0"], ["2", "1001m", 2, "one"]),
        ("1k", ["1000", "1k", 1000, "1e3", "1E3"], ["1Ki", "1024"]),
        ("1Ki", ["1024", 1024, "1Ki"], ["1000", "1k"]),
        ("1M", ["1000k", "1e6"], ["1Mi"]),
        ("!1Gi", ["2Gi", "1G", "abc", NONE], ["1024Mi", "1073741824"]),
        ("0.1n", ["1n", "0.5n"], ["2n"]),
        ("10E", ["11E", "9223372036854775807"], ["9E"]),
        ("1.5", ["1500m", 1.5, "1.50"], ["1", 1]),
        ("+5", ["5", 5], [4]),
    ],
    "ranges (pkg/engine/operator, InRangeRegex)": [
        ("10-20", [10, 15, 20, "15", "10.5"], [9, 21, "x", NONE]),
        ("10!-20", [9, 21, NONE], [10, 15, 20]),
        ("1Mi-1Gi", ["1Mi", "512Mi", "1Gi"], ["1Ki", "2Gi"]),
        ("-5-5", [0, -5, 5], [6, -6]),
        ("1000-2000 | 5", [1500, 5, "5"], [6, 2001]),
        ("5-", ["5-"], [5]),
        ("a-b", ["a-b"], ["ab"]),
    ],
    "texts and wildcards (pkg/engine/pattern, compareString)": [
        ("nginx:*", ["nginx:1", "nginx:"], ["nginx", "xnginx:1"]),
        ("?*", ["a", "abc", 5, True, 0], ["", NONE]),
        ("*", ["", 0, "a", {}, []], [NONE]),
        ("????", ["abcd"], ["abc", "abcde"]),
        ("*.local|*.test", ["a.test", "b.local"], ["a.com"]),
        ("!*:latest", ["a:1", "a"], ["a:latest", NONE]),
        ("!*:latest & *:*", ["a:1"], ["a", "a:latest"]),
        ("1.5*", [1.5, "1.5"], [2.5]),
        ("?.5", ["2.5"], [2.5]),
        ("2.5E*", [2.5], [25]),
        ("true", [True, "true"], [False, "True", 1]),
        ("!true", [False], [True]),
        ("a | b", ["a", "b", "a | b"], ["c"]),
        ("", [""], ["a", NONE]),
        ("5*", [50, "5", 512], [15]),
        (">", [">"], ["x"]),
        ("!", ["!"], ["x"]),
    ],
    "numbers, booleans and null (pkg/engine/pattern, validate*Pattern)": [
        (5, [5, 5.0, "5", "+5", "05"], [6, "5.0", "5s", True, NONE, "five", 5.5, ""]),
        (1.5, [1.5, "1.5", "1.50", "15e-1"], [1, "1", 2.5, NONE, True, "x"]),
        (2.0, [2, 2.0, "2", "2.0"], [3]),
        (True, [True], ["true", 1, False, NONE]),
        (False, [False], [NONE, 0, "false"]),
        (NONE, [NONE, "", 0, 0.0, False, []], ["a", 1, True, ["a"], {}]),
    ],
    "lists (pkg/engine/validate, validateArray)": [
        ("<=5", [[1, 2], []], [[1, 9], [[1]]]),
        ("a*", [["a", "ab"]], [["a", "b"]]),
        (["a*"], [["ab"], []], [["b"], "ab", NONE, {}]),
        ([{"n": "a*"}], [[{"n": "ab"}], []], [[{"n": "b"}], [{"n": "ab"}, {}], ["ab"], NONE]),
        ([{"(n)": "a*", "v": "<=5"}], [[{"n": "a", "v": 1}, {"n": "b", "v": 9}], [{"n": "b"}], []], [[{"n": "ab", "v": 9}]]),
        ([{"t": ">=5m"}], [[{"t": "300s"}, {"t": "1h"}]], [[{"t": "1h"}, {"t": "60s"}]]),
    ],
}  # fmt: skip

ANCHORS: dict[str, Rows] = {
    "conditions (pkg/engine/anchor, conditionAnchorHandler)": [
        ({"(a)": "x", "b": "y"}, [{"a": "x", "b": "y"}, {"a": "q", "b": "z"}, {}, {"b": "y"}, {"a": NONE, "b": "z"}], [{"a": "x", "b": "z"}, {"a": "x"}]),
        ({"s": {"(a)": "x", "b": "y"}, "t": "z"}, [{"s": {"a": "q"}, "t": "no"}, {"s": {"a": "x", "b": "y"}, "t": "z"}], [{"s": {"a": "x", "b": "y"}, "t": "no"}, {"t": "z"}]),
        ({"(a)": ">=1h", "b": "y"}, [{"a": "30m"}, {"a": "90m", "b": "y"}], [{"a": "90m"}, {"a": "3600s", "b": "n"}]),
    ],
    "equality (pkg/engine/anchor, equalityHandler)": [
        ({"=(a)": "x"}, [{}, {"a": "x"}], [{"a": "y"}, {"a": NONE}]),
        ({"=(a)": {"b": "<=5"}}, [{"a": {"b": 3}}, {"a": {}}, {}], [{"a": {"b": 9}}, {"a": 5}]),
    ],
    "negation (pkg/engine/anchor, negationHandler)": [
        ({"X(a)": "null"}, [{}, {"b": 1}], [{"a": 1}, {"a": NONE}, {"a": ""}]),
    ],
    "existence (pkg/engine/anchor, existenceHandler)": [
        ({"^(l)": [{"n": "a"}]}, [{"l": [{"n": "a"}, {"n": "b"}]}, {}, {"l": [{"n": "a"}]}], [{"l": [{"n": "b"}]}, {"l": []}, {"l": "a"}]),
        ({"^(l)": [{"n": "a"}, {"n": "b"}]}, [{"l": [{"n": "a"}, {"n": "b"}]}], [{"l": [{"n": "a"}]}]),
        ({"^(l)": [{"(n)": "a", "v": 1}]}, [{"l": [{"n": "a", "v": 1}]}], [{"l": [{"n": "a", "v": 2}]}, {"l": [{"n": "b", "v": 1}]}]),
    ],
    "two anchors (pkg/engine/validate, validateMap)": [
        ({"(a)": "x", "X(b)": "null"}, [{"a": "x"}, {"a": "q"}], [{"a": "x", "b": 1}]),
        ({"(a)": "x", "=(b)": "y"}, [{"a": "q", "b": "y"}, {"a": "x"}], [{"a": "x", "b": "z"}]),
    ],
    "wildcards in keys (pkg/engine/wildcards, ExpandInMetadata)": [
        ({"metadata": {"labels": {"app*": "x"}}}, [{"metadata": {"labels": {"app1": "x"}}}], [{"metadata": {"labels": {"app1": "y"}}}, {"metadata": {"labels": {}}}, {"metadata": {}}]),
        ({"metadata": {"labels": {"=(app*)": "x"}}}, [{"metadata": {"labels": {"app1": "x"}}}, {"metadata": {"labels": {}}}], [{"metadata": {"labels": {"app1": "y"}}}]),
        ({"metadata": {"labels": {"X(app*)": "null"}}}, [{"metadata": {"labels": {"b": "1"}}}], [{"metadata": {"labels": {"app1": "1"}}}]),
        ({"metadata": {"labels": {"(app*)": "x", "b": "y"}}}, [{"metadata": {"labels": {"app1": "x", "b": "y"}}}, {"metadata": {"labels": {"b": "z"}}}], [{"metadata": {"labels": {"app1": "x", "b": "z"}}}]),
    ],
}  # fmt: skip

CONDITIONS: dict[str, list[tuple[Any, str, Any, Any]]] = {
    # parseDuration first (a number is whole seconds), then quantities of two texts, numbers, versions.
    "order (pkg/engine/variables/operator, numeric.go)": [
        ("90m", "GreaterThan", "1h", True), ("120m", "LessThanOrEquals", "1h", False), (3600, "GreaterThanOrEquals", "1h", True),
        (3599.9, "GreaterThanOrEquals", "1h", False), (1.9, "GreaterThan", "1s", False), ("1h", "LessThan", 3601, True),
        ("2s", "GreaterThan", 1.9, True), ("0", "LessThan", "1s", True), ("5", "LessThan", "10s", True), ("11", "LessThan", "10s", False),
        ("1Ki", "GreaterThan", "1000", True), ("1Ki", "GreaterThan", 1000, False), (1024, "LessThan", "2Ki", False),
        (5, "GreaterThan", "4", True), ("5", "GreaterThan", 4, True), ("5.5", "LessThan", 5.6, True), ("1e3", "GreaterThan", 999, True),
        ("1Gi", "GreaterThanOrEquals", "1024Mi", True), ("500m", "LessThan", "1", True), ("500m", "LessThan", 1, False),
        ("1.10.0", "GreaterThan", "1.9.0", True), ("1.0.0-rc.1", "LessThan", "1.0.0", True), ("1.0.0", "GreaterThan", "1.0.0+b", False),
        ("2.0.0", "GreaterThan", "v1.0.0", False), ("1.0.0", "LessThan", "1.0", False), (True, "GreaterThan", 1, False),
        ([1], "GreaterThan", 0, False), ("abc", "GreaterThan", "def", ERROR), ("1h", "DurationGreaterThan", "1m", ERROR),
    ],
    "equality (pkg/engine/variables/operator, equal.go and notequal.go)": [
        ("60m", "Equals", "1h", True), ("60m", "NotEquals", "1h", False), ("abc", "Equals", "a*", True), ("a*", "Equals", "abc", False),
        ("abc", "NotEquals", "a*", False), ("1Ki", "Equals", "1024", True), ("5", "Equals", "five", False), ("5", "NotEquals", "five", False),
        ("five", "NotEquals", "5", True), (5, "Equals", "5", True), (5, "Equals", "5.0", False), (5, "Equals", 5.0, True),
        (5.5, "Equals", "5.5", True), (5.0, "Equals", "5", True), ("5", "Equals", 5, False), ("5", "NotEquals", 5, True),
        ("60s", "Equals", 60, True), (60, "Equals", "60s", False), (60, "NotEquals", "60s", True), (True, "Equals", True, True),
        (True, "Equals", "true", False), (True, "NotEquals", "true", True), (True, "Equals", 1, False), ([1, 2], "Equals", [1, 2], True),
        ([1, 2], "Equals", [2, 1], False), ([True], "Equals", [1], False), ({"a": 1}, "Equals", {"a": 1}, True),
        ({"a": 1}, "NotEquals", {"a": 2}, True), ([1], "Equals", 1, False), ("", "Equals", "", True), (NONE, "Equals", NONE, False),
        (NONE, "NotEquals", "a", False),
    ],
    "membership (pkg/engine/variables/operator, anyin.go and its neighbours)": [
        ("a", "AnyIn", ["a", "b"], True), ("a", "AnyIn", ["b"], False), ("abc", "AnyIn", ["a*"], True), ("a*", "AnyIn", ["abc"], True),
        ("abc", "AnyIn", "a*", True), ("a*", "AnyIn", "abc", False), (["a*"], "AnyIn", "abc", True), ("a", "AnyIn", '["a","b"]', True),
        ("abc", "AnyIn", '["a*"]', False), (["abc"], "AnyIn", '["a*"]', True), (5, "AnyIn", "1-10", True), (50, "AnyIn", "1-10", False),
        ([5, 50], "AnyIn", "1-10", True), ([5, 50], "AllIn", "1-10", False), ([5, 6], "AllIn", "1-10", True), ([5, 50], "AnyNotIn", "1-10", True),
        ([5, 6], "AnyNotIn", "1-10", False), ([50, 60], "AllNotIn", "1-10", True), (["a", "b"], "AllIn", ["a", "b", "c"], True),
        (["a", "z"], "AllIn", ["a"], False), (["a", "z"], "AnyIn", ["a"], True), (["a", "z"], "AnyNotIn", ["a"], True),
        (["a"], "AnyNotIn", ["a"], False), (["y", "z"], "AllNotIn", ["a"], True), (["a"], "AllNotIn", ["a"], False), (5, "AnyIn", [5], True),
        (5.0, "AnyIn", [5], True), ("5", "AnyIn", [5], True), ("90m", "AnyIn", "1h-2h", True), ("6", "AnyIn", "5", ERROR),
        ("a", "AnyIn", "5!-10", ERROR), ("a", "In", ["a"], ERROR), ("a", "NotIn", ["a"], ERROR), ("a", "AnyIn", 5, ERROR),
        (True, "AnyIn", ["true"], ERROR), ([], "AnyIn", ["a"], False), ([], "AllIn", ["a"], True),
    ],
}  # fmt: skip

REFUSED_PATTERNS: list[tuple[Any, Any]] = [
    (">abc", "abd"), ("<=", "x"), ([], []), (["a", "b"], ["a"]), ([["a"]], [["a"]]), ({"+(a)": "x"}, {"a": "x"}), ({"<(a)": "x"}, {"a": "x"}),
    ({"^(l)": "a"}, {"l": ["a"]}), ({"(a)": "x", "X(b)": "null"}, {"a": "q", "b": 1}), ({"(a)": "x", "=(b)": "y"}, {"a": "q", "b": "z"}),
    ("{{request.object.x}}", "a"), ("$(./a)", "a"),
]  # fmt: skip

REFUSED_POLICIES: list[tuple[str, dict[str, Any]]] = [
    *((kind, {"kind": kind, "apiVersion": version}) for kind, version in (
        ("ValidatingPolicy", "policies.kyverno.io/v1"), ("ImageValidatingPolicy", "policies.kyverno.io/v1"), ("MutatingPolicy", "policies.kyverno.io/v1"),
        ("GeneratingPolicy", "policies.kyverno.io/v1"), ("DeletingPolicy", "policies.kyverno.io/v1"), ("ClusterCleanupPolicy", "kyverno.io/v2"),
        ("PolicyException", "kyverno.io/v2"), ("ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1"), ("kyverno.io/v3", "kyverno.io/v3"),
    )),
    ("validationFailureAction", {"spec": {"validationFailureAction": "Deny"}}), ("validationFailureActionOverrides", {"spec": {"validationFailureActionOverrides": []}}),
    ("failureAction", {"validate": {"failureAction": "Warn"}}), ("cel", {"validate": {"cel": {"expressions": [{"expression": "true"}]}}}),
    ("podSecurity", {"validate": {"podSecurity": {"level": "restricted"}}}), ("manifests", {"validate": {"manifests": {}}}), ("assert", {"validate": {"assert": {}}}),
    *((part, {"rule": {part: {}}}) for part in ("mutate", "generate", "verifyImages", "context", "celPreconditions")),
]  # fmt: skip
"""What a policy has that is refused, and the name that the sentence says."""
