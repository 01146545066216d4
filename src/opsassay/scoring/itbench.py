"""Answers in ITBench's form, compared with ITBench's ground truth: NTAM of root causes and of the propagation.

The form is ``agent_output.json`` of ITBench's public SRE agent: ``entities`` with ``name`` (NAMESPACE/KIND/NAME) or
``id`` and ``contributing_factor`` or ``root_cause``; ``propagations`` with ``source`` and ``target``. An entity is the
group of the ground truth whose kind and name or filter it matches; a workload owns the pods with its name as prefix.
Calls are derived from the propagations of the ground truth: an effect calls its cause.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError, UserError
from opsassay.core.untrusted import read_plain
from opsassay.scoring.itbench_names import EntityName, owners_of, readings_of, singular_kind
from opsassay.scoring.ntam import TABLE_33, Ntam, Parameters, chains_of
from opsassay.scoring.topology import Topology
from opsassay.telemetry.importers.itbench import (
    ENTITIES,
    V1,
    V2,
    GroundTruth,
    compiled_filter,
    filters_of,
    fits_filter,
    graded_truth,
    stem_of,
)

MOST_BYTES = 4 * 2**20
LONGEST_NAME = 300
WORKLOADS = frozenset({"deployment", "statefulset", "daemonset", "replicaset", "job"})
"""Kinds whose name is the prefix of their pods' names."""
CLUSTER_WIDE = frozenset({"namespace", "node", "persistentvolume", "storageclass", "clusterrole", "clusterrolebinding"})
"""Kinds whose objects have no namespace; a stated one is ignored."""


@dataclass(frozen=True)
class ItbenchAnswer:
    """The claims of an agent: names of contributing entities, and propagations (cause, effect)."""

    roots: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]

    @property
    def all_names(self) -> tuple[str, ...]:
        """The names of all entities in the answer, without duplicates."""
        return tuple(dict.fromkeys([*self.roots, *(end for edge in self.edges for end in edge)]))


@dataclass(frozen=True)
class ItbenchScore:
    """The scores of an answer: *fl* and *fpc* are NTAM in [0, 1], *found* is whether any claimed root is true.

    *precision* is the share of claimed roots that are true, *unknown* are the names without an entity in the truth, *truth*
    is the file name of the ground truth.
    """

    fl: float
    fpc: float
    found: bool
    precision: float | None
    unknown: tuple[str, ...]
    truth: str


