"""The names of the files in a run folder: what a run, its agent and whoever watched it left there."""

from __future__ import annotations

TIMELINE = "timeline.jsonl"
"""What the observer saw of the system, tick by tick."""
PHASES = "phases.jsonl"
"""When the run reached which phase."""
ACTIONS = "actions.jsonl"
"""Every tool call that reached the system."""
ALERTS = "alerts.jsonl"
"""Every evaluation of the alert rules."""
TRACE = "trace.jsonl"
"""The agent's own steps."""
DIAGNOSES = "diagnoses.jsonl"
"""What an operator said is the cause, as it said so."""
