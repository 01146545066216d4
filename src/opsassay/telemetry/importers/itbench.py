"""ITBench ground truth (itbench-hub/ITBench): the faults and their propagation, without telemetry.

``groundtruth_v1.yaml`` comes flat or under ``spec``: groups (entities, each with its name or regular expressions that
match its names), aliases, propagations and alerts. ``groundtruth.yaml`` (v2) names the faulted objects and the solutions.
The truth for grading is v1 if it names a root cause, else v2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import rustworkx
import yaml

from opsassay.core.errors import ConfigError, DatapackError
from opsassay.core.schema.causal_graph import PUBLISHED, Annotation, CausalEdge, CausalGraph, CausalNode
from opsassay.core.schema.files import require_small
from opsassay.core.schema.incident import Label, RootLabel, Truth
from opsassay.core.text import first_line
from opsassay.telemetry.backends.matching import RegexError, compile_regex
from opsassay.telemetry.importers.cases import (
    ImportReport,
    OnCase,
    ReadCase,
    Source,
    case_id,
    folders_below,
    import_sources,
)

V1, V2 = "groundtruth_v1.yaml", "groundtruth.yaml"
ENTITIES = "entities.json"
"""File of the truth folder with groups, filters and aliases: the names of each entity."""


def import_itbench(source: Path, out: Path, on_case: OnCase | None = None) -> ImportReport:
    """Import the ground truth of every scenario in *source* into the tree *out*; there is no telemetry.

    For each case truth.json, causal_graph.json, annotation.json (its propagations) and entities.json are written. Wrong
    parts of a file are left out and noted in the report: unknown ids, filters that are no regular expression,
    propagations without both ends, groups without an id; cycles are kept and noted. A file that is not YAML, or has
    neither groups nor entities, fails. *on_case* gets each name and outcome. Raises UserError without any.
    """
    expected = f"expected folders with {V1} or {V2}."
    folders = folders_below(source, lambda f: (f / V1).exists() or (f / V2).exists(), expected)
    return import_sources(map(_source_of_folder, folders), out, on_case)


def _source_of_folder(folder: Path) -> Source:
    """Return the scenario in *folder* as a source that can be imported."""
    id_ = case_id("itbench", folder.name)
    return Source(folder.name, id_, partial(_read_case, folder, id_))


@dataclass(frozen=True)
class GroundTruth:
    """A parsed ground truth: groups by id, ids of root causes, the annotation, and *further* files (name to text)."""

    groups: Mapping[str, Mapping[str, Any]]
    roots: tuple[str, ...]
    annotation: Annotation
    further: Mapping[str, str]


def _read_case(folder: Path, id_: str) -> ReadCase:
    """Read the ground truth in *folder* as a case without telemetry; raises DatapackError."""
    notes: list[str] = []
    file, found = graded_truth(folder, notes)
    roots = tuple(_label_of_group(found.groups[name]) for name in found.roots)
    objects = [] if file == V2 else [g["name"] for g in faulted_objects(read_spec(folder / V2, []) or {}, [])]
    names = (f"itbench: graded by {file}", *(f"itbench: faulted object {name}" for name in objects))
    truth = Truth(id=id_, system="itbench", roots=roots, notes=names)
    annotation = found.annotation.model_copy(update={"notes": tuple(notes)})
    return ReadCase(None, truth, annotation=annotation, further=found.further, notes=tuple(notes))


def graded_truth(folder: Path, notes: list[str], files: Sequence[str] = (V1, V2)) -> tuple[str, GroundTruth]:
    """Return (file name, truth) of the first of *files* that names a root cause; raises DatapackError. Adds to *notes*."""
    for file in files:
        spec = read_spec(folder / file, notes)
        if spec is not None:
            found = ground_truth(folder.name, spec, file, notes)
            if found.roots:
                return file, found
            notes.append(f"{file} names no root cause")
    raise DatapackError(f"{folder} has no ground truth that names a root cause: {'; '.join(notes)}.")


def ground_truth(case: str, spec: Mapping[str, Any], file: str, notes: list[str]) -> GroundTruth:
    """Return the truth of *case* from *spec*, the content of *file*; what is wrong in it is added to *notes*."""
    if not spec.get("groups"):
        spec = {"groups": faulted_objects(spec, notes)}
    groups = _read_groups(spec, file, notes)
    graph = _read_graph(case, spec, groups, file, notes)
    aliases = _alias_groups(spec.get("aliases"))
    named = {name for group in aliases for name in group}
    notes += [f"{file}: the alias {name!r} is no group" for name in sorted(named - groups.keys())]
    annotation = Annotation(
        label=Label.ATTRIBUTED if graph.edges and graph.root_causes else Label.UNEXPLAINED,
        reason=f"{PUBLISHED}{file}",
        graph=graph,
    )
    entities = {
        "groups": {
            name: {"kind": g.get("kind"), "name": g.get("name"), "filters": filters_of(g)} for name, g in groups.items()
        },
        "aliases": aliases,
    }
    roots = tuple(name for name, group in groups.items() if group.get("root_cause"))
    return GroundTruth(groups, roots, annotation, {ENTITIES: json.dumps(entities, indent=1, sort_keys=True) + "\n"})


def _alias_groups(aliases: Any) -> list[list[str]]:
    """Return *aliases* as groups of names of one entity; a plain list is one group, nested lists are flattened."""
    listed = _as_list(aliases)
    whole = listed if any(isinstance(one, list) for one in listed) else [listed]
    return [names for names in map(_flatten_names, whole) if names]


def _flatten_names(value: Any) -> list[str]:
    """Return the texts in *value*, which is one text, None, or nested lists of texts."""
    if not isinstance(value, list):
        return [] if value is None else [str(value)]
    return [name for one in value for name in _flatten_names(one)]


def read_spec(path: Path, notes: list[str]) -> dict[str, Any] | None:
    """Return the mapping in the YAML file *path*, under ``spec`` if it has one; None, and a note, if unusable."""
    if not path.exists():
        notes.append(f"there is no {path.name}")
        return None
    try:
        text = path.read_text(encoding="utf-8")
        require_small(text, path.name)
        documents = [d for d in yaml.safe_load_all(text) if d is not None]
    except (ConfigError, yaml.YAMLError, UnicodeDecodeError, OSError, RecursionError) as error:
        notes.append(f"{path.name} is not YAML ({first_line(error)})")
        return None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        notes.append(f"{path.name} holds {len(documents)} documents instead of one mapping")
        return None
    spec = documents[0].get("spec", documents[0])
    if not isinstance(spec, dict) or not {"groups", "entities"} & spec.keys():
        notes.append(f"{path.name} has neither groups nor entities")
        return None
    return spec


def _read_groups(spec: Mapping[str, Any], file: str, notes: list[str]) -> dict[str, dict[str, Any]]:
    """Return id to group of *spec*; what is wrong with one is added to *notes*, which name *file*."""
    found: dict[str, dict[str, Any]] = {}
    for place, group in enumerate(_as_list(spec.get("groups"))):
        if not isinstance(group, dict) or not group.get("id"):
            notes.append(f"{file}: group {place + 1} has no id")
            continue
        name = str(group["id"])
        if name in found:
            notes.append(f"{file}: the group {name!r} occurs twice; the first is kept")
            continue
        found[name] = group
        for pattern in filters_of(group):
            try:
                compile_regex(pattern)
            except RegexError as error:
                notes.append(f"{file}: of the group {name!r} the filter {error}")
        if not filters_of(group):
            notes.append(f"{file}: the group {name!r} has no filter, so no name matches it")
    return found


def _read_graph(
    case: str, spec: Mapping[str, Any], groups: Mapping[str, Mapping[str, Any]], file: str, notes: list[str]
) -> CausalGraph:
    """Return the causal graph of *case* from the propagations and alerts of *spec*.

    What is wrong with an entry is added to *notes*, which name *file*.
    """
    edges: dict[tuple[str, str], CausalEdge] = {}
    for place, step in enumerate(_as_list(spec.get("propagations"))):
        ends = [str(step.get(end) or "") for end in ("source", "target")] if isinstance(step, dict) else ["", ""]
        if not all(ends):
            notes.append(f"{file}: propagation {place + 1} lacks its source or its target")
            continue
        dangling = [end for end in ends if end not in groups]
        if dangling:
            notes.append(f"{file}: propagation {place + 1} names {', '.join(map(repr, dangling))}, which is no group")
            continue
        edges.setdefault(
            (ends[0], ends[1]),
            CausalEdge(
                source=ends[0], target=ends[1], evidence={k: step[k] for k in ("condition", "effect") if k in step}
            ),
        )
    _say_cycles(list(edges), file, notes)
    alarms = {str(a.get("group_id")) for a in _as_list(spec.get("alerts")) if isinstance(a, dict) and a.get("group_id")}
    notes += [f"{file}: an alert names {name!r}, which is no group" for name in sorted(alarms - groups.keys())]
    reached = {end for pair in edges for end in pair}
    roots = [name for name, group in groups.items() if group.get("root_cause")]
    nodes = tuple(CausalNode(component=name) for name in sorted(reached | set(roots)))
    return CausalGraph(
        case_name=case,
        nodes=nodes,
        edges=tuple(edges.values()),
        root_causes=tuple(CausalNode(component=name) for name in roots),
        alarm_nodes=tuple(CausalNode(component=name) for name in sorted(alarms & groups.keys())),
    )


def _say_cycles(pairs: list[tuple[str, str]], file: str, notes: list[str]) -> None:
    """Add a note to *notes* for every cycle in *pairs*, the (cause, effect) edges of *file*."""
    names = sorted({end for pair in pairs for end in pair})
    index = {name: place for place, name in enumerate(names)}
    graph: rustworkx.PyDiGraph[str, None] = rustworkx.PyDiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from_no_data([(index[a], index[b]) for a, b in pairs])
    circles = [
        sorted(names[i] for i in part) for part in rustworkx.strongly_connected_components(graph) if len(part) > 1
    ]
    circles += [[a] for a, b in pairs if a == b]
    notes += [f"{file}: the propagations run in a circle: {', '.join(circle)}" for circle in sorted(circles)]


def faulted_objects(spec: Mapping[str, Any], notes: list[str]) -> list[dict[str, Any]]:
    """Return the objects that *spec*, of a v2 file, marks as faulted, as root-cause groups; adds to *notes*."""
    found: dict[str, dict[str, Any]] = {}
    for place, entity in enumerate(_as_list(spec.get("entities"))):
        about = entity.get("metadata") if isinstance(entity, dict) else None
        if not isinstance(about, dict) or not about.get("name"):
            notes.append(f"{V2}: entity {place + 1} has no name")
            continue
        kind, namespace = str(entity.get("kind") or ""), str(about.get("namespace") or "")
        group: dict[str, Any] = {"kind": kind, "namespace": namespace, "name": str(about["name"]), "root_cause": True}
        name = "/".join(filter(None, (namespace, kind, group["name"])))
        found.setdefault(name, {"id": name, **group})
    return list(found.values())


def _label_of_group(group: Mapping[str, Any]) -> RootLabel:
    """Return the label of a root cause that is the ITBench entity *group*."""
    names = tuple(dict.fromkeys(str(group[key]) for key in ("id", "name") if group.get(key)))
    return RootLabel(service=names, pod=names if str(group.get("kind")).lower() == "pod" else ())


def filters_of(group: Mapping[str, Any]) -> list[str]:
    """Return the regular expressions that match the entities of *group*: its own name, then its filters."""
    return [re.escape(str(name)) for name in _as_list(group.get("name"))] + [
        str(pattern) for pattern in _as_list(group.get("filter"))
    ]


def stem_of(pattern: str) -> str:
    r"""Return the plain name in the filter *pattern*: ``ad`` for ``ad-.*``, ``ad\b``, ``^ad$`` and ``.*ad``."""
    bare = re.sub(r"^(\^|[*+?]?\.[*+]-?)+|(\$|\\b|-?\.[*+])+$", "", pattern)
    return re.sub(r"\\(.)", r"\1", bare)


def compiled_filter(pattern: str) -> Any:
    """Compile the filter *pattern*, with ``-.*`` optional and without a leading ``*``, by RE2; None when it is not valid.

    RE2 takes time in proportion to the name, whatever the filter is; it has no lookaround and no backreferences.
    """
    try:
        return compile_regex(re.sub(r"(?<=\w)-\.\*", "(?:-.*)?", pattern.lstrip("*+?")))
    except RegexError:
        return None


def fits_filter(pattern: Any, name: str) -> bool:
    """Return whether the compiled *pattern* matches all of *name*, or of a pod's name without its suffix."""
    return any(pattern.fullmatch(f"{name}{end}") for end in ("", "-0", "-5d9c7f6b8-x2x4z"))


def _as_list(value: Any) -> list[Any]:
    """Return *value* as a list: [] for None, [*value*] for anything that is no list."""
    return value if isinstance(value, list) else [] if value is None else [value]
