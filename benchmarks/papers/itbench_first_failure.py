"""The first component that fails, as ITBench's judge defines it, read off the propagations of a ground truth.

Source: itbench_evaluations of github.com/itbench-hub/ITBench-SRE-Agent, `fault_localization`. Effects of the propagations
are read in their order, from the root cause on. The first that speaks of a failure of service (errors, latency, saturation,
unavailability, crashes), and not of a setting alone, tells the component: the one that it names first, else the target.
Without such an effect it is the component after the root cause. There a model reads the effects; here their words decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from opsassay.core.schema.causal_graph import CausalEdge
from opsassay.scoring.itbench import ItbenchAnswer, ItbenchTruth
from opsassay.telemetry.importers.itbench import filters_of, stem_of

from .running import part_of

FAILURE = re.compile(
    r"\berrors?\b|\berror rate|\bfail\w*|\blatency|\bslow\w*|\bhigh cpu|\bsaturat\w*|\bthreshold|\bunavailable"
    r"|\bcannot\b|\bcrash\w*|\btime[ds]? ?out|\btimeouts?\b|\boom\w*|imagepullbackoff|\bstuck\b|\bnotready\b"
    r"|\bexceptions?\b|\bdelay\w*",
    re.IGNORECASE,
)
SETTING = re.compile(
    r"\benable[sd]?\b|\bflag\b.*\bset\b|\bconfig\w* (?:updated|changed)|\bpassword set\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Components:
    """The components of a ground truth: entities of one name, and aliases, are one component whatever their kinds."""

    truth: ItbenchTruth

    @cached_property
    def of_group(self) -> Mapping[str, str]:
        """The component of each group: the name that its filter is about, the shortest of those of its aliases."""
        found = dict(self._bare_names)
        for alike in self.truth.aliases:
            known = [name for name in alike if name in found]
            found.update(dict.fromkeys(known, min((found[name] for name in known), key=_short, default="")))
        return found

    @cached_property
    def _bare_names(self) -> Mapping[str, str]:
        groups = self.truth.truth.groups
        return {name: _bare(stem_of((filters_of(of) or [name])[-1])) for name, of in groups.items()}

    def of(self, name: str) -> str:
        """Return the component of the entity *name*, of the truth or of an answer."""
        group = self.truth.group_of(name)
        return _bare(name.rpartition("/")[2]) if group is None else self.of_group[group]

    def on_path(self, answer: ItbenchAnswer) -> frozenset[str]:
        """Return the components on the path of *answer*: those of its root causes and of its propagations."""
        return frozenset(map(self.of, answer.all_names))

    @cached_property
    def edges(self) -> tuple[CausalEdge, ...]:
        """The propagations in their order, from the first on that begins at the component of a root cause."""
        edges = self.truth.truth.annotation.graph.edges
        start = next((place for place, edge in enumerate(edges) if self.of_group[edge.source] in self.roots), 0)
        return edges[start:] + edges[:start]

    @cached_property
    def roots(self) -> frozenset[str]:
        """The components of the root causes."""
        return frozenset(self.of_group[name] for name in self.truth.truth.roots)

    @cached_property
    def first_failing(self) -> str | None:
        """The component that fails first; None where the truth has no propagations beyond its root causes."""
        for edge in self.edges:
            effect = str(edge.evidence.get("effect") or "")
            if FAILURE.search(effect) and not SETTING.search(effect):
                return self._named_first(effect) or self.of_group[edge.target]
        after = (self.of_group[edge.target] for edge in self.edges)
        return next((one for one in after if one not in self.roots), None)

    def _named_first(self, effect: str) -> str | None:
        """Return the component that *effect* names first, of two at one place the longer name; None when it names none."""
        found = []
        for group, name in self._bare_names.items():
            words = r"[- ]?".join(map(re.escape, re.split(r"[- ]", name)))
            if match := re.search(rf"(?<![\w-]){words}(?![\w-])", effect, re.IGNORECASE):
                found.append((match.start(), -len(name), self.of_group[group]))
        return min(found)[2] if found else None


def _short(name: str) -> tuple[int, str]:
    return len(name), name


def _bare(name: str) -> str:
    """Return *name* in small letters without the end of a pod's name, a number, or the word for a kind."""
    small = re.sub(r"-[0-9a-f]{7,10}-[a-z0-9]{5}$|-\d+$", "", name.lower())
    return re.sub(r"-(?:service|pod|deployment)$", "", small)


if __name__ == "__main__":
    part_of("itbench_answers")
