"""Verifiers over the whole run: pure predicates of (timeline, scenario, actions), and the certificate they make."""

from __future__ import annotations

from opsassay.grading.verifiers.certify import TrajectoryVerdict, certify, judge
from opsassay.grading.verifiers.committed import evidence_of
from opsassay.grading.verifiers.evidence import RunEvidence, RunRecording, gather
from opsassay.grading.verifiers.judgement import Judged, Judgement

__all__ = [
    "Judged",
    "Judgement",
    "RunEvidence",
    "RunRecording",
    "TrajectoryVerdict",
    "certify",
    "evidence_of",
    "gather",
    "judge",
]
