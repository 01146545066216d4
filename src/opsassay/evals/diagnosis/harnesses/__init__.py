"""Incidents in other harnesses, Harbor and inspect_ai, and the answers that come back from there."""