@dataclass(frozen=True)
class ItbenchTruth:
    """The ground truth of one scenario, and the search for the group that a name means."""

    name: str
    truth: GroundTruth
    file: str = V1
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def read(cls, folder: Path, files: Sequence[str] = (V1, V2)) -> ItbenchTruth:
        """Return the truth in the first of *files* in *folder* that names a root cause; raises UserError."""
        notes: list[str] = []
        try:
            file, truth = graded_truth(folder, notes, files)
        except DatapackError as error:
            raise UserError(str(error)) from error
        return cls(folder.name, truth, file, tuple(notes))

    def score(self, answer: ItbenchAnswer, parameters: Parameters = TABLE_33) -> ItbenchScore:
        """Return the scores of *answer* against this truth, with *parameters* of the topology-aware match (NTAM)."""
        groups = {name: self.group_of(name) for name in answer.all_names}
        topology = self._build_topology(groups)
        edges = [(edge.source, edge.target) for edge in self.truth.annotation.graph.edges]
        true = chains_of(edges, self.truth.roots, topology)
        said_roots = [groups[name] or name for name in answer.roots]
        said = chains_of([(groups[a] or a, groups[b] or b) for a, b in answer.edges], said_roots, topology)
        roots = set(topology.all_of(self.truth.roots))
        right = [name for name in topology.all_of(said_roots) if name in roots]
        ntam, claimed = Ntam(topology, parameters), topology.all_of(said_roots)
        return ItbenchScore(
            ntam.localisation(true, said),
            ntam.propagation(true, said),
            bool(right),
            len(right) / len(claimed) if claimed else None,
            tuple(name for name, group in groups.items() if group is None and not self._owned_pod_groups(name)),
            self.file,
        )

    def _build_topology(self, group_of_name: Mapping[str, str | None]) -> Topology:
        """Return the topology: calls are reversed cascade edges; workloads of no group own the pods they match.

        *group_of_name* is the truth's group by name in the answer, None for no group.
        """
        edges = self.truth.annotation.graph.edges
        calls = frozenset((edge.target, edge.source) for edge in edges if edge.source != edge.target)
        owns = frozenset(
            (name, pod)
            for name, group in group_of_name.items()
            if group is None
            for pod in self._owned_pod_groups(name)
        )
        known = frozenset(self.truth.groups)
        return Topology(owns, calls, known | {name for name, _ in owns}, self.aliases)

    @cached_property
    def aliases(self) -> tuple[frozenset[str], ...]:
        """The sets of entity groups that count as one: declared as aliases, or indistinguishable by name."""
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name, of in self.truth.groups.items():
            alike[str(of.get("kind")).lower(), str(of.get("namespace")), *map(str, filters_of(of) or [name])].append(
                name
            )
        said = json.loads(self.truth.further[ENTITIES])["aliases"]
        return tuple(map(frozenset, [*said, *(names for names in alike.values() if len(names) > 1)]))

    def group_of(self, name: str) -> str | None:
        """Return the id of the truth's group that the entity *name* belongs to, None when there is none.

        Best is a group of that name, then one whose filter matches the whole name, then one whose filter matches its
        beginning; among equals the longest filter. Of several readings of *name* with equal matches the likeliest
        counts. A name without a group belongs to its workload, such as a replica set to its deployment.
        """
        if name in self.truth.groups:
            return name
        readings = self._readings(name)
        small = name.strip().lower()
        return (
            self._nearest(readings)
            or next((group for group in self.truth.groups if group.lower() == small), None)
            or self._nearest([owner for one in readings for owner in owners_of(one)])
        )

    def _readings(self, name: str) -> list[EntityName]:
        """Return the (namespace, kind, name) that *name* can mean, given the kinds and namespaces of this truth."""
        groups = self.truth.groups.values()
        kinds, namespaces = ({str(of.get(key) or "") for of in groups} for key in ("kind", "namespace"))
        return readings_of(name, kinds - {""}, {one.lower() for one in namespaces - {""}})

    def _nearest(self, readings: Sequence[EntityName]) -> str | None:
        """Return the id of the group that one of *readings* matches best, None when no filter matches any.

        If a name without kind equals groups of several kinds, a root cause is preferred.
        """
        roots = self.truth.roots
        found = [
            ((distance[0], place, bool(one.kind or distance[0]) or group not in roots, *distance[1:]), group)
            for place, one in enumerate(readings)
            for group in self.truth.groups
            if self._group_fits(group, one) and (distance := self.distance(group, one.name)) is not None
        ]
        return min(found)[1] if found else None

    def distance(self, group: str, base: str) -> tuple[int, int, bool, int] | None:
        """Return a key, lowest best, to sort how well name *base* fits *group*: kind of match, filter length, order."""
        filters = filters_of(self.truth.groups[group])
        place = list(self.truth.groups).index(group)
        exact = base == group or any(base in {pattern, stem_of(pattern)} for pattern in filters)
        compiled = [one for one in map(compiled_filter, filters) if one is not None]
        whole = any(fits_filter(one, base) for one in compiled)
        if not exact and not whole and not any(one.match(base) for one in compiled):
            return None
        says = max((len(stem_of(pattern)) for pattern in filters), default=0)
        return 0 if exact else 1 if whole else 2, -says, not group.startswith(f"{base}-"), place

    def _owned_pod_groups(self, name: str) -> list[str]:
        """Return the ids of pod groups whose filters match the workload *name*; [] for other kinds."""
        for one in self._readings(name):
            if one.kind not in WORKLOADS:
                continue
            pods = [group for group in self.truth.groups if self._group_fits(group, one._replace(kind="pod"))]
            patterns = {pod: map(compiled_filter, filters_of(self.truth.groups[pod])) for pod in pods}
            found = [pod for pod in pods if any(p is not None and fits_filter(p, one.name) for p in patterns[pod])]
            if found:
                return found
        return []

    def _group_fits(self, group: str, reading: EntityName) -> bool:
        """Return whether *group* may have the kind and namespace of *reading*, where "" fits anything."""
        of = self.truth.groups[group]
        kind, namespace = singular_kind(str(of.get("kind") or "")), str(of.get("namespace") or "").lower()
        anywhere = not reading.namespace or not namespace or kind in CLUSTER_WIDE
        return (not reading.kind or not kind or kind == reading.kind) and (anywhere or namespace == reading.namespace)


def read_itbench_answer(path: Path) -> ItbenchAnswer:
    """Return the answer in the file *path*; raises UserError when it is not in ITBench's form."""
    try:
        given = json.loads(read_plain(path, MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({str(error)[:100]}); it counts as no answer.") from error
    entities = given.get("entities") if isinstance(given, dict) else None
    if not isinstance(entities, list):
        raise UserError(f"{path} has no list of entities; an answer has entities and propagations.")
    roots = [_name_of_entity(one) for one in entities if isinstance(one, dict) and _is_contributing(one)]
    listed = given.get("propagations") or []
    pairs = [(one.get("source"), one.get("target")) for one in listed if isinstance(one, dict)]
    edges = [(a[:LONGEST_NAME], b[:LONGEST_NAME]) for a, b in pairs if isinstance(a, str) and isinstance(b, str)]
    return ItbenchAnswer(tuple(dict.fromkeys(filter(None, roots))), tuple(dict.fromkeys(edges)))


def _is_contributing(entity: Mapping[str, Any]) -> bool:
    """Return whether *entity* is marked as a root cause: `contributing_factor`, in older files `root_cause`."""
    return entity.get("contributing_factor", entity.get("root_cause")) is True


def _name_of_entity(entity: Mapping[str, Any]) -> str:
    """Return the `name` of *entity*, else its `id`, cut to `LONGEST_NAME`; "" when it is no string."""
    name = entity.get("name", entity.get("id"))
    return name[:LONGEST_NAME] if isinstance(name, str) else ""
