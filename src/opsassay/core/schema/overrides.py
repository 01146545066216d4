"""Merges settings in layers: defaults < file < ``-c KEY=VALUE`` < option."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import yaml

from opsassay.core.errors import ConfigError
from opsassay.core.schema.base import Written
from opsassay.core.schema.files import parse_yaml

W = TypeVar("W", bound=Written)


def merge_layers(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested *layers* of settings, later values win; ConfigError where one has a mapping and another a value."""
    found: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if not isinstance(value, Mapping):
                found[key] = value
            elif isinstance(present := found.get(key, {}), Mapping):
                found[key] = merge_layers(present, value)
            else:
                raise ConfigError(f"{key} is a value, not a group of settings.")
    return found


def read_change(change: str, example: str) -> tuple[str, dict[str, Any]]:
    """Parse ``key.sub=value`` into (``key.sub``, {key: {sub: value}}); raises ConfigError that shows *example*."""
    key, sign, text = change.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"-c {change}: expected KEY=VALUE, as in -c {example}.")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"-c {change}: the value is not valid YAML; put it in quotes.") from error
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return key.strip(), value


def with_changes(model: type[W], file: Mapping[str, Any], changes: Sequence[str], *, example: str) -> W:
    """Return the settings *file* with *changes* (``key.sub=value``) as *model*; raises ConfigError that shows *example*."""
    layers: list[Mapping[str, Any]] = [file]
    for change in changes:
        key, layer = read_change(change, example)
        layers.append(layer)
        try:
            whole = merge_layers(*layers)
        except ConfigError as error:
            raise ConfigError(f"-c {key}: {error}") from error
        parse_yaml(yaml.safe_dump(whole), model, f"-c {key}", lines=False)
    return model.model_validate(merge_layers(*layers))


def layer_of(changes: Iterable[str], example: str) -> dict[str, Any]:
    """Return *changes* (each ``key.sub=value``) merged into one nested mapping; raises ConfigError that shows *example*."""
    return merge_layers(*(read_change(change, example)[1] for change in changes))
