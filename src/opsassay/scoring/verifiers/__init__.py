"""Verifiers over the whole run: pure predicates of (timeline, scenario, actions), and the certificate they make."""

from __future__ import annotations

from opsassay.scoring.verifiers.certify import TrajectoryVerdict, certify, judge_run
from opsassay.scoring.verifiers.committed import evidence_of
from opsassay.scoring.verifiers.evidence import RunEvidence, RunRecording, gather
from opsassay.scoring.verifiers.judgement import Judged, Judgement
from opsassay.scoring.verifiers.validity import Validity, validity

__all__ = [
    "Judged",
    "Judgement",
    "RunEvidence",
    "RunRecording",
    "TrajectoryVerdict",
    "Validity",
    "certify",
    "evidence_of",
    "gather",
    "judge_run",
    "validity",
]
