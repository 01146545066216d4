"""The same objects under a prefix, and without it again: what a server adds that another making would have otherwise goes.

Random parts of names, identities and times become stable ones that follow from the names of owners alone, so that two
objects which differ in one field read the same in all others.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsassay.testbed.substrates.kubernetes.api.client import Object
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS, version_in
from opsassay.testbed.substrates.kubernetes.api.owners import OWNER, this_process

MARK = "opsassay/read-back"
"""Label of everything that is made for a moment; its value is the prefix."""
Key = tuple[str, str, str]
"""Kind, namespace ('' for none) and name."""
HASHES = ("pod-template-hash", "controller-revision-hash")
"""Labels whose values follow from the whole template."""
_DROPPED = ("managedFields", "resourceVersion", "creationTimestamp", "selfLink", "generation", "uid")
_TOKEN_VOLUME = re.compile(r"\b(default-token|kube-api-access)-[a-z0-9]{5}\b")
_IDS = uuid.UUID("0a3c9d1e-63a4-4a1c-9f7d-5f0d2b7c4e11")


@dataclass(frozen=True)
class ReadObject:
    """An object as a server has it, and the *root* that it stands for: itself, or whose controllers made it."""

    root: Key
    body: Object


def key_of(item: Mapping[str, Any]) -> Key:
    """Return kind, namespace and name of *item*."""
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace") or "", metadata["name"]


def ours(prefix: str) -> dict[str, dict[str, str]]:
    """Return labels and annotations of what is made under *prefix*."""
    return {"labels": {MARK: prefix}, "annotations": {OWNER: this_process()}}


def prefixed(one: Mapping[str, Any], prefix: str) -> Object:
    """Return *one* in the namespace that *prefix* gives its own, or under such a name and labelled, where it has none."""
    body: Object = json.loads(json.dumps(dict(one)))
    metadata = body["metadata"]
    if KINDS[body["kind"]][2]:
        metadata["namespace"] = f"{prefix}-{metadata.get('namespace') or 'default'}"
    else:
        metadata["name"] = f"{prefix}-{metadata['name']}"
        for field, added in ours(prefix).items():
            metadata[field] = {**(metadata.get(field) or {}), **added}
    return body


def annotations_in(value: Any) -> frozenset[str]:
    """Return the keys of all annotations anywhere in *value*."""
    if isinstance(value, Mapping):
        own = (
            frozenset(value["annotations"] or ()) if isinstance(value.get("annotations"), Mapping) else frozenset[str]()
        )
        return own.union(*map(annotations_in, value.values()))
    return frozenset[str]().union(*map(annotations_in, value)) if isinstance(value, list) else frozenset()


def plain(
    prefix: str, given: Sequence[Object], made: Sequence[Object], annotations: frozenset[str] = frozenset()
) -> list[ReadObject]:
    """Return the objects that were *given* to a server and those that it *made* of them, as if nothing were special.

    All are as they were read; in *made* children stand before grandchildren. The *prefix* is taken off; states,
    nodes, times and versions go; random parts of names and identities become those that their owners' names give. Of
    annotations those of these keys stay: admission writes into others what it thinks of an object.
    """
    names = {f"{prefix}-": ""}
    keys = {one["metadata"].get("uid"): _without(key_of(one), prefix) for one in given}
    roots = dict(keys)
    children: dict[str, list[Object]] = {}
    for one in made:
        children.setdefault(controller_of(one) or "", []).append(one)
    for owner, group in children.items():
        for number, one in enumerate(sorted(group, key=_content)):
            uid, (kind, namespace, name) = one["metadata"]["uid"], _without(key_of(one), prefix)
            suffix = _suffix(keys[owner], kind, name, number)
            keys[uid], roots[uid] = (kind, namespace, f"{keys[owner][2]}-{suffix}"), roots[owner]
            names[name] = keys[uid][2]
            for label in HASHES:
                if old := ((one["metadata"].get("labels") or {}).get(label) or "").rpartition("-")[2]:
                    names.setdefault(old, suffix if kind == "ReplicaSet" else _stable(label, keys[owner][2]))
    names |= {uid: _identity(key) for uid, key in keys.items() if uid}
    rename = _renaming(names)
    return [
        ReadObject(roots[uid], rename(_cleaned(one, keys[uid], annotations)))
        for one in (*given, *sorted(made, key=lambda one: keys[one["metadata"]["uid"]]))
        for uid in [one["metadata"].get("uid")]
    ]


def controller_of(item: Mapping[str, Any]) -> str | None:
    """Return the uid of what controls *item*, None when nothing does."""
    return next((one["uid"] for one in item["metadata"].get("ownerReferences") or () if one.get("controller")), None)


def _without(key: Key, prefix: str) -> Key:
    kind, namespace, name = key
    return (kind, namespace.removeprefix(f"{prefix}-"), name if namespace else name.removeprefix(f"{prefix}-"))


def _suffix(owner: Key, kind: str, name: str, number: int) -> str:
    """Return what follows the owner's name in that of its child: the number of a StatefulSet's pod, else a stable word."""
    if owner[0] == "StatefulSet":
        return name.rpartition("-")[2]
    return _stable(kind, owner[2], str(number))[: 10 if kind == "ReplicaSet" else 5]


def _stable(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:10]


def _identity(key: Key) -> str:
    return str(uuid.uuid5(_IDS, "/".join(key)))


def _content(item: Object) -> str:
    """Return what siblings are ordered by: what they are, not what they happen to be called."""
    spec = {field: value for field, value in (item.get("spec") or {}).items() if field != "nodeName"}
    return _TOKEN_VOLUME.sub(r"\1", json.dumps(spec, sort_keys=True))


def _cleaned(item: Object, key: Key, annotations: frozenset[str]) -> Object:
    """Return a copy of *item* without what is another one each time it is made."""
    body: Object = json.loads(json.dumps(item))
    metadata = {field: value for field, value in body["metadata"].items() if field not in _DROPPED}
    labels = {one: value for one, value in (metadata.pop("labels", None) or {}).items() if one != MARK}
    noted = {one: value for one, value in (metadata.pop("annotations", None) or {}).items() if one in annotations}
    metadata |= ({"labels": labels} if labels else {}) | ({"annotations": noted} if noted else {})
    for reference in metadata.get("ownerReferences") or ():
        reference["apiVersion"] = version_in(KINDS[reference["kind"]][0])
    body = {field: value for field, value in body.items() if field not in ("status", "kind", "apiVersion", "metadata")}
    if key[0] == "Pod":
        body["spec"].pop("nodeName", None)
    head = {"apiVersion": version_in(KINDS[key[0]][0]), "kind": key[0]}
    return {**head, "metadata": {**metadata, "uid": _identity(key)}, **body}


def _renaming(names: Mapping[str, str]) -> Callable[[Any], Any]:
    """Return what puts new words for the old ones of *names* into every text of a value, longer ones first."""
    pattern = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))

    def rename(value: Any) -> Any:
        if isinstance(value, str):
            return _TOKEN_VOLUME.sub(r"\1-x7k2p", pattern.sub(lambda found: names[found[0]], value))
        if isinstance(value, dict):
            return {key: rename(one) for key, one in value.items()}
        return [rename(one) for one in value] if isinstance(value, list) else value

    return rename
