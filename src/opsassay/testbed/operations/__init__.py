"""What agents that operate a running system are given: an operator's verbs, and what the system's telemetry tells."""
