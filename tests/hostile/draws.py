"""How often a property is drawn: a few hundred times in `make test`, 10,000 in `make hostile`; which attempts are a sample."""

import os
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, settings

drawn = settings(
    max_examples=int(os.environ.get("HOSTILE_DRAWS", "200")), deadline=None, suppress_health_check=list(HealthCheck)
)

LOWEST_PID = 300
"""Processes in a seal have smaller numbers."""


def sampled(names: Iterable[str], every: int = 4) -> list[object]:
    """Return *names* as parameters of which one in *every* runs in `make test`, and all of them in `make hostile`."""
    return [pytest.param(name, marks=[pytest.mark.slow] if number % every else []) for number, name in enumerate(names)]
