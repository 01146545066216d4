"""Which fields of a violating object a policy's verdict depends on: one that depends on others can be bypassed.

A violation lies in the *control*'s fields (such as `securityContext.privileged`). The violator chooses all other
fields: names, labels, namespaces, images, the user. So checks of these may have either result, and a policy refuses the
object only if it does so for every combination of results.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from opsassay.evals.compliance.kyverno.documents import UnsupportedError

Path = tuple[str, ...]
EACH = "[]"
"""The step of a path into the elements of a list."""
MAX_COURSES = 256
"""Most combinations per rule; a rule with more counts as one that admits."""


class Courses:
    """The combinations of results of one rule's checks; *read*: the fields that the present one depends on."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self._outcomes: list[bool] = []
        self._tried = 0

    def either(self, question: str) -> bool:
        """Return the result (True: passed) assumed, in this evaluation, for the check of *question*; record that."""
        if len(self.read) == len(self._outcomes):
            self._outcomes.append(True)
        self.read.append(question)
        return self._outcomes[len(self.read) - 1]

    def __iter__(self) -> Iterator[Courses]:
        """Go through all combinations of assumed outcomes, `MAX_COURSES` at most."""
        for self._tried in range(MAX_COURSES):
            self.read = []
            yield self
            while self._outcomes and not self._outcomes[-1]:
                self._outcomes.pop()
            if not self._outcomes:
                return
            self._outcomes[-1] = False

    @property
    def is_exhausted(self) -> bool:
        """Whether every combination of assumed results has been tried."""
        return not self._outcomes


class ElsewhereError(Exception):
    """A check reads a field that the violator may choose."""

    def __init__(self, courses: Courses, path: Iterable[str]) -> None:
        self._courses, self.path = courses, ".".join(path).replace(f".{EACH}", EACH)
        super().__init__(self.path)

    def either(self) -> bool:
        """Return the result (True: passed) assumed, in this evaluation of the policy, for the check of the field."""
        return self._courses.either(self.path)


class _Violating(OrderedDict[str, Any]):
    """A map of a violating object in which only keys that lead to the control's *parts* can be read."""

    def __init__(self, content: Mapping[str, Any], courses: Courses, parts: Iterable[Path], path: Path) -> None:
        super().__init__()
        self._at = courses, tuple(parts), path
        for key, value in content.items():
            OrderedDict.__setitem__(self, key, _guard_value(value, courses, self._at[1], (*path, key)))

    def _is_part(self, key: Any) -> bool:
        """Return whether *key* leads to a field that makes the object violate; only such fields may be read."""
        path = (*self._at[2], str(key))
        return any(part[: len(path)] == path for part in self._at[1])

    def _make_elsewhere_error(self, *key: str) -> ElsewhereError:
        """Return the error for reading *key*, a field that the violator may choose freely."""
        return ElsewhereError(self._at[0], (*self._at[2], *key) or ("all of it",))

    def __contains__(self, key: object) -> bool:
        if not self._is_part(key):
            raise self._make_elsewhere_error(str(key))
        return OrderedDict.__contains__(self, key)

    def __getitem__(self, key: str) -> Any:
        return OrderedDict.__getitem__(self, key) if key in self else None

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of *key*, else *default*; raises ElsewhereError for a field that the violator may choose."""
        return OrderedDict.__getitem__(self, key) if key in self else default

    def keys(self) -> Any:
        """Return the keys of a list element that the control is about; raises ElsewhereError for any other map."""
        if self._at[2][-1:] != (EACH,):
            raise self._make_elsewhere_error()
        return [key for key in OrderedDict.__iter__(self) if self._is_part(key)]

    def _refuse_reading(self, *_: Any) -> Any:
        """Raise ElsewhereError: iterating over the map reads fields that the violator may choose."""
        raise self._make_elsewhere_error()

    values = items = __iter__ = __len__ = _refuse_reading

    def __eq__(self, other: object) -> bool:
        if other in ("", [], {}, None, False):  # how JMESPath asks whether there is something
            return False
        raise self._make_elsewhere_error()

    __hash__ = None  # type: ignore[assignment]


_Violating.__name__ = "OrderedDict"  # JMESPath knows maps by the name of their class


def _guard_value(value: Any, courses: Courses, parts: tuple[Path, ...], path: Path) -> Any:
    """Return *value*, at *path*, with maps that raise ElsewhereError (with *courses*) for a key outside of *parts*."""
    if isinstance(value, Mapping):
        return _Violating(value, courses, parts, path)
    if isinstance(value, list):
        return [_guard_value(one, courses, parts, (*path, EACH)) for one in value]
    return value


def violating(resource: Mapping[str, Any], courses: Courses, parts: Iterable[Path]) -> Mapping[str, Any]:
    """Return *resource* wrapped: reading fields but apiVersion, kind and *parts* raises ElsewhereError.

    *courses* holds the results that evaluations of a policy assume for checks of such fields.
    """
    return _Violating(resource, courses, (("apiVersion",), ("kind",), *parts), ())


class Known(dict[str, Any]):
    """A map of known request fields; reading another raises UnsupportedError."""

    def __init__(self, where: str, courses: Courses | None, **known: Any) -> None:
        super().__init__(known)
        self._where, self._courses = where, courses

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of *key*; raises UnsupportedError if absent, ElsewhereError if the violator chooses it."""
        if key not in self:
            raise UnsupportedError(f"{self._where}{key} is not known here, so that what turns on it cannot be judged.")
        if self._courses is not None and key in ("namespace", "elementIndex"):
            raise ElsewhereError(self._courses, (f"{self._where}{key}",))
        return super().get(key, default)

    def extended(self, **values: Any) -> Known:
        """Return a copy of this map of request fields with *values* added."""
        return Known(self._where, self._courses, **{**self, **values})
