"""Texts of a benchmark: its state, the states of a task and of its agent, and why a task failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BENCHMARK_WORDS = {
    "NotRegistered": "Being registered", "NotStarted": "Asked for", "Queued": "Waiting", "Running": "Running",
    "PendingResultUpload": "Writing its results", "Finished": "Finished", "Error": "Ended by an error",
}  # fmt: skip
BUNDLE_WORDS = {
    "NotStarted": "waits", "Provisioning": "its system starts", "Provisioned": "its system runs",
    "FaultInjecting": "is being broken", "FaultInjected": "is broken", "Ready": "given to the agent",
    "Evaluating": "is being judged", "Evaluated": "is judged", "Terminating": "is being cleared away",
    "Terminated": "has ended", "Error": "has no result",
}  # fmt: skip
AGENT_WORDS = {
    "NotStarted": "not asked yet", "Initializing": "is started", "Ready": "is asked", "Executing": "works",
    "Finished": "has answered", "Error": "failed", "TimedOut": "took too long", "Terminating": "is being ended",
    "Terminated": "has ended",
}  # fmt: skip


def why_not(cell: Mapping[str, Any]) -> str:
    """Return why *cell* has not passed: its error, else the first reason of its metrics; '' without one."""
    if cell["passed"]:
        return ""
    reasons = [one["reason"] for one in (cell["metrics"] or {}).values() if one["status"] != "not_applicable"]
    return next(filter(None, [cell["error"], *reasons]), "")
