"""Kyverno policies of the declared subset, read from files; what is outside of it raises UnsupportedError.

Of the subset are ``validate`` rules with one of ``pattern``, ``anyPattern``, ``deny`` and ``foreach``, ``match`` and
``exclude`` by kinds, names, namespaces, label selectors and operations, and ``preconditions``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from opsassay.evals.compliance.kyverno.documents import UnsupportedError, documents, value_at
from opsassay.evals.compliance.kyverno.patterns import require_literal_keys

KINDS = ("ClusterPolicy", "Policy")
MAX_RULES, MAX_CONDITIONS, MAX_TOTAL = 200, 500, 512 * 2**10
"""Limits on all policies together, so that judging them ends."""
VERSIONS = ("kyverno.io/v1", "kyverno.io/v2beta1")
_BOOLEAN = (True, False)
_ACTIONS = ("Audit", "Enforce", "audit", "enforce")
_DOCUMENT = {"apiVersion", "kind", "metadata", "spec", "status"}
_ASSIGNED = {"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"}
"""Metadata fields that a cluster itself sets."""
_METADATA = {"name", "namespace", "labels", "annotations", *_ASSIGNED}
_SPEC = {
    "validationFailureAction", "background", "failurePolicy", "rules", "admission", "emitWarning", "webhookTimeoutSeconds",
    "schemaValidation", "useServerSideApply",
}  # fmt: skip
_VALUES: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("background", "admission", "emitWarning", "schemaValidation", "useServerSideApply", "allowExistingViolations"),
        _BOOLEAN,
    ),
    "failurePolicy": ("Fail", "Ignore"),
    "webhookTimeoutSeconds": tuple(range(1, 31)),
    "validationFailureAction": _ACTIONS,
    "failureAction": _ACTIONS[:2],
}
"""Allowed values of keys."""
CHECKS = ("pattern", "anyPattern", "deny", "foreach")
_RULE = {"name", "match", "exclude", "validate", "preconditions"}
_VALIDATE = {"message", "failureAction", "allowExistingViolations", *CHECKS}
_FILTER = {"kinds", "name", "names", "namespaces", "selector", "operations"}
_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?|\*")
_PLAIN = re.compile(r"[A-Za-z0-9.:*?_-]*")
AUTOGEN = "pod-policies.kyverno.io/autogen-controllers"
_ABOUT = ("title", "category", "severity", "subject", "description", "minversion")
_NOTES = {
    AUTOGEN,
    "kyverno.io/kyverno-version",
    "kyverno.io/kubernetes-version",
    *(f"policies.kyverno.io/{one}" for one in _ABOUT),
}
"""Annotations of Kyverno that are read here, or have no effect."""
REQUESTS = ("CREATE", "UPDATE", "DELETE", "CONNECT")
CONTROLLERS = ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet", "CronJob")


@dataclass(frozen=True)
class KyvernoRule:
    """One rule: its *body* as in the file, whether it is *enforced*, and the pod *controllers* it extends to."""

    name: str
    body: Mapping[str, Any]
    enforced: bool
    controllers: tuple[str, ...] = ()


@dataclass(frozen=True)
class KyvernoPolicy:
    """One policy: its name, whole *document* and rules; *namespace* if it applies to that one only."""

    kind: str
    name: str
    namespace: str | None
    document: Mapping[str, Any]
    rules: tuple[KyvernoRule, ...]

    @property
    def gap(self) -> str | None:
        """The sentence on a spec field that lets violations through whatever the rules say, None without one."""
        spec = self.document["spec"]
        if spec.get("admission") is False:
            return "admission is false, so that nothing is asked of what is created or changed"
        if spec.get("background") is False:
            return "background is false, so that what is there already is not looked at"
        if spec.get("failurePolicy") == "Ignore":
            return "failurePolicy is Ignore, so that all is let in while Kyverno does not answer"
        if self.namespace is not None:
            return f"a Policy is for the namespace {self.namespace} alone"
        return None

    @property
    def exemptions(self) -> set[str]:
        """JSON texts of all that exempts objects: the gap, narrow match filters, excludes and preconditions."""
        found: list[Any] = [self.gap] if self.gap else []
        for rule in self.rules:
            _, filters = filters_of(rule.body["match"], "match")
            found += [{"match": one} for one in filters if is_narrow(one)]
            found += [{key: rule.body[key]} for key in ("exclude", "preconditions") if rule.body.get(key)]
            loops = rule.body["validate"].get("foreach")
            found += [{"preconditions": one["preconditions"]} for one in loops or [] if one.get("preconditions")]
        return {json.dumps(one, sort_keys=True, default=str) for one in found}

    @property
    def identity(self) -> tuple[str, str, str]:
        """The policy's (kind, namespace, name)."""
        return self.kind, self.namespace or "", self.name


