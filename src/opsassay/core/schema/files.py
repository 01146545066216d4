"""Reads YAML files that people write into models; every error names file, line and field."""

from __future__ import annotations

from collections import deque
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from opsassay.core.errors import ConfigError, UserError, nearest
from opsassay.core.schema.base import Written
from opsassay.core.schema.validation_errors import described, in_words, place_of

MAX_CHARACTERS, MAX_DEPTH, MAX_NODES = 2_000_000, 60, 200_000
"""The limits of a file that people write: characters, levels, and values with all aliases expanded."""

YAML_LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of libyaml, about ten times as fast as the Python one, which is used without libyaml."""

W = TypeVar("W", bound=Written)


def packaged_yaml(package: str, name: str) -> Any:
    """Return the parsed content of the YAML file *name* in the folder of the Python *package*."""
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=YAML_LOADER)  # noqa: S506 - one of the two safe ones


def load_yaml(path: Path, model: type[W]) -> W:
    """Read the YAML file at *path* as *model*; raises ConfigError with line and field, UserError if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror or error}; check the path.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8.") from error
    return parse_yaml(text, model, str(path))


def parse_yaml(text: str, model: type[W], name: str, *, lines: bool = True) -> W:
    """Parse the YAML *text* as *model*; raises ConfigError that begins with the file *name* and, with *lines*, the line."""
    require_small(text, name)
    try:
        node = yaml.compose(text, Loader=YAML_LOADER)
        if _count_expanded_values(node) > MAX_NODES:
            raise ConfigError(
                f"{name}: its aliases and merges expand to more than {MAX_NODES} values; write it plainly."
            )
        _refuse_repeated_keys(node, name)
        data = yaml.load(text, Loader=YAML_LOADER)  # noqa: S506 - one of the two safe ones
    except yaml.MarkedYAMLError as found:
        error = _exact_error(text, found)
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{name}:{line}: not valid YAML: {error.problem}.") from found
    if not isinstance(data, dict):
        raise ConfigError(f"{name}:1: expected a mapping of settings, found {described(data)}.")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_describe_first_error(error, model, node if lines else None, name)) from error
    except UserError as error:
        raise ConfigError(f"{name}: {error}") from error


def require_small(text: str, name: str) -> None:
    """Raise ConfigError when the YAML *text* is too long, too deep or has a forbidden character; *name* is its file."""
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(f"{name}: longer than {MAX_CHARACTERS} characters; split it.")
    depth = 0
    try:
        for number, event in enumerate(yaml.parse(text, Loader=YAML_LOADER)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH or number > 4 * MAX_NODES:
                raise ConfigError(f"{name}: nested more than {MAX_DEPTH} levels, or too many values; write it flatter.")
            if isinstance(event, yaml.ScalarEvent) and "\0" in event.value:  # no name, path or word of a command has it
                line = f":{event.start_mark.line + 1}" if event.start_mark else ""
                raise ConfigError(f"{name}{line}: holds the character #x0000, which no value may have.")
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"{name}: holds the character #x{error.character:04x}, which YAML does not allow.") from error
    except UnicodeEncodeError as error:  # half of a pair, in a string that did not come from a file
        raise ConfigError(
            f"{name}: holds the character #x{ord(text[error.start]):04x}, which YAML does not allow."
        ) from error
    except yaml.MarkedYAMLError:
        return  # whoever reads it says what is wrong with it


def _exact_error(text: str, libyaml_error: yaml.MarkedYAMLError) -> yaml.MarkedYAMLError:
    """Parse *text* again by Python's YAML loader and return its error, which names the character; else *libyaml_error*."""
    try:
        deque(yaml.parse(text, Loader=yaml.SafeLoader), maxlen=0)
    except yaml.YAMLError as error:
        return error if isinstance(error, yaml.MarkedYAMLError) else libyaml_error
    return libyaml_error


