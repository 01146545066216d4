"""NTAM, the normalised topology-aware match of ITBench (Appendix F), for root causes and for propagation chains.

With true chains FP_p (P of them), claimed chains FP'_q (Q of them), entities g and o, and the symbols of Table 33::

    GI(g)         = ((K + 1) / (K - k + 1)) ^ gamma                     importance at level k of K (F.1.1)
    ITD(g, o)     = GI(g) * (1 / (TD(g, o) + 1)) ^ delta                TD: `Topology.distance`, where a call
                                                                        costs zeta times an ownership (F.1.3)
    S(FP_p, FP'_q) = sum over g of max over o of ITD(g, o) ^ alpha
                     * (max over o of mean over g of ITD(g, o)) ^ beta / (| |FP'_q| - |FP_p| | + 1) ^ c   (Equation 7)
    S(G, O)       = sum over p of max over q of S(FP_p, FP'_q) / (|P - Q| + 1) ^ d                        (F.2.4)
    NTAM          = S(G, O) / S(G, G)

Where the appendix is silent we fix: a walk goes from truth to prediction over edges in both directions and pays for the
node that it enters; an unknown or unreachable entity is infinitely far, which earns nothing and is still counted; the
score is clamped to [0, 1], since a hub near all entities of a chain can earn more than the chain itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opsassay.core.schema.base import Noun
from opsassay.scoring.topology import Topology, chains, levels

MAX_CHAINS = 200
"""Chains of an answer or a truth that are looked at, first by name; a cascade of many branches has more."""


class Parameters(Noun):
    """Table 33, by its symbols."""

    alpha: float = 1.0
    beta: float = 1.0
    gamma: float = 1.0
    delta: float = 0.289
    c: float = 0.5
    d: float = 0.5
    zeta: float = 2.1


TABLE_33 = Parameters()
"""The chosen values."""


@dataclass(frozen=True)
class Chain:
    """A propagation chain, its root causes among its entities, and the level of each entity (highest at the root)."""

    entities: tuple[str, ...]
    roots: tuple[str, ...]
    level: Mapping[str, int]

    def importance(self, entity: str, gamma: float) -> float:
        """Return GI(g) = ((K + 1) / (K - k + 1)) ^ gamma for *entity* g at level k, K being the highest."""
        highest = max(self.level[name] for name in self.entities)
        return float(((highest + 1) / (highest - self.level[entity] + 1)) ** gamma)


def chains_of(edges: Sequence[tuple[str, str]], roots: Sequence[str], topology: Topology) -> tuple[Chain, ...]:
    """Return a cascade (cause, effect) with its root causes as chains, names as *topology* has them."""
    joined = [(topology.canonical_entity(a), topology.canonical_entity(b)) for a, b in edges]
    causes = topology.all_of(roots)
    level = levels(joined, causes)
    return tuple(
        Chain(entities, tuple(name for name in entities if name in causes), level)
        for entities in chains(joined, causes, MAX_CHAINS)
    )


@dataclass(frozen=True)
class Ntam:
    """The match of an answer with a truth in one topology; both as chains.

    Chains of the truth are at least one, with a root cause: its own score, S(G, G), is what is divided by.
    """

    topology: Topology
    parameters: Parameters = TABLE_33

    def propagation(self, truth: Sequence[Chain], answer: Sequence[Chain]) -> float:
        """Return FPC (NTAM) in [0, 1]: S(G, O) / S(G, G) over the chains as wholes (Appendix F.2), clamped."""
        return self._divide_and_clamp(self._total(truth, answer, whole=True), self._total(truth, truth, whole=True))

    def localisation(self, truth: Sequence[Chain], answer: Sequence[Chain]) -> float:
        """Return FL (NTAM) in [0, 1]: the same over the root causes alone (Appendix F.3), clamped."""
        return self._divide_and_clamp(self.localisation_unclamped(truth, answer), 1.0)

    def localisation_unclamped(self, truth: Sequence[Chain], answer: Sequence[Chain]) -> float:
        """Return FL (NTAM) as printed, which can exceed 1."""
        return self._total(truth, answer, whole=False) / self._total(truth, truth, whole=False)

    def _divide_and_clamp(self, score: float, ideal: float) -> float:
        return min(1.0, max(0.0, score / ideal))

    def _total(self, truth: Sequence[Chain], answer: Sequence[Chain], *, whole: bool) -> float:
        """Return S(G, O), or its like over root causes: each true chain against the best claimed one."""
        if not answer:
            return 0.0
        mismatch = math.pow(abs(len(truth) - len(answer)) + 1, self.parameters.d)
        return (
            math.fsum(max(self._match(true, claimed, whole=whole) for claimed in answer) for true in truth) / mismatch
        )

    def _match(self, true: Chain, claimed: Chain, *, whole: bool) -> float:
        """Return S(FP_p, FP'_q) (Equation 7), or S(R_p, R'_q), whose second factor uses the whole FP_p as printed."""
        p = self.parameters
        correct, said = (true.entities, claimed.entities) if whole else (true.roots, claimed.roots)
        if not correct or not said:
            return 0.0
        near = [math.pow(max(self._near(true, g, o) for o in said), p.alpha) for g in correct]
        central = max(math.fsum(self._near(true, g, o) for g in true.entities) for o in said) / len(true.entities)
        mismatch = math.pow(abs(len(said) - len(correct)) + 1, p.c)
        return math.fsum(near) * math.pow(central, p.beta) / mismatch

    def _near(self, true: Chain, entity: str, said: str) -> float:
        """Return the importance-weighted inverse topology distance, 0 where no path leads."""
        distance = 0.0 if entity == said else self.topology.distance(entity, said, self.parameters.zeta)
        if math.isinf(distance):
            return 0.0
        weight = true.importance(entity, self.parameters.gamma)
        return float(weight * (1 / (distance + 1)) ** self.parameters.delta)
