"""Verifiers over the whole run: pure predicates of (timeline, scenario, actions), and the certificate they make."""

from __future__ import annotations

from opsassay.grading.verifiers.certify import TrajectoryVerdict, certify, judge
from opsassay.grading.verifiers.evidence import Evidence, Recording, gather
from opsassay.grading.verifiers.judgement import Judged, Judgement

__all__ = ["Evidence", "Judged", "Judgement", "Recording", "TrajectoryVerdict", "certify", "gather", "judge"]
