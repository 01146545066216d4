"""The linter of the SRE agent: it checks a tool call before it runs and says how to correct it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from opsassay.core.errors import nearest
from opsassay.core.schema.tool_session import ToolSpec

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_AIMED_AT = ("target", "service", "source")
_WHERE_ALSO = frozenset({"all", "names"})


def lint(tool: str, arguments: Mapping[str, Any], specs: Mapping[str, ToolSpec], names: Collection[str]) -> str | None:
    """Return why a call of *tool* is invalid by *specs*, or targets none of *names* (services, objects); None if valid."""
    if tool not in specs:
        near = nearest(tool, specs)
        return f"there is no tool {tool!r}" + (
            f"; did you mean {near!r}?" if near else f"; there are {', '.join(specs)}."
        )
    schema = specs[tool].parameters
    known: Mapping[str, Any] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in arguments:
            return f"{tool} needs the argument {name!r}."
    for name, value in arguments.items():
        if name not in known:
            near = nearest(name, known)
            return f"{tool} has no argument {name!r}" + (f"; did you mean {near!r}?" if near else ".")
        if (problem := _schema_error(value, known[name])) is not None:
            return f"{name} of {tool} {problem}."
        if name in _AIMED_AT and names and not _is_known_name(str(value), names):
            near = nearest(str(value), names)
            return f"{name}: the system has no {value!r}" + (f"; did you mean {near!r}?" if near else "; see `ps`.")
    return None


def _is_known_name(name: str, names: Collection[str]) -> bool:
    """Whether *name* is in *names*, is "all" or "names", or is one of *names* with "-" and a number appended."""
    stem, _, index = name.rpartition("-")
    return name in names or name in _WHERE_ALSO or (stem in names and index.isdigit())


def _schema_error(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return why *value* does not fit *schema*, None when it fits."""
    if "anyOf" in schema:
        problems = [_schema_error(value, choice) for choice in schema["anyOf"]]
        return None if None in problems else problems[0]
    kind = str(schema.get("type"))
    if kind == "null":
        return None if value is None else "is not null"
    if kind in _TYPES and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return f"is {type(value).__name__}, not {kind}"
    if "enum" in schema and value not in schema["enum"]:
        return f"is none of {', '.join(map(str, schema['enum']))}"
    for bound, broken in (
        ("minimum", lambda limit: value < limit),
        ("exclusiveMinimum", lambda limit: value <= limit),
        ("maximum", lambda limit: value > limit),
        ("maxLength", lambda limit: len(value) > limit),
        ("pattern", lambda pattern: re.search(pattern, value) is None),
    ):
        if bound in schema and broken(schema[bound]):
            return f"breaks its {bound} {schema[bound]}"
    return None
