"""Entity metrics of ITBench's judge, computed: precision, recall and F1 of root causes, of the first k, and proximity.

Source: itbench_evaluations of github.com/itbench-hub/ITBench-SRE-Agent, where a model maps names to the ground truth and a
calculator does the rest; here `ItbenchTruth.group_of` maps them. Proximity of a claimed entity is 1 / (1 + hops) to the
nearest true root along the propagations of the truth, whichever way they run, 0 for what is not on them; recall is the same
seen from the true roots. What asks for an opinion is in `itbench_opinions`, the first component that fails in
`itbench_first_failure`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from opsassay.scoring.itbench import ItbenchAnswer, ItbenchTruth
from opsassay.scoring.metrics import harmonic_mean

from .running import part_of

MOST = 5
"""The largest k of the first k claims."""


@dataclass(frozen=True)
class Entities:
    """How claims and true roots match, in [0, 1]; *first* has recall among the first k claims, by k."""

    precision: float
    recall: float
    first: Mapping[int, float]
    near_precision: float
    near_recall: float

    @property
    def f1(self) -> float:
        """Of precision and recall."""
        return harmonic_mean(self.precision, self.recall)

    @property
    def near_f1(self) -> float:
        """Of proximity's precision and recall."""
        return harmonic_mean(self.near_precision, self.near_recall)


def entities_of(truth: ItbenchTruth, answer: ItbenchAnswer) -> Entities:
    """Return how the roots that *answer* claims match those of *truth*; aliases are one, no claim is 0 throughout."""
    alike = {name: min(group) for group in truth.aliases for name in group}

    def one(name: str) -> str:
        group = truth.group_of(name) or name
        return alike.get(group, group)

    claimed = list(dict.fromkeys(map(one, answer.roots)))
    true = set(map(one, truth.truth.roots))
    hits = [name in true for name in claimed]
    edges = [(one(edge.source), one(edge.target)) for edge in truth.truth.annotation.graph.edges]
    from_true, from_claimed = hops_between(edges, true), hops_between(edges, claimed)
    return Entities(
        precision=_mean(map(float, hits)),
        recall=sum(hits) / len(true),
        first={k: sum(hits[:k]) / len(true) for k in range(1, MOST + 1)},
        near_precision=_mean(_near(from_true.get(name)) for name in claimed),
        near_recall=_mean(_near(from_claimed.get(name)) for name in true),
    )


def _near(hops: int | None) -> float:
    return 0.0 if hops is None else 1 / (1 + hops)


def hops_between(edges: Iterable[tuple[str, str]], begin: Iterable[str]) -> dict[str, int]:
    """Return the fewest edges, in either direction, from *begin* to each name that they reach."""
    beside: dict[str, set[str]] = {}
    for a, b in edges:
        beside.setdefault(a, set()).add(b)
        beside.setdefault(b, set()).add(a)
    found = dict.fromkeys(begin, 0)
    waiting = deque(found)
    while waiting:
        name = waiting.popleft()
        for other in beside.get(name, ()):
            if other not in found:
                found[other] = found[name] + 1
                waiting.append(other)
    return found


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return fmean(listed) if listed else 0.0


if __name__ == "__main__":
    part_of("itbench_answers")
