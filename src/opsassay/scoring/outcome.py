"""Outcome: the claimed root causes against the true ones (OpenRCA 2.0, G.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opsassay.core.schema.diagnosis import RankedService, RootCauseClaim
from opsassay.core.schema.faults import NETWORK_KINDS, FaultKind
from opsassay.core.schema.incident import Truth
from opsassay.scoring import metrics
from opsassay.scoring.metrics import Metrics, scored
from opsassay.scoring.profiles import Profile


@dataclass(frozen=True)
class TrueRoot:
    """A true root cause: the *services* that name it correctly (normal forms), and its kind if the truth knows it."""

    services: frozenset[str]
    kind: FaultKind | None


@dataclass(frozen=True)
class Match:
    """A claim paired with a true root by their index; *full* when service and kind are right, else the service only."""

    claim: int
    root: int
    full: bool


def true_roots(truth: Truth, profile: Profile) -> tuple[TrueRoot, ...]:
    """Return the true root causes in the form in which claims are compared with them; () when nothing was broken.

    They are the faults. A network fault may be named at either end of its link, since its effect shows on both (G.1),
    and a fault on a host at any service that runs there. A truth without fault types, as in public data, has its root
    labels, of unknown kind.
    """
    if affected := truth.affected():
        return tuple(
            TrueRoot(
                frozenset(
                    profile.service(name)
                    for name in (*services, fault.peer if fault.kind in NETWORK_KINDS else None)
                    if name
                ),
                fault.kind,
            )
            for fault, services, _ in affected
        )
    return tuple(TrueRoot(frozenset(map(profile.service, names)), None) for names in truth.root_services())


def match(claims: Sequence[RootCauseClaim], roots: Sequence[TrueRoot], profile: Profile) -> tuple[Match, ...]:
    """Pair claims with root causes one to one: the most full hits first, then the most service hits.

    A maximum-weight assignment, so the counts do not depend on the order of either side. The public scorer takes pairs
    greedily instead, full hits first and each in the order of claims, then roots: ``compat``.
    """
    if not claims or not roots:
        return ()
    service_hit = np.array([[profile.service(c.service) in r.services for r in roots] for c in claims])
    kind_hit = np.array([[profile.same_kind(c.fault_kind, r.kind) for r in roots] for c in claims])
    full_hit = service_hit & kind_hit
    if profile.public_graph_rules:
        return _match_greedily(service_hit, full_hit)
    # One full hit outweighs every service hit that it could displace.
    weight = service_hit.astype(float) + full_hit * float(len(claims) + len(roots))
    rows, columns = _assign_maximum(weight)
    return tuple(
        Match(int(i), int(j), bool(full_hit[i, j])) for i, j in zip(rows, columns, strict=True) if service_hit[i, j]
    )


def _assign_maximum(weight: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the row and column indices of the one-to-one assignment with the greatest total *weight*."""
    from scipy.optimize import linear_sum_assignment  # half of what a command that grades imports, and seldom needed

    rows, columns = linear_sum_assignment(weight, maximize=True)
    return rows, columns


def _match_greedily(service_hit: NDArray[np.bool_], full_hit: NDArray[np.bool_]) -> tuple[Match, ...]:
    """Pair claims (rows of both masks) and root causes (columns), each once: full hits first, then in claims' order."""
    found: list[Match] = []
    for hits, full in ((full_hit, True), (service_hit & ~full_hit, False)):
        for i, j in np.argwhere(hits).tolist():
            if not any(i == m.claim or j == m.root for m in found):
                found.append(Match(i, j, full))
    return tuple(found)


def outcome_metrics(claims: Sequence[RootCauseClaim], truth: Truth, profile: Profile, *, unnamed: str = "") -> Metrics:
    """Return exact_match, precision, recall, f1, any_service and fault_kind_accuracy, each in [0, 1].

    With h full hits (service and kind, from `match`) among c claims and r true roots: precision = h / c, recall = h / r,
    F1 = 2 P R / (P + R), exact_match = 1[h = c = r]; any_service = 1[one of the first claimed services is a root] (OpenRCA
    2.0, G.1, Equations 4 to 6, bounded by `counted_claims`). *unnamed*: why the solver cannot name what was broken.

    Claims and faults are multisets: naming a pair twice is one hit and one miss, unless two such faults were injected.

    - An answer without claims has precision, recall and F1 0 where something was broken.
    - Where nothing was broken, exact_match, precision and f1 are 1 for the empty answer and 0 for any other; recall,
      any_service and fault_kind_accuracy have nothing to count and are not applicable, whatever the answer.
    - fault_kind_accuracy is the share of full hits among matched services; without one it is not applicable.
    - *unnamed* is of a solver that is declared to name services only, or not this kind: metrics of pairs are not
      applicable to its answer, and any_service is scored. A solver that does not declare it and leaves a kind out has
      missed that pair; otherwise it could choose case by case whether to be graded.
    - A truth of unknown kind leaves only any_service to score.
    """
    if truth.broken is False:
        nothing = metrics.not_applicable(("recall", "any_service", "fault_kind_accuracy"), "nothing was broken")
        right = scored(not claims)
        return {"exact_match": right, "precision": right, "f1": right, **nothing}
    roots = true_roots(truth, profile)
    if not roots:
        return metrics.not_applicable(metrics.OUTCOME, "the truth names neither a fault nor a root cause")
    any_service = {"any_service": scored(any_service_hit(claims, roots, profile))}
    pairs = tuple(name for name in metrics.OUTCOME if name != "any_service")
    if unnamed:
        return any_service | metrics.not_applicable(pairs, unnamed)
    if any(root.kind is None for root in roots):
        return any_service | metrics.not_applicable(pairs, "the truth names no fault kind")
    matches = match(claims, roots, profile)
    hits = sum(m.full for m in matches)
    precision, recall = hits / len(claims) if claims else 0.0, hits / len(roots)
    kinds = (
        {"fault_kind_accuracy": scored(hits / len(matches))}
        if matches
        else metrics.not_applicable(("fault_kind_accuracy",), "no claimed service is a root cause")
    )
    return {
        "exact_match": scored(hits == len(claims) == len(roots)),
        "precision": scored(precision),
        "recall": scored(recall),
        "f1": scored(metrics.harmonic_mean(precision, recall)),
        **any_service,
        **kinds,
    }