def _count_expanded_values(node: yaml.Node | None) -> int:
    """Return how many values *node* has with every alias expanded; more than MAX_NODES for an alias within itself."""
    known: dict[int, int] = {}

    def size(of: yaml.Node) -> int:
        """Return the number of values in the node *of*, itself included, and store it in *known*."""
        if id(of) not in known:
            known[id(of)] = MAX_NODES + 1  # until it is known: an alias inside of what it names
            parts = [part for pair in of.value for part in pair] if isinstance(of, yaml.MappingNode) else of.value
            inner = parts if isinstance(of, yaml.CollectionNode) else ()
            known[id(of)] = 1 + sum(map(size, inner))
        return known[id(of)]

    return 0 if node is None else size(node)


def _describe_first_error(error: ValidationError, model: type[Written], node: yaml.Node | None, name: str) -> str:
    """Return "file:line: field: message" of the first problem in *error*, a misspelt key first, and the number of others.

    *name* is the file; *node* is its parsed YAML, for the line; None leaves the line out.
    """
    found = error.errors(include_url=False)
    # A misspelt key is also a missing one: the line that is there helps more than the one that is not.
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    location = place_of(first)
    field = ".".join(str(part) for part in location)
    place = f"{name}:{_find_line(node, location)}" if node is not None else name
    message = in_words(first)
    if first["type"] == "extra_forbidden":
        near = nearest(str(location[-1]), _list_allowed_keys(model, location))
        message += f"; did you mean {near!r}?" if near else ""
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    named = f"{field}: " if field and not name.endswith(f" {field}") else ""
    return f"{place}: {named}{message}{'' if message.endswith(('?', '.')) else '.'}{more}"


def where(path: Path, field: str) -> str:
    """Return ``file:line: field`` of the dotted *field* in the YAML file at *path*; of its parent if it is absent."""
    node = yaml.compose(path.read_text(encoding="utf-8"), Loader=YAML_LOADER)
    parts: list[Any] = [int(part) if part.isdigit() else part for part in field.split(".")]
    while parts and not _has_location(node, parts):
        parts.pop()
    return f"{path}:{_find_line(node, parts)}" + (f": {'.'.join(map(str, parts))}" if parts else "")


def _has_location(node: yaml.Node | None, location: list[Any]) -> bool:
    """Return whether the path of keys and indices *location* exists in the YAML *node*."""
    for part in location:
        if isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == str(part)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
        else:
            return False
    return node is not None


def _refuse_repeated_keys(root: yaml.Node | None, name: str) -> None:
    """Raise ConfigError, naming the file *name*, for a key twice in a mapping; YAML would silently keep the last."""
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):
            continue  # an alias leads to a node that was looked at
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            first: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if isinstance(key, yaml.ScalarNode) and key.value in first:
                    earlier = first[key.value]
                    raise ConfigError(
                        f"{name}:{line}: {key.value!r} is given twice, first in line {earlier}; keep one."
                    )
                first[str(key.value)] = line
                waiting.append(value)
        else:
            waiting += node.value


def _find_line(node: yaml.Node | None, location: list[Any]) -> int:
    """Return the line, from 1, of the path of keys and indices *location* in the YAML *node*, or of its deepest part."""
    line = 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            match = [(k, v) for k, v in node.value if k.value == str(part)]
            if not match:
                return line
            line, node = match[0][0].start_mark.line + 1, match[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


def _list_allowed_keys(model: type[Written], location: list[Any]) -> list[str]:
    """Return the keys that *model* allows next to the last part of *location*, a path of keys and indices."""
    current: Any = model
    for part in location[:-1]:
        fields = getattr(current, "model_fields", {})
        annotation = fields[part].annotation if part in fields else current
        current = next((a for a in _list_model_classes(annotation)), current)
    return list(getattr(current, "model_fields", {}))


def _list_model_classes(annotation: Any) -> list[Any]:
    """Return the pydantic models within the type *annotation*: [M] for ``list[M] | None``."""
    if hasattr(annotation, "model_fields"):
        return [annotation]
    return [found for argument in getattr(annotation, "__args__", ()) for found in _list_model_classes(argument)]
