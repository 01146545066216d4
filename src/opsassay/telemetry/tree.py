"""A tree of incidents with their truth in a separate folder, and the search of cases for commands.

``DIR/incidents/<id>/`` is for solvers, ``DIR/truth/<id>/`` for the grader alone. Methods may not import this module.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import polars as pl
from pydantic import ValidationError

from opsassay.core.errors import DatapackError, NotFoundError, OpsAssayError, UserError
from opsassay.core.schema.base import Artefact
from opsassay.core.schema.causal_graph import Annotation, CausalGraph
from opsassay.core.schema.incident import Truth
from opsassay.core.schema.validation_errors import problem
from opsassay.core.text import first_line
from opsassay.core.untrusted import MAX_FILE_BYTES, read_plain
from opsassay.telemetry.content import INCIDENT, opaque_id, whole_file, write_table
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.injection import CAUSAL_GRAPH, INJECTION, read_graph, read_public_truth

__all__ = ["Case", "Tree", "opaque_id", "resolve"]

TRUTH, ANNOTATION, LEDGER = "truth.json", "annotation.json", "ledger.parquet"
_Noun = TypeVar("_Noun", bound=Artefact)


class Tree:
    """The folder *root* with incidents and, in another folder, their truth."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.incidents_dir = self.root / "incidents"
        self.truth_dir = self.root / "truth"

    def ids(self) -> list[str]:
        """Return the ids of all complete incidents, sorted."""
        if not self.incidents_dir.is_dir():
            return []
        found = self.incidents_dir.iterdir()
        return sorted(folder.name for folder in found if folder.is_dir() and not folder.name.startswith("."))

    def incident_path(self, id_: str) -> Path:
        """Return the folder of the incident *id_* with the part that solvers may see."""
        return self.incidents_dir / id_

    def truth_path(self, id_: str) -> Path:
        """Return the folder of the incident *id_* with the part that solvers may not see: truth.json and others."""
        return self.truth_dir / id_

    def datapack(self, id_: str) -> Datapack:
        """Open and return the datapack of the incident *id_*; raises NotFoundError and DatapackError."""
        if not self.incident_path(id_).is_dir():
            raise NotFoundError("incident", id_, self.ids(), f"The tree is {self.root}.")
        return Datapack.open(self.incident_path(id_))

    def truth(self, id_: str) -> Truth:
        """Return the ground truth of the incident *id_*; raises NotFoundError when it has none, DatapackError."""
        path = self.truth_path(id_) / TRUTH
        if not path.exists():
            known = [folder.name for folder in self.truth_dir.glob("*/") if (folder / TRUTH).exists()]
            raise NotFoundError("truth of incident", id_, known, f"The tree is {self.root}.")
        return read_noun(Truth, path)

    def write_truth(self, truth: Truth) -> None:
        """Write *truth* as truth.json; call it before the incident's folder is written."""
        write_noun(self._truth_folder(truth.id) / TRUTH, truth)

    def annotation(self, id_: str) -> Annotation | None:
        """Return the annotation of *id_*, None when it was not annotated; raises DatapackError."""
        path = self.truth_path(id_) / ANNOTATION
        return read_noun(Annotation, path) if path.exists() else None

    def write_annotation(self, id_: str, annotation: Annotation) -> None:
        """Write annotation.json of the incident *id_* and, for other tools, its graph as causal_graph.json."""
        write_annotation(self._truth_folder(id_), annotation)

    def ledger(self, id_: str) -> pl.DataFrame | None:
        """Return the delay and errors that the fault added, a row per call; None without a ledger; raises DatapackError."""
        path = self.truth_path(id_) / LEDGER
        if not path.exists():
            return None
        try:
            return pl.read_parquet(path, glob=False)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise DatapackError(f"{path} cannot be read ({first_line(error)}); record the incident again.") from error

    def write_ledger(self, id_: str, ledger: pl.DataFrame) -> None:
        """Write *ledger*, a row per call, as ledger.parquet into the truth folder of the incident *id_*."""
        with whole_file(self._truth_folder(id_) / LEDGER) as partial:
            write_table(partial, ledger)

    def remove(self, id_: str) -> None:
        """Delete the incident *id_*, and then its truth, if they exist."""
        if (incident := self.incident_path(id_)).exists():
            going = incident.with_name(f".{id_}.removed")
            shutil.rmtree(going, ignore_errors=True)
            incident.rename(going)
            shutil.rmtree(going)
        if (truth := self.truth_path(id_)).exists():
            shutil.rmtree(truth)

    def _truth_folder(self, id_: str) -> Path:
        """Create the truth folder of *id_* if it is missing, and return it."""
        folder = self.truth_path(id_)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def write_annotation(folder: Path, annotation: Annotation) -> None:
    """Write *annotation* as annotation.json, and its graph as causal_graph.json, into *folder*.

    A causal_graph.json from elsewhere is not replaced by a graph that `annotate` computed.
    """
    if not annotation.made_from or not _is_published(folder):
        write_noun(folder / CAUSAL_GRAPH, annotation.graph)
    write_noun(folder / ANNOTATION, annotation)


def _is_published(folder: Path) -> bool:
    """Return whether causal_graph.json in *folder* comes from elsewhere: it is not the graph of our annotation.json."""
    if not (folder / CAUSAL_GRAPH).exists():
        return False
    stored = read_noun(Annotation, folder / ANNOTATION) if (folder / ANNOTATION).exists() else None
    return stored is None or not stored.made_from or stored.graph != read_noun(CausalGraph, folder / CAUSAL_GRAPH)