def read_policies(files: Iterable[tuple[str, bytes]]) -> list[KyvernoPolicy]:
    """Return the policies in *files*, (name, YAML content) pairs; raises UnsupportedError at the first problem."""
    found: dict[tuple[str, str, str], KyvernoPolicy] = {}
    size = 0
    for name, data in files:
        size += len(data)
        if size > MAX_TOTAL:
            raise UnsupportedError(f"the files are larger than {MAX_TOTAL} bytes together.")
        for document in documents(data, name):
            policy = _read_policy(document, name)
            if policy.identity in found:
                raise UnsupportedError(f"{name}: the policy {policy.name} is there twice.")
            found[policy.identity] = policy
    if (count := _count_conditions([policy.document for policy in found.values()])) > MAX_CONDITIONS:
        raise UnsupportedError(f"there are {count} conditions, more than {MAX_CONDITIONS}.")
    if (count := sum(len(policy.rules) for policy in found.values())) > MAX_RULES:
        raise UnsupportedError(f"there are {count} rules, more than {MAX_RULES}.")
    return list(found.values())


def _count_conditions(value: Any) -> int:
    """Return the number of condition objects (maps with an operator) in *value*, at any depth."""
    if isinstance(value, list):
        return sum(map(_count_conditions, value))
    return ("operator" in value) + sum(map(_count_conditions, value.values())) if isinstance(value, Mapping) else 0


def _read_policy(document: Mapping[str, Any], file: str) -> KyvernoPolicy:
    """Return the policy of a YAML document from *file*; raises UnsupportedError outside the supported subset."""
    kind, version, name = document.get("kind"), document.get("apiVersion"), value_at(document, "metadata", "name")
    if kind not in KINDS or version not in VERSIONS:
        raise UnsupportedError(
            f"{file}: {kind or 'a document'} of {version} is no {' or '.join(KINDS)} of {' or '.join(VERSIONS)}."
        )
    if not isinstance(name, str) or not name:
        raise UnsupportedError(f"{file}: the policy has no metadata.name.")
    where = f"{file}: {name}"
    _require_known_keys(document, _DOCUMENT, where)
    _require_plain_metadata(document["metadata"], f"{where}: metadata")
    spec = _require_known_keys(document.get("spec"), _SPEC, f"{where}: spec")
    rules = spec.get("rules")
    if not isinstance(rules, list) or not rules:
        raise UnsupportedError(f"{where}: spec.rules is no list of rules.")
    read = tuple(_read_rule(rule, spec, where) for rule in rules)
    generated = _derived_controllers([rule.body for rule in read], document)
    read = tuple(replace(rule, controllers=generated) if _extends_to_controllers(rule.body) else rule for rule in read)
    if len({rule.name for rule in read}) < len(read):
        raise UnsupportedError(f"{where}: two rules have one name.")
    namespace = str(value_at(document, "metadata", "namespace") or "default") if kind == "Policy" else None
    return KyvernoPolicy(kind, name, namespace, document, read)


def _read_rule(rule_map: Any, spec: Mapping[str, Any], location: str) -> KyvernoRule:
    """Return the verified rule of *rule_map*, with the action of *spec* if it lacks one; raises UnsupportedError."""
    rule = _require_known_keys(rule_map, _RULE, f"{location}: a rule")
    name = rule.get("name")
    if not isinstance(name, str) or not name:
        raise UnsupportedError(f"{location}: a rule has no name.")
    location = f"{location}: {name}"
    validate = _require_known_keys(rule.get("validate"), _VALIDATE, f"{location}: validate")
    if sum(check in validate for check in CHECKS) != 1:
        raise UnsupportedError(f"{location}: validate has not exactly one of {', '.join(CHECKS)}.")
    require_literal_keys([validate.get("pattern"), validate.get("anyPattern")])
    filters_of(rule.get("match"), f"{location}: match")
    if rule.get("exclude"):
        filters_of(rule["exclude"], f"{location}: exclude")
    action = validate.get("failureAction", spec.get("validationFailureAction", "Audit"))
    return KyvernoRule(name, rule, str(action).lower() == "enforce")


def filters_of(match_block: Any, location: str) -> tuple[str, list[Mapping[str, Any]]]:
    """Return ("any" or "all", filters) of a match or exclude block; raises UnsupportedError with *location*."""
    block = _require_known_keys(match_block, {"any", "all", "resources"}, location)
    if len(block) != 1:
        raise UnsupportedError(f"{location} has not exactly one of any, all and resources.")
    ((how, content),) = block.items()
    entries = [block] if how == "resources" else content
    if not isinstance(entries, list) or not entries:
        raise UnsupportedError(f"{location}.{how} is no list of resources.")
    found = []
    for entry in entries:
        resources = _require_known_keys(
            _require_known_keys(entry, {"resources"}, location).get("resources"), _FILTER, f"{location}: resources"
        )
        if not resources:
            raise UnsupportedError(f"{location}: resources say nothing, which Kyverno takes for none.")
        for key in ("kinds", "names", "namespaces", "operations"):
            values = resources.get(key, [])
            if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
                raise UnsupportedError(f"{location}: {key} is no list of texts.")
        for kind in resources.get("kinds", []):
            kind_of(kind, location)
        if strange := set(resources.get("operations", [])) - set(REQUESTS):
            raise UnsupportedError(f"{location}: {min(strange)!r} is none of the operations {', '.join(REQUESTS)}.")
        for one in (*resources.get("names", []), *resources.get("namespaces", []), resources.get("name", "")):
            if not isinstance(one, str) or _PLAIN.fullmatch(one) is None:
                raise UnsupportedError(
                    f"{location}: {one!r} is no name with wildcards; an exclusion stands in exclude."
                )
        found.append(resources)
    return ("all" if how == "all" else "any"), found


