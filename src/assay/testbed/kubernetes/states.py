"""Waiting for a state of an API object: what stands at a path of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import OperationError
from assay.model.cluster import ObjectState
from assay.testbed.kubernetes.api import KINDS, Api
from assay.testbed.kubernetes.names import Names

LOOK_EVERY_S = 0.5


def found_at(item: Any, path: str) -> Any:
    """Return what stands at the dotted *path* of *item*, None when nothing does.

    A part of a list is named by its type, its name or its number: ``status.conditions.Ready.status``.
    """
    for key in path.split("."):
        if isinstance(item, Mapping):
            item = item.get(key)
        elif isinstance(item, Sequence) and not isinstance(item, str):
            item = _part(item, key)
        else:
            return None
    return item


def _part(items: Sequence[Any], key: str) -> Any:
    if key.isdigit():
        return items[int(key)] if int(key) < len(items) else None
    named = (one for one in items if isinstance(one, Mapping) and key in (one.get("type"), one.get("name")))
    return next(named, None)


def await_state(api: Api, state: ObjectState, names: Names) -> None:
    """Wait until *state* holds; raises OperationError with what stands there instead."""
    place = (state.namespace or names.namespace) if KINDS[state.kind][2] else None
    name, wanted = str(names.fill(state.name)), names.fill(state.equals)
    deadline = time.monotonic() + state.within_s
    while ((seen := found_at(api.get(state.kind, name, place), state.path)) == wanted) is state.differs:
        if time.monotonic() > deadline:
            words = "anything but " if state.differs else ""
            raise OperationError(
                f"{state.kind} {name}: {state.path} is {seen!r} after {state.within_s:g} s, not {words}{wanted!r}."
            )
        time.sleep(LOOK_EVERY_S)
