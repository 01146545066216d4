"""Judges Kubernetes objects by policies as at admission: a failed rule that is enforced refuses an object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from opsassay.evals.compliance.kyverno.conditions import hold, query
from opsassay.evals.compliance.kyverno.documents import UnsupportedError, value_at
from opsassay.evals.compliance.kyverno.patterns import require_literal_keys, satisfies
from opsassay.evals.compliance.kyverno.policy import KyvernoPolicy, KyvernoRule, filters_of, is_narrow, kind_of
from opsassay.evals.compliance.kyverno.readings import Courses, ElsewhereError, Known, Path, violating
from opsassay.evals.compliance.kyverno.values import wildcard

CREATE, UPDATE = OPERATIONS = "CREATE", "UPDATE"
"""The operations by which an object is admitted."""


@dataclass(frozen=True)
class _Request:
    """The admission of an object: its *operation*; for a bypass search the assumed *courses*, violating *parts*."""

    operation: str = CREATE
    courses: Courses | None = None
    parts: tuple[Path, ...] = ()


@dataclass(frozen=True)
class RuleResult:
    """The result of one rule for one object; *enforced*: a failure refuses the object."""

    policy: str
    rule: str
    object: str
    result: Literal["pass", "fail"]
    enforced: bool


def judge_objects(
    policies: Sequence[KyvernoPolicy], objects: Sequence[Mapping[str, Any]], operation: str = CREATE
) -> list[RuleResult]:
    """Return one result per rule of *policies* and object it applies to on *operation*; raises UnsupportedError."""
    return [
        RuleResult(policy.name, rule.name, _label_of_object(one), "pass" if passes else "fail", rule.enforced)
        for policy in policies
        for rule in policy.rules
        for one in objects
        if (passes := _passes_rule(policy, rule, one, _Request(operation))) is not None
    ]


def admitted(policies: Sequence[KyvernoPolicy], objects: Sequence[Mapping[str, Any]], operation: str = CREATE) -> bool:
    """Return whether no enforced rule of *policies* refuses *operation* on an object; raises UnsupportedError."""
    return not any(one.result == "fail" and one.enforced for one in judge_objects(policies, objects, operation))


def find_bypass(
    policies: Sequence[KyvernoPolicy], objects: Sequence[Mapping[str, Any]], parts: Iterable[Path]
) -> str | None:
    """Return how *objects*, which violate in *parts*, get past *policies*, '' when simply admitted, None when refused.

    Creation and update are tried. The violator may choose all but *parts*: names, labels, namespaces, the user, the
    order of lists, and a time when Kyverno does not answer. Raises UnsupportedError.
    """
    said = []
    for one in objects:
        courses = [_find_way_past(policy, rule, one, tuple(parts)) for policy in policies for rule in policy.rules]
        if None in courses:
            return None
        said += courses
    return next((one for one in said if one), "")


def _find_way_past(
    policy: KyvernoPolicy, rule: KyvernoRule, resource: Mapping[str, Any], parts: tuple[Path, ...]
) -> str | None:
    """Return how *resource*, violating in *parts*, gets past *rule*, a sentence: "" if as it is, None if not at all."""
    name = f"{policy.name}: {rule.name}"
    if _passes_rule(policy, rule, resource, _Request()) is not False:
        return ""
    for operation in OPERATIONS:
        for one in (resource, _reverse_lists(resource)):
            courses = Courses()
            for way in courses:
                if _passes_rule(policy, rule, one, _Request(operation, way, parts)) is not False:
                    return f"{name} turns on {', '.join(way.read) or 'how it comes'}, and nobody asked for that"
            if not courses.is_exhausted:
                return f"{name} turns on too much that nobody asked for"
    if not rule.enforced:
        return f"{name} only reports, since its action is Audit"
    return f"{policy.name}: {policy.gap}" if policy.gap else None


def _reverse_lists(value: Any) -> Any:
    """Return *value* with every list in it, at any depth, in reverse."""
    if isinstance(value, Mapping):
        return {key: _reverse_lists(one) for key, one in value.items()}
    return [_reverse_lists(one) for one in reversed(value)] if isinstance(value, list) else value


def _label_of_object(resource: Mapping[str, Any]) -> str:
    """Return the object's "Kind/name" for messages."""
    return f"{resource.get('kind')}/{value_at(resource, 'metadata', 'name')}"


def _passes_rule(
    policy: KyvernoPolicy, rule: KyvernoRule, resource: Mapping[str, Any], admission: _Request
) -> bool | None:
    """Return whether *resource* passes *rule* in the request *admission*, None when the rule does not apply to it."""
    namespace = value_at(resource, "metadata", "namespace")
    if admission.courses is None and policy.namespace is not None and policy.namespace != namespace:
        return None
    kind, judged = resource.get("kind"), resource
    if kind in rule.controllers:
        template = _find_pod_template(resource)
        if template is None:
            return None
        judged = {"kind": "Pod", "metadata": template.get("metadata") or {}, "spec": template.get("spec") or {}}
    matched = resource if judged is resource else {**resource, "apiVersion": "v1", "kind": "Pod"}
    where = f"{policy.name}: {rule.name}"
    if not _block_matches(rule.body["match"], matched, admission, where):
        return None
    if rule.body.get("exclude") and _block_matches(rule.body["exclude"], matched, admission, where):
        return None
    seen = judged if admission.courses is None else violating(judged, admission.courses, admission.parts)
    request = Known(
        "request.", admission.courses, object=seen, operation=admission.operation, namespace=namespace or ""
    )
    context = Known("", admission.courses, request=request)
    if (conditions := rule.body.get("preconditions")) and not hold(conditions, context, f"{where}: preconditions"):
        return None
    return _passes_validate(rule.body["validate"], seen, context, where)