def kind_of(selector: str, location: str) -> tuple[str, str, str]:
    """Return (group, version, kind) of *selector*, such as apps/v1/Deployment; "*": any. Raises UnsupportedError."""
    *before, last = selector.split("/")
    match [*before, *last.split(".")]:
        case [kind]:
            found = "*", "*", kind
        case [version, kind] if _VERSION.fullmatch(version):
            found = "*", version, kind
        case [group, version, kind] if not _VERSION.fullmatch(group):
            found = group, version, kind
        case _:
            kind = ""
    if not kind or kind[:1].islower():
        raise UnsupportedError(f"{location}: the kind {selector!r} names a subresource, which is not of the subset.")
    return found


def is_narrow(resources: Mapping[str, Any]) -> bool:
    """Return whether the filter *resources* selects by what an object's creator chooses: name, namespace or label."""
    given = [resources.get("selector"), *(resources.get(key) for key in ("names", "namespaces"))]
    given.append([resources["name"]] if resources.get("name") else [])
    return any(one and "*" not in one for one in given)


def _list_kinds(block: Any) -> list[str]:
    """Return the kinds in a match or exclude *block*; empty when it is None."""
    return [kind for one in filters_of(block, "match")[1] for kind in one.get("kinds", [])] if block else []


def _extends_to_controllers(rule: Mapping[str, Any]) -> bool:
    """Return whether Kyverno derives rules for controllers from this pod rule: any exclude block must name pods too."""
    meant, left_out = ({kind_of(kind, "")[2] for kind in _list_kinds(rule.get(key))} for key in ("match", "exclude"))
    return "Pod" in meant and (not left_out or "Pod" in left_out)


def _derived_controllers(rules: list[Mapping[str, Any]], document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the controller kinds to which Kyverno extends *rules* on pods: those that *document*, the policy, names.

    Empty if a rule selects by name or label, or lists Pod and other kinds, or if no rule lists an unversioned Pod or
    controller. Raises UnsupportedError if the policy asks for an unknown kind (kyverno/kyverno, pkg/autogen).
    """
    requested = value_at(document, "metadata", "annotations", AUTOGEN)
    for rule in rules:
        blocks = [rule["match"], *([rule["exclude"]] if rule.get("exclude") else [])]
        for one in (resources for block in blocks for resources in filters_of(block, "match")[1]):
            kinds = [kind_of(kind, "")[2] for kind in one.get("kinds", [])]
            if any(one.get(key) for key in ("name", "names", "selector")) or ("Pod" in kinds and len(kinds) > 1):
                return ()
    plain = {kind for rule in rules for key in ("match", "exclude") for kind in _list_kinds(rule.get(key))}
    if requested == "none" or not plain & {"Pod", *CONTROLLERS}:
        return ()
    if not requested:
        return CONTROLLERS
    named = tuple(part.strip() for part in str(requested).split(","))
    if strange := [one for one in named if one not in CONTROLLERS]:
        raise UnsupportedError(f"{AUTOGEN}: {strange[0]!r} is none of {', '.join(CONTROLLERS)}.")
    return named


def _require_plain_metadata(metadata: Mapping[str, Any], location: str) -> None:
    """Raise UnsupportedError for annotations or labels by which Kyverno could apply the policy in another way."""
    _require_known_keys(metadata, _METADATA, location)
    for part in ("labels", "annotations"):
        notes = metadata.get(part) or {}
        if not isinstance(notes, Mapping):
            raise UnsupportedError(f"{location}: {part} is no map.")
        for key in notes:
            domain = key.split("/")[0]
            if (domain == "kyverno.io" or domain.endswith(".kyverno.io")) and not (
                part == "annotations" and key in _NOTES
            ):
                raise UnsupportedError(f"{location}: {key} of {part} is not of the subset that is judged here.")


def _require_known_keys(block: Any, known: set[str], location: str) -> Mapping[str, Any]:
    """Return *block* as a map; raises UnsupportedError when it is none, or has a key that is not in *known*."""
    if not isinstance(block, Mapping):
        raise UnsupportedError(f"{location} is no map.")
    if strange := sorted(set(map(str, block)) - known):
        raise UnsupportedError(f"{location}: {strange[0]} is not of the subset that is judged here.")
    for key in sorted(set(block) & set(_VALUES)):
        if not any(block[key] is one or (block[key] == one and type(block[key]) is type(one)) for one in _VALUES[key]):
            allowed = " nor ".join(map(str, _VALUES[key][:4]))
            raise UnsupportedError(f"{location}: {key} is {block[key]!r}, which is neither {allowed}.")
    return block
