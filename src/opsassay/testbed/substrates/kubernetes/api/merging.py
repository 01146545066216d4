"""What patches make of objects: merge patches as RFC 7396 has them, strategic ones as far as they are used here."""

from __future__ import annotations

import copy
from typing import Any


def merge_patch(target: Any, patch: Any) -> Any:
    """Return *target* after the JSON merge patch *patch* (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    target = copy.deepcopy(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = merge_patch(target.get(name), value)
    return target


def strategic(target: Any, patch: Any) -> Any:
    """Return *target* after a strategic merge *patch*: lists of named objects merge by name, ``$patch`` replaces."""
    if isinstance(patch, dict) and isinstance(target, dict):
        if patch.get("$patch") == "replace":
            return {key: value for key, value in patch.items() if key != "$patch"}
        result = copy.deepcopy(target)
        for key, value in patch.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = strategic(result.get(key), value)
        return result
    if isinstance(patch, list) and isinstance(target, list) and _merges_by_name(patch) and all(map(_has_name, target)):
        if any(one.get("$patch") == "replace" for one in patch):
            return [one for one in patch if "$patch" not in one]
        named = {one["name"]: one for one in target}
        changed = {one["name"]: strategic(named.get(one["name"]), one) for one in patch if _has_name(one)}
        return list({**named, **changed}.values())
    return copy.deepcopy(patch)


def _merges_by_name(patch: list[Any]) -> bool:
    """Return whether each item of the list *patch* has a name or is a $patch instruction."""
    return all(_has_name(one) or (isinstance(one, dict) and "$patch" in one) for one in patch)


def _has_name(value: Any) -> bool:
    """Return whether *value* is an object whose name is text."""
    return isinstance(value, dict) and isinstance(value.get("name"), str)
