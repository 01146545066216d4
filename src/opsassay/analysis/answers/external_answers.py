"""What all forms of answers use: the file, the known incidents by all their names, and one answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from opsassay.core.errors import DatapackError, NotFoundError, OpsAssayError, UserError
from opsassay.core.schema.run import Solver
from opsassay.core.schema.trajectory import Trace
from opsassay.core.text import first_line
from opsassay.core.untrusted import MAX_FILE_BYTES, read_json, read_plain
from opsassay.evals.runner.run import AttemptOutcome
from opsassay.telemetry.importers.cases import SOURCE_NOTE, read_csv
from opsassay.telemetry.public import public_name
from opsassay.telemetry.tree import Case


@dataclass(frozen=True)
class ExternalAnswer:
    """One answer about *case* by *solver*; *source* names the file and the place in it.

    *outcome* is the answer as the outcome of a run, conversion notes included; *seed* is the lowest seed for its run;
    *trace* are its steps, if known.
    """

    source: str
    case: Case
    solver: Solver
    outcome: AttemptOutcome
    seed: int = 0
    trace: Trace | None = None


Reading = Callable[[], Iterable[ExternalAnswer]]
"""Reads one entry of a file; raises UserError if it is no answer, or about no known incident."""


@dataclass(frozen=True)
class AnswerForm:
    """A form of answers: the *suffixes* of its files, a test that recognises one, and one reader per entry.

    *fits* selects files of a folder by name when the user names the form; *owns_folder*: other files next to and below
    such a file belong to its answer.
    """

    suffixes: tuple[str, ...]
    recognises: Callable[[Document], bool]
    entries: Callable[[Document, Cases], Iterator[Reading]]
    fits: Callable[[Path], bool] = lambda _: True
    owns_folder: bool = False


@dataclass(frozen=True)
class Document:
    """A file of answers below *root*, the path that the user named; *solver*: the solver that the user named, if any."""

    path: Path
    root: Path
    solver: str | None = None

    @property
    def name(self) -> str:
        """The file's path relative to the imported file or folder, for messages."""
        return str(self.path.relative_to(self.root.parent))

    @property
    def suffix(self) -> str:
        """The file's suffix in lower case."""
        return self.path.suffix.lower()

    @property
    def folders(self) -> tuple[str, ...]:
        """The names of the folders around the file, innermost first."""
        return tuple(reversed(self.path.relative_to(self.root.parent).parts[:-1]))

    @cached_property
    def content(self) -> Any:
        """The parsed content: a JSON value, CSV rows as dicts, else the text; raises DatapackError."""
        if self.suffix == ".csv":
            return read_csv(self.path).rows(named=True)
        try:
            text = read_plain(self.path, MAX_FILE_BYTES).decode("utf-8-sig")
            return read_json(text, constant=lambda _: None) if self.suffix == ".json" else text
        except UnicodeDecodeError as error:
            raise DatapackError(f"{self.name} is not UTF-8 text (byte {error.start}); restore it.") from error
        except (ValueError, RecursionError) as error:
            raise DatapackError(f"{self.name} is not valid JSON ({first_line(error)}); restore it.") from error
        except OSError as error:
            raise DatapackError(f"{self.name} cannot be read ({error.strerror}); check the path.") from error

    def require_content(self) -> None:
        """Raise DatapackError for JSON or CSV that cannot be read; other files are checked by their readers."""
        if self.suffix in (".json", ".csv"):
            _ = self.content

    def rows(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Yield (place for messages, function that parses and returns the row) of each JSON line or list entry."""
        if self.suffix == ".jsonl":
            for number, line in enumerate(str(self.content).splitlines(), 1):
                if line.strip():
                    yield f"{self.name}:{number}", partial(self._parse_line, line, number)
            return
        found = self.content
        if isinstance(found, dict):
            found = next((v for k in _LISTS if (v := found.get(k)) and _is_list_of_objects(v)), [found])
        listed = found if isinstance(found, list) else [found]
        for number, value in enumerate(listed, 1):
            yield f"{self.name}:{number}" if len(listed) > 1 else self.name, partial(_as_is, value)

    def _parse_line(self, line: str, number: int) -> Any:
        """Return the JSON value of line *number*, NaN and Infinity as None; raises DatapackError."""
        try:
            return read_json(line, constant=lambda _: None)
        except (ValueError, RecursionError) as error:
            said = first_line(error)
            raise DatapackError(f"{self.name}:{number} is not valid JSON ({said}); give one object a line.") from error

    def has_row(self, predicate: Callable[[Any], bool]) -> bool:
        """Return whether *predicate* is true for one of the first `LOOKED_AT` rows; unreadable rows are skipped."""
        for _, read in islice(self.rows(), LOOKED_AT):
            try:
                if predicate(read()):
                    return True
            except OpsAssayError:
                continue
        return False


LOOKED_AT = 20
"""Number of rows of a file that are tested to recognise its form."""
_LISTS = ("samples", "results", "answers", "predictions", "rows", "data")


def _as_is(value: Any) -> Any:
    """Return *value*: the reader of a row that is parsed already."""
    return value


def _is_list_of_objects(value: Any) -> bool:
    """Whether *value* is a list of dicts only."""
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


class Cases:
    """The known incidents, which can be found by id and by the names that they have in public data."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.all = tuple(cases)

    @cached_property
    def _cases_by_name(self) -> Mapping[str, list[Case]]:
        """The incidents by each of their names, normalised by `_fold_name`; a name may have several."""
        found: dict[str, list[Case]] = {}
        for case in self.all:
            for name in dict.fromkeys(map(_fold_name, _list_names(case))):
                found.setdefault(name, []).append(case)
        return found

    def find_solver(
        self, document: Document, *claimed: object, kind: Literal["method", "agent"] = "agent", **further: Any
    ) -> tuple[Solver, tuple[str, ...]]:
        """Return (the solver of *kind* that gave the answer in *document*, notes); one note if only its path names it.

        The name is the user's, else *claimed* by the file, else that of a folder that is no number: the nearest above
        the folder named after the incident, else the nearest of all. *further* are fields of `Solver`.
        """
        texts = dict.fromkeys(text for one in claimed if isinstance(one, str) and (text := one.strip()))
        names, notes = document.solver or " ".join(texts), tuple[str, ...]()
        if not names:
            *inside, root = (None, *document.folders) if document.folders else (None, document.path.stem)
            at = next((n for n, part in enumerate(inside) if part and _fold_name(part) in self._cases_by_name), -1)
            folders = [*inside[at + 1 :], *inside[: max(at, 0)], root]
            names = next(part for part in folders if part and (part == root or not part.isdigit()))
            notes = (f"the file does not say whom it is of: it is kept as {names!r}",)
        return Solver(name=names[:200], kind=kind, configuration={"answers": "given"}, **further), notes

    def find_named(self, *names: object) -> Case:
        """Return the incident with the first of *names* that is known; NotFoundError, UserError if several have it.

        A name is an id, the folder that the incident was imported from, or the end of its path; upper and lower case
        are equal.
        """
        said = list(dict.fromkeys(name.strip() for name in names if isinstance(name, str) and name.strip()))
        for name in said:
            found = self._cases_by_name.get(_fold_name(name), [])
            if len(found) > 1:
                ids = ", ".join(case.name for case in found[:5])
                raise UserError(f"{name!r} is what {len(found)} incidents are called ({ids}); name one by its id.")
            if found:
                return found[0]
        raise NotFoundError("incident at hand", said[0] if said else "", {case.name for case in self.all})


def _list_names(case: Case) -> Iterator[str]:
    """Yield all names of the incident: id, folder, name in public data, ends of the path it was imported from."""
    yield case.datapack.incident.id
    yield case.name
    if case.annotation is not None and case.annotation.graph.case_name:
        yield case.annotation.graph.case_name
    if case.truth is not None:
        yield public_name(case.datapack.incident, case.truth)
    for note in case.truth.notes if case.truth is not None else ():
        if note.startswith(SOURCE_NOTE):
            parts = re.split(r"[/\\]", note.removeprefix(SOURCE_NOTE))
            yield from ("/".join(parts[at:]) for at in range(len(parts)) if at == 0 or not parts[at].isdigit())


def _fold_name(name: str) -> str:
    """Return *name* normalised for comparison: lower case, "/" between folders, no "/" at either end."""
    return name.replace("\\", "/").strip("/").lower()


def require_list(value: Any, location: str, expected: str) -> list[Any]:
    """Return *value* if it is a list; raises UserError naming *location* and what is *expected*."""
    if not isinstance(value, list):
        raise UserError(f"{location} is {_describe_kind(value)}; expected {expected}.")
    return value


def require_text(value: Any, location: str, expected: str = "a name") -> str:
    """Return *value* if it is non-empty text; raises UserError naming *location* and what is *expected*."""
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{location} is {_describe_kind(value)}; expected {expected}.")
    return value.strip()


def _describe_kind(value: Any) -> str:
    """Return "missing", "empty", or the type and the first 60 characters of *value*, for errors."""
    if value is None:
        return "missing"
    return "empty" if value in ("", [], {}) else f"{type(value).__name__} ({str(value)[:60]})"


def merge_notes(notes: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct *notes* in order, repeated ones with their number of occurrences."""
    return tuple(note if n == 1 else f"{note} ({n} times)" for note, n in Counter(notes).items())
