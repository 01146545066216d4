"""Imports and exports the public OpenRCA 2.0 / rcabench form, which has truth and telemetry in one folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from opsassay.core.errors import DatapackError, OpsAssayError, UserError
from opsassay.core.schema.faults import NO_FAULT
from opsassay.core.schema.incident import Incident, Truth
from opsassay.telemetry.content import TABLES, whole_folder, write_datapack
from opsassay.telemetry.datapack import Datapack, read_object
from opsassay.telemetry.importers.cases import ImportReport, require_same_truth, with_source
from opsassay.telemetry.injection import CAUSAL_GRAPH, INJECTION, UNKNOWN, public_injection, read_public_truth
from opsassay.telemetry.leaks import leak_notes
from opsassay.telemetry.schema import MODALITIES, PERIODS
from opsassay.telemetry.tree import (
    ANNOTATION,
    LEDGER,
    TRUTH,
    Tree,
    read_noun,
    read_public_annotation,
    write_annotation,
    write_noun,
)


def import_public(source: Path, out: Path, on_case: Callable[[str, str], None] | None = None) -> ImportReport:
    """Import the public-form datapacks in *source* (one, or a folder of them) into the tree *out*.

    The id is computed from the content: a case that *out* already has is skipped, or fails as a conflict if its truth
    differs. A case that cannot be read is reported as failed, and the rest goes on; *on_case* gets each folder's name
    and outcome. Raises UserError when *source* holds no such datapack.
    """
    tree = Tree(out)
    became: dict[str, list[tuple[str, str]]] = {"imported": [], "skipped": [], "failed": []}
    notes: list[tuple[str, str]] = []
    for folder in public_folders(source):
        try:
            id_, outcome, found = _import_one(folder, tree)
            notes += [(folder.name, note) for note in found]
        except OpsAssayError as error:
            id_, outcome = str(error), "failed"
        except OSError as error:
            id_, outcome = (
                f"{folder} cannot be copied: {error.strerror or error}; free the cause and try again.",
                "failed",
            )
        became[outcome].append((folder.name, id_))
        if on_case is not None:
            on_case(folder.name, outcome)
    return ImportReport(**{outcome: tuple(cases) for outcome, cases in became.items()}, notes=tuple(notes))


def export_public(
    tree: Tree, out: Path, ids: Iterable[str] | None = None, on_case: Callable[[str, str], None] | None = None
) -> list[Path]:
    """Write incidents with their truth in the public form, one folder ``<system>-<fault>-<service>-<id>`` each.

    *ids* None stands for all. Folders that are already in *out* are kept as they are. Returns all folders. Raises
    NotFoundError for an id without truth and DatapackError. *on_case* gets each id and the name of its folder.
    """
    folders = []
    for id_ in tree.ids() if ids is None else ids:
        datapack, truth = tree.datapack(id_), tree.truth(id_)
        folder = Path(out) / public_name(datapack.incident, truth)
        if not folder.exists():
            _export_one(tree, datapack, truth, folder)
        folders.append(folder)
        if on_case is not None:
            on_case(id_, folder.name)
    return folders


def public_name(incident: Incident, truth: Truth) -> str:
    """Return the folder name of an incident in the public form; it reveals fault and service."""
    where: str | None
    if truth.faults:
        what, where = truth.faults[0].type, truth.faults[0].place
    else:
        what, where = (UNKNOWN, truth.roots[0].service[0]) if truth.roots else (NO_FAULT, None)
    parts = (incident.system, what, where or "none", incident.id)
    return "-".join(part.replace("/", "_") for part in parts)


def public_folders(source: Path) -> list[Path]:
    """Return *source* if it has injection.json, else its folders with a datapack, sorted; raises UserError without any."""
    source = Path(source)
    if (source / INJECTION).exists():
        return [source]
    inside = sorted(source.iterdir()) if source.is_dir() else []
    visible = [folder for folder in inside if folder.is_dir() and not folder.name.startswith(".")]
    found = [f for f in visible if any((f / name).exists() for name in (INJECTION, *TABLES))]
    if not found:
        raise UserError(
            f"{source} holds no datapack in the public form; expected folders with {INJECTION} and {TABLES[0]}."
        )
    return found


def _import_one(folder: Path, tree: Tree) -> tuple[str, str, tuple[str, ...]]:
    """Import the datapack in *folder*; return (id, "imported" or "skipped", notes on what reveals its truth)."""
    if not (folder / INJECTION).exists():
        raise DatapackError(f"{folder} has no {INJECTION}, so its truth is not known; add it or leave the case out.")
    datapack = Datapack.open(folder)
    incident = datapack.incident
    if tree.incident_path(incident.id).exists():
        require_same_truth(tree, incident.id, _truth_of(folder, incident), folder.name)
        return incident.id, "skipped", ()
    truth, annotation = _truth_of(folder, incident), read_public_annotation(folder)
    frames = {(period, modality): datapack.read(period, modality) for period in PERIODS for modality in MODALITIES}
    tree.remove(incident.id)  # truth without an incident is left over from an import that was cut off
    with whole_folder(tree.truth_path(incident.id)) as partial:
        write_noun(partial / TRUTH, truth)
        if annotation is not None:
            write_annotation(partial, annotation)
        _copy_files(folder, partial, (CAUSAL_GRAPH, LEDGER))
    write_datapack(tree.incident_path(incident.id), frames, incident, datapack.env)
    return incident.id, "imported", leak_notes(tree.incident_path(incident.id), truth)


def _truth_of(folder: Path, incident: Incident) -> Truth:
    """Return truth.json in *folder* if it matches injection.json, else the truth that injection.json states."""
    if (folder / TRUTH).exists():
        ours = read_noun(Truth, folder / TRUTH)
        if public_injection(ours) == read_object(folder / INJECTION):
            return ours
    return with_source(read_public_truth(folder, incident), folder.name)


def _export_one(tree: Tree, datapack: Datapack, truth: Truth, folder: Path) -> None:
    """Write the incident, its truth, annotation and injection.json into the new *folder*, all or nothing."""
    kept = tree.truth_path(datapack.incident.id)
    with whole_folder(folder) as partial:
        for file in sorted(datapack.path.iterdir()):
            shutil.copyfile(file, partial / file.name)
        _copy_files(kept, partial, (TRUTH, CAUSAL_GRAPH, ANNOTATION, LEDGER))
        text = json.dumps(public_injection(truth), indent=1, ensure_ascii=False) + "\n"
        (partial / INJECTION).write_text(text, encoding="utf-8")


def _copy_files(source: Path, target: Path, names: Iterable[str]) -> None:
    """Copy those of the files *names* that are in *source* into *target*."""
    for name in names:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
