"""The tools of agents that operate a running system: an operator's verbs, and queries of the system's telemetry."""
