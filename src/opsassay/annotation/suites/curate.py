"""Writes a suite: its incidents, their truth, a manifest with checksums and a datasheet."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from opsassay.annotation.verdict.curate import Selection, SuiteCandidate, curate
from opsassay.core.errors import UserError
from opsassay.core.schema.faults import NO_FAULT
from opsassay.core.schema.run import Suite, SuiteItem
from opsassay.telemetry.content import ENV, INCIDENT, TABLES, whole_folder
from opsassay.telemetry.tree import Case, Tree, write_noun

SUITE, CHECKSUMS = "suite.json", "SHA256SUMS"


def select(cases: Sequence[Case], *, per_stratum: int = 3, size: int | None = None) -> Selection:
    """Choose *cases* by `curate` with *per_stratum* and *size* (None: no limit); UserError if none is annotated."""
    annotated = _require_annotated(cases)
    candidates = [
        SuiteCandidate(id_, c.datapack.incident.system, c.annotation, _disturbance_of(c))
        for id_, c in annotated.items()
        if c.annotation
    ]
    return curate(candidates, per_stratum=per_stratum, size=size)


def _disturbance_of(case: Case) -> str:
    """Return the disturbance of a fault-free case, such as load_surge ("quiet" without one); '' for a case with a fault."""
    faults = case.truth.faults if case.truth else ()
    if not faults or any(fault.type != NO_FAULT for fault in faults):
        return ""
    return str(faults[0].parameters.get("disturbance", "quiet"))


def _require_annotated(cases: Sequence[Case]) -> dict[str, Case]:
    """Return incident id to case, for cases with annotation and truth; raises UserError when there are none."""
    annotated = {case.datapack.incident.id: case for case in cases if case.annotation and case.truth}
    if not annotated:
        raise UserError(f"None of the {len(cases)} cases is annotated; run `opsassay incident annotate` first.")
    return annotated


def write_suite(cases: Sequence[Case], selection: Selection, out: Path, *, name: str | None = None) -> Suite:
    """Write the *selection* of *cases* as a suite to the new folder *out*, all or nothing; return the suite.

    Holds incidents/, truth/, suite.json (items with content hashes, canary, datasheet) and SHA256SUMS, which
    `sha256sum -c` checks. Raises UserError when none is chosen, DatapackError when *out* exists.
    """
    annotated = _require_annotated(cases)
    if not selection.taken:
        why = "; ".join(f"{n} because {reason}" for reason, n in Counter(selection.left_out.values()).most_common(4))
        raise UserError(f"None of the {len(annotated)} annotated cases is fit for a suite: {why}.")
    suite = _build_suite(name or out.name, selection, annotated)
    with whole_folder(out) as partial:
        tree = Tree(partial)
        for candidate in selection.taken:
            copy_case(annotated[candidate.id], tree)
        write_noun(partial / SUITE, suite)
        write_checksums(partial)
    return suite


def copy_case(case: Case, tree: Tree) -> None:
    """Copy *case* (incident, truth, annotation, ledger of calls where there is one) into *tree*."""
    assert case.truth is not None
    copy_incident(case, tree.incident_path(case.datapack.incident.id))
    id_ = case.datapack.incident.id
    tree.write_truth(case.truth)
    if case.annotation is not None:
        tree.write_annotation(id_, case.annotation)
    ledger = case.truth_path / "ledger.parquet" if case.truth_path else None
    if ledger is not None and ledger.exists():
        shutil.copyfile(ledger, tree.truth_path(id_) / ledger.name)


def copy_incident(case: Case, target: Path) -> None:
    """Copy the files of *case* that solvers may see (tables, environment, incident) to the new folder *target*."""
    target.mkdir(parents=True)
    for file in (*TABLES, ENV, INCIDENT):
        if (case.datapack.path / file).exists():
            shutil.copyfile(case.datapack.path / file, target / file)
    if not (target / INCIDENT).exists():
        write_noun(target / INCIDENT, case.datapack.incident.model_copy(update={"content_hash": ""}))


def _build_suite(name: str, selection: Selection, annotated: dict[str, Case]) -> Suite:
    """Return the suite *name* of the selected cases; its canary string is derived from name and contents."""
    items = tuple(
        SuiteItem(id=c.id, system=c.system, content_hash=annotated[c.id].datapack.incident.content_hash)
        for c in selection.taken
    )
    mark = hashlib.sha256("\n".join([name, *(f"{i.id} {i.content_hash}" for i in items)]).encode()).hexdigest()
    return Suite(
        name=name, canary=f"opsassay-canary-{mark[:32]}", items=items, datasheet=_datasheet(selection, annotated)
    )


def _datasheet(selection: Selection, annotated: dict[str, Case]) -> dict[str, Any]:
    """Return the fields of the paper's datasheet (Appendix A) that can be computed from the data."""
    truths = [annotated[candidate.id].truth for candidate in selection.taken]
    kinds = Counter(f.kind.value for t in truths if t for f in t.faults if f.kind)
    return {
        "motivation": "process-level grading of diagnoses: the answer, and whether a verified path grounds it",
        "composition": {
            "instances": len(selection.taken),
            "per_system": dict(sorted(Counter(c.system for c in selection.taken).items())),
            "per_family": dict(sorted(Counter(c.stratum[1] for c in selection.taken).items())),
            "per_kind": dict(sorted(kinds.items())),
            "longest_paths": dict(sorted(Counter(c.size[0] for c in selection.taken).items())),
            "left_out": dict(sorted(Counter(selection.left_out.values()).items())),
            "instance": "telemetry of a normal and an abnormal window, the fault, the verified causal graph",
            "personal_data": "none: synthetic load",
            "splits": "none",
        },
        "collection": sorted({t.isolation for t in truths if t and t.isolation}) or ["imported"],
        "labelling": f"opsassay {version('opsassay')} annotate; thresholds in each annotation.json",
        "uses": "grading; not for training what is graded, and not representative of production",
        "distribution": f"checksums in {CHECKSUMS}; a canary is planted in suite.json",
        "maintenance": "a changed case is a new suite",
        "reproducibility": "annotations are deterministic; made_from names what each was made from",
    }


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS of all files below *folder*, which `sha256sum -c` checks."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n" for path in files]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")
