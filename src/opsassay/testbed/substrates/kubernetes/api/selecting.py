"""Which objects a list is meant to have: selectors of labels and of fields, in the syntax that kubectl passes on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from opsassay.testbed.substrates.kubernetes.api.statuses import StatusError, failure

Selects = Callable[[Mapping[str, Any]], bool]

FIELDS: dict[str, tuple[str, ...]] = {
    "Pod": (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
        "status.phase", "status.podIP",
    ),
    "Secret": ("type",),
    "Namespace": ("status.phase",),
    "Node": ("spec.unschedulable",),
    "Job": ("status.successful",),
    "ReplicaSet": ("status.replicas",),
    "ReplicationController": ("status.replicas",),
    "Event": (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.fieldPath", "reason", "source", "type",
    ),
}  # fmt: skip
"""The fields that a real server selects by, beside the name and the namespace."""

_KEY = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"[-A-Za-z0-9_.]*"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<none>!)\s*(?P<absent>{_KEY})|(?P<key>{_KEY})\s*(?:(?P<sign>==|=|!=)\s*(?P<value>{_VALUE})"
    rf"|\s(?P<word>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)


def by_labels(selector: str) -> Selects:
    """Return a function from object to whether it matches the label *selector*; raises StatusError (400)."""
    requirements = list(_parse_requirements(selector))

    def selects(item: Mapping[str, Any]) -> bool:
        labels = item["metadata"].get("labels")
        return all(holds(labels if isinstance(labels, Mapping) else {}) for holds in requirements)

    return selects


def selector_of(selector: Mapping[str, Any]) -> str:
    """Return the label *selector* of an object (``matchLabels``, ``matchExpressions``) in the syntax of lists."""
    forms = {
        "In": "{key} in ({values})",
        "NotIn": "{key} notin ({values})",
        "Exists": "{key}",
        "DoesNotExist": "!{key}",
    }
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    return ",".join(
        [
            *parts,
            *(
                forms[one["operator"]].format(key=one["key"], values=",".join(one.get("values") or ()))
                for one in selector.get("matchExpressions") or ()
            ),
        ]
    )


def by_fields(selector: str, kind: str) -> Selects:
    """Return a function from object of *kind* to whether it matches the field *selector*; raises StatusError (400)."""
    requirements = []
    for part in filter(None, selector.split(",")):
        found = re.fullmatch(r"\s*([A-Za-z.]+)\s*(==|=|!=)\s*([^\s=!]*)\s*", part)
        if found is None:
            raise StatusError(failure(400, f"invalid selector: {part!r}; can't understand it"))
        path, sign, value = found.groups()
        if path not in ("metadata.name", "metadata.namespace", *FIELDS.get(kind, ())):
            raise StatusError(failure(400, f"field label not supported: {path}"))
        requirements.append((path.split("."), sign != "!=", value))
    return lambda item: all((_field_text(item, path) == value) is equal for path, equal, value in requirements)


def _parse_requirements(selector: str) -> Iterator[Selects]:
    """Yield a function from labels to bool for each requirement of *selector*; raises StatusError (400)."""
    position = 0
    while position < len(selector.rstrip()):
        found = _REQUIREMENT.match(selector, position)
        if found is None:
            raise StatusError(failure(400, f"unable to parse requirement: {selector[position:][:80]!r}"))
        yield _make_requirement(found)
        position = found.end()


def _make_requirement(match: re.Match[str]) -> Selects:
    """Return the function from labels to bool for one requirement, a *match* of the pattern."""
    key, values = match["key"], {one.strip() for one in (match["values"] or "").split(",")}
    if match["none"]:
        absent = match["absent"]
        return lambda labels: absent not in labels
    if match["word"] == "in":
        return lambda labels: key in labels and str(labels[key]) in values
    if match["word"] == "notin":
        return lambda labels: key not in labels or str(labels[key]) not in values
    if match["sign"] is None:
        return lambda labels: key in labels
    value = match["value"]
    if match["sign"] == "!=":
        return lambda labels: str(labels.get(key)) != value or key not in labels
    return lambda labels: key in labels and str(labels[key]) == value


def _field_text(item: Any, path: list[str]) -> str:
    """Return the field at *path* in *item* as text, "" when it is missing."""
    for name in path:
        item = item.get(name) if isinstance(item, Mapping) else None
    if isinstance(item, bool):
        return str(item).lower()
    return "" if item is None else str(item)