def write_noun(path: Path, noun: Artefact) -> None:
    """Write *noun*, a data object such as a Truth or an Annotation, as JSON to *path*, atomically."""
    with whole_file(path) as partial:
        partial.write_text(noun.pretty_json(), encoding="utf-8")


def read_noun(kind: type[_Noun], path: Path) -> _Noun:
    """Read the JSON file *path* as an object of the class *kind* (Truth, ...); DatapackError names the wrong field."""
    try:
        return kind.model_validate_json(read_plain(path, MAX_FILE_BYTES))
    except ValidationError as error:
        raise DatapackError(f"{path}: {problem(error, 'the file')}; restore it or make it again.") from error


@dataclass(frozen=True, eq=False)
class Case:
    """An incident with its truth, if known; *name* is the id, or the folder's name in the public form."""

    datapack: Datapack
    truth: Truth | None
    annotation: Annotation | None
    truth_path: Path | None
    name: str

    @property
    def published(self) -> Annotation | None:
        """The annotation from a causal_graph.json that comes from elsewhere, None without one; raises DatapackError."""
        folder = self.truth_path
        return read_graph(folder / CAUSAL_GRAPH) if folder is not None and _is_published(folder) else None


def resolve(path: Path, on_error: Callable[[Path, OpsAssayError], None] | None = None) -> list[Case]:
    """Return the cases (incident, truth, annotation) in *path*, sorted by name.

    *path* is a tree (with incidents/ and truth/), its incidents/ or one of them, a datapack in the public form, or a folder
    of those. *on_error* is called with each case that cannot be read; without it the first error is raised. Raises
    UserError when *path* is none of these.
    """
    cases = []
    for folder, reader in _readers(path):
        try:
            cases.append(reader(folder))
        except OpsAssayError as error:
            if on_error is None:
                raise
            on_error(folder, error)
    return cases


_EXPECTED = (
    "expected a folder with incidents/, one of its incidents, a datapack (normal_traces.parquet and others), "
    "or a folder of datapacks."
)
_Reader = Callable[[Path], Case]


def find_cases(path: Path) -> list[Path]:
    """Return the folders of the cases that `resolve` reads in *path*; raises UserError when there are none."""
    return [folder for folder, _ in _readers(path)]


def _readers(path: Path) -> list[tuple[Path, _Reader]]:
    """Return (folder, function that reads it) of each case in *path*; raises UserError when there is none."""
    path = Path(path).resolve()
    if not path.is_dir():
        raise UserError(f"{path} is {'a file' if path.exists() else 'not there'}; {_EXPECTED}")
    readers = _readers_by_layout(path)
    if not readers:
        found = sorted(entry.name for entry in path.iterdir())
        listed = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise UserError(f"{path} holds {listed or 'nothing'}; {_EXPECTED}")
    return readers


def _readers_by_layout(path: Path) -> list[tuple[Path, _Reader]]:
    """Return (folder, reader) of each case in *path*: a tree, incidents/, one incident, one datapack, or several."""
    if (path / "incidents").is_dir():
        return _list_readers(Tree(path))
    if path.name == "incidents":
        return _list_readers(Tree(path.parent))
    if path.parent.name == "incidents" and (path / INCIDENT).exists():
        return [(path, _read_case_of_tree)]
    if _is_datapack(path):
        return [(path, _case_in_place)]
    return [(folder, _case_in_place) for folder in sorted(path.iterdir()) if _is_datapack(folder)]


def _list_readers(tree: Tree) -> list[tuple[Path, _Reader]]:
    """Return (folder, function that reads it) of each incident of *tree*."""
    return [(tree.incident_path(id_), _read_case_of_tree) for id_ in tree.ids()]


def _is_datapack(folder: Path) -> bool:
    """Return whether *folder* holds a traces table or an injection.json; hidden folders do not count."""
    return (
        folder.is_dir()
        and not folder.name.startswith(".")
        and any((folder / name).exists() for name in ("normal_traces.parquet", "abnormal_traces.parquet", INJECTION))
    )


def _read_case_of_tree(folder: Path) -> Case:
    """Read the incident in *folder* of a tree, with its truth and annotation if they exist."""
    tree, id_ = Tree(folder.parent.parent), folder.name
    datapack = tree.datapack(id_)
    if not (tree.truth_path(id_) / TRUTH).exists():
        return Case(datapack, None, None, None, id_)
    return Case(datapack, tree.truth(id_), tree.annotation(id_), tree.truth_path(id_), id_)


def _case_in_place(folder: Path) -> Case:
    """Read the public-form datapack in *folder*, without importing it; one without injection.json has no truth."""
    datapack = Datapack.open(folder)
    if not (folder / INJECTION).exists():
        return Case(datapack, None, None, None, folder.name)
    truth = read_public_truth(folder, datapack.incident)
    return Case(datapack, truth, read_public_annotation(folder), folder, folder.name)


def read_public_annotation(folder: Path) -> Annotation | None:
    """Return annotation.json in *folder*, else an annotation from causal_graph.json, else None; raises DatapackError."""
    if (folder / ANNOTATION).exists():
        return read_noun(Annotation, folder / ANNOTATION)
    return read_graph(folder / CAUSAL_GRAPH) if (folder / CAUSAL_GRAPH).exists() else None
