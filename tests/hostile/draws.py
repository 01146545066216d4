"""How often a property is drawn: a few hundred times in `make test`, 10,000 in `make hostile`."""

import os

from hypothesis import HealthCheck, settings

drawn = settings(
    max_examples=int(os.environ.get("HOSTILE_DRAWS", "200")), deadline=None, suppress_health_check=list(HealthCheck)
)

LOWEST_PID = 300
"""Processes in a seal have smaller numbers."""
