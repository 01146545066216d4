"""What an operator of a trial is handed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsassay.core.schema.scenario import Scenario
from opsassay.testbed.operations.alert_watch import AlertWatch
from opsassay.testbed.operations.stage import as_it_is


@dataclass(frozen=True)
class Assignment:
    """What an operator is given, for how long it may work, and where it writes."""

    scenario: Scenario
    prompt: str
    timeout_s: float
    seed: int
    run_dir: Path
    fill: Callable[[Any], Any] = as_it_is
    """Puts the names that the scenario leaves open in their places, in texts and what holds texts."""
    kubeconfig: Path | None = None
    """On a cluster: the agent's own way in, limited to what its scenario grants."""
    watch: AlertWatch | None = None
    """What knows which alerts fire."""