def entity_metrics(claims: Sequence[RootCauseClaim], truth: Truth, profile: Profile) -> Metrics:
    """Return precision_at_full_recall, in [0, 1]: precision of claimed services if no true root is missing, else 0.

    With r true roots, all of them named, and c distinct claimed services, the score is r / c. Fault kinds are ignored,
    two faults on one service are one root, and of the two ends of a network fault one is enough and the other is one
    too many. Its mean over cases is the score of ITBench-AA ("average precision at full recall": Artificial Analysis
    and IBM, launch article of 28 May 2026), which has Kubernetes entities in place of services.
    """
    if truth.broken is False:
        return metrics.not_applicable(metrics.ENTITIES, "nothing was broken")
    roots = sorted({root.services for root in true_roots(truth, profile)}, key=sorted)
    if not roots:
        return metrics.not_applicable(metrics.ENTITIES, "the truth names neither a fault nor a root cause")
    named = sorted({profile.service(claim.service) for claim in claims})
    if not named:
        return {"precision_at_full_recall": scored(0.0)}
    hits = np.array([[service in root for service in named] for root in roots])
    rows, columns = _assign_maximum(hits)
    found_all = int(hits[rows, columns].sum()) == len(roots)
    return {"precision_at_full_recall": scored(len(roots) / len(named) if found_all else 0.0)}


def ranking_metrics(ranking: Sequence[RankedService], truth: Truth, profile: Profile) -> Metrics:
    """Return acc_at_1 and acc_at_3 (0 or 1): whether a true root is among the first k of the ranking, claimed or not.

    This is the acc@k of leaderboards of methods; not applicable where nothing was broken, which a ranking cannot say.
    """
    if truth.broken is False:
        return metrics.not_applicable(metrics.RANKING, "nothing was broken")
    roots = true_roots(truth, profile)
    if not ranking or not roots:
        return metrics.not_applicable(
            metrics.RANKING, "the answer ranks nothing" if roots else "the truth names no root"
        )
    right = frozenset[str]().union(*(root.services for root in roots))
    hits = [profile.service(row.service) in right for row in ranking[:3]]
    return {"acc_at_1": scored(hits[0]), "acc_at_3": scored(any(hits))}


def any_service_hit(claims: Sequence[RootCauseClaim], roots: Sequence[TrueRoot], profile: Profile) -> bool:
    """Return whether one of the `counted_claims` names the service of a root cause (Equation 4)."""
    counted = counted_claims(claims, roots, profile)
    return any(profile.service(claim.service) in root.services for claim in counted for root in roots)


def counted_claims(
    claims: Sequence[RootCauseClaim], roots: Sequence[TrueRoot], profile: Profile
) -> tuple[RootCauseClaim, ...]:
    """Return the claims for the first k services: k is the limit of *profile*, or the number of roots if that is more."""
    if profile.most_services is None:
        return tuple(claims)
    services = dict.fromkeys(profile.service(claim.service) for claim in claims)
    first = set(list(services)[: max(profile.most_services, len(roots))])
    return tuple(claim for claim in claims if profile.service(claim.service) in first)


def correct_services(
    claims: Sequence[RootCauseClaim], roots: Sequence[TrueRoot], profile: Profile, *, full: bool
) -> frozenset[str]:
    """Return the claimed services, in normal form, that are root causes; *full*: with the right fault kind too."""
    if full and profile.public_graph_rules:
        return frozenset(profile.service(claims[m.claim].service) for m in match(claims, roots, profile) if m.full)
    return frozenset(
        profile.service(claim.service)
        for claim in counted_claims(claims, roots, profile)
        for root in roots
        if profile.service(claim.service) in root.services
        and (not full or profile.same_kind(claim.fault_kind, root.kind))
    )
