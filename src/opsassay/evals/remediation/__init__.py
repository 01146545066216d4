"""Trials: agents on remediation scenarios, run from a plan and judged by the whole trajectory."""
