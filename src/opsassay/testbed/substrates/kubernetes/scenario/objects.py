"""Objects as a scenario writes of them: those that it makes, the changes that it asks for, the states that it waits for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from opsassay.core.errors import OperationError, RefusedError
from opsassay.core.schema.cluster import ObjectChange, ObjectState, OnCluster
from opsassay.testbed.substrates.kubernetes.actuators.changes import Change
from opsassay.testbed.substrates.kubernetes.api.client import PATCH_TYPES, Api, Object
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS
from opsassay.testbed.substrates.kubernetes.scenario.names import OpenNames

LOOK_EVERY_S = 0.5


def manifest(api: Api, change: ObjectChange, names: OpenNames) -> Object:
    """Return the manifest of the object that *change* creates, with placeholders replaced by *names*."""
    body = names.fill(change.create or {})
    metadata = {**body.pop("metadata", {}), "name": names.fill(change.name)}
    if KINDS[change.kind][2]:
        metadata["namespace"] = change.namespace or names.namespace
    return {"apiVersion": api.version_of(change.kind), "kind": change.kind, "metadata": metadata, **body}


def changes_of(api: Api, object_changes: Sequence[ObjectChange], names: OpenNames) -> list[Change]:
    """Return *object_changes*, filled with *names*, as changes that can be undone, by dry runs; raises RefusedError."""
    found = []
    for one in object_changes:
        name, place = str(names.fill(one.name)), (one.namespace or names.namespace) if KINDS[one.kind][2] else None
        if one.create is not None:
            found.append(Change(one.kind, name, place, create=manifest(api, one, names)))
            continue
        standing = api.get(one.kind, name, place)
        if standing is None:
            raise RefusedError(f"There is no {one.kind} {name} to change.")
        desired = api.request(
            "PATCH", api.path_of(one.kind, place, name), names.fill(one.patch), query={"dryRun": "All"},
            content_type=PATCH_TYPES["strategic"],
        )  # fmt: skip
        found.append(
            Change(one.kind, name, place, patch=_difference(_written_fields(standing), _written_fields(desired)))
        )
    return found


def broken_nodes(block: OnCluster, names: OpenNames) -> frozenset[str]:
    """Return the worker nodes that a scenario's *block* breaks or changes, where no undo may run; empty if all are."""
    named = [names.node(one.node) for one in block.nodes]
    named += [str(names.fill(one.name)) for one in block.changes if one.kind == "Node"]
    broken = frozenset(named) & frozenset(names.workers)
    return broken if len(broken) < len(names.workers) else frozenset()


def _written_fields(item: Object) -> Object:
    """Return *item* without its status and the metadata that the server sets."""
    kept = {key: item["metadata"][key] for key in ("labels", "annotations") if key in item["metadata"]}
    return {**{key: value for key, value in item.items() if key not in {"metadata", "status"}}, "metadata": kept}


def _difference(present: Any, desired: Any) -> Any:
    """Return the merge patch (RFC 7396) that changes *present* into *desired*; lists are replaced as a whole."""
    if not isinstance(present, dict) or not isinstance(desired, dict):
        return desired
    gone = {key: None for key in present if key not in desired}
    return gone | {
        key: _difference(present.get(key), value) for key, value in desired.items() if present.get(key) != value
    }


def found_at(item: Any, path: str) -> Any:
    """Return the value at the dotted *path* in *item*, None when there is none.

    An item of a list is selected by its type, name or number: ``status.conditions.Ready.status``.
    """
    for key in path.split("."):
        if isinstance(item, Mapping):
            item = item.get(key)
        elif isinstance(item, Sequence) and not isinstance(item, str):
            item = _item_of_list(item, key)
        else:
            return None
    return item


def _item_of_list(items: Sequence[Any], key: str) -> Any:
    """Return the item of *items* with the index, type or name *key*, None without one."""
    if key.isdigit():
        return items[int(key)] if int(key) < len(items) else None
    named = (one for one in items if isinstance(one, Mapping) and key in (one.get("type"), one.get("name")))
    return next(named, None)


def await_state(api: Api, state: ObjectState, names: OpenNames) -> None:
    """Wait until *state*, filled with *names*, holds, as long as it says; then raise OperationError with the value."""
    place = (state.namespace or names.namespace) if KINDS[state.kind][2] else None
    name, desired = str(names.fill(state.name)), names.fill(state.equals)
    deadline = time.monotonic() + state.within_s
    while ((seen := found_at(api.get(state.kind, name, place), state.path)) == desired) is state.differs:
        if time.monotonic() > deadline:
            words = "anything but " if state.differs else ""
            raise OperationError(
                f"{state.kind} {name}: {state.path} is {seen!r} after {state.within_s:g} s, not {words}{desired!r}."
            )
        time.sleep(LOOK_EVERY_S)
