"""Anomaly tasks: what was planted into cost data is to be found, and ranked."""