def _find_pod_template(resource: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the pod template of a workload such as a Deployment or CronJob, None for other objects."""
    path = ("spec", "jobTemplate", "spec", "template") if resource.get("kind") == "CronJob" else ("spec", "template")
    template = value_at(resource, *path)
    return template if isinstance(template, Mapping) else None


def _passes_validate(validate: Mapping[str, Any], value: Any, context: Known, location: str) -> bool:
    """Return whether *value* passes the rule's block *validate*, whose expressions read *context*."""
    if "pattern" in validate:
        return satisfies(value, validate["pattern"])
    if "anyPattern" in validate:
        patterns = validate["anyPattern"]
        if not isinstance(patterns, list):
            raise UnsupportedError(f"{location}: anyPattern is no list.")
        found = [satisfies(value, one) for one in patterns]  # all of them: what is not of the subset is said
        return any(found)
    if "deny" in validate:
        deny = validate["deny"]
        if not isinstance(deny, Mapping) or set(deny) != {"conditions"}:
            raise UnsupportedError(f"{location}: deny has conditions and nothing else.")
        return not hold(deny["conditions"], context, f"{location}: deny")
    return all(list(_check_foreach(validate["foreach"], context, location)))


def _check_foreach(loops: Any, context: Known, location: str) -> Iterator[bool]:
    """Yield for each element of each of the ``foreach`` *loops* whether it passes; raises UnsupportedError."""
    if not isinstance(loops, list):
        raise UnsupportedError(f"{location}: foreach is no list.")
    known = {"list", "pattern", "anyPattern", "deny", "preconditions"}
    for loop in loops:
        if not isinstance(loop, Mapping) or not set(loop) <= known or not isinstance(loop.get("list"), str):
            raise UnsupportedError(f"{location}: a foreach has list, preconditions and one check of the subset.")
        if sum(check in loop for check in ("pattern", "anyPattern", "deny")) != 1:
            raise UnsupportedError(f"{location}: a foreach has not exactly one check.")
        require_literal_keys([loop.get("pattern"), loop.get("anyPattern")])
        try:
            elements = query(loop["list"], context, location)
        except ElsewhereError:
            continue  # a violator sees to it that there are none
        for index, element in enumerate(elements if isinstance(elements, list) else []):
            inner = context.extended(element=element, elementIndex=index)
            if loop.get("preconditions") and not hold(loop["preconditions"], inner, f"{location}: preconditions"):
                continue
            yield _passes_validate(loop, element, inner, location)


def _block_matches(block: Any, resource: Mapping[str, Any], request: _Request, location: str) -> bool:
    """Return whether a match or exclude block fits *resource* and *request*: any, or all, of its filters."""
    how, filters = filters_of(block, location)
    found = [_matches_resources(resources, resource, request, location) for resources in filters]
    return all(found) if how == "all" else any(found)


def _matches_resources(
    resources: Mapping[str, Any], resource: Mapping[str, Any], request: _Request, location: str
) -> bool:
    """Return whether *resource* and *request* fit the filter *resources*: kinds, operations, names, labels and more."""
    name = str(value_at(resource, "metadata", "name") or value_at(resource, "metadata", "generateName") or "")
    namespace = name if resource.get("kind") == "Namespace" else str(value_at(resource, "metadata", "namespace") or "")
    names = [*resources.get("names", []), *([resources["name"]] if "name" in resources else [])]
    spaces, operations = resources.get("namespaces", []), resources.get("operations", [])
    is_selected = _matches_selector(resources.get("selector"), value_at(resource, "metadata", "labels") or {}, location)
    if (kinds := resources.get("kinds", [])) and not any(_is_kind(kind, resource, location) for kind in kinds):
        return False
    if operations and request.operation not in operations:
        return False
    if request.courses is not None and is_narrow(resources):
        return request.courses.either("names, namespaces or labels")
    return (
        is_selected
        and (not names or any(wildcard(str(pattern), name) for pattern in names))
        and (not spaces or any(wildcard(pattern, namespace) for pattern in spaces))
    )


def _is_kind(pattern: str, resource: Mapping[str, Any], location: str) -> bool:
    """Return whether the group, version and kind of *resource* fit *pattern*, an entry of ``kinds``."""
    group, _, version = str(resource.get("apiVersion", "")).rpartition("/")
    return all(map(wildcard, kind_of(pattern, location), (group, version, str(resource.get("kind")))))


def _matches_selector(selector: Any, labels: Mapping[str, str], location: str) -> bool:
    """Return whether *labels* fit a label selector; the selector None fits all."""
    if selector is None:
        return True
    if not isinstance(selector, Mapping) or not set(selector) <= {"matchLabels", "matchExpressions"}:
        raise UnsupportedError(f"{location}: a selector has matchLabels and matchExpressions.")
    expected = selector.get("matchLabels") or {}
    by_label = all(
        any(wildcard(key, name) and wildcard(str(value), str(found)) for name, found in labels.items())
        for key, value in expected.items()
    )
    return by_label and all(
        _matches_expression(one, labels, location) for one in selector.get("matchExpressions") or []
    )


def _matches_expression(requirement: Any, labels: Mapping[str, str], location: str) -> bool:
    """Return whether *labels* fit one matchExpressions entry; raises UnsupportedError for other operators."""
    key, operator, values = (value_at(requirement, name) for name in ("key", "operator", "values"))
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if operator == "In" and isinstance(values, list):
        return labels.get(key) in values
    if operator == "NotIn" and isinstance(values, list):
        return labels.get(key) not in values
    raise UnsupportedError(
        f"{location}: the selector's operator {operator!r} is none of In, NotIn, Exists, DoesNotExist."
    )
