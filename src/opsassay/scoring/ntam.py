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
"""Most chains of an answer or a truth that are compared, first by name."""


class Parameters(Noun):
    """The parameters of Table 33, by their symbols."""

    alpha: float = 1.0
    beta: float = 1.0
    gamma: float = 1.0
    delta: float = 0.289
    c: float = 0.5
    d: float = 0.5
    zeta: float = 2.1


TABLE_33 = Parameters()
"""The values that ITBench chose."""


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
    """Return the cascade *edges* (cause, effect) as chains that start at *roots*, by canonical names of *topology*."""
    joined = [(topology.canonical_entity(a), topology.canonical_entity(b)) for a, b in edges]
    causes = topology.all_of(roots)
    level = levels(joined, causes)
    return tuple(
        Chain(entities, tuple(name for name in entities if name in causes), level)
        for entities in chains(joined, causes, MAX_CHAINS)
    )


@dataclass(frozen=True)
class Ntam:
    """The match of an answer with a truth, both as chains, in one topology.

    The truth has at least one chain with a root cause: scores are divided by the truth's own score, S(G, G).
    """

    topology: Topology
    parameters: Parameters = TABLE_33

    def propagation(self, truth: Sequence[Chain], answer: Sequence[Chain]) -> float:
        """Return FPC (NTAM) of *answer*, in [0, 1]: S(G, O) / S(G, G) over complete chains (Appendix F.2), clamped."""
        return self._divide_and_clamp(
            self._total_score(truth, answer, whole=True), self._total_score(truth, truth, whole=True)
        )

    def localisation(self, truth: Sequence[Chain], answer: Sequence[Chain]) -> float:
        """Return FL (NTAM) of *answer*, in [0, 1]: S(G, O) / S(G, G) over root causes (Appendix F.3), clamped."""
        return self._divide_and_clamp(self.localisation_unclamped(truth, answer), 1.0)

    def localisation_unclamped(self, truth: Sequence[Chain], answer: Sequence[Chain]) -> float:
        """Return FL (NTAM) of *answer* as the paper prints it, not clamped: it can exceed 1."""
        return self._total_score(truth, answer, whole=False) / self._total_score(truth, truth, whole=False)

    def _divide_and_clamp(self, score: float, ideal: float) -> float:
        """Return *score* / *ideal*, clamped to [0, 1]."""
        return min(1.0, max(0.0, score / ideal))

    def _total_score(self, truth: Sequence[Chain], answer: Sequence[Chain], *, whole: bool) -> float:
        """Return S(G, O): the sum of each true chain's best match, over *whole* chains or else root causes only."""
        if not answer:
            return 0.0
        mismatch = math.pow(abs(len(truth) - len(answer)) + 1, self.parameters.d)
        return (
            math.fsum(max(self._match_chains(true, claimed, whole=whole) for claimed in answer) for true in truth)
            / mismatch
        )

    def _match_chains(self, true_chain: Chain, claimed_chain: Chain, *, whole: bool) -> float:
        """Return the match of two chains: S(FP_p, FP'_q) (Equation 7) if *whole*, else of the roots, S(R_p, R'_q)."""
        p = self.parameters
        correct, said = (
            (true_chain.entities, claimed_chain.entities) if whole else (true_chain.roots, claimed_chain.roots)
        )
        if not correct or not said:
            return 0.0
        near = [math.pow(max(self._entity_similarity(true_chain, g, o) for o in said), p.alpha) for g in correct]
        central = max(
            math.fsum(self._entity_similarity(true_chain, g, o) for g in true_chain.entities) for o in said
        ) / len(true_chain.entities)
        mismatch = math.pow(abs(len(said) - len(correct)) + 1, p.c)
        return math.fsum(near) * math.pow(central, p.beta) / mismatch

    def _entity_similarity(self, true_chain: Chain, entity: str, claimed: str) -> float:
        """Return the inverse topology distance of *entity* to *claimed*, weighted by importance; 0 if unconnected."""
        distance = 0.0 if entity == claimed else self.topology.distance(entity, claimed, self.parameters.zeta)
        if math.isinf(distance):
            return 0.0
        weight = true_chain.importance(entity, self.parameters.gamma)
        return float(weight * (1 / (distance + 1)) ** self.parameters.delta)
