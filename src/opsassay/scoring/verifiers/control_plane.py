"""What a scenario may commit of a cluster's control plane beside D4: its word, how soon that comes, who leads."""

from __future__ import annotations

import numpy as np

from opsassay.core.schema.scenario import ControlPlane
from opsassay.scoring.verifiers.evidence import RunEvidence
from opsassay.scoring.verifiers.judgement import Judged, Judgement, missing

NAME = "v_control_plane"
LEADERS = ("kube-scheduler", "kube-controller-manager")
"""Whose leases show that somebody leads."""


def v_control_plane(evidence: RunEvidence, committed: ControlPlane) -> Judgement:
    """Judge the readings after the agent's last change: all of them, and the median time of an answer."""
    last = [one for one in evidence.recording.control_plane if one.time_ns >= evidence.final_from]
    if not last:
        return missing(NAME, "no reading of the control plane after the agent's end and its last change")
    at = {"tick": evidence.tick_at(last[-1].time_ns), "time_ns": last[-1].time_ns}
    if committed.ready and (ill := next((one for one in last if not one.ready), None)) is not None:
        at = {"tick": evidence.tick_at(ill.time_ns), "time_ns": ill.time_ns}
        reason = f"/readyz does not say that it is ready: {', '.join(ill.failing)}"
        return Judgement(predicate=NAME, status=Judged.FAILED, reason=reason, **at)
    ages = [age for one in last for lease in LEADERS if (age := one.lease_ages_s.get(lease)) is not None]
    if committed.lease_age_s is not None and not ages:
        return missing(NAME, f"no lease of {' or '.join(LEADERS)} was read")
    measured = (
        ("/readyz is answered in", float(np.median([one.latency_s for one in last])), committed.api_latency_s),
        ("the oldest lease was renewed before", max(ages, default=0.0), committed.lease_age_s),
    )
    bounds = [(words, value, limit) for words, value, limit in measured if limit is not None]
    for words, value, limit in bounds:
        if value > limit:
            reason = f"{words} {value:.2f} s, more than {limit:g} s"
            return Judgement(predicate=NAME, status=Judged.FAILED, reason=reason, value=value, limit=limit, **at)
    reason = "; ".join(f"{words} {value:.2f} s" for words, value, _ in bounds) or f"ready in {len(last)} readings"
    return Judgement(predicate=NAME, status=Judged.PASSED, reason=reason, **at)
