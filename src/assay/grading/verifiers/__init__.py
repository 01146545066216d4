"""Verifiers over the whole run: pure predicates of (timeline, scenario, actions), and the certificate they make."""

from __future__ import annotations

from assay.grading.verifiers.certify import TrajectoryVerdict, certify, judge
from assay.grading.verifiers.evidence import Evidence, Recording, gather
from assay.grading.verifiers.judgement import Judged, Judgement

__all__ = ["Evidence", "Judged", "Judgement", "Recording", "TrajectoryVerdict", "certify", "gather", "judge"]
