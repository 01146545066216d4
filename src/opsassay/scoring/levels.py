"""Claims below the level of services: a pod, a container, a function or a span (OpenRCA 2.0, Table 4)."""

from __future__ import annotations

from collections.abc import Sequence

from opsassay.core.schema.causal_graph import Annotation
from opsassay.core.schema.diagnosis import RootCauseClaim
from opsassay.core.schema.incident import RootLabel, Truth
from opsassay.scoring import metrics
from opsassay.scoring.metrics import Metrics, scored
from opsassay.scoring.profiles import Profile


def level_metrics(
    claims: Sequence[RootCauseClaim], truth: Truth, annotation: Annotation | None, profile: Profile
) -> Metrics:
    """Return component_match: of the claims that go below the service, the share that is right at the level it gives.

    Right is one whose component is a true one of that level at a root that its service names too. The truth's own labels
    count, and those of the *annotation*. Not applicable to claims at a level that no label has, and to answers that stay
    at the service; the level of services is always graded, by the other metrics.
    """
    finer = [claim for claim in claims if claim.level != "service"]
    if not finer or truth.broken is False:
        reason = "nothing was broken" if truth.broken is False else "no claim goes below the service"
        return metrics.not_applicable(metrics.LEVEL, reason)
    labels = (*truth.roots, *(annotation.roots if annotation else ()))
    known = [claim for claim in finer if any(_true_components(label, claim) for label in labels)]
    if not known:
        return metrics.not_applicable(metrics.LEVEL, f"the truth names no {finer[0].level}")
    right = [claim for claim in known if any(_is_right(claim, label, profile) for label in labels)]
    return {metrics.LEVEL[0]: scored(len(right) / len(known))}


def _true_components(label: RootLabel, claim: RootCauseClaim) -> tuple[str, ...]:
    """Return the true components of *label* at the level of *claim*."""
    names: tuple[str, ...] = getattr(label, claim.level)
    return names


def _is_right(claim: RootCauseClaim, label: RootLabel, profile: Profile) -> bool:
    services = {profile.service(name) for name in label.service}
    component = (claim.component or "").strip().casefold()
    return profile.service(claim.service) in services and component in {
        n.casefold() for n in _true_components(label, claim)
    }
