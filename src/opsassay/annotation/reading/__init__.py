"""Telemetry as calls: spans of both windows, who called whom, and who waited for whom."""
