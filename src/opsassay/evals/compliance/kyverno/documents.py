"""Reads untrusted YAML: with size limits, without anchors, tags and repeated keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from opsassay.core.schema.files import YAML_LOADER


class UnsupportedError(Exception):
    """A policy is invalid or outside of the supported subset; the message is one sentence."""


MAX_BYTES = 256 * 2**10
MAX_DEPTH = 60
MAX_DIGITS = 100
"""Most characters of a number."""
_PLAIN = "tag:yaml.org,2002:"
_NUMBERS = (f"{_PLAIN}int", f"{_PLAIN}float")


def documents(data: bytes, name: str) -> list[dict[str, Any]]:
    """Return the documents of the YAML content *data*, each a map; raises UnsupportedError with *name* and line."""
    kept = plain_values(data, name)
    if not all(isinstance(one, dict) for one in kept):
        raise UnsupportedError(f"{name} holds something else than objects of Kubernetes.")
    return kept


def plain_values(data: bytes, name: str) -> list[Any]:
    """Return the non-empty documents of the YAML content *data*, of any type; raises UnsupportedError with *name*."""
    if len(data) > MAX_BYTES:
        raise UnsupportedError(f"{name} is larger than {MAX_BYTES} bytes.")
    try:
        text = data.decode("utf-8")
        _require_bounded(text, name)
        found = []
        for node in yaml.compose_all(text, Loader=YAML_LOADER):
            _require_plain(node, name)
            found.append(yaml.constructor.SafeConstructor().construct_document(node))
    except UnicodeDecodeError as error:
        raise UnsupportedError(f"{name} is no UTF-8 text.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UnsupportedError(f"{name} is no YAML: {' '.join(str(error).split())[:300]}.") from error
    return [one for one in found if one is not None]


def _require_bounded(text: str, name: str) -> None:
    """Raise UnsupportedError with file *name* and line for YAML anchors, language-specific tags and deep nesting."""
    depth = 0
    for event in yaml.parse(text, Loader=YAML_LOADER):
        where = f"{name}, line {event.start_mark.line + 1}" if event.start_mark else name
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise UnsupportedError(f"{where}: anchors and aliases are not read; write it out.")
        tag = getattr(event, "tag", None)
        if tag and not str(tag).startswith(_PLAIN):
            raise UnsupportedError(f"{where}: the tag {tag} is not read; write plain YAML.")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise UnsupportedError(f"{where}: nests deeper than {MAX_DEPTH}.")


def _require_plain(node: yaml.Node | None, name: str) -> None:
    """Raise UnsupportedError with file *name* for duplicate or non-text keys and numbers over `MAX_DIGITS` digits."""
    todo = [node] if node is not None else []
    while todo:
        one = todo.pop()
        if isinstance(one, yaml.ScalarNode) and one.tag in _NUMBERS and len(one.value) > MAX_DIGITS:
            raise UnsupportedError(f"{name}, line {one.start_mark.line + 1}: a number of {len(one.value)} characters.")
        if isinstance(one, yaml.SequenceNode):
            todo += one.value
        if isinstance(one, yaml.MappingNode):
            keys, seen = [key.value for key, _ in one.value], set[str]()
            line = one.start_mark.line + 1
            if not all(isinstance(key, str) for key in keys):
                raise UnsupportedError(f"{name}, line {line}: a key is no text.")
            for key in keys:
                if key in seen:
                    raise UnsupportedError(f"{name}, line {line}: {key!r} stands twice.")
                seen.add(key)
            todo += [node for pair in one.value for node in pair]


def value_at(value: Any, *path: str) -> Any:
    """Return the value at *path* in nested maps, None where a key is missing."""
    for step in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value
