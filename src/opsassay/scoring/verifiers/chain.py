"""How near an operator's diagnosis comes to the chain of a live scenario: NTAM of its root causes and of its steps.

The topology is that of the run: who calls whom and uses which store, as the system is defined, and which service and which
host owns which pod, as the timeline saw them. So a pod that is named in the place of its deployment is near, and not right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.system import System
from opsassay.scoring.metrics import TOPOLOGY, Metrics, not_applicable, scored
from opsassay.scoring.ntam import Ntam, chains_of
from opsassay.scoring.topology import Topology
from opsassay.scoring.verifiers.evidence import RunRecording

Edge = tuple[str, str]


def chain_metrics(recording: RunRecording, scenario: Scenario, system: System | None) -> Metrics:
    """Return ntam_fl and ntam_fpc of the agent's last diagnosis; {} when none was asked for.

    Both are 0 when it submitted none. Not applicable where nothing is broken, where the truth names no root cause, and
    when *system* is None because its definition no longer exists.
    """
    if recording.diagnoses is None:
        return {}
    true = sorted(scenario.true_causes())
    if scenario.no_fault or not true or system is None:
        return not_applicable(TOPOLOGY, "there is no chain that an answer could be matched with")
    if not recording.diagnoses:
        return dict.fromkeys(TOPOLOGY, scored(0.0))
    said, known = recording.diagnoses[-1], _Entities(recording, scenario, system)
    roots, edges = known.all_of(said.root_causes), known.edges_of(said.chain())
    topology = known.topology({*roots, *(end for edge in edges for end in edge)})
    steps = [(one.source, one.target) for one in scenario.truth.propagation]
    truth, answer = chains_of(steps, true, topology), chains_of(edges, roots, topology)
    ntam = Ntam(topology)
    return {"ntam_fl": scored(ntam.localisation(truth, answer)), "ntam_fpc": scored(ntam.propagation(truth, answer))}


@dataclass(frozen=True)
class _Entities:
    """What there is in a run, and what the names of an answer mean there."""

    recording: RunRecording
    scenario: Scenario
    system: System

    def all_of(self, names: Iterable[str]) -> list[str]:
        """Return *names* as the topology has them (see `resolve_name`), in order."""
        return [self.resolve_name(name) for name in names]

    def edges_of(self, edges: Iterable[Edge]) -> list[Edge]:
        """Return *edges* with the names at both ends as the topology has them (see `resolve_name`)."""
        return [(self.resolve_name(a), self.resolve_name(b)) for a, b in edges]

    def resolve_name(self, name: str) -> str:
        """Return *name* if it is a known alias, else the last part of NAMESPACE/KIND/NAME."""
        name = name.strip()
        return name if name in self._alias_names else name.rpartition("/")[2] or name

    def topology(self, names: Iterable[str]) -> Topology:
        """Return the system's topology; a pod among *names* has the owner whose filter in the scenario matches it."""
        truth, system = self.scenario.truth, self.system
        owned = {
            (owner, name) for name in names for owner, patterns in truth.filters.items()
            if name not in self._service_names and any(re.fullmatch(pattern, name) for pattern in patterns)
        }  # fmt: skip
        known = self._service_names | set(system.hosts)
        # what no definition knows (a policy, a name server) is next to what it makes fail
        beside = {(o.target, o.source) for o in truth.propagation if not {o.source, o.target} <= self._service_names}
        return Topology(
            owns=frozenset(self._owned_pods | owned),
            calls=frozenset(system.calls() | system.uses() | beside),
            entities=frozenset(known | set(truth.root_causes)),
            aliases=tuple(frozenset({name, *others}) for name, others in truth.aliases.items()),
        )

    @cached_property
    def _service_names(self) -> set[str]:
        """The names of all services and stores of the system."""
        return {*self.system.services, *self.system.stores}

    @cached_property
    def _alias_names(self) -> set[str]:
        """The names that the scenario's truth lists as aliases."""
        return {name for names in self.scenario.truth.aliases.values() for name in names}

    @cached_property
    def _owned_pods(self) -> set[Edge]:
        """The (owner, pod) edges of the recording: from its service, and from its host if known."""
        open_names = {name: open_name for open_name, name in self.recording.names.items()}
        seen = [entity for tick in self.recording.timeline.ticks for entity in tick.entities]
        pods = {(entity.service, entity.id) for entity in seen if entity.id != entity.service}
        hosts = {(open_names.get(e.host, e.host), e.id) for e in seen if e.host is not None}
        return pods | hosts
