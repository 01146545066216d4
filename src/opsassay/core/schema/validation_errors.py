"""Describes pydantic's validation errors in the words of files (mapping, list, text, number), not of Python's types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from opsassay.core.text import first_line

_LONGEST = 40

_EXPECTED = {
    "a mapping": ("dict", "model", "model_attributes", "mapping", "dataclass"),
    "a list": ("list", "tuple", "set", "frozen_set", "iterable"),
    "text": ("string",),
    "true or false": ("bool",),
    "a whole number": ("int", "int_from_float", "int_parsing_size"),
    "a number": ("float",),
    "a finite number": ("finite_number",),
}
_BY_TYPE = {
    f"{kind}{end}": words for words, kinds in _EXPECTED.items() for kind in kinds for end in ("", "_type", "_parsing")
}

_REWORDED = (
    (r"^(Value|Assertion) error, ", ""),
    (r"^Field required$", "this key is required"),
    (r"^Extra inputs are not permitted$", "there is no such key"),
    (r"^Unable to extract tag using discriminator ('\w+')$", r"the key \1 is required"),
    (r"^Input tag (.*) found using (.*) does not match any of the expected tags: ", r"\2 is \1; expected one of "),
    (r"^\w+ should have at (least|most) (\d+ \w+) after validation, not (\S+)$", r"expected at \1 \2, found \3"),
    (r"^\w+ should have at (least|most) (\d+ characters?)$", r"expected text of at \1 \2"),
    (r"^invalid literal for int\(\) with base 10: ", "expected a whole number, found "),
    (r"^could not convert string to float: ", "expected a number, found "),
    (r"^Invalid isoformat string: ", "expected a time of ISO 8601, found "),
    (r"^String should match pattern ", "expected text that matches "),
    (r"^Input should be (?:an? )?(?:valid )?", "expected "),
    (r"^expected greater than or equal to ", "expected at least "),
    (r"^expected less than or equal to ", "expected at most "),
    (r"^expected (greater|less) than ", r"expected a number \1 than "),
)  # fmt: skip


def problem(error: ValidationError, default_place: str = "") -> str:
    """Return "place: what is wrong" for the first problem in *error*; *default_place* is used when it has no place."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, place_of(first))) or default_place
    return f"{place}: {in_words(first)}" if place else in_words(first)


def place_of(problem: Mapping[str, Any]) -> list[Any]:
    """Return the location of *problem*, one entry of pydantic's errors(), as a list of keys and indices."""
    return [part for part in problem["loc"] if not (isinstance(part, str) and part.startswith("function-"))]


def in_words(problem: Mapping[str, Any]) -> str:
    """Return *problem*, one entry of pydantic's errors(), as plain text, such as "expected a number, found a list"."""
    if problem["type"] in _BY_TYPE:
        return f"expected {_BY_TYPE[problem['type']]}, found {described(problem['input'])}"
    return _reword_plainly(str(problem["msg"]))


def _reword_plainly(message: str) -> str:
    """Return pydantic's *message* with Python's type names replaced by plain words."""
    for pattern, plain in _REWORDED:
        message = re.sub(pattern, plain, message)
    return message


def described(value: Any) -> str:
    """Return *value* for a message: itself if it is a short text or number, else "a list", "a long text" and the like."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple | set | frozenset):
        return "a list"
    shown = repr(value)
    return shown if len(shown) <= _LONGEST else "a long text" if isinstance(value, str) else "a long number"


def reason(error: Exception) -> str:
    """Return in words why content could not be read, from the *error* that its reading raised."""
    if isinstance(error, ValidationError):
        return problem(error)
    if isinstance(error, KeyError) and error.args:
        return f"{error.args[0]!r} is missing"
    if isinstance(error, TypeError | AttributeError | LookupError):
        return "a value is of another type"
    if isinstance(error, OverflowError):
        return "a number is too large"
    return _reword_plainly(first_line(error))
