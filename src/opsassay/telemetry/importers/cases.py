"""Shared by all importers: cases are read one at a time, skipped when already imported, reported when they fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from opsassay.core.errors import DatapackError, OpsAssayError, UserError
from opsassay.core.schema.causal_graph import Annotation
from opsassay.core.schema.incident import Incident, Truth
from opsassay.core.text import first_line
from opsassay.telemetry.content import opaque_id, whole_folder, write_datapack
from opsassay.telemetry.injection import CAUSAL_GRAPH
from opsassay.telemetry.leaks import leak_notes
from opsassay.telemetry.schema import one_sided
from opsassay.telemetry.tree import ANNOTATION, TRUTH, Tree, write_annotation, write_noun

OnCase = Callable[[str, str], None]
"""Called with each case's name and its outcome: imported, skipped or failed."""

SOURCE_NOTE = "source: "
"""Prefix of the note of a truth with the case's name at its source."""

Frames = dict[tuple[str, str], pl.DataFrame]
"""Tables by (period, modality)."""


@dataclass(frozen=True)
class ImportReport:
    """The outcome of each case, as (name, detail): ids of *imported* and *skipped* ones, reasons of *failed* ones.

    *notes* are on imported cases: unreadable parts of the source, and places that reveal the truth to a solver.
    """

    imported: tuple[tuple[str, str], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    notes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ReadCase:
    """A case as read from its source; *incident* is None without telemetry, *truth* None without a known truth."""

    incident: Incident | None
    truth: Truth | None
    frames: Mapping[tuple[str, str], pl.DataFrame] = field(default_factory=dict)
    env: Mapping[str, Any] = field(default_factory=dict)
    annotation: Annotation | None = None
    further: Mapping[str, str] = field(default_factory=dict)  # other files of the truth folder: name to text
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A case that can be imported: its *name* in the source, its *id*, and the function that reads it.

    *truth_notes* returns the notes of its truth without reading telemetry, to detect a changed truth of an imported case.
    The id must not depend on the fault, which a solver could find by trying all faults.
    """

    name: str
    id: str
    read: Callable[[], ReadCase]
    by_content: bool = False  # the id follows from the recording, so that a case of another truth may have it
    truth_notes: Callable[[], tuple[str, ...]] | None = None


def import_sources(
    sources: Iterable[Source], out: Path, on_case: OnCase | None = None, *, update_truth: bool = False
) -> ImportReport:
    """Import each of *sources* into the tree *out*, truth before telemetry; return what was imported, skipped, failed.

    A case that *out* already has is skipped without being read, so that an interrupted import can go on, and fails as a
    conflict if its truth has other notes. If its id is a hash of its content it is read, and fails as a conflict if its
    truth differs; with *update_truth* the new truth replaces the old one and its annotation is deleted. A case that
    cannot be read is reported as failed, and the rest goes on; *on_case* gets each name and outcome.
    """
    tree = Tree(out)
    became: dict[str, list[tuple[str, str]]] = {"imported": [], "skipped": [], "failed": []}
    notes: list[tuple[str, str]] = []
    for source in sources:
        try:
            outcome, made = _import_one(source, tree, update_truth=update_truth)
            detail = source.id
            notes += [(source.name, note) for note in made.notes]
        except OpsAssayError as error:
            outcome, detail = "failed", str(error)
        except (OSError, pl.exceptions.PolarsError) as error:
            outcome, detail = (
                "failed",
                f"{source.name} cannot be read ({first_line(error)}); restore it from the source.",
            )
        became[outcome].append((source.name, detail))
        if on_case is not None:
            on_case(source.name, outcome)
    return ImportReport(**{outcome: tuple(cases) for outcome, cases in became.items()}, notes=tuple(notes))


def _import_one(source: Source, tree: Tree, *, update_truth: bool) -> tuple[str, ReadCase]:
    """Import *source* into *tree*; return ("imported" or "skipped", the case that was read). Raises DatapackError."""
    there = tree.incident_path(source.id).exists()
    if there and not source.by_content:
        _require_same_notes(source, tree)
        return "skipped", ReadCase(None, None)
    made = source.read()
    if there or (made.incident is None and (tree.truth_path(source.id) / TRUTH).exists()):
        if not update_truth:
            require_same_truth(tree, source.id, made.truth, source.name)
        elif made.truth is not None and there:
            return "imported", _with_new_truth(tree, with_source(made.truth, source.name))
        return "skipped", ReadCase(None, None)
    tree.remove(source.id)  # truth without an incident is left over from an import that was cut off
    if made.truth is not None:
        with whole_folder(tree.truth_path(source.id)) as partial:
            write_noun(partial / TRUTH, with_source(made.truth, source.name))
            if made.annotation is not None:
                write_annotation(partial, made.annotation)
            for name, text in made.further.items():
                (partial / name).write_text(text, encoding="utf-8")
    if made.incident is not None:
        folder = tree.incident_path(source.id)
        write_datapack(folder, made.frames, made.incident, made.env)
        lacking = one_sided(
            lambda period, modality: (table := made.frames.get((period, modality))) is not None and table.height > 0
        )
        made = replace(made, notes=(*made.notes, *lacking))
        if made.truth is not None:
            made = replace(made, notes=(*made.notes, *leak_notes(folder, made.truth)))
    return "imported", made


def _require_same_notes(source: Source, tree: Tree) -> None:
    """Raise DatapackError when the case in *tree* has other notes in its truth than *source* has."""
    if source.truth_notes is None or not (tree.truth_path(source.id) / TRUTH).exists():
        return
    kept = tuple(note for note in tree.truth(source.id).notes if not note.startswith(SOURCE_NOTE))
    if kept != (said := source.truth_notes()):
        raise _conflict(source.name, source.id, "; ".join(said) or "none", "; ".join(kept) or "none")


def _conflict(name: str, id_: str, said: str, kept: str) -> DatapackError:
    """Return the error that case *name* has the truth *said*, but the imported case *id_* the truth *kept*."""
    return DatapackError(
        f"{name} is in conflict with {id_}, which is there already: its truth differs ({said[:200]}, there {kept[:200]}); "
        "correct one of them, or import it into another tree."
    )


def _with_new_truth(tree: Tree, truth: Truth) -> ReadCase:
    """Replace the truth in *tree* by *truth* and delete annotation and graph, unless it is equal; return the case."""
    folder = tree.truth_path(truth.id)
    if (folder / TRUTH).exists() and tree.truth(truth.id) == truth:
        return ReadCase(None, None, notes=("its truth is the same",))
    for name in (ANNOTATION, CAUSAL_GRAPH):
        (folder / name).unlink(missing_ok=True)
    tree.write_truth(truth)
    return ReadCase(None, None, notes=("its truth is another now; run `opsassay incident annotate` again",))


def with_source(truth: Truth, name: str) -> Truth:
    """Return *truth* with a note on *name*, the case's name at its source, which public answers refer to."""
    return truth.model_copy(update={"notes": (*truth.notes, f"{SOURCE_NOTE}{name}")})


def require_same_truth(tree: Tree, id_: str, truth: Truth | None, name: str) -> None:
    """Raise DatapackError when the case *id_* in *tree* has other faults or roots than *truth*, that of the case *name*."""
    if truth is None or not (tree.truth_path(id_) / TRUTH).exists():
        return
    kept = tree.truth(id_)
    if (kept.faults, kept.roots) != (truth.faults, truth.roots):
        said = [
            ", ".join(dict.fromkeys(n for root in one.roots for n in root.service)) or "none" for one in (kept, truth)
        ]
        raise _conflict(name, id_, f"root causes {said[1]}", said[0])


def case_id(*parts: object) -> str:
    """Return an opaque id derived from *parts* (format, system, ...), none of which may name the fault."""
    return opaque_id("\0".join(str(part) for part in parts))


def folders_below(source: Path, is_match: Callable[[Path], bool], expected: str) -> Iterator[Path]:
    """Yield *source* and all folders below it that satisfy *is_match*; raises UserError with *expected* if none does."""
    source = Path(source)
    if not source.is_dir():
        raise UserError(f"{source} is {'a file' if source.exists() else 'not there'}; {expected}")
    found = [folder for folder in (source, *sorted(p for p in source.rglob("*") if p.is_dir())) if is_match(folder)]
    if not found:
        raise UserError(f"{source} holds nothing of this format; {expected}")
    yield from found


def split_at(cut_ns: int, tables: Mapping[str, pl.DataFrame]) -> Frames:
    """Split *tables*, by modality, at *cut_ns* (ns of UTC); return (period, modality) to rows before or from it on."""
    after = pl.col("time").dt.epoch("ns") >= cut_ns
    frames: Frames = {}
    for modality, table in tables.items():
        frames["normal", modality], frames["abnormal", modality] = table.filter(~after), table.filter(after)
    return frames


def owner_and_metric(column: str, separator: str) -> tuple[str, str]:
    """Split *column* at the last *separator* into (service, '' for none; metric), such as ``carts_cpu``.

    A number at the end is a quantile and belongs to the metric: ``carts_lat_50``, ``carts_lat_p50``.
    """
    name = re.escape(separator)
    found = re.fullmatch(rf"(.+?){name}((?:(?!{name})[^\d])+{name}p?\d[\d.]*)", column)
    owner, _, metric = column.rpartition(separator)
    return (found[1], found[2]) if found else (owner, metric)


def read_csv(path: Path, **options: Any) -> pl.DataFrame:
    """Return the CSV file *path*; columns are text unless *options* of polars say otherwise. Raises DatapackError."""
    try:
        return pl.read_csv(path, **{"infer_schema": False, **options})
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DatapackError(
            f"{path} cannot be read as CSV ({first_line(error)}); restore it from the source."
        ) from error


def at_ns(column: pl.Expr) -> pl.Expr:
    """Return the expression that casts *column*, ns since 1970, to a datapack's time type."""
    return column.cast(pl.Int64).cast(pl.Datetime("ns")).dt.replace_time_zone("UTC")


def iso_ns(column: pl.Expr) -> pl.Expr:
    """Return the expression that parses ISO times, to nine decimals, into ns since 1970; UTC if without an offset."""
    whole = column.str.slice(0, 19).str.replace("T", " ", literal=True)
    seconds = whole.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ns", strict=False).dt.epoch("ns")
    fraction = column.str.extract(r"^.{19}\.(\d{1,9})").str.pad_end(9, "0").cast(pl.Int64).fill_null(0)
    offset = column.str.extract(r"^.{19}(?:\.\d+)? ?([+-]\d\d:?\d\d)").str.replace(":", "", literal=True)
    hours, minutes = offset.str.slice(1, 2).cast(pl.Int64), offset.str.slice(3, 2).cast(pl.Int64)
    ahead = pl.when(offset.str.starts_with("-")).then(-1).otherwise(1) * (hours * 60 + minutes) * 60_000_000_000
    return seconds + fraction - ahead.fill_null(0)


def numbers(column: str) -> pl.Expr:
    """Return the expression that parses the text *column* as floats; text that is no number becomes null."""
    return pl.col(column).str.strip_chars().cast(pl.Float64, strict=False)
