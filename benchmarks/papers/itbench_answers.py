"""Answers in ITBench's own form, matched with ITBench's own ground truth: NTAM of root causes and of the chain.

The form is that of ``agent_output.json`` of ITBench's public SRE agent: ``entities`` with ``name`` (NAMESPACE/KIND/NAME) or
``id`` and ``contributing_factor`` or ``root_cause``; ``propagations`` with ``source`` and ``target``. An entity is the
group of the ground truth whose kind and filter it matches; a workload owns the pods that are called after it. Who calls
whom follows from the propagations of the ground truth: an effect calls its cause.

Run: ``python -m benchmarks.papers.itbench_answers TRUTHS ANSWERS``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import click

from opsassay.cli.output import json_option, print_json, print_table, say
from opsassay.core.errors import UserError
from opsassay.core.untrusted import read_plain
from opsassay.scoring.ntam import Ntam, chains_of
from opsassay.scoring.topology import Topology
from opsassay.telemetry.importers.itbench import V1, GroundTruth, filters_of, ground_truth, read_spec

from .running import run

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
OUTPUTS = ("agent_output.json", "agent_response.json")
MOST_BYTES = 4 * 2**20
LONGEST_NAME = 300
OWNERS = frozenset({"deployment", "statefulset", "daemonset", "replicaset", "job"})
"""Kinds whose pods are called after them."""


@dataclass(frozen=True)
class ItbenchAnswer:
    """What an agent says: entities that contribute, and propagations from cause to effect, by the names that it gives."""

    roots: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]

    @property
    def named(self) -> tuple[str, ...]:
        """Every entity that it names, once."""
        return tuple(dict.fromkeys([*self.roots, *(end for edge in self.edges for end in edge)]))


@dataclass(frozen=True)
class ItbenchScore:
    """How an answer matches: *fl* and *fpc* are NTAM in [0, 1], *found* whether a claimed root is a true one.

    *precision* is the share of claimed roots that are true ones, *unknown* what the ground truth has no entity for.
    """

    fl: float
    fpc: float
    found: bool
    precision: float | None
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class ItbenchTruth:
    """The ground truth of one scenario, with what finds the group that a name means."""

    name: str
    truth: GroundTruth
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def read(cls, folder: Path) -> ItbenchTruth:
        """Return the ground truth in *folder*; raises UserError where it names no root cause."""
        notes: list[str] = []
        spec = read_spec(folder / V1, notes)
        if spec is None:
            raise UserError(f"{folder} has no {V1} that can be read: {'; '.join(notes)}.")
        truth = ground_truth(folder.name, spec, V1, notes)
        if not truth.roots:
            raise UserError(f"{folder / V1} names no root cause, so that no answer can be matched with it.")
        return cls(folder.name, truth, tuple(notes))

    def score(self, answer: ItbenchAnswer) -> ItbenchScore:
        """Return how *answer* matches."""
        groups = {name: self._group_of(name) for name in answer.named}
        topology = self._topology(groups)
        edges = [(edge.source, edge.target) for edge in self.truth.annotation.graph.edges]
        true = chains_of(edges, self.truth.roots, topology)
        said_roots = [groups[name] or name for name in answer.roots]
        said = chains_of([(groups[a] or a, groups[b] or b) for a, b in answer.edges], said_roots, topology)
        roots = set(topology.all_of(self.truth.roots))
        right = [name for name in topology.all_of(said_roots) if name in roots]
        ntam, claimed = Ntam(topology), topology.all_of(said_roots)
        return ItbenchScore(
            ntam.localisation(true, said),
            ntam.propagation(true, said),
            bool(right),
            len(right) / len(claimed) if claimed else None,
            tuple(name for name, group in groups.items() if group is None and not self._owned(name)),
        )

    def _topology(self, groups: Mapping[str, str | None]) -> Topology:
        edges = self.truth.annotation.graph.edges
        calls = frozenset((edge.target, edge.source) for edge in edges if edge.source != edge.target)
        owns = frozenset((name, pod) for name, group in groups.items() if group is None for pod in self._owned(name))
        aliases = json.loads(self.truth.further["entities.json"])["aliases"]
        known = frozenset(self.truth.groups)
        return Topology(owns, calls, known | {name for name, _ in owns}, tuple(map(frozenset, aliases)))

    def _group_of(self, name: str) -> str | None:
        """Return the group that *name* means: by its id, else the one whose kind and filter it matches as a whole."""
        if name in self.truth.groups:
            return name
        namespace, kind, base = _parts(name)
        fitting = [one for one in self.truth.groups if self._fits(one, namespace, kind)]
        for matches in (re.fullmatch, re.match):
            for group in fitting:
                if any(matches(pattern, base) for pattern in self._filters[group]):
                    return group
        return None

    def _owned(self, name: str) -> list[str]:
        """Return the groups of pods that the workload *name* owns."""
        namespace, kind, base = _parts(name)
        if kind not in OWNERS:
            return []
        pods = [one for one in self.truth.groups if self._fits(one, namespace, "pod")]
        return [pod for pod in pods if any(re.fullmatch(pattern, f"{base}-0") for pattern in self._filters[pod])]

    def _fits(self, group: str, namespace: str, kind: str) -> bool:
        of = self.truth.groups[group]
        own_kind, own_namespace = str(of.get("kind") or "").lower(), str(of.get("namespace") or "")
        return (not kind or own_kind == kind) and (not namespace or not own_namespace or own_namespace == namespace)

    @cached_property
    def _filters(self) -> Mapping[str, list[re.Pattern[str]]]:
        return {name: list(_compiled(filters_of(group))) for name, group in self.truth.groups.items()}


def _compiled(patterns: Sequence[str]) -> Iterator[re.Pattern[str]]:
    """Yield what can be compiled: the notes of the ground truth say what cannot."""
    for pattern in patterns:
        try:
            yield re.compile(pattern)
        except re.error:
            continue


def _parts(name: str) -> tuple[str, str, str]:
    """Return namespace, kind in small letters and name of NAMESPACE/KIND/NAME; '' for what is not said."""
    *before, base = name.split("/")
    kind = before[-1].lower() if before else ""
    return before[-2] if len(before) > 1 else "", kind, base


def read_itbench_answer(path: Path) -> ItbenchAnswer:
    """Return the answer in *path*; raises UserError for what is no answer in ITBench's form."""
    try:
        given = json.loads(read_plain(path, MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({str(error)[:100]}); it counts as no answer.") from error
    entities = given.get("entities") if isinstance(given, dict) else None
    if not isinstance(entities, list):
        raise UserError(f"{path} has no list of entities; an answer has entities and propagations.")
    roots = [_name(one) for one in entities if isinstance(one, dict) and _contributes(one)]
    listed = given.get("propagations") or []
    pairs = [(one.get("source"), one.get("target")) for one in listed if isinstance(one, dict)]
    edges = [(a[:LONGEST_NAME], b[:LONGEST_NAME]) for a, b in pairs if isinstance(a, str) and isinstance(b, str)]
    return ItbenchAnswer(tuple(dict.fromkeys(filter(None, roots))), tuple(dict.fromkeys(edges)))


def _contributes(entity: Mapping[str, Any]) -> bool:
    return entity.get("contributing_factor", entity.get("root_cause")) is True


def _name(entity: Mapping[str, Any]) -> str:
    name = entity.get("name", entity.get("id"))
    return name[:LONGEST_NAME] if isinstance(name, str) else ""


@dataclass(frozen=True)
class ScenarioScores:
    """The trials of one scenario; *bad* say which left no answer: these count as 0."""

    scenario: str
    scores: Mapping[str, ItbenchScore]
    bad: Mapping[str, str]

    @property
    def trials(self) -> int:
        """How many trials there are, those without an answer included."""
        return len(self.scores) + len(self.bad)

    def mean(self, values: Sequence[float]) -> tuple[float, float | None]:
        """Return mean and standard error, sd (ddof 1) / sqrt(n), of *values* over all n trials; None for the error of one.

        Trials that left no answer count as 0.
        """
        every = [*values, *([0.0] * len(self.bad))]
        return fmean(every), stdev(every) / len(every) ** 0.5 if len(every) > 1 else None


def score_trials(truth: ItbenchTruth, folder: Path) -> ScenarioScores:
    """Score every trial in *folder*: a numbered folder with agent_output.json in it or in its ``outputs``."""
    scores, bad = {}, {}
    trials = [one for one in folder.iterdir() if one.is_dir() and one.name.isascii() and one.name.isdigit()]
    for trial in sorted(trials, key=lambda one: int(one.name)):
        places = [place / name for place in (trial / "outputs", trial) for name in OUTPUTS]
        found = next((place for place in places if place.exists()), None)
        try:
            if found is None:
                raise UserError(f"{trial} has no {OUTPUTS[0]}.")
            scores[trial.name] = truth.score(read_itbench_answer(found))
        except UserError as error:
            bad[trial.name] = str(error)
    return ScenarioScores(truth.name, scores, bad)


def scenario_number(name: str) -> str:
    """Return what two folders of one scenario have in common: the number at the end of their names, else the name."""
    found = re.search(r"(\d+)$", name)
    return found.group(1).lstrip("0") or "0" if found else name


@click.command("itbench_answers")
@click.argument("truths", type=_FOLDER)
@click.argument("answers", type=_FOLDER)
@json_option
@click.pass_context
def command(context: click.Context, truths: Path, answers: Path, *, as_json: bool) -> None:
    """Match ANSWERS of agents in ITBench's form with ITBench's ground truth in TRUTHS: root causes and chains by NTAM.

    TRUTHS holds a folder per scenario with groundtruth_v1.yaml, ANSWERS a folder per scenario with a numbered folder per
    trial; scenarios are matched by the numbers at the end of their names.
    """
    known = {scenario_number(one.name): one for one in sorted(truths.iterdir()) if (one / V1).exists()}
    found, problems = [], []
    for folder in sorted(one for one in answers.iterdir() if one.is_dir()):
        try:
            if scenario_number(folder.name) not in known:
                raise UserError(f"{folder} has no ground truth in {truths}.")
            scores = score_trials(ItbenchTruth.read(known[scenario_number(folder.name)]), folder)
        except UserError as error:
            problems.append(str(error))
            continue
        problems += scores.bad.values()
        found += [scores] if scores.trials else []
    if not found:
        why = "; ".join(problems) or "it has no folder of a scenario."
        raise UserError(f"{answers} holds no answer that can be matched; give TRUTHS first, then ANSWERS: {why}")
    for problem in problems:
        say(f"opsassay: {problem}")
    if as_json:
        print_json("itbench_answers", [_item(one, trial) for one in found for trial in one.scores], problems=problems)
    else:
        columns = ("scenario", "trials", "answered", "root found", "FL (NTAM)", "FPC (NTAM)")
        print_table("Answers against ITBench's ground truth", columns, [_row(one) for one in found])
    context.exit(1 if problems else 0)


def _row(one: ScenarioScores) -> tuple[Any, ...]:
    scores = one.scores.values()
    figures = ([float(s.found) for s in scores], [s.fl for s in scores], [s.fpc for s in scores])
    return (one.scenario, one.trials, len(one.scores), *(_text(*one.mean(values)) for values in figures))


def _text(mean: float, error: float | None) -> str:
    return f"{mean:.2f}" if error is None else f"{mean:.2f} ± {error:.2f}"


def _item(one: ScenarioScores, trial: str) -> dict[str, Any]:
    score = one.scores[trial]
    return {
        "scenario": one.scenario, "trial": int(trial), "root_found": score.found, "root_precision": score.precision,
        "ntam_fl": score.fl, "ntam_fpc": score.fpc, "unknown": list(score.unknown),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(run(command))
